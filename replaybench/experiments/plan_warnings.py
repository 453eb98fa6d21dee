"""Warnings about pointless studies: runs too short to learn, buffers that never fill, noise above every signal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from replaybench.controllers.registry import load_learner
from replaybench.data.cache import why_not_kept
from replaybench.data.configuration import build
from replaybench.experiments.training.schedule import updates_after
from replaybench.experiments.training.shared_cells import never_fills, same_runs
from replaybench.experiments.training.study import Cell
from replaybench.replay.strategies.notation import parse

_FADES: Final = (("first_amplitude", "last_amplitude"), ("sigma", "last_sigma"), ("first_random", "last_random"))
"""Settings of exploration at the beginning and at the end of its decay."""


def plan_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each reason why cells of a study are pointless."""
    points = list({cell.kind[:-1]: cell for cell in cells}.values())
    found = [line for cell in points for line in _in_vain(cell) or _unfaded(cell)]
    found += [line for group in same_runs(points, contents_only=True) for line in _never_full(group)]
    found = list(dict.fromkeys(found))
    noise = max((cell.noise for cell in cells), default=0.0)
    if noise > 1:
        found.append(f"noise {noise:g}: that is more than half the range of every signal, which drowns in it")
    if uncached := why_not_kept():
        found.append(uncached)
    return found


def _never_full(group: Sequence[Cell]) -> list[str]:
    """Warn of strategies that are equal because buffers never fill, or of a retention without effect."""
    retentions = {cell.strategy: parse(cell.strategy).retention for cell in group}
    names, first = list(retentions), group[0]
    if len(names) < 2 and (retentions[first.strategy].in_turn or not never_fills(first)):
        return []
    rooms = dict.fromkeys(f"{cell.capacity:,}" for cell in group if retentions[cell.strategy].bounded)
    steps = first.steps_per_episode * first.episodes
    same = f"{names[0]} keeps every experience, as FULL does"
    if len(names) > 1:
        same = f"{', '.join(names[:-1])} and {names[-1]} keep the same experiences"
        same += ": they are the same runs, and computed once" if len(same_runs(group)) == 1 else ""
    return [
        f"buffers never fill: a run has {steps:,} steps, buffers have room for {' and '.join(rooms)}, so {same}; raise "
        f"episodes, or set a capacity below {steps:,}"
    ]


def _table(cell: Cell, part: str = "") -> str:
    """Return the heading of a learner's table in a study, quoted if TOML needs it."""
    bare = re.fullmatch(r"[\w-]+", cell.learner, re.ASCII)
    return f"[learner.{cell.learner if bare else json.dumps(cell.learner, ensure_ascii=False)}{part}]"


def _in_vain(cell: Cell) -> list[str]:
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
