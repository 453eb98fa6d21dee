"""Advice from a stored buffer: rules only, without new runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from replaybench.evidence.advice import proposal
from replaybench.evidence.advice.rules import Traits, candidates, decay_of, traits_of
from replaybench.exchange.recorded_buffer import Recording, curves, read_recording
from replaybench.runtime.errors import UserError

_START = 20
"""Learning begins in the first of this number of parts of a recording."""


def advise_on_buffer(path: Path, plant: str | None, memory: int, noise: float | None) -> proposal.Advice:
    """Advise by a buffer file.

    Args:
        plant: in place of the one that the file names; one in a Python file is loaded only if it is named here.
        memory: most experiences that may be kept; no limit if 0.
        noise: standard deviation of sensor and actuator noise, normalised; that of the file if None.
    """
    recording = read_recording(path, plant)
    batch = (recording.facts.batch_size or 1) * recording.facts.unit.steps
    if memory and memory < batch:
        raise UserError(f"--memory {memory} is smaller than a batch of {batch}; ask for {batch} or more")
    rewards, steps = curves(recording)
    capacity = None  # for fewer than 20 episodes, or where they do not significantly improve
    if rewards.shape[1] >= proposal.LEAST_EPISODES and proposal.improves(rewards):
        start = float(rewards[:, : rewards.shape[1] // _START].mean())
        capacity = proposal.ninety_percent(rewards, steps.astype(np.float64), start)
    asked = None if capacity is None else proposal.rounded(capacity.steps)
    level, decay = recording.noise if noise is None else noise, _decay(recording)
    try:
        traits = traits_of(recording.plant, recording.frequency, level, decay, memory, asked)
    except UserError:  # a dataset's rate may be none that the plant can have
        traits = traits_of(None, recording.frequency, level, decay, memory, asked)
    collected = int(recording.arrays["collected"][recording.members].max())
    room = max(batch, min(size for size in (asked, memory, collected) if size))
    ranked = [
        proposal.Probe(each, each.strategy(room), None if each.retention == "FULL" else room, np.empty(0), None, 1.0)
        for each in candidates(traits)
        if (not memory or memory >= collected if each.retention == "FULL" else room < collected)
    ]
    return proposal.Advice(
        plant=recording.plant.name,
        frequency=recording.frequency,
        noise=recording.facts.noise if noise is None else noise,
        learner=recording.facts.cell.learner if recording.facts.cell else "a recording",
        episodes=rewards.shape[1],
        seeds=len(recording.members),
        unit="",
        traits=traits,
        capacity=capacity,
        probes=(),
        ranked=ranked,
        chosen=ranked[0],
        changes=[*proposal.edges_of(traits, ranked[0].candidate), *proposal.capacity_change(capacity)],
        cautions=[
            f"nothing was tried; `replaybench advise --plant {plant or recording.facts.plant}` tries them",
            *_cautions(recording, noise, rewards.shape[1], collected, room, asked, traits),
        ],
    )


def _decay(recording: Recording) -> float | None:
    """Return first over last amplitude of exploration: by its learner's settings, or of its first and last tenth."""
    arrays = recording.arrays
    if recording.facts.cell is not None and "episode" in arrays:
        return decay_of(recording.facts.cell.settings, int(arrays["episode"].max()) + 1)
    if "exploration" not in arrays:
        return None
    ends = []
    for m, order in zip(recording.members, recording.orders, strict=True):
        values, tenth = arrays["exploration"][m, order, 0].astype(np.float64), max(1, len(order) // 10)
        ends.append((values[:tenth].mean(), values[-tenth:].mean()))
    first, last = np.mean(ends, axis=0).tolist()
    return 1.0 if first == last else float("inf") if last == 0 else first / last


def _cautions(
    recording: Recording, noise: float | None, episodes: int, collected: int, room: int, asked: int | None,
    traits: Traits,
) -> Iterator[str]:  # fmt: skip
    """Yield sentences about what the file, its curve and its plant do not show."""
    if recording.changed:
        yield f"{recording.plant.name} has changed since this buffer was filled"
    if recording.failed:
        yield f"{recording.failed} recording(s) hold NaN or infinity and are left out"
    if noise is None and recording.facts.noise is None:
        yield "the plant's noise is not known, and taken as 0; state it with --noise"
    if asked is None:
        turns = zip(recording.members, recording.orders, strict=True)
        if "episode" not in recording.arrays:
            why = "the file does not say where episodes begin"
        elif any(len(order) < recording.arrays["collected"][m] for m, order in turns):
            why = "not all that was collected is stored, so that there is no learning curve"
        elif episodes < proposal.LEAST_EPISODES:
            why = f"{episodes} whole episodes are too few"
        else:
            why = "its episodes do not significantly improve"
        yield f"the 90 % rule gives no capacity: {why}"
    if room >= collected:
        why = "gives no capacity" if asked is None else f"asks for {asked}"
        kept = f"bounded retentions are left out: the 90 % rule {why}, and all {collected} experiences are kept"
        yield f"{kept}; with --memory below {collected} they are ranked, too"
    if traits.authority is None:
        yield "how far single actions move the plant was not measured: it cannot have the recording's rate"
    elif traits.symmetry is None:
        yield "whether the plant is its own mirror image is not known: it has no equations"
    if traits.decay is None:
        yield "which part of its actions was exploration is not known"
