"""Conversion of a log of a plant to the replay buffer of one learner.

Values outside the plant's bounds raise `UserError`, because a wrong unit cannot be detected later in the normalised
numbers of a buffer.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from replaybench.data.logs.log import Log, segments, such_rows
from replaybench.envs.interface.channel import whole_periods
from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import wrap
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.exchange import log_columns
from replaybench.exchange.log_columns import Missing
from replaybench.exchange.log_fit import LogFit, steps_before
from replaybench.exchange.recording import Arrays, Summary, member_arrays, recording_facts, summarise
from replaybench.runtime.arrays import Bools, Floats
from replaybench.runtime.errors import Problems, UserError
from replaybench.runtime.quantities import shown_number

ACTION_TOLERANCE: Final = 1e-6
"""Excess over an action's bounds that counts as rounding, as a fraction of its half range."""
STATE_TOLERANCE: Final = 0.05
"""Excess over the observation limit that counts as measurement noise, as a fraction of the limit."""
IRREGULAR: Final = 0.1
"""Deviation of a sample time from the period above which it is irregular, as a fraction of the period."""
_LONGEST_JUMP: Final = 400.0
"""Largest change of an angle in one step [rad], unless it usually changes as fast."""
_UNUSUAL_JUMP: Final = 10.0
"""Ratio of an angle's change to its median change above which the change is unusual."""
_FEWEST: Final = 10
"""Smallest number of steps that a delay may leave."""
_LARGEST_ANGLE: Final = 1e9
"""Largest angle [rad] that can be wrapped with the precision of float64."""
_MARK: Final = "if it marks a missing number, give --na VALUE and --missing drop or interpolate"
_LATCHED: Final = (
    "steps end an episode directly after another such step; the step after the last of them is left out, too"
)


def convert(
    log: Log,
    plant: Plant,
    columns: Mapping[str, str] | None = None,
    frequency: float | None = None,
    clip_actions: bool = False,
    plant_name: str | None = None,
    missing: Missing = "refuse",
    delay: float = 0.0,
) -> tuple[Arrays, dict[str, Any], Summary]:
    """Convert a log to the arrays and metadata of a buffer file, and return them with a summary.

    A row of the log contains the state at its time. The row also contains the action, reward and termination flag of
    the step to the next row. After the row in which a terminated step ended, a new episode begins. Steps across a gap
    in time are left out. If the log has no rewards or no termination flags, functions of the plant compute them from
    the recorded states and actions. These functions assume that nothing happened between samples, because a log does
    not show events such as collisions. The summary contains a warning if the plant's model has such events.

    Args:
        columns: Log column of each state, action or flag, by the name of the signal. Other columns are found by their
            titles.
        frequency: Control rate in Hz; determined from the column of sample times by default.
        clip_actions: Whether to clip actions beyond the plant's bounds. If False, such actions raise `UserError`.
        plant_name: Name to store in the file; `plant.name` by default.
        missing: How to treat empty cells.
        delay: Time in seconds until a recorded action acts, a multiple of the control period. A step then has the
            action that acts in it. Steps at the beginning of an episode, whose action is unknown, are left out.
    """
    if delay >= plant.episode_seconds:
        raise UserError(
            f"--delay {delay:g} is no shorter than an episode of {plant.name}, {plant.episode_seconds:g} s; lower it"
        )
    problems = Problems(log.problems)
    mapping = log_columns.match_columns(log, plant, columns or {}, problems)
    rows, inferred = log.rows, frequency is None
    if rows < 2:
        problems.append(f"the log has {rows or 'no'} row{'' if rows == 1 else 's'} of data; a step takes two")
        problems.raise_any(log.path, log.notes)
    log, rate, starts = _find_steps(log, plant, mapping, frequency, missing, columns or {}, problems)
    state = _states(log, plant, mapping, starts | np.append(False, starts[:-1]), problems)
    action, clipped = _actions(log, plant, mapping, starts, clip_actions, problems)
    for name in log_columns.OPTIONAL:
        if name in mapping:
            with problems.collected():
                log.column(mapping[name], starts)
    problems.raise_any(log.path, log.notes)
    late = _periods(delay, rate)

    first = np.flatnonzero(starts)
    x, u, x_next = state[first], action[first], state[first + 1]
    recorded = {name: log.columns[mapping[name]][first] for name in log_columns.OPTIONAL if name in mapping}
    terminated = recorded["terminated"] != 0 if "terminated" in recorded else _terminations(plant, x_next)
    ends = np.union1d(first[terminated], log_columns.flagged_ends(log, mapping))  # including steps that are left out
    notes = [*log.notes]
    if log.time is not None:
        error = np.abs(np.diff(log.time)[starts[:-1]] * rate - 1)
        if (share := float((error > IRREGULAR).mean())) > 0.01:
            off = f"{share:.0%} of the sample times are over {IRREGULAR:.0%} off the period"
            notes.append(f"{off} (worst {error.max():.0%})")
    if "terminated" not in mapping and not isinstance(plant, OdePlant):
        notes.append(f"{plant.name} has no equations here and the log no column terminated: no step counts as an end")
    successive = terminated[1:] & terminated[:-1] & (np.diff(first) == 1)
    kept = np.flatnonzero(~np.isin(first, ends + 1))  # no step starts where an episode ended
    episode = np.cumsum(np.diff(first[kept], prepend=first[kept][0]) > 1, dtype=np.int64)
    known = np.flatnonzero(steps_before(episode) >= late)
    notes += _counted(len(kept) - len(known), "steps lack the action that acts in them, because of the delay: left out")
    if late and len(known) < _FEWEST:
        raise UserError(f"{log.path}: a delay of {delay:g} s leaves {len(known)} steps; lower --delay")
    errors = None
    if isinstance(plant, OdePlant):
        fit = LogFit(plant, x[kept], u[kept], x_next[kept], episode, rate)
        notes += (_by_differences(*pair) for pair in fit.derived.items())
        notes += fit.warnings(late)
        errors = fit.errors(late)
    x, u, x_next, terminated = x[kept][known], u[kept][known - late], x_next[kept][known], terminated[kept][known]
    episode = episode[known] - episode[known][0] if late else episode
    reward = recorded["reward"][kept][known] if "reward" in recorded else _rewards(plant, x, u, x_next)
    notes += _events(plant, mapping, x, u, rate)
    notes += _counted(clipped, "actions were clipped to the plant's bounds")
    if "terminated" in mapping:
        lost = int((log.columns[mapping["terminated"]][~starts] > 0).sum())
        notes += _counted(int(successive.sum()), _LATCHED)
        notes += _counted(lost, "terminated steps lack the state in which they ended: left out")
    summary = summarise(
        plant, x, u, x_next, reward, rate, notes, log=log.path.name, rows=rows, episodes=int(episode[-1]) + 1,
        inferred=inferred, reward_from=mapping.get("reward"), errors=errors,
    )  # fmt: skip
    values = {
        "observation": plant.normalise_state(x),
        "action": plant.normalise_action(u),
        "reward": reward,
        "next_observation": plant.normalise_state(x_next),
        "terminated": terminated,
    }
    facts = recording_facts(plant, plant_name, rate, None, {"log": log.path.name, "columns": mapping})
    return member_arrays(plant, values, episode), facts, summary


def _find_steps(
    log: Log, plant: Plant, mapping: Mapping[str, str], frequency: float | None, missing: Missing,
    columns: Mapping[str, str], problems: Problems,
) -> tuple[Log, float, Bools]:  # fmt: skip
    """Return the prepared log, its control rate in Hz, and whether a control step starts at each row.

    The prepared log has gaps in time between episodes. Its empty cells are treated as `missing` selects. The rate is
    NaN if it cannot be determined. The mask of steps is bool of shape `[rows]`. Faults of the log are added to
    `problems`.
    """
    allow_missing = missing != "refuse"
    with problems.collected():
        log = log_columns.separate_episodes(log, mapping, frequency, allow_missing, columns, problems)
    rate = math.nan
    if log.time is not None or log.time_from in (None, *log.unusable):  # else a problem is listed already
        with problems.collected():
            rate = log_columns.control_rate(log, plant, frequency)
    pieces = [slice(0, log.rows)] if log.time is None or math.isnan(rate) else segments(log.time, rate)
    if missing == "interpolate":
        log = log_columns.interpolated(log, plant, mapping, pieces)
    starts = np.zeros(log.rows, np.bool_)
    for piece in pieces:
        starts[piece.start : max(piece.stop - 1, 0)] = True
    if allow_missing:
        complete = log_columns.complete_steps(log, plant, mapping)
        left_out = _counted(int((starts & ~complete).sum()), "steps have empty cells: left out")
        log = replace(log, notes=(*log.notes, *left_out))
        starts &= complete
    if not starts.any():
        problems.append("the log has no two whole rows after each other; a step takes two")
    return log, rate, starts


def _states(log: Log, plant: Plant, mapping: Mapping[str, str], used: Bools, problems: Problems) -> Floats:
    recorded = [_finite(log, mapping.get(name), used, problems) for name in plant.state_names]
    _refuse_jumps(log, plant, mapping, recorded, used, problems)
    state = np.stack([wrap(each) if angle else each for each, angle in zip(recorded, plant.periodic, strict=True)], 1)
    limit = np.array(plant.observation_limit)
    beyond = (np.abs(plant.normalise_state(state)) > limit * (1 + STATE_TOLERANCE)) & used[:, None]
    bounds = plant.denormalise_state([-limit, limit])
    for i, (name, unit) in enumerate(zip(plant.state_names, plant.state_units, strict=True)):
        _report(log, name, mapping.get(name), beyond[:, i], f"{_beyond(bounds[:, i], unit)}; {_MARK}", problems)
    return state


def _refuse_jumps(
    log: Log, plant: Plant, mapping: Mapping[str, str], recorded: list[Floats], used: Bools, problems: Problems
) -> None:
    """Add problems for angles that jump as no angle does, because wrapping would hide marks for missing numbers."""
    for name, values, angle in zip(plant.state_names, recorded, plant.periodic, strict=True):
        if not angle:
            continue
        rows = np.flatnonzero(used & np.isfinite(values))
        steps = np.abs(np.diff(values[rows]))
        jumps = (steps > _LONGEST_JUMP) & (steps > _UNUSUAL_JUMP * np.median(steps)) if steps.size else steps > 0
        wrong = np.abs(values) > _LARGEST_ANGLE
        # Of the two rows of a jump, the one farther from the usual angle is the wrong one.
        for row in np.flatnonzero(jumps):
            pair = rows[row : row + 2]
            wrong[pair[np.abs(values[pair] - np.median(values[rows])).argmax()]] = True
        wrong |= np.isin(values, values[wrong])
        reason = "which is no angle in rad, compared with the other rows; "
        _report(log, name, mapping.get(name), wrong & used, reason + _MARK, problems)


def _actions(
    log: Log, plant: Plant, mapping: Mapping[str, str], used: Bools, clip: bool, problems: Problems
) -> tuple[Floats, int]:
    """Return the actions clipped to the plant's bounds, `[rows, A]`, and the number of rows that exceed the bounds."""
    action = np.stack([_finite(log, mapping.get(name), used, problems) for name in plant.action_names], axis=1)
    bounds = np.array([plant.action_low, plant.action_high])
    normalised = plant.normalise_action(action)
    beyond = (np.abs(normalised) > 1 + ACTION_TOLERANCE) & used[:, None]
    if clip:
        normalised = np.clip(normalised, -1, 1)
    between = ~plant.is_choice(normalised) & np.isfinite(action) & used[:, None]
    for i, (name, unit) in enumerate(zip(plant.action_names, plant.action_units, strict=True)):
        if plant.action_choices:
            remedy = f"none of its choices, {plant.choices(i)}; give the choice that acted"
            _report(log, name, mapping.get(name), between[:, i], remedy, problems)
        elif not clip:
            remedy = _beyond(bounds[:, i], unit) + ", or --clip-actions if the actuator saturates there"
            _report(log, name, mapping.get(name), beyond[:, i], remedy, problems)
    return np.clip(action, *bounds), int(beyond.any(axis=1).sum())


def _finite(log: Log, column: str | None, used: Bools, problems: Problems) -> Floats:
    if column is None:
        return np.full(log.rows, np.nan)
    with problems.collected():
        log.column(column, used)
    return log.columns[column]


def _beyond(bounds: Floats, unit: str) -> str:
    return (
        f"beyond {bounds[0]:.4g} … {bounds[1]:.4g} {unit}: is the column in {unit}, not in mA, mV, deg or the like? "
        f"Give it in {unit}"
    )


def _report(log: Log, name: str, column: str | None, wrong: Bools, reason: str, problems: Problems) -> None:
    if column is not None and wrong.any():
        row = int(wrong.argmax())
        value, rows = shown_number(log.columns[column][row]), such_rows(int(wrong.sum()))
        problems.append(f"{name} is {value} in column {column!r} at {log.where(row)} ({rows}), {reason}")


def _rewards(plant: Plant, x: Floats, u: Floats, x_next: Floats) -> Floats:
    assert isinstance(plant, OdePlant)
    p = plant.params()
    return np.array([plant.reward(x[t], u[t], x_next[t], 0, p) for t in range(len(x))], np.float64)


def _terminations(plant: Plant, x_next: Floats) -> Bools:
    if not isinstance(plant, OdePlant):
        return np.zeros(len(x_next), np.bool_)
    ended: Any = plant.terminated
    p = plant.params()
    return np.array([ended(state, 0, p) for state in x_next], np.bool_)


def _events(plant: Plant, mapping: Mapping[str, str], x: Floats, u: Floats, frequency: float) -> Iterator[str]:
    """Yield a warning if events between samples, such as collisions, would change computed rewards or terminations."""
    computed = [name for name in log_columns.OPTIONAL if name not in mapping]
    if not computed or not isinstance(plant, OdePlant):
        return
    after, reward, ended = simulate(plant, x, u, 1 / frequency)
    differs = {
        "reward": ~np.isclose(reward, _rewards(plant, x, u, after), rtol=1e-9, atol=1e-12, equal_nan=True),
        "terminated": ended != _terminations(plant, after),
    }
    if count := int(np.any([differs[name] for name in computed], axis=0).sum()):
        yield (
            f"in {count} steps the plant's model has an event between samples (a collision, an overflow), which a log "
            f"does not show: missing columns ({' and '.join(computed)}) are computed without it"
        )


def _periods(delay: float, rate: float) -> int:
    """Return a delay as a number of control periods, or raise `UserError` if the number is not whole."""
    count, rest = whole_periods(delay, 1 / rate)
    if rest:
        near = " or ".join(f"{n / rate:.6g}" for n in (count, count + 1))
        raise UserError(
            f"--delay {delay:g} is no multiple of the control period of {1 / rate:g} s; use {near} (a log is shifted "
            "by whole control periods; the delay of a study can be any time)"
        )
    return count


def _by_differences(velocity: str, position: str) -> str:
    return (
        f"{velocity} is the difference quotient of {position}, half a control period off: the equations are compared "
        f"with central differences (a study needs {velocity} in differentiate of its channel)"
    )


def _counted(count: int, what: str) -> Iterator[str]:
    if count:
        yield f"{count} {what}"
