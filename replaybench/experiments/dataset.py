"""The labelled dataset (xarray) of a study's results.

The axes are plant, learner, strategy, noise, frequency, seed and episode. Points that are not in the study, or not run
yet, are NaN. Rewards are unscaled scores of episodes: the mean reward per step, or the return. Rewards include
exploration, except in greedy episodes and evaluations. If updates follow a number of steps, the axis `episode` counts
iterations. An iteration has as many steps as the longest episode, and its reward is the mean over the episodes that
ended in it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np
import xarray as xr

from replaybench.baselines.grid_choice import SMALLEST_SPAN, Rule
from replaybench.baselines.references import Reference
from replaybench.data.record import read_record
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.measures import MEASURES
from replaybench.experiments.statistics import interval, score
from replaybench.experiments.study import Cell, last_episodes
from replaybench.experiments.study_record import read_sessions, shared_from
from replaybench.replay.storage.replayed import REPLAYED
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import ComputeSession
from replaybench.runtime.version import NUMERICS_VERSION, VERSION

AXES = ("plant", "learner", "strategy", "noise", "frequency")
SCORES = ("final", "best", "rise")
References = Mapping[tuple[str, float, float], Reference]

_AXIS_LABELS: Final = {
    "plant": ("name of the plant", ""),
    "learner": ("name of the learner", ""),
    "strategy": ("Retention[Sampling]", ""),
    "noise": ("standard deviation of sensor and actuator noise, of signals within [-1, 1]", "1"),
    "frequency": ("control rate", "Hz"),
    "seed": ("number of the run", "1"),
    "block": ("first seed of the cell", "1"),
    "episode": ("number of the training episode, or iteration, from 1", "1"),
    "greedy_episode": ("number of the training episode that a greedy one follows", "1"),
    "evaluation_step": ("number of training steps after which policies were evaluated", "1"),
    "signal": ("name of a state or action", ""),
    "rival": ("name of a reference controller of the study", ""),
    "measure": ("name of a measure of signals or responses", ""),
}
"""Meaning and unit of each axis; axes of names have no unit."""
_UNITS: Final = {"seconds": "s", "memory": "B", "max_substep": "s"}

ORIGINS: Final = {
    "cell": "id of a cell, the name of its folder in cells/",
    "started": "when a cell was begun, UTC",
    "commit": "git commit of the code, -dirty where it was changed; of all processes that computed the cell",
    "processor": "model name of the processor, of all of them",
    "target": "the processor that kernels were compiled for, of all of them",
    "shared_from": "id of the cell that was computed in place of one that is the same runs, as buffers never filled",
}
"""Names and meanings of the coordinates that describe how each cell was computed."""


def label_axes(data: xr.Dataset) -> None:
    """Add the meaning and unit of each axis, and the units of variables, as attributes of a dataset."""
    for name, (meaning, unit) in _AXIS_LABELS.items():
        if name in data.coords:
            data.coords[name].attrs.update({"long_name": meaning, "units": unit} if unit else {"long_name": meaning})
    for name, unit in _UNITS.items():
        if name in data:
            data[name].attrs["units"] = unit


def assemble(cells: Sequence[Cell], references: References, folders: Mapping[str, Path]) -> xr.Dataset:
    """Build the dataset of results from the score files of a study's cells.

    Args:
        cells: All cells of the study. Values of cells without a score file stay NaN.
        references: Scores of the reference controllers by plant, control rate and noise.
        folders: Folder of each cell, by the cell's id.
    """
    data = _blank_dataset(cells)
    places = {name: {v: place for place, v in enumerate(data[name].values.tolist())} for name in (*AXES, "block")}
    for cell in cells:  # xarray's own lookup takes longer than a small cell
        point = tuple(places[axis][getattr(cell, axis)] for axis in AXES)
        block = (*point, places["block"][cell.first_member])
        data.variables["cell"].values[block] = cell.id
        data.variables["whole_steps"].values[point[0], point[-1]] = cell.steps_per_episode
        path = folders[cell.id] / "scores.h5"
        if path.is_file():
            try:
                header, arrays = read_record(path, "scores")
                sessions = read_sessions(path, header.facts)
            except UserError as error:
                raise UserError(f"{error}: remove {path.parent} and run the sweep again") from None
            _add_arrays(data, cell, point, path, arrays)
            _add_origin(data, block, sessions, shared_from(header.facts))
    for cell in {(cell.plant, cell.learner, cell.frequency): cell for cell in cells}.values():
        data["discount"].loc[{"plant": cell.plant, "learner": cell.learner, "frequency": cell.frequency}] = cell.gamma
    add_references(data, references)
    add_scores(data)
    label_axes(data)
    data.attrs = {
        "title": "replaybench sweep",
        "version": VERSION,
        "numerics_version": NUMERICS_VERSION,
        "reward": "unscaled, mean per step or return as episode_metric says; training episodes include exploration",
    }
    return data


def _blank_dataset(cells: Sequence[Cell]) -> xr.Dataset:
    episodes, every = cells[0].episodes, cells[0].greedy_every
    coordinates: dict[str, Any] = {axis: list(dict.fromkeys(getattr(cell, axis) for cell in cells)) for axis in AXES}
    coordinates["block"] = sorted({cell.first_member for cell in cells})
    coordinates["seed"] = np.arange(coordinates["block"][0], max(cell.first_member + cell.members for cell in cells))
    coordinates["episode"] = np.arange(1, episodes + 1)
    coordinates["greedy_episode"] = np.arange(1, episodes // every + 1) * every
    data = xr.Dataset(coords=coordinates)
    by_plant = {cell.plant: cell for cell in cells}
    plants = {name: by_plant[name].make_plant() for name in coordinates["plant"]}
    data.coords["episode_metric"] = "plant", [plant.episode_metric for plant in plants.values()]
    data.coords["update_every"] = "plant", [by_plant[name].update_every for name in plants]
    if any(cell.observe for cell in cells):
        data.coords["observed"] = "plant", [", ".join(by_plant[name].observe) for name in plants]
    if any(channels := [describe_channel(plant) for plant in plants.values()]):
        data.coords["channel"] = "plant", channels
    if any(spreads := [describe_spread(plant) for plant in plants.values()]):
        data.coords["spread"] = "plant", spreads
    _blank(data, "max_substep", ("plant",), "longest step of integration, of plants that are given by equations")
    data["max_substep"].values[:] = [getattr(plant, "max_substep", np.nan) for plant in plants.values()]
    _blank(data, "whole_steps", ("plant", "frequency"), "steps of a whole episode, or iteration, of a member")
    _blank(data, "reward", (*AXES, "seed", "episode"), "score of training episodes: mean reward per step, or return")
    _blank(data, "reward_greedy", (*AXES, "seed", "greedy_episode"), "the same of greedy episodes")
    _blank(data, "episode_steps", (*AXES, "seed", "episode"), "mean number of steps of training episodes")
    _blank(data, "seconds", (*AXES, "block"), "time that a cell took, by all processes that computed it")
    _blank(data, "memory", (*AXES, "block"), "most memory that a process held while it computed a cell")
    for name, meaning in ORIGINS.items():
        blank = np.full(data["seconds"].shape, "", object)
        data.coords[name] = data["seconds"].dims, blank, {"long_name": meaning}
    if evaluations := max(cell.evaluations for cell in cells):
        data.coords["evaluation_step"] = np.arange(1, evaluations + 1) * cells[0].evaluate_every_steps
        meaning = "the same of policies without exploration, mean over the episodes of an evaluation"
        _blank(data, "reward_evaluation", (*AXES, "seed", "evaluation_step"), meaning)
    if any(cell.replayed_noise for cell in cells):
        data.coords["signal"] = list(dict.fromkeys(name for cell in cells for name in _signals(cell)))
        _blank(data, "replayed_noise", (*AXES, "seed", "signal"), "mean absolute noise in replayed experiences")
    data.coords["measure"] = list(MEASURES)
    for name, which in (("measures", "training"), ("measures_greedy", "greedy")):
        _blank(data, name, (*AXES, "seed", "measure"), f"signals and responses, mean over the last {which} episodes")
    _blank(data, "discount", ("plant", "learner", "frequency"), "discount of a control step")
    return data


def _add_arrays(
    data: xr.Dataset, cell: Cell, point: tuple[int, ...], path: Path, arrays: Mapping[str, np.ndarray]
) -> None:
    greedy = (cell.members, cell.episodes // cell.greedy_every)
    due = dict.fromkeys(("reward", "episode_steps"), (cell.members, cell.episodes)) | {"reward_greedy": greedy}
    due |= {name: greedy for name in arrays if name in REPLAYED or name.startswith("metric_")}
    if cell.evaluations:
        due["reward_evaluation"] = (cell.members, cell.evaluations)
    if "replayed_noise" in arrays and "replayed_noise" in data:
        due["replayed_noise"] = (cell.members, len(_signals(cell)))
    due |= dict.fromkeys(("measures", "measures_greedy"), (cell.members, len(MEASURES)))
    first = cell.first_member - int(data["seed"].values[0])
    runs = slice(first, first + cell.members)
    for name, shape in due.items():
        if name not in arrays or arrays[name].shape != shape:
            raise UserError(f"{path}: {name} is not of shape {shape}: remove {path.parent} and run the sweep again")
        if name not in data:
            meaning = REPLAYED.get(name, f"{name.removeprefix('metric_')} that the learner reports")
            _blank(data, name, (*AXES, "seed", "greedy_episode"), meaning)
        columns: Any = slice(shape[1])
        if name == "replayed_noise":
            columns = [list(data.coords["signal"].values).index(signal) for signal in _signals(cell)]
        data.variables[name].values[point][runs, columns] = arrays[name]


def _add_origin(data: xr.Dataset, block: tuple[int, ...], sessions: Sequence[ComputeSession], shared: str) -> None:
    """Add start, machine, duration and memory of a cell's computation to a dataset.

    Duration and memory are left out if the cell's runs were copied from the cell with the id `shared`.
    """
    data.variables["shared_from"].values[block] = shared
    if not shared:
        data.variables["seconds"].values[block] = sum(session.seconds for session in sessions)
        data.variables["memory"].values[block] = max(session.memory for session in sessions)
    codes = [session.code for session in sessions]
    commits = [f"{code.commit or 'unknown'}{'-dirty' * bool(code.dirty)}" for code in codes]
    listed = {"commit": commits, "processor": [c.processor for c in codes], "target": [c.target for c in codes]}
    for name, values in {"started": [sessions[0].started], **listed}.items():
        data.variables[name].values[block] = ", ".join(dict.fromkeys(values))


def _signals(cell: Cell) -> tuple[str, ...]:
    plant = cell.make_plant()
    return (*(cell.observe or plant.state_names), *plant.action_names)


def _blank(data: xr.Dataset, name: str, axes: tuple[str, ...], meaning: str) -> None:
    shape = tuple(data.sizes[axis] for axis in axes)
    data[name] = xr.DataArray(np.full(shape, np.nan), dims=axes, attrs={"long_name": meaning})


REFERENCES: Final = {
    "reference_random": "of the uniformly random controller (mu_r = 0)",
    "reference_dp": "of the dynamic-programming controller, with noise of its best episode (mu_r = 1)",
    "reference_dp_mean": "of the dynamic-programming controller on average",
    "reference_zero": "of doing nothing",
    "reference_lqr": "of the linear-quadratic regulator",
    "reference_dp_averaged": "of dynamic programming with values averaged over the noise",
    "reference_dp_observer": "of dynamic programming on a model observer of the state",
    "reference_dp_unaware": "of dynamic programming that does not know of the delay and the channel",
    "reference_lqr_predicted": "of the linear-quadratic regulator on a prediction over the delay",
}


def add_references(data: xr.Dataset, references: References) -> None:
    """Add or replace the scores of reference controllers in a dataset of results."""
    axes = ("plant", "noise", "frequency")
    for name, whose in REFERENCES.items():
        _blank(data, name, axes, f"mean reward per step, or return, {whose}")
        for key, reference in references.items():
            place = dict(zip(("plant", "frequency", "noise"), key, strict=True))
            data[name].loc[place] = getattr(reference, name.removeprefix("reference_"))
    if names := dict.fromkeys(name for reference in references.values() for name in reference.rivals):
        data.coords["rival"] = list(names)
        _blank(data, "rival_score", (*axes, "rival"), "mean reward per step, or return, of rivals such as a tuned PID")
        notes = np.full(data["rival_score"].shape, "", dtype="U400")
        about = {"long_name": "gains of rivals and the cost of their tuning"}
        data["rival_note"] = xr.DataArray(notes, dims=(*axes, "rival"), attrs=about)
        _blank(data, "rival_measures", (*axes, "rival", "measure"), "signals and responses of rivals")
        for key, reference in references.items():
            for name, rival in reference.rivals.items():
                place = {**dict(zip(("plant", "frequency", "noise"), key, strict=True)), "rival": name}
                data["rival_score"].loc[place], data["rival_note"].loc[place] = rival.score, rival.note
                for measure, mean in rival.measures.items():
                    data["rival_measures"].loc[{**place, "measure": measure}] = mean
    if any(reference.dp_from for reference in references.values()):  # plants with a channel
        starts = np.full([data.sizes[axis] for axis in axes], "", dtype="U8")
        about = {"long_name": "what the prediction of reference_dp starts from, a reading or an observer"}
        data["reference_dp_from"] = xr.DataArray(starts, dims=axes, attrs=about)
        for key, reference in references.items():
            place = dict(zip(("plant", "frequency", "noise"), key, strict=True))
            data["reference_dp_from"].loc[place] = reference.dp_from
    _blank(
        data, "reference_change", ("plant", "frequency"), "change of reference_dp over the last refinement, as a part"
    )
    shape = data["reference_change"].shape
    about = {"long_name": "grid of dynamic programming, and whether its return has converged"}
    data["reference_grid"] = xr.DataArray(np.full(shape, "", dtype="U120"), dims=("plant", "frequency"), attrs=about)
    rules = dict.fromkeys(data["plant"].values.tolist(), "")
    for (plant, frequency, _), reference in references.items():
        place = {"plant": plant, "frequency": frequency}
        data["reference_change"].loc[place] = reference.change
        data["reference_grid"].loc[place] = reference.grid
        rules[plant] = reference.rule
    data.coords["reference_rule"] = "plant", list(rules.values())


def episode_metric(data: xr.Dataset) -> str:
    """Return the metric by which one plant scores episodes, "mean reward" (per step) or "return"."""
    return str(data["episode_metric"].item())


def rule_of(data: xr.Dataset) -> Rule | None:
    """Return the rule that chose one plant's grid for dynamic programming, or None if the rule is unknown."""
    rule = str(data["reference_rule"].item())
    return cast(Rule, rule) if rule in get_args(Rule) else None


def in_iterations(data: xr.Dataset) -> bool:
    """Return whether the axis `episode` of one plant's results counts iterations instead of episodes.

    An iteration has as many steps as the longest episode, so several episodes may end in an iteration.
    """
    return int(data["update_every"].item()) > 0


def counted_in(data: xr.Dataset) -> str:
    """Return the unit in which the length of one plant's runs is counted, "iterations" or "episodes"."""
    return "iterations" if in_iterations(data) else "episodes"


def the_last(data: xr.Dataset, of: str = "") -> str:
    """Name the episodes that a final score averages, such as "the last 100 episodes"."""
    last, counted = last_of(data), f"{of} {counted_in(data)}".strip()
    which = f"all {last}" if last == data.sizes["episode"] else f"the last {last}"
    return f"{which} {counted}" if last > 1 else f"the last {counted.removesuffix('s')}"


def last_of(data: xr.Dataset) -> int:
    """Return the number of last episodes or iterations over which one plant's final scores are averaged."""
    return last_episodes(data.sizes["episode"], in_iterations(data))


def steps_done(data: xr.Dataset, where: Mapping[str, str] | None = None) -> Floats:
    """Return the mean number of steps of one plant's runs in the first 0, 1, …, E episodes or iterations, `[E + 1]`."""
    if in_iterations(data):
        each = np.full(data.sizes["episode"], float(data["whole_steps"].item()))
    else:
        runs = data["episode_steps"].sel(where or {}).transpose(..., "episode").values
        runs = runs.reshape(-1, data.sizes["episode"])
        whole = runs[np.isfinite(runs).all(axis=1)]
        each = whole.mean(axis=0) if len(whole) else np.ones(data.sizes["episode"])
    return np.concatenate([[0.0], np.cumsum(each)])


def lengths_vary(data: xr.Dataset) -> bool:
    """Return whether one plant's training episodes have different lengths at the same control rate."""
    rates = data["episode_steps"].transpose("frequency", ...).values
    return any(np.nanmax(steps) > np.nanmin(steps) for steps in rates if np.isfinite(steps).any())


def mu_r(data: xr.Dataset, reward: xr.DataArray) -> xr.DataArray:
    """Compute the normalised score μ_r of rewards (de Bruin et al., 2018, section 5.1).

    The score is 0 for random control, and 1 for dynamic programming at the same noise and control rate. The score is
    NaN if dynamic programming is no better than random control, or exceeds it by less than a fifth of |reward of random
    control|. `replaybench.baselines.references.no_score` returns this reason, which tables print.
    """
    span = data["reference_dp"] - data["reference_random"]
    usable = (span > 0) & (span >= SMALLEST_SPAN * abs(data["reference_random"]))
    return (reward - data["reference_random"]) / span.where(usable)


def runs_there(data: xr.Dataset) -> xr.DataArray:
    """Return a mask that is True for each run in the results, whether the run failed or not."""
    return (data["reward"].notnull() | data["episode_steps"].notnull()).any("episode")


def all_failed(data: xr.Dataset) -> bool:
    """Return whether there are runs in the results, and every one of them has a reward that is not finite."""
    return bool(runs_there(data).any()) and not bool((abs(data["reward"]) < np.inf).all("episode").any())


def without_rewards(path: Path, data: xr.Dataset, needed: str) -> UserError:
    """Return the error that results have no finite rewards. `needed` is a subject and verb, such as "figures need"."""
    if runs_there(data).any():
        why = "failed before its first reward was a number; replaybench table counts such runs"
        return UserError(f"every run of {path} {why}, and {needed} others")
    return UserError(f"{path} holds no finished cell yet; {needed} at least one")


def add_scores(data: xr.Dataset) -> None:
    """Add the scores of each seed to a dataset, with their means, 95 % intervals, and counts of runs.

    Failed runs (`failed`), collapsed runs (`dead`), and runs that never reached μ_r = 0.8 (`censored`) are counted.
    """
    curves = mu_r(data, data["reward"]).transpose(*AXES, "seed", "episode")
    for name in SCORES:
        _blank(data, score_key(name), (*AXES, "seed"), _MEANINGS[name])
        for bound in ("mean", "low", "high"):
            _blank(data, f"{score_key(name)}_{bound}", AXES, f"{bound} over seeds of: {_MEANINGS[name]}")
    for name in ("failed", "dead", "censored"):
        _blank(data, name, AXES, f"number of {name} runs")
    last = [last_of(data.isel(plant=plant)) for plant in range(data.sizes["plant"])]
    there = runs_there(data).transpose(*AXES, "seed").values
    for place in np.ndindex(there.shape[:-1]):
        present = there[place]
        if not present.any():
            continue
        failed = ~np.isfinite(data["reward"].values[place][present]).all(axis=1)
        scores = score(curves.values[place][present], failed, last[place[AXES.index("plant")]])
        for name in SCORES:
            values = getattr(scores, name)
            data[score_key(name)].values[place][present] = values
            ends = interval(values)
            for bound in ("mean", "low", "high"):
                data[f"{score_key(name)}_{bound}"].values[place] = getattr(ends, bound)
        for name, runs in (("failed", failed), ("dead", scores.dead), ("censored", scores.censored)):
            data[name].values[place] = runs.sum()


_MEANINGS: Final = {
    "final": "mean mu_r of the last 100 training episodes, or of the last tenth of the iterations",
    "best": "mu_r of the best training episode",
    "rise": "first episode with mu_r >= 0.8 (run length where never reached)",
}


def score_key(name: str) -> str:
    """Return the name of the variable that stores a score in results, for example `mu_final` for `final`."""
    return {"final": "mu_final", "best": "mu_max", "rise": "rise_time"}[name]


def describe(data: xr.Dataset) -> str:
    """Return as JSON the axes of a dataset, up to 20 values on each axis, and the names of variables."""
    axes = {
        str(axis): data[axis].values.tolist() if size <= 20 else f"{size} values" for axis, size in data.sizes.items()
    }
    return json.dumps({"axes": axes, "variables": sorted(map(str, data.data_vars))}, indent=2)
