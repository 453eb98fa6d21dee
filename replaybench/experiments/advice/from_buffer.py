"""Advice from a stored buffer, of a sweep or of a rig's log: what its learning curve and its plant's traits say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.advice.ninety_percent import Capacity, ninety_percent, rounded
from replaybench.experiments.advice.proposal import Advice, Probe, capacity_change, edges_of
from replaybench.experiments.advice.rules import candidates
from replaybench.experiments.advice.traits import Traits, authority_of, decay_of, symmetry_of
from replaybench.experiments.offline.recording import Recording, read_recording

Floats = NDArray[np.float64]

_ROOM: Final = 10_000
_START: Final = 20
"""The first of so many parts of a recording is where learning began."""
_ENDS: Final = 10
"""The first and the last of so many parts of it say how far exploration decayed."""


def advise_on_buffer(path: Path, plant: str | None, memory: int, noise: float | None) -> Advice:
    """Advise by what a buffer file holds. Nothing is run, so nothing is compared: rules alone decide.

    Args:
        plant: the plant, in place of the one that the file names; one of a user's file is loaded only if named here.
        memory: most experiences that may be kept; no limit if 0.
        noise: standard deviation of sensor and actuator noise, normalised; what the file says if None.

    Raises:
        UserError: the file is damaged, is no buffer, or does not fit its plant.
    """
    recording = read_recording(path, plant)
    rewards, steps = _curves(recording)
    capacity = None
    if rewards.size:
        capacity = ninety_percent(rewards, steps, float(rewards[:, : max(1, rewards.shape[1] // _START)].mean()))
    asked, stored = rounded(capacity.steps) if capacity else _ROOM, max(map(len, recording.orders))
    traits = Traits(
        noise=recording.noise if noise is None else noise,
        authority=authority_of(recording.plant, recording.frequency),
        decay=_decay(recording),
        symmetry=symmetry_of(recording.plant, recording.frequency),
        memory=memory / asked if memory and capacity else float("inf"),
    )
    fitting = [each for each in candidates(traits) if each.retention != "FULL" or not memory or memory >= stored]
    room = min(asked, memory or asked)
    ranked = [
        Probe(each, each.strategy(room), None if each.retention == "FULL" else room, np.empty(0), None, 1.0)
        for each in fitting
    ]
    return Advice(
        plant=recording.plant.name,
        frequency=recording.frequency,
        noise=traits.noise,
        learner=recording.facts.cell.learner if recording.facts.cell else "a recording",
        episodes=rewards.shape[1],
        seeds=len(recording.members),
        unit="",
        traits=traits,
        capacity=capacity,
        probes=(),
        ranked=ranked,
        chosen=ranked[0],
        changes=[*edges_of(traits, ranked[0].candidate), *capacity_change(capacity)],
        cautions=_cautions(recording, rewards, capacity, traits, noise),
    )


def _curves(recording: Recording) -> tuple[Floats, Floats]:
    """Return rewards and lengths of episodes `[recordings, E]`, as many as all have; E = 0 where not all is stored."""
    arrays, found = recording.arrays, []
    for m, order in zip(recording.members, recording.orders, strict=True):
        if len(order) < arrays["collected"][m] or "episode" not in arrays:
            return np.empty((1, 0)), np.empty((1, 0))
        episode = arrays["episode"][m, order].astype(np.int64)
        begins = np.flatnonzero(np.diff(episode, prepend=-1))
        lengths = np.diff(begins, append=len(order)).astype(np.float64)
        sums = np.add.reduceat(arrays["reward"][m, order, 0].astype(np.float64), begins)
        found.append((recording.plant.episode_score(sums, lengths.astype(np.int64)), lengths))
    fewest = min(len(lengths) for _, lengths in found)
    rewards, steps = (np.stack([curve[:fewest] for curve in curves]) for curves in zip(*found, strict=True))
    return rewards, steps


def _decay(recording: Recording) -> float | None:
    """Return how much weaker exploration was at the end: as its learner's settings say, or as it is stored."""
    arrays = recording.arrays
    if recording.facts.cell is not None and "episode" in arrays:
        return decay_of(recording.facts.cell.settings, int(arrays["episode"].max()) + 1)
    if "exploration" not in arrays:
        return None
    turns = zip(recording.members, recording.orders, strict=True)
    parts = [_tenths(arrays["exploration"][m, order, 0].astype(np.float64)) for m, order in turns]
    first, last = (float(np.mean([part[where] for part in parts])) for where in (0, -1))
    return first / last if last > 0 else None


def _tenths(values: Floats) -> Floats:
    """Return the means of the parts of a recording, in order."""
    return np.array([part.mean() for part in np.array_split(values, min(_ENDS, len(values)))])


def _cautions(
    recording: Recording, rewards: Floats, capacity: Capacity | None, traits: Traits, noise: float | None
) -> list[str]:
    """Say what the advice does not rest on."""
    said = [f"nothing was tried: `replaybench advise --plant {recording.plant.name}` compares strategies on the plant"]
    if not rewards.size:
        said.append("not all that was collected is stored, so there is no learning curve for the 90 % rule")
    elif capacity is None:
        said.append("episodes do not get better in it, or are fewer than 20: the 90 % rule says nothing")
    if noise is None and recording.facts.noise is None:
        said.append("how noisy the plant is is not known, and taken as not at all; say so with --noise")
    if traits.decay is None:
        said.append("what was exploration in it is not known")
    if traits.symmetry is None:
        said.append("whether the plant is its own mirror image is not known: it has no equations")
    return said
