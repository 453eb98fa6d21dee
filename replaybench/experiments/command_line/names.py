"""Commands for those who extend replaybench: list, check, examples. Signatures are options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional


def list_names(what: Positional[Literal["all", "plants", "strategies", "learners"]] = "all") -> int:
    """List the plants, strategies and learners that studies can name.

    Args:
        what: Which of them.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.inspection.inspect import show_names

    show_names(make_console(), what)
    return 0


def check(name: Positional[str]) -> int:
    """Check a plant, strategy or learner; a line for each promise, exit status 1 if one is broken.

    Args:
        name: path/to/file.py:ClassName; or a name that `replaybench list` shows, or a whole strategy.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.contracts.command import show_check

    return show_check(make_console(), name)


def examples(folder: Positional[Path] = Path("examples")) -> int:
    """Copy the examples that come with replaybench: plants, a strategy, a learner, a test rig's log, scripts.

    Args:
        folder: New folder to copy them into.
    """
    from replaybench.experiments.training.bundled import copy_examples

    for path in copy_examples(folder):
        print(path)
    return 0
