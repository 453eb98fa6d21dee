"""From finished cells to one labelled dataset.

The dataset's axes are those of the study: plant, learner, strategy, noise, frequency, seed, episode. Points that the
study does not hold, or that are not run yet, are NaN. Rewards are unscaled and what counts of an episode of the plant
(`episode_metric`), its mean per step or its return; they are of training episodes, exploration included, except where
a name says greedy. Where updates come after every so many steps an "episode" is a round of the run, as long as the
longest episode, and rewards are means over the episodes that ended in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.baselines.grid_choice import SMALLEST_SPAN, Rule
from replaybench.baselines.references import Reference
from replaybench.data.errors import UserError
from replaybench.data.numerics import NUMERICS_VERSION, VERSION
from replaybench.data.provenance import Stint
from replaybench.data.records.record import read_record
from replaybench.experiments.provenance import read_stints, shared_from
from replaybench.experiments.results.statistics import interval, last_episodes, score
from replaybench.experiments.training.study import Cell, axis_values

AXES = ("plant", "learner", "strategy", "noise", "frequency")
SCORES = ("final", "best", "rise")
References = Mapping[tuple[str, float, float], Reference]

AXIS_LABELS: Final = {
    "plant": ("name of the plant", ""),
    "learner": ("name of the learner", ""),
    "strategy": ("Retention[Sampling]", ""),
    "noise": ("standard deviation of sensor and actuator noise, of signals within [-1, 1]", "1"),
    "frequency": ("control rate", "Hz"),
    "seed": ("number of the run", "1"),
    "block": ("first seed of the cell", "1"),
    "episode": ("number of the training episode, or round, from 1", "1"),
    "greedy_episode": ("number of the training episode that a greedy one follows", "1"),
    "signal": ("name of a state or action", ""),
}
"""What the axes of results are, and in which units; names have none."""


def label_axes(data: xr.Dataset) -> None:
    """Say of each axis what it is, and its unit."""
    for name, (meaning, unit) in AXIS_LABELS.items():
        if name in data.coords:
            data.coords[name].attrs.update({"long_name": meaning, "units": unit} if unit else {"long_name": meaning})


def assemble(cells: Sequence[Cell], references: References, folders: Mapping[str, Path]) -> xr.Dataset:
    """Build the dataset from the score files of those cells that have one.

    Args:
        cells: all cells of the study.
        references: by (plant, frequency, noise).
        folders: cell id → folder.
    """
    episodes, every = cells[0].episodes, cells[0].greedy_every
    seeds = max(cell.first_member + cell.members for cell in cells)
    coordinates: dict[str, Any] = dict(axis_values(list(cells)))
    coordinates["seed"] = np.arange(seeds)
    coordinates["block"] = sorted({cell.first_member for cell in cells})
    coordinates["episode"] = np.arange(1, episodes + 1)
    coordinates["greedy_episode"] = np.arange(1, episodes // every + 1) * every
    data = xr.Dataset(coords=coordinates)
    plants = {cell.plant: cell for cell in cells}
    data.coords["episode_metric"] = "plant", [plants[name].make_plant().episode_metric for name in coordinates["plant"]]
    data.coords["update_every"] = "plant", [plants[name].update_every for name in coordinates["plant"]]
    _blank(data, "reward", (*AXES, "seed", "episode"), "told of training episodes: mean reward per step, or return")
    _blank(data, "reward_greedy", (*AXES, "seed", "greedy_episode"), "the same of greedy episodes")
    _blank(data, "episode_steps", (*AXES, "seed", "episode"), "mean number of steps of training episodes")
    _blank(data, "seconds", (*AXES, "block"), "time that a cell took, by all processes that computed it")
    _blank(data, "memory", (*AXES, "block"), "most memory that a process held while it computed a cell")
    for name, meaning in ORIGINS.items():
        blank = np.full(data["seconds"].shape, "", object)
        data.coords[name] = data["seconds"].dims, blank, {"long_name": meaning}
    if any(cell.replayed_noise for cell in cells):
        data.coords["signal"] = list(dict.fromkeys(name for cell in cells for name in _signals(cell)))
        _blank(data, "replayed_noise", (*AXES, "seed", "signal"), "mean absolute noise in replayed experiences")
    places = {name: {value: place for place, value in enumerate(values)} for name, values in coordinates.items()}
    for cell in cells:  # written into the arrays as they lie: xarray's own lookup takes longer than a small cell
        point = tuple(places[axis][getattr(cell, axis)] for axis in AXES)
        block = (*point, places["block"][cell.first_member])
        data.variables["cell"].values[block] = cell.id
        path = folders[cell.id] / "scores.h5"
        if path.is_file():
            try:
                header, arrays = read_record(path, "scores")
                stints = read_stints(path, header.facts)
            except UserError as error:
                raise UserError(f"{error}: remove {path.parent} and run the sweep again") from None
            runs = slice(cell.first_member, cell.first_member + cell.members)
            _check_scores(path, cell, arrays)
            for name in ("reward", "reward_greedy", "episode_steps"):
                data.variables[name].values[point][runs] = arrays[name]
            for name in (name for name in arrays if name.startswith("metric_")):
                if name not in data:
                    meaning = f"{name.removeprefix('metric_')} that the learner tells of itself"
                    _blank(data, name, (*AXES, "seed", "greedy_episode"), meaning)
                data.variables[name].values[point][runs] = arrays[name]
            if "replayed_noise" in arrays:
                columns = [list(data.coords["signal"].values).index(name) for name in _signals(cell)]
                data.variables["replayed_noise"].values[point][runs, columns] = arrays["replayed_noise"]
            _add_origin(data, block, stints, shared_from(header.facts))
    add_references(data, references)
    add_scores(data)
    label_axes(data)
    data["seconds"].attrs["units"], data["memory"].attrs["units"] = "s", "B"
    data.attrs = {
        "title": "replaybench sweep",
        "version": VERSION,
        "numerics_version": NUMERICS_VERSION,
        "reward": "unscaled, mean per step or return as episode_metric says; training episodes include exploration",
    }
    return data


def _check_scores(path: Path, cell: Cell, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a score file whose arrays are not those of its cell."""
    greedy = (cell.members, cell.episodes // cell.greedy_every)
    due = dict.fromkeys(("reward", "episode_steps"), (cell.members, cell.episodes)) | {"reward_greedy": greedy}
    due |= {name: greedy for name in arrays if name.startswith("metric_")}
    if "replayed_noise" in arrays:
        due["replayed_noise"] = (cell.members, len(_signals(cell)))
    for name, shape in due.items():
        if name not in arrays or arrays[name].shape != shape:
            raise UserError(f"{path}: {name} is not of shape {shape}: remove {path.parent} and run the sweep again")


ORIGINS = {
    "cell": "id of a cell, the name of its folder in cells/",
    "started": "when a cell was begun, UTC",
    "commit": "git commit of the code, -dirty where it was changed; of all processes that computed the cell",
    "processor": "model name of the processor, of all of them",
    "target": "the processor that kernels were compiled for, of all of them",
    "shared_from": "id of the cell that was computed in place of one that is the same runs, as buffers never filled",
}


def _add_origin(data: xr.Dataset, block: tuple[int, ...], stints: Sequence[Stint], shared: str) -> None:
    """Say of the cell at a place who computed it; what its stints share is said once.

    Time and memory count once, for the cell that was computed, and not for those that have `shared` its runs.
    """
    data.variables["shared_from"].values[block] = shared
    if not shared:
        data.variables["seconds"].values[block] = sum(stint.seconds for stint in stints)
        known = [stint.memory for stint in stints if stint.memory is not None]
        data.variables["memory"].values[block] = max(known, default=np.nan)
    codes = [stint.code for stint in stints]
    commits = [f"{code.commit or 'unknown'}{'-dirty' * bool(code.dirty)}" for code in codes]
    told = {"commit": commits, "processor": [c.processor for c in codes], "target": [c.target for c in codes]}
    for name, values in {"started": [stints[0].started], **told}.items():
        data.variables[name].values[block] = ", ".join(dict.fromkeys(values))


def _signals(cell: Cell) -> tuple[str, ...]:
    plant = cell.make_plant()
    return (*(cell.observe or plant.state_names), *plant.action_names)


def _blank(data: xr.Dataset, name: str, axes: tuple[str, ...], meaning: str) -> None:
    shape = tuple(data.sizes[axis] for axis in axes)
    data[name] = xr.DataArray(np.full(shape, np.nan), dims=axes, attrs={"long_name": meaning})


def add_references(data: xr.Dataset, references: References) -> None:
    """Add what rewards are measured against, in place of what is there."""
    axes = ("plant", "noise", "frequency")
    kinds = {
        "reference_random": ("random", "of the uniformly random controller (mu_r = 0)"),
        "reference_dp": ("dp", "of the dynamic-programming controller, with noise of its best episode (mu_r = 1)"),
        "reference_dp_mean": ("dp_mean", "of the dynamic-programming controller on average"),
        "reference_zero": ("zero", "of doing nothing"),
        "reference_lqr": ("lqr", "of the linear-quadratic regulator"),
        "reference_dp_averaged": ("dp_averaged", "of dynamic programming with values averaged over the noise"),
        "reference_dp_observer": ("dp_observer", "of dynamic programming on a model observer of the state"),
    }
    for name, (field, whose) in kinds.items():
        _blank(data, name, axes, f"mean reward per step, or return, {whose}")
        for (plant, frequency, noise), reference in references.items():
            data[name].loc[{"plant": plant, "noise": noise, "frequency": frequency}] = getattr(reference, field)
    _add_grids(data, references)


def _add_grids(data: xr.Dataset, references: References) -> None:
    """Add on which grids dynamic programming was solved, by which rule, and how far they have converged."""
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
    """Return what one plant's rewards are: "mean reward", as in files that do not say, or "return"."""
    return str(data["episode_metric"].item()) if "episode_metric" in data.coords else "mean reward"


def rule_of(data: xr.Dataset) -> Rule | None:
    """Return by which rule the grid of one plant's dynamic programming was chosen; None in files that do not say."""
    rule = str(data["reference_rule"].item()) if "reference_rule" in data.coords else ""
    return cast(Rule, rule) if rule in get_args(Rule) else None


def in_rounds(data: xr.Dataset) -> bool:
    """Tell whether one plant's episodes are rounds, in which several may have ended."""
    return "update_every" in data.coords and int(data["update_every"].item()) > 0


def counted_in(data: xr.Dataset) -> str:
    """Return what one plant's runs are counted in, for people."""
    return "rounds" if in_rounds(data) else "episodes"


def the_last(data: xr.Dataset, of: str = "") -> str:
    """Say of what one plant's final score is the mean: "the last 100 episodes", "all 40 training rounds"."""
    last, counted = last_of(data), f"{of} {counted_in(data)}".strip()
    which = f"all {last}" if last == data.sizes["episode"] else f"the last {last}"
    return f"{which} {counted}" if last > 1 else f"the last {counted.removesuffix('s')}"


def last_of(data: xr.Dataset) -> int:
    """Return how many of one plant's last training episodes, or rounds, make the final score."""
    return last_episodes(data.sizes["episode"], in_rounds(data))


def lengths_vary(data: xr.Dataset) -> bool:
    """Tell whether one plant's training episodes were not all of the same length."""
    if "episode_steps" not in data:
        return False
    rates = data["episode_steps"].transpose("frequency", ...).values
    return any(np.nanmax(steps) > np.nanmin(steps) for steps in rates if np.isfinite(steps).any())


def mu_r(data: xr.Dataset, reward: xr.DataArray) -> xr.DataArray:
    """Normalise rewards: 0 = random controller, 1 = dynamic programming, under the same noise and rate.

    NaN where the two references are too close for a quotient to mean anything: less than a fifth of the random
    controller's reward apart.
    """
    span = data["reference_dp"] - data["reference_random"]
    usable = span >= SMALLEST_SPAN * abs(data["reference_random"])
    return (reward - data["reference_random"]) / span.where(usable)


def runs_there(data: xr.Dataset) -> xr.DataArray:
    """Tell which runs of a dataset are there, by all axes but episodes; also those that failed before any reward."""
    there = data["reward"].notnull().any("episode")
    if "episode_steps" in data:
        there = there | data["episode_steps"].notnull().any("episode")
    return there


def without_rewards(path: Path, data: xr.Dataset, needed: str) -> UserError:
    """Say why results show nothing; `needed` is who needs them, with the verb."""
    if runs_there(data).any():
        told = "failed before its first reward was a number; replaybench table counts such runs"
        return UserError(f"every run of {path} {told}, and {needed} others")
    return UserError(f"{path} holds no finished cell yet; {needed} one at least")


def add_scores(data: xr.Dataset) -> None:
    """Add per-seed scores, their means with 95 % intervals, and the counts of failed, dead and censored runs."""
    curves = mu_r(data, data["reward"]).transpose(*AXES, "seed", "episode")
    shape = curves.shape[:-1]
    for name in SCORES:
        _blank(data, score_key(name), (*AXES, "seed"), _MEANINGS[name])
        for bound in ("mean", "low", "high"):
            _blank(data, f"{score_key(name)}_{bound}", AXES, f"{bound} over seeds of: {_MEANINGS[name]}")
    for name in ("failed", "dead", "censored"):
        _blank(data, name, AXES, f"number of {name} runs")
    last = [last_of(data.isel(plant=plant)) for plant in range(data.sizes["plant"])]
    there = runs_there(data).transpose(*AXES, "seed").values
    for place in np.ndindex(shape[:-1]):
        rewards, present = data["reward"].values[place], there[place]
        if not present.any():
            continue
        failed = ~np.isfinite(rewards[present]).all(axis=1)
        scores = score(curves.values[place][present], failed, last[place[AXES.index("plant")]])
        for name in SCORES:
            values = getattr(scores, name)
            data[score_key(name)].values[place][present] = values
            found = interval(values)
            for bound in ("mean", "low", "high"):
                data[f"{score_key(name)}_{bound}"].values[place] = getattr(found, bound)
        for name in ("failed", "dead", "censored"):
            data[name].values[place] = getattr(scores, name).sum()


_MEANINGS = {
    "final": "mean mu_r of the last 100 training episodes, or of the last tenth of the rounds",
    "best": "mu_r of the best training episode",
    "rise": "first episode with mu_r >= 0.8 (run length where never reached)",
}


def score_key(name: str) -> str:
    """Return the name under which a dataset holds one of the `SCORES`."""
    return {"final": "mu_final", "best": "mu_max", "rise": "rise_time"}[name]


def describe(data: xr.Dataset) -> str:
    """Say in JSON what a dataset holds: its axes and variables."""
    axes = {
        str(axis): data[axis].values.tolist() if size <= 20 else f"{size} values" for axis, size in data.sizes.items()
    }
    return json.dumps({"axes": axes, "variables": sorted(map(str, data.data_vars))}, indent=2)
