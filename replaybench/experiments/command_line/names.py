"""Commands about what studies can name: which there are, and whether they keep their promises."""

from __future__ import annotations

from typing import Literal

from tyro.conf import Positional


def list_names(what: Positional[Literal["all", "plants", "strategies", "learners"]] = "all") -> int:
    """Show the plants, strategies and learners that studies can name.

    Args:
        what: Which of them.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.inspection.inspect import show_names

    show_names(make_console(), what)
    return 0


def check(name: Positional[str]) -> int:
    """Check what every plant, strategy and learner promises; a line for each promise, exit status 1 if one is broken.

    Args:
        name: path/to/file.py:ClassName; or a name that `replaybench list` shows, or a whole strategy.
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.contracts.command import show_check

    return show_check(make_console(), name)
