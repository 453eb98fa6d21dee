"""Recorded steps, of a log or a dataset, as a replay buffer of one member: arrays, facts, and a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.numerics import VERSION
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.experiments.exchange.summary import (
    Summary,
    action_dimensions,
    plane_coverage,
    state_dimensions,
    warnings_about,
)
from replaybench.replay.buffer import step_fields

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]


def member_arrays(plant: Plant, values: Mapping[str, NDArray[Any]], episode: NDArray[np.int64]) -> Arrays:
    """Return the arrays of a buffer file of one member.

    Args:
        plant: gives the widths of the fields.
        values: every step field, `[N]` or `[N, width]`, normalised, reward unscaled, in the order of recording.
        episode: number of each step's episode `[N]`, from 0, not decreasing.

    Returns:
        The fields float32 `[1, N, width]`; `serial` (from 1), `episode` and `step` (within it, from 0) uint32
        `[1, N]`; `offers`, `collected` and `count` int64 `[1]`.

    Raises:
        UserError: a number is too large for a buffer.
    """
    count = len(episode)
    fields = step_fields(len(plant.state_names), len(plant.action_names))
    place = np.arange(count)
    first = np.maximum.accumulate(np.where(np.diff(episode, prepend=-1) != 0, place, 0))
    numbers = {"serial": place + 1, "episode": episode, "step": place - first}
    with np.errstate(over="ignore"):
        columns = {name: values[name].astype(np.float32).reshape(1, count, width) for name, width in fields.items()}
    for name, column in columns.items():
        if not np.isfinite(column).all():
            step = int(np.argwhere(~np.isfinite(column[0]))[0, 0])
            raise UserError(f"{name} of step {step + 1} is beyond what float32 holds: is it in another unit?")
    return {
        **columns,
        **{name: number.astype(np.uint32)[None] for name, number in numbers.items()},
        **{name: np.array([count], np.int64) for name in ("offers", "collected", "count")},
    }


def recording_facts(
    plant: Plant, plant_name: str | None, frequency: float, noise: float | None, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts of a buffer file of recorded steps; `origin` names the source."""
    return {
        "source": "import",
        "plant": plant_name or plant.name,
        "parameters": asdict(plant),
        "plant_fingerprint": plant.fingerprint(),
        "frequency": frequency,
        "noise": noise,
        **plant.described_signals(),
        "strategy": None,
        "fields": step_fields(len(plant.state_names), len(plant.action_names)),
        "version": VERSION,
        **origin,
    }


def summarise(
    plant: Plant,
    x: Floats,
    u: Floats,
    x_next: Floats,
    *,
    source: str,
    rows: int,
    episodes: int,
    frequency: float,
    inferred: bool,
    reward_from: str | None,
    reward: Floats,
    notes: Iterable[str] = (),
) -> Summary:
    """Summarise N recorded steps: x, x_next `[N, S]` and u `[N, A]` in physical units, reward `[N]`."""
    predicted = simulate(plant, x, u, 1 / frequency)[0] if isinstance(plant, OdePlant) else None
    states = state_dimensions(plant, x, x_next, predicted)
    unchecked = f"{plant.name} has no equations here: that its steps look like these is not checked"
    actions = action_dimensions(plant, u)
    plane = plane_coverage(plant, np.concatenate([x, x_next]))
    return Summary(
        log=source,
        plant=plant.name,
        rows=rows,
        transitions=len(x),
        episodes=episodes,
        seconds=len(x) / frequency,
        frequency=frequency,
        inferred=inferred,
        reward_from=reward_from,
        mean_reward=float(reward.mean()),
        states=states,
        actions=actions,
        plane=plane,
        warnings=(*notes, *[unchecked] * (predicted is None), *warnings_about(states, actions, plane)),
    )
