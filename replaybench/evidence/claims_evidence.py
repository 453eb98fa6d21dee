"""Results of finished runs for the cells that published claims compare, and verdicts by these results as text.

A cell is one combination of plant, learner, strategy, noise and control rate, with all its seeds. A run counts as
evidence for a cell if the run has results for the same combination with the same settings. Seeds, number of episodes
and `greedy_every` may differ. Python files that a study file names are not imported.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from replaybench.data.documents import read_toml
from replaybench.data.run_folder import RunFolder
from replaybench.evidence.claim import Claim, Claims, Verdict, judge
from replaybench.experiments.dataset import AXES, last_of, mu_r, runs_there, score_key
from replaybench.experiments.effects import SIGNIFICANT, Effect, exactly_flipped, p_text, paired
from replaybench.experiments.results_file import read_results
from replaybench.experiments.statistics import DEAD_LEVEL
from replaybench.experiments.study import VOLUME, Cell
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError

_STUDY_WIDE: Final = ("discount", "observe", "device")
"""Settings that change results and have the same name in a study file and in a cell."""
_LEAST: Final = 1e-6
"""Lower limit of values before the logarithm. Smaller values have the size of rounding errors."""
_ALIKE: Final = 1e-3
"""Largest difference of a reference reward between comparable runs, as a fraction of the range of these rewards."""


@dataclass(frozen=True)
class Evidence:
    """The results and the settings of one run folder.

    Attributes:
        data: Content of `results.nc`.
        study: Content of `study.toml`.
    """

    path: Path
    data: xr.Dataset
    study: Mapping[str, Any]

    @property
    def root_seed(self) -> int:
        """Root seed of the study. Runs with equal root seeds and equal seeds use the same random numbers."""
        return int(self.study.get("root_seed", 0))

    @property
    def episodes(self) -> int:
        """Number of training episodes per seed."""
        return self.data.sizes["episode"]

    @cached_property
    def axes(self) -> dict[str, list[Any]]:
        """Values of plant, learner, strategy, noise and control rate in the results, by the name of the axis."""
        return {axis: self.data[axis].values.tolist() for axis in AXES}

    @cached_property
    def places(self) -> set[tuple[Any, ...]]:
        """The combinations of plant, learner, strategy, noise and control rate that have results."""
        there = runs_there(self.data).any("seed").transpose(*AXES).values
        return {tuple(self.axes[axis][i] for axis, i in zip(AXES, at, strict=True)) for at in np.argwhere(there)}

    def holds(self, cell: Cell) -> bool:
        """Return whether the run folder has results for the combination of a cell, computed with its settings."""
        return _place(cell) in self.places and not list(self.differences(cell))

    def differences(self, cell: Cell) -> Iterator[str]:
        """Yield, as text, each setting whose value in the stored results differs from that of a cell."""
        learner, plant = (self.study.get(kind, {}) for kind in ("learner", "plant"))
        trained = _settings(cell.learner, learner)
        yield from (
            f"learner.{cell.learner}.{key}" for key, value in _plain(cell.settings).items() if trained.get(key) != value
        )
        used = plant.get(cell.plant, {})
        yield from (f"plant.{cell.plant}.{key}" for key, value in cell.parameters.items() if used.get(key) != value)
        discount = {**plant.get(cell.plant, {}), **trained}.get("discount")
        if discount != cell.parameters.get("discount"):
            yield f"discount of {cell.learner} on {cell.plant}"
        start = self.study.get("start", {}).get(cell.learner, {})
        if any(start.get(key) != getattr(cell.start, key, None) for key in ("content", "member")):
            yield f"start.{cell.learner}"
        for key in _STUDY_WIDE:
            if self.study.get(key) != _plain(getattr(cell, key)):
                yield key
        strategy = parse(cell.strategy)
        if strategy.anneals and self.study.get("horizon_steps", 0) != cell.horizon_steps:
            yield "horizon_steps"
        room, run = strategy.capacity_or(self.study.get("capacity", 0)), cell.steps_per_episode * self.episodes
        uniform = strategy.sampling.independent and strategy.weights is None
        if room != cell.capacity and not (uniform and min(room, cell.capacity) >= run):  # else neither buffer fills
            yield "capacity"
        if int(self.data["update_every"].sel(plant=cell.plant)) != cell.update_every:
            yield "update_every"


def _settings(learner: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings of a learner. Its name contains its replay volume if that is an axis."""
    name, _, volume = learner.partition(VOLUME)
    return {**tables.get(name, {}), **({"replays_per_experience": float(volume)} if volume else {})}


def _place(cell: Cell) -> tuple[Any, ...]:
    return tuple(getattr(cell, axis) for axis in AXES)


def read_evidence(path: Path) -> Evidence:
    """Read the results and the settings of a run folder, or of a folder with copies of its files."""
    folder = RunFolder(path.parent if path.name == "results.nc" else path)
    for needed in (folder.study, folder.results):
        if not needed.is_file():
            raise UserError(f"{path} has no {needed.name}; claims need a run folder, finished or not")
    study = read_toml(folder.study)
    tables = [study.get(kind, {}) for kind in ("learner", "plant", "start")]
    named = all(isinstance(table, dict) and all(isinstance(t, dict) for t in table.values()) for table in tables)
    if not named or not all(isinstance(study.get(key, 0), int) for key in ("root_seed", "capacity")):
        raise UserError(f"{folder.study} is no study that `sweep` wrote")
    return Evidence(folder.path, read_results(folder.results), study)


def measured(evidence: Evidence, cell: Cell, measure: str) -> Floats:
    """Return a measure of a cell, `[seeds]`, with NaN for failed or missing runs.

    `measure` is a name such as "final"; `Claim.measure` lists all of them.
    """
    data = evidence.data.sel(plant=cell.plant, noise=cell.noise, frequency=cell.frequency)
    kind, _, name = measure.partition(" ")
    last, episodes = last_of(data), data.sizes["episode"]
    needed = {"evaluation": "reward_evaluation", "noise": "replayed_noise", "metric": f"metric_{name}"}.get(kind)
    if (needed and needed not in data) or (kind == "noise" and name not in data["signal"].values):
        return np.full(data.sizes["seed"], np.nan)
    if kind in ("final", "best", "rise"):
        values = data[score_key(kind)]
    elif kind == "noise":
        values = data["replayed_noise"].sel(signal=name) / (cell.noise * np.sqrt(2 / np.pi))
    elif kind == "greedy":
        greedy = data["reward_greedy"][..., data["greedy_episode"].values > episodes - last]
        values = mu_r(data, greedy.mean("greedy_episode", skipna=False))
    elif kind == "evaluation":
        steps, end = data["evaluation_step"].values, episodes * cell.steps_per_episode
        there = (steps <= end) & (steps > end - int(name) if name else steps >= 0)
        values = data["reward_evaluation"][..., there].mean("evaluation_step", skipna=False)
    elif kind == "metric":
        metric = data[f"metric_{name}"]
        tenth = max(1, metric.sizes["greedy_episode"] // 10)
        values = metric.isel(greedy_episode=slice(-tenth, None)).mean("greedy_episode", skipna=False)
    else:
        rounds = last if kind == "reward" else max(1, int(name) // cell.steps_per_episode) if name else episodes
        which = slice(rounds) if kind == "first" else slice(-rounds, None)
        values = data["reward"].isel(episode=which).mean("episode", skipna=False)
    return np.asarray(values.sel(learner=cell.learner, strategy=cell.strategy).values, float)


@dataclass(frozen=True)
class Finding:
    """What runs measured for a claim.

    Attributes:
        effect: Contrast (difference between the claim's cells) of each seed.
        collapses: The same contrast of collapsed runs, whose final score is below 0.2, counted by seed; without values
            if the claim is not about a difference of final scores.
        episodes: Number of training episodes of each run.
        share: Length of the runs as a fraction of the paper's.
        failed: Number of failed runs.
        runs: Names of the run folders.
    """

    effect: Effect
    collapses: Effect
    episodes: int
    share: float
    failed: int
    runs: tuple[str, ...]


def find(claim: Claim, runs: Sequence[Evidence]) -> Finding | None:
    """Compute the effect of a claim from the results in run folders, or return None if some results are missing.

    The cells that a claim compares, and the seeds of a cell, may come from several run folders with equal root seed and
    number of episodes. Only the results with the most episodes are used. Results with different root seeds are pooled.
    """
    for place in claim.places():  # a quick test, because it takes long to build cells
        if not any(all(value in run.axes.get(axis, [value]) for axis, value in place.items()) for run in runs):
            return None
    findings = [
        each for key in sorted({(run.root_seed, run.episodes) for run in runs}) if (each := _of(claim, runs, *key))
    ]
    longest = max((each.episodes for each in findings), default=0)
    pooled = [each for each in findings if each.episodes == longest]
    if not pooled:
        return None
    differences, collapses = (
        Effect(np.concatenate([getattr(each, name).differences for each in pooled])) for name in ("effect", "collapses")
    )
    names = tuple(dict.fromkeys(name for each in pooled for name in each.runs))
    return Finding(differences, collapses, longest, pooled[0].share, sum(each.failed for each in pooled), names)


def _of(claim: Claim, runs: Sequence[Evidence], root_seed: int, episodes: int) -> Finding | None:
    plus, minus = claim.cells()
    chosen = [run for run in runs if (run.root_seed, run.episodes) == (root_seed, episodes)]
    holding = [[run for run in chosen if run.holds(cell)] for cell in (*plus, *minus)]
    if not all(holding):
        return None
    samples = [_sample(cell, having, claim) for cell, having in zip((*plus, *minus), holding, strict=True)]
    if claim.measure in ("final", "best", "rise", "greedy"):  # μ_r of different references cannot be compared
        known: dict[tuple[str, float, float], tuple[Floats, Evidence]] = {}
        for cell, run in (
            (cell, run) for cell, each in zip((*plus, *minus), samples, strict=True) for run in each.runs
        ):
            here = run.data.sel(plant=cell.plant, noise=cell.noise, frequency=cell.frequency)
            ends = np.array([float(here[name]) for name in ("reference_random", "reference_dp")])
            first, other = known.setdefault((cell.plant, cell.noise, cell.frequency), (ends, run))
            if np.abs(ends - first).max() > _ALIKE * abs(first[1] - first[0]):
                raise UserError(
                    f"μ_r on {cell.plant} has other references in {run.path} (random {ends[0]:.4g}, dynamic "
                    f"programming {ends[1]:.4g}) than in {other.path} ({first[0]:.4g}, {first[1]:.4g}); name only "
                    "one of these runs"
                )
    seeds = sorted(set.intersection(*(set(sample.values) for sample in samples)))
    values = [np.array([sample.values[seed] for seed in seeds]) for sample in samples]
    effect = paired(values[: len(plus)], values[len(plus) :], claim.level)
    dead = [np.where(np.isfinite(value), value < DEAD_LEVEL, np.nan) for value in values]
    compared = claim.measure == "final" and len(minus) == len(plus)
    collapses = paired(dead[: len(plus)], dead[len(plus) :]) if compared else Effect(np.empty(0))
    share = episodes / plus[0].episodes
    names = tuple(dict.fromkeys(run.path.name for sample in samples for run in sample.runs))
    failed = sum(sample.failed for sample in samples)
    return Finding(effect, collapses, episodes, share, failed, names) if effect.n or failed else None


@dataclass(frozen=True)
class _Sample:
    """The measure of a cell by seed, the number of failed runs, and the run folders used."""

    values: dict[int, float]
    failed: int
    runs: list[Evidence]


def _sample(cell: Cell, runs: Sequence[Evidence], claim: Claim) -> _Sample:
    """Collect a measure of a cell from run folders. A seed that several folders hold is taken from the largest one."""
    samples = [(measured(run, cell, claim.measure), run) for run in runs]
    found = _Sample({}, 0, [])
    for sample, run in sorted(samples, key=lambda each: -int(np.isfinite(each[0]).sum())):
        data = run.data.sel({axis: getattr(cell, axis) for axis in AXES})
        there, failed = runs_there(data).values, data["reward"].isnull().any("episode").values
        new = [at for at, seed in enumerate(data["seed"].values) if there[at] and seed not in found.values]
        if claim.logarithm:
            sample = np.array([math.log10(max(value, _LEAST)) if value >= 0 else math.nan for value in sample])
        if new:
            found.values.update((int(data["seed"][at]), float(sample[at])) for at in new)
            found.runs.append(run)
        found = replace(found, failed=found.failed + int(failed[new].sum()))
    return found


def _plain(value: Any) -> Any:
    """Convert a setting to the form that a study file stores: lists instead of tuples, and no None."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    return json.loads(json.dumps(value))


def judged(family: Claims, runs: Sequence[Evidence]) -> tuple[list[Verdict], list[Finding | None]]:
    """Return the verdict on each claim of one paper, and the effect that the runs measured for each claim.

    The effect is None if the runs do not contain what the claim compares.
    """
    findings = [find(claim, runs) for claim in family.claim]
    return judge(family.claim, [None if finding is None else finding.effect for finding in findings]), findings


_NAMES: Final = {"final": "μ_final", "best": "μ_max", "rise": "episodes to 0.8", "greedy": "greedy μ_r"}
_DIRECTIONS: Final = {
    "more": "higher by ≥ {}",
    "less": "lower by ≥ {}",
    "not more": "not {} higher",
    "not less": "not {} lower",
    "same": "within ±{}",
}


def expected(claim: Claim) -> str:
    """Return as text the effect that a claim expects and the smallest effect of interest."""
    kind, _, name = claim.measure.partition(" ")
    measure = _NAMES.get(claim.measure) or (f"{kind} of {name}" if kind == "noise" else name or kind)
    if claim.logarithm:
        measure = f"log10 {measure}"
    than = f" than {claim.level:g}" if claim.level else ""
    return f"{measure} {_DIRECTIONS[claim.expects].format(f'{claim.relevance:g}')}{than}"


SHORT: Final = 0.2
"""Verdicts on runs that are shorter than this fraction of the paper's name the fraction."""


def verdict_text(verdict: Verdict, finding: Finding | None) -> str:
    """Return a verdict as text, with what an undecided claim needs, and the length of short runs."""
    told = f"undecided; {still_needed(verdict)}" if verdict.word == "undecided" else verdict.word
    return f"{told}; at {100 * finding.share:.2g} % of the run" if finding is not None and short(finding) else told


def short(finding: Finding | None) -> bool:
    """Return whether the runs of a claim are a small part of the paper's runs."""
    return finding is not None and finding.share < SHORT


def parts(verdict: Verdict, finding: Finding | None) -> str:
    """Return as text how a difference of scores comes about: by the mean, the typical run, and collapsed runs.

    The typical run is the interquartile mean. Only the mean decides; p of collapsed runs is not corrected.
    """
    effect, least = verdict.effect, verdict.claim.relevance
    if finding is None or effect.n < 2 or effect.statistic != "mean":
        return ""
    words = []
    for name, statistic in (("mean", effect), ("typical run", replace(effect, statistic="interquartile mean"))):
        low, high = statistic.interval()
        word = "higher" if low > 0 else "lower" if high < 0 else "open"
        words.append(f"{name} {'equal' if -least < low and high < least else word}")
    collapses = finding.collapses.differences[: effect.n]
    if len(collapses):
        p, share = exactly_flipped(collapses), collapses.mean()
        word = "open" if p >= SIGNIFICANT else "fewer" if share < 0 else "more"
        if collapses.any():
            points = f"{100 * share:+.0f}".replace("-", "−")
            words.append(f"collapses {word} ({points} points; p {p_text(p)})")
        else:
            words.append("no difference of collapses")
    return ", ".join(words)


def still_needed(verdict: Verdict) -> str:
    """Return as text how many more seeds would decide a claim, or why more seeds would not decide it."""
    more = verdict.more_seeds
    if verdict.effect.n < 2:
        return "one seed is not enough" if verdict.effect.n else "no seed is left to compare"
    if verdict.effect.sd == 0:
        return "all differences are equal"
    if verdict.hangs_on_one:
        return "hangs on one run"
    return f"{more} more seed{'s' if more > 1 else ''}" if more else "no planned look would decide"


def record(paper: str, verdict: Verdict, finding: Finding | None) -> dict[str, Any]:
    """Return the verdict on a claim as values for JSON, without numbers if the claim was not run."""
    kept = ("id", "source", "statement", "preset", "measure", "expects", "relevance", "printed")
    row = {"paper": paper} | {name: getattr(verdict.claim, name) for name in kept} | {"verdict": verdict.word}
    if finding is not None:
        low, high = verdict.effect.interval()
        row |= {
            "effect": verdict.effect.estimate if verdict.effect.n else None,
            "statistic": verdict.effect.statistic,
            "interval": [low, high] if np.isfinite(low) else None,
            "n": verdict.effect.n,
            "failed": finding.failed,
            "episodes": finding.episodes,
            "runs": finding.runs,
            "supports": verdict.supports,
            "refutes": verdict.refutes,
            "look": verdict.look,
            "parts": parts(verdict, finding),
            "share": finding.share,
            "more_seeds": verdict.more_seeds,
        }
    return row
