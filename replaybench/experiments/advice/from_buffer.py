"""Advice from a stored buffer, of a sweep or of a rig's log, by the rules alone: nothing is run, nothing compared."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from replaybench.data.errors import UserError
from replaybench.experiments.advice.ninety_percent import LEAST_EPISODES, Capacity, rounded
from replaybench.experiments.advice.proposal import Advice, Probe, capacity_change, edges_of
from replaybench.experiments.advice.recorded import capacity_of, decay
from replaybench.experiments.advice.rules import candidates
from replaybench.experiments.advice.traits import Traits, authority_of, symmetry_of
from replaybench.experiments.offline.recording import Recording, curves, read_recording


def advise_on_buffer(path: Path, plant: str | None, memory: int, noise: float | None) -> Advice:
    """Advise by what a buffer file holds.

    Args:
        plant: the plant, in place of the one that the file names; one of a user's file is loaded only if named here.
        memory: most experiences that may be kept; no limit if 0.
        noise: standard deviation of sensor and actuator noise, normalised; what the file says if None.

    Raises:
        UserError: the file is damaged, is no buffer, or does not fit its plant; a batch does not fit into the memory.
    """
    recording = read_recording(path, plant)
    batch = (recording.facts.batch_size or 1) * recording.facts.unit.steps
    if memory and memory < batch:
        raise UserError(f"--memory {memory} is smaller than a batch of {batch}; ask for {batch} or more")
    rewards, steps = curves(recording)
    capacity = capacity_of(rewards, steps)
    asked = None if capacity is None else rounded(capacity.steps)
    authority = symmetry = None
    with contextlib.suppress(UserError):  # a dataset's rate may be none that the plant can have
        authority = authority_of(recording.plant, recording.frequency)
        symmetry = symmetry_of(recording.plant, recording.frequency)
    traits = Traits(
        noise=recording.noise if noise is None else noise,
        authority=authority,
        decay=decay(recording),
        symmetry=symmetry,
        memory=memory / asked if memory and asked is not None else float("inf"),
    )
    collected = int(recording.arrays["collected"][recording.members].max())
    room = max(batch, min(size for size in (asked, memory, collected) if size))
    ranked = [
        Probe(each, each.strategy(room), None if each.retention == "FULL" else room, np.empty(0), None, 1.0)
        for each in candidates(traits)
        if (not memory or memory >= collected if each.retention == "FULL" else room < collected)
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
        cautions=[
            f"nothing was tried; `replaybench advise --plant {plant or recording.facts.plant}` tries them",
            *_about_the_file(recording, noise),
            *_about_the_curve(recording, rewards.shape[1], capacity),
            *_about_capacities(collected, room, asked),
            *_about_traits(traits),
        ],
    )


def _about_the_file(recording: Recording, noise: float | None) -> list[str]:
    said = []
    if recording.changed:
        said.append(f"{recording.plant.name} has changed since this buffer was filled")
    if recording.failed:
        said.append(f"{recording.failed} recording(s) hold NaN or infinity and are left out")
    if noise is None and recording.facts.noise is None:
        said.append("how noisy the plant is is not known, and taken as not at all; say so with --noise")
    return said


def _about_the_curve(recording: Recording, episodes: int, capacity: Capacity | None) -> list[str]:
    """Say why there is no capacity by the 90 % rule."""
    if capacity is not None:
        return []
    turns = zip(recording.members, recording.orders, strict=True)
    if "episode" not in recording.arrays:
        why = "the file does not say where episodes begin"
    elif any(len(order) < recording.arrays["collected"][m] for m, order in turns):
        why = "not all that was collected is stored, so that there is no learning curve"
    elif episodes < LEAST_EPISODES:
        why = f"{episodes} whole episodes are too few"
    else:
        why = "its episodes do not surely get better"
    return [f"the 90 % rule says nothing: {why}"]


def _about_capacities(collected: int, room: int, asked: int | None) -> list[str]:
    """Say why retentions that forget are left out, where they would forget nothing."""
    if room < collected:
        return []
    why = "gives no capacity" if asked is None else f"asks for {asked}"
    return [
        f"retentions that forget are left out: the 90 % rule {why}, and all {collected} experiences are kept; with "
        f"--memory below {collected} they are ranked, too"
    ]


def _about_traits(traits: Traits) -> list[str]:
    said = []
    if traits.authority is None:
        said.append("how far single actions move the plant was not measured: it cannot have the recording's rate")
    elif traits.symmetry is None:
        said.append("whether the plant is its own mirror image is not known: it has no equations")
    if traits.decay is None:
        said.append("what was exploration in it is not known")
    return said
