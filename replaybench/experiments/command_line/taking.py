"""Commands that take things along: their signatures are their options, and heavy libraries are imported inside."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional


def examples(folder: Positional[Path] = Path("examples")) -> int:
    """Copy the examples that come with replaybench: plants, a strategy, a learner, a rig's log, scripts.

    Args:
        folder: New folder to copy them into.
    """
    from replaybench.experiments.training.bundled import copy_examples

    for path in copy_examples(folder):
        print(path)
    return 0
