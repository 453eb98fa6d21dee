"""Conversion of recorded control steps to the replay buffer of one learner, and a summary of the recorded data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Final

import numpy as np
from rich.table import Table
from rich.text import Text

from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import wrap
from replaybench.envs.ode.plant import OdePlant, state_range
from replaybench.envs.ode.rk4 import simulate
from replaybench.replay.buffer import step_fields
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.version import VERSION

STATE_BINS: Final = 21
ACTION_BINS: Final = 11
"""Number of histogram bins per action, which is odd, so that zero lies within a bin."""
MISMATCH: Final = 0.5
"""Largest model error per step without a warning, as a fraction of the data's change per step."""


@dataclass(frozen=True)
class Dimension:
    """Statistics of one recorded state or action, in physical units.

    Attributes:
        visited: Fraction of the histogram bins over the plant's range that contain data.
        unvisited: Ranges of the empty bins. Adjacent empty bins form one range.
        moved: RMS change from one sample to the next; None for actions.
        mismatch: RMS one-step prediction error of the plant's model; None for actions and for plants without a model.
        levels: Distinct values of a continuous action, if there are fewer than `ACTION_BINS` of them; otherwise empty.
    """

    name: str
    unit: str
    low: float
    high: float
    visited: float
    unvisited: tuple[tuple[float, float], ...]
    moved: float | None = None
    mismatch: float | None = None
    levels: tuple[float, ...] = ()

    def gaps(self) -> str:
        """Format the unvisited ranges as text."""
        return ", ".join(f"{_short(low)} … {_short(high)}" for low, high in self.unvisited)


@dataclass(frozen=True)
class Summary:
    """A summary of recorded control steps.

    Attributes:
        inferred: Whether the control rate was determined from the time column.
        reward_from: Name of the column of rewards; None if the plant's reward function computed them.
        plane: Fraction of the bins of a two-dimensional histogram of the states that contain data; None unless the
            plant has two states.
    """

    log: str
    plant: str
    rows: int
    transitions: int
    episodes: int
    seconds: float
    frequency: float
    inferred: bool
    reward_from: str | None
    mean_reward: float
    states: tuple[Dimension, ...]
    actions: tuple[Dimension, ...]
    plane: float | None
    warnings: tuple[str, ...]


def state_dimensions(plant: Plant, x: Floats, x_next: Floats, predicted: Floats | None) -> tuple[Dimension, ...]:
    """Compute range, coverage, change and model error of every state over N recorded steps, in physical units.

    `x` and `x_next` are the states before and after each step, `[N, S]`. `predicted` are the predictions of `x_next` by
    the plant's model, or None for a plant without a model. Set points and other exogenous states have no model error.
    """
    moved = _rms(plant, x_next - x)
    mismatch: list[float | None] = [None] * len(moved)
    if predicted is not None:
        modelled = plant.equations if isinstance(plant, OdePlant) else len(moved)
        mismatch[:modelled] = _rms(plant, x_next - predicted)[:modelled]
    everything = _angles_in_range(plant, np.concatenate([x, x_next])).T
    described = zip(plant.state_names, plant.state_units, everything, *state_range(plant), strict=True)
    return tuple(
        _dimension(*each, STATE_BINS, moved=step, mismatch=error)
        for each, step, error in zip(described, moved, mismatch, strict=True)
    )


def action_dimensions(plant: Plant, u: Floats) -> tuple[Dimension, ...]:
    """Compute range and coverage of every action, from the actions `u` of N steps in physical units, `[N, A]`."""
    bins = plant.action_choices or (ACTION_BINS,) * u.shape[1]
    described = zip(plant.action_names, plant.action_units, u.T, plant.action_low, plant.action_high, bins, strict=True)
    dimensions = tuple(_dimension(*each) for each in described)
    if plant.action_choices:
        return dimensions
    return tuple(replace(each, levels=_levels(values)) for each, values in zip(dimensions, u.T, strict=True))


def _dimension(name: str, unit: str, values: Floats, low: float, high: float, bins: int, **more: Any) -> Dimension:
    counts, edges = np.histogram(values, bins, (low, high))
    extent = float(values.min()), float(values.max())
    return Dimension(name, unit, *extent, float((counts > 0).mean()), unvisited(counts, edges), **more)


def plane_coverage(plant: Plant, x: Floats) -> float | None:
    """Return the fraction of the plane of two states that recorded states visit, or None without exactly two states.

    The plane of the plant's two state ranges is divided into bins. `x` has N states in physical units, `[N, 2]`.
    """
    if x.shape[1] != 2:
        return None
    ranges = tuple(zip(*state_range(plant), strict=True))
    first, second = _angles_in_range(plant, x).T
    return float((np.histogram2d(first, second, STATE_BINS, ranges)[0] > 0).mean())


def around(angle: Floats, low: float) -> Floats:
    """Shift angles in rad by whole turns into the interval [low, low + 2π)."""
    shift = low + np.pi
    return np.maximum(shift + wrap(angle - shift), low)


def warnings_about(states: Sequence[Dimension], actions: Sequence[Dimension], plane: float | None) -> Iterator[str]:
    """Yield warnings about large model errors, and about states and actions that the data do not cover.

    `plane` is the visited fraction of the plane of two states, or None for plants with another number of states.
    """
    for state in states:
        if state.mismatch is None or state.moved is None:
            continue
        if not state.mismatch <= MISMATCH * state.moved + 1e-9 * max(abs(state.low), abs(state.high)):
            yield (
                f"the plant's model misses {state.name} by {state.mismatch:.3g} {state.unit} per step, where the data "
                f"move by {state.moved:.3g}: check the signs, the units, the plant's parameters, the frequency, and "
                "that each row holds the action applied after it (strong sensor noise shows like this too)"
            )
    gaps = [f"{each.name} {each.gaps()} {each.unit}" for each in states if each.unvisited]
    if plane is not None and plane < 1:
        gaps.insert(0, f"{1 - plane:.0%} of the plane of {states[0].name} and {states[1].name}")
    if gaps:
        yield f"the data never visit some states, where a learner can only guess: {'; '.join(gaps)}"
    for each in actions:
        if each.levels:
            values = ", ".join(map(_short, each.levels))
            yield (
                f"{each.name} has only {len(each.levels)} value(s) in the data ({values} {each.unit}): of others, "
                "between them too, a learner can only guess; TD3+BC stays near those of the data"
            )
        elif each.unvisited:
            untried = f"{each.name} {each.gaps()} {each.unit}"
            yield f"the data never try some actions, where a learner can only guess: {untried}"


def summary_table(summary: Summary) -> Table:
    """Return a summary of recorded data as a table to print, without the warnings."""
    source = " (from the time column)" if summary.inferred else ""
    title = (
        f"{summary.log} → {summary.plant}: {summary.rows} rows, {summary.transitions} transitions in "
        f"{summary.episodes} episode{'s' if summary.episodes != 1 else ''}, {summary.seconds:.6g} s at "
        f"{summary.frequency:.6g} Hz{source}"
    )
    origin = "computed by the plant" if summary.reward_from is None else f"from column {summary.reward_from!r}"
    caption = f"mean reward {summary.mean_reward:.4g} per step, {origin}"
    if summary.plane is not None:
        caption += f"; both states together: {summary.plane:.0%} visited"
    table = Table(title=Text(title), caption=Text(caption))
    for heading in ("", "unit", "from", "to", "model error / change per step", "visited", "never visited"):
        table.add_column(heading, justify="left" if heading in ("", "unit", "never visited") else "right")
    for each in (*summary.states, *summary.actions):
        error = "–" if each.mismatch is None else f"{each.mismatch:.3g}"
        model = "" if each.moved is None else f"{error} / {each.moved:.3g}"
        cells = (each.name, each.unit, f"{each.low:.4g}", f"{each.high:.4g}", model, f"{each.visited:.0%}", each.gaps())
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _angles_in_range(plant: Plant, x: Floats) -> Floats:
    lows, columns = state_range(plant)[0], zip(x.T, plant.periodic, strict=True)
    return np.stack(
        [around(column, low) if angle else column for (column, angle), low in zip(columns, lows, strict=True)], 1
    )


def _rms(plant: Plant, difference: Floats) -> list[float]:
    with np.errstate(all="ignore"):  # a wrong model may overflow
        shortest = np.where(plant.periodic, wrap(difference), difference)
        rms: list[float] = np.sqrt(np.square(shortest).mean(axis=0)).tolist()
    return rms


def _short(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _levels(values: Floats) -> tuple[float, ...]:
    levels = np.unique(values)
    return tuple(levels.tolist()) if len(levels) < ACTION_BINS else ()


def unvisited(counts: Integers, edges: Floats) -> tuple[tuple[float, float], ...]:
    """Return the ranges of the empty bins of a histogram with B bins, with adjacent empty bins joined.

    `counts` has the number of values in each bin, `[B]`, and `edges` has the edges of the bins, `[B + 1]`.
    """
    runs = [[bin for bin, _ in run] for empty, run in groupby(enumerate(counts == 0), lambda item: item[1]) if empty]
    return tuple((float(edges[run[0]]), float(edges[run[-1] + 1])) for run in runs)


Arrays = dict[str, np.ndarray]


def member_arrays(plant: Plant, values: Mapping[str, np.ndarray], episode: Integers) -> Arrays:
    """Return the arrays `[1, N, …]` of a buffer file that holds N recorded steps of one learner.

    As in studies, observations contain only the states that the plant declares as observed.

    Args:
        values: Normalised states before and after each step, as `observation` and `next_observation` `[N, S]`, actions
            `[N, A]`, and unscaled rewards and termination flags `[N]`, by field name, in the order of recording.
        episode: Number of the episode of each step, `[N]`. The numbers begin at 0 and do not decrease.
    """
    count = len(episode)
    seen = seen_states(plant.name, plant.state_names, plant.observed)
    fields = step_fields(len(seen), len(plant.action_names))
    values = {**values, **{name: values[name][:, seen] for name in ("observation", "next_observation")}}
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
    """Return the metadata of a buffer file of recorded steps.

    `frequency` is in Hz. `noise` is the standard deviation of the normalised sensor and actuator noise, or None if the
    noise is not known. `origin` has further entries that name the source, for example the file name of a log.
    """
    return {
        "source": "import",
        "plant": plant_name or plant.name,
        "parameters": asdict(plant),
        "plant_fingerprint": plant.fingerprint(),
        "frequency": frequency,
        "noise": noise,
        **plant.described_signals(plant.observed),
        "observe": plant.observed,
        "strategy": None,
        "fields": step_fields(len(plant.observed or plant.state_names), len(plant.action_names)),
        "version": VERSION,
        **origin,
    }


def summarise(
    plant: Plant, x: Floats, u: Floats, x_next: Floats, reward: Floats, frequency: float, notes: Iterable[str],
    errors: Sequence[float] | None = None, **about: Any,
) -> Summary:  # fmt: skip
    """Summarise N recorded steps, and compare them with the plant's equations if it has any.

    Args:
        x, x_next: States before and after each step, in physical units, `[N, S]`.
        u: Actions in physical units, `[N, A]`.
        reward: Reward of each step, `[N]`.
        frequency: Control rate in Hz.
        notes: Warnings to put before those of this function.
        errors: RMS error of the equations in a step for each state with an equation, in physical units. None computes
            it from the steps.
        **about: Values of the other attributes of `Summary`.
    """
    predicted = simulate(plant, x, u, 1 / frequency)[0] if isinstance(plant, OdePlant) else None
    states, actions = state_dimensions(plant, x, x_next, predicted), action_dimensions(plant, u)
    if errors is not None:
        own = [replace(state, mismatch=error) for state, error in zip(states, errors, strict=False)]
        states = (*own, *states[len(own) :])
    unchecked = f"{plant.name} has no equations here: that its steps look like these is not checked"
    plane = plane_coverage(plant, np.concatenate([x, x_next]))
    return Summary(
        plant=plant.name, transitions=len(x), seconds=len(x) / frequency, frequency=frequency,
        mean_reward=float(reward.mean()), states=states, actions=actions, plane=plane,
        warnings=(*notes, *[unchecked] * (predicted is None), *warnings_about(states, actions, plane)), **about,
    )  # fmt: skip
