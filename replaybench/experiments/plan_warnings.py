"""What a study would do in vain: runs that end before anything is learned or used, noise that drowns every signal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from replaybench.controllers.registry import load_learner
from replaybench.data.cache import why_not_kept
from replaybench.data.configuration import build
from replaybench.experiments.training.schedule import updates_after
from replaybench.experiments.training.study import Cell
from replaybench.replay.strategies.notation import parse

_FADES: Final = (("first_amplitude", "last_amplitude"), ("sigma", "last_sigma"), ("first_random", "last_random"))
"""Settings that say how much is explored at first and at last."""


def plan_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each thing that makes cells of a study pointless; none where all can teach something.

    Args:
        cells: cells of one study.
    """
    points = {cell.kind[:-1]: cell for cell in cells}.values()
    noise = max((cell.noise for cell in cells), default=0.0)
    loud = (
        [f"noise {noise:g}: that is more than half the range of every signal, which drowns in it"] if noise > 1 else []
    )
    uncached = [found] if (found := why_not_kept()) else []
    return [*dict.fromkeys(line for cell in points for line in _in_vain(cell) or _unfaded(cell)), *loud, *uncached]


def _table(cell: Cell, part: str = "") -> str:
    """Return the heading under which a study sets what its learner does, in quotes where TOML needs them."""
    bare = re.fullmatch(r"[\w-]+", cell.learner, re.ASCII)
    return f"[learner.{cell.learner if bare else json.dumps(cell.learner, ensure_ascii=False)}{part}]"


def _in_vain(cell: Cell) -> list[str]:
    """Say why a cell learns nothing, if it does not."""
    learner, config = load_learner(cell.learner)
    settings: Any = build(config, cell.settings, f"settings of {cell.learner}")
    counted = "rounds" if cell.update_every else "episodes"
    warm_up = getattr(settings, "warmup_episodes", 0)
    if warm_up >= cell.episodes:
        return [
            f"{cell.learner} learns nothing: it warms up for {warm_up} {counted}, the run has {cell.episodes}; "
            f"raise episodes, or lower warmup_episodes in {_table(cell)}"
        ]
    strategy = parse(cell.strategy).at(cell.frequency)
    episode = cell.steps_per_episode
    steps = episode * cell.episodes
    stored, batch = int(steps * strategy.entry_share), settings.batch_size * getattr(settings, "segment", 1)
    if stored < batch:
        return [
            f"{cell.learner} has little to learn from: {cell.plant} at {cell.frequency:g} Hz gives {stored} "
            f"experiences in {cell.episodes} {counted}, a batch has {batch}; raise episodes"
        ]
    on_policy = getattr(settings, "on_policy", getattr(learner, "on_policy", False))
    if not on_policy and updates_after(steps, episode, strategy, settings) < 1:
        return [
            f"{cell.learner} learns nothing: {steps} steps are followed by no update; raise episodes, or "
            f"replays_per_experience in {_table(cell)}"
        ]
    return []


def _unfaded(cell: Cell) -> list[str]:
    """Say so where a learner explores nearly as much at the end of its run as at the beginning."""
    noise, part = cell.settings.get("exploration"), ".exploration"
    if not isinstance(noise, Mapping):
        noise, part = cell.settings, ""
    fades = any(noise.get(last) is not None and noise.get(first) != noise[last] for first, last in _FADES)
    over = noise.get("decay_episodes") or 0
    if not fades or over <= 2 * cell.episodes:
        return []
    counted = "rounds" if cell.update_every else "episodes"
    return [
        f"{cell.learner} explores nearly as much at the end as at the beginning: that fades over {over} {counted}, the "
        f"run has {cell.episodes}; set decay_episodes in {_table(cell, part)} to {max(1, cell.episodes // 3)}, a third"
    ]
