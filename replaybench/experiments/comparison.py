"""Paired comparisons of strategies, learners or conditions, seed by seed, and their tables."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr

from replaybench.experiments import effects
from replaybench.experiments.dataset import all_failed, counted_in, episode_metric, last_of, mu_r, runs_there, the_last
from replaybench.experiments.statistics import Interval, interval
from replaybench.experiments.text_table import FittedTable
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.arrays import Bools, Floats
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.quantities import decimals, duration, fixed
from replaybench.runtime.user_file import shortened

NONE_BEATS_RANDOM: Final = "No learner beats random control"

LABELS: Final = {
    "reference_random": "random control",
    "reference_zero": "doing nothing",
    "reference_lqr": "linear-quadratic regulator",
    "reference_dp": "dynamic programming",
    "reference_dp_mean": "DP, mean episode",
    "reference_dp_averaged": "DP, values averaged over the noise",
    "reference_dp_observer": "DP, on a model observer",
    "reference_dp_unaware": "DP, unaware of the delay",
    "reference_lqr_predicted": "linear-quadratic, with prediction",
}
"""Names of the reference controllers in tables, by the names of their variables in results.

Under noise, μ_r = 1 is the best of many episodes of dynamic programming.
"""

RIVAL_LABELS: Final = {"PID": "tuned PID", "LQI": "LQR with integral action", "MPPI": "MPPI, knows the model"}
"""Names of the package's rivals in tables, by their names in results."""
RIVAL: Final = "rival:"
"""Text before the name of a rival, such as a tuned PID controller, among the names of reference controllers."""

_TOO_SHORT, _TOO_FAR = 0.05, 1.0
"""Smallest and largest plausible horizon of a discount, as fractions of an episode."""
_RUNAWAY: Final = 10.0
"""Smallest factor by which final rewards are below the reward of random control if states run away."""
_MOST_CONDITIONS: Final = 3
"""Largest number of conditions that a headline names."""


class ReferenceRow(NamedTuple):
    """The score of a reference controller at one noise and control rate.

    Attributes:
        name: Name of the variable in the results, such as `reference_lqr`, or `rival:` and the name of a rival.
        label: Name of the controller in tables.
        reward: Mean reward per step, or return.
        mu: Normalised score μ_r; NaN if μ_r is not defined.
    """

    name: str
    label: str
    reward: float
    mu: float


def beats_random(final: Floats, random: float) -> bool:
    """Return whether the mean of the finite final rewards exceeds the reward of random control.

    The result is True if the reward of random control is NaN, and otherwise False without finite final rewards.
    """
    finite = final[np.isfinite(final)]
    return bool(np.isnan(random) or (finite.size and finite.mean() > random))


def why_same(data: xr.Dataset) -> str:
    """Explain in words why some runs have equal rewards in all episodes."""
    if (data["shared_from"] != "").any():
        return "their buffers never filled, so that retention decided nothing"
    return "equal rewards in all episodes, as of buffers that never fill"


def reference_rows(here: xr.Dataset) -> list[ReferenceRow]:
    """Return the known scores of reference controllers, from the results of one plant at one noise and control rate.

    Variants of dynamic programming are left out if their score equals that of ordinary dynamic programming.
    """
    best, rows = float(here["reference_dp"]), []
    for name, label in LABELS.items():
        reward = float(here[name])
        if np.isfinite(reward) and not (label.startswith("DP") and reward == best):
            rows.append(ReferenceRow(name, label, reward, float(mu_r(here, here[name]))))
    for name in here["rival"].values.tolist() if "rival_score" in here else ():
        score = here["rival_score"].sel(rival=name)
        if np.isfinite(score):
            rows.append(
                ReferenceRow(RIVAL + name, reference_label(RIVAL + name), float(score), float(mu_r(here, score)))
            )
    return rows


def rival_measures(here: xr.Dataset, names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    """Yield the label of each rival, and its known measures of signals and responses by `names`, at one condition."""
    for name in here["rival"].values.tolist() if "rival_measures" in here else ():
        values = here["rival_measures"].sel(rival=name, measure=list(names)).values.tolist()
        if np.isfinite(values).any():
            yield reference_label(RIVAL + name), values


def against_rivals(data: xr.Dataset) -> list[str]:
    """Say for each condition of one plant whether the best learner or the best rival is better, without exploration.

    Rivals that know the model do not count.
    """
    known, late = [], data["greedy_episode"].values > data.sizes["episode"] - last_of(data)
    learners, strategies = (shortened(data[axis].values.tolist()) for axis in ("learner", "strategy"))
    for rate, noise in itertools.product(data["frequency"].values, data["noise"].values):
        here = data.sel(frequency=rate, noise=noise)
        rivals = [row for row in reference_rows(here) if row.name.startswith(RIVAL) and row.name != f"{RIVAL}MPPI"]
        greedy = here["reward_greedy"].isel(greedy_episode=late).mean("greedy_episode").mean("seed")
        if not rivals or not np.isfinite(greedy).any():
            continue
        rival, place = max(rivals, key=lambda row: row.reward), greedy.argmax(("learner", "strategy"))
        best = here.isel(place)
        runs = interval(best["reward_greedy"].values[:, late].mean(axis=1))
        word = "worse than" if rival.reward > runs.high else "better than" if rival.reward < runs.low else "as good as"
        digits = decimals([runs.mean, runs.low, runs.high, rival.reward])
        name = " ".join((learners[best["learner"].item()], strategies[best["strategy"].item()]))
        known.append(
            f"{rate:g} Hz, noise {noise:g}: without exploration, the best learner, {name} ({runs.text(digits)}), "
            f"is {word} {rival.label} ({rival.reward:.{digits}f})"
        )
    return known


def reference_label(name: str) -> str:
    """Return the name in tables of a reference controller, from its name in a `ReferenceRow`."""
    rival = name.removeprefix(RIVAL)
    return LABELS[name] if rival == name else RIVAL_LABELS.get(rival, shortened([rival])[rival])


def final_rewards(data: xr.Dataset) -> xr.DataArray:
    """Return the mean reward of the last episodes of each run of one plant, with NaN for failed runs."""
    late = data["reward"].isel(episode=slice(-last_of(data), None)).mean("episode", skipna=False)
    return late.where((abs(data["reward"]) < np.inf).all("episode"))


def unbeaten(data: xr.Dataset) -> Bools:
    """Return a mask `[noise, frequency]` of conditions under which no learner of one plant beats random control.

    Conditions without a finite final reward are not marked.
    """
    final = final_rewards(data).transpose("noise", "frequency", "learner", "strategy", "seed").values
    random = data["reference_random"].transpose("noise", "frequency").values
    mask = np.zeros(random.shape, np.bool_)
    for place in np.ndindex(random.shape):
        series = final[place].reshape(-1, final.shape[-1])
        mask[place] = np.isfinite(series).any() and not any(beats_random(one, float(random[place])) for one in series)
    return mask


def no_learning(data: xr.Dataset) -> tuple[str, list[str]]:
    """Return a headline and likely causes if no learner of one plant beats random control under some condition.

    The most likely cause comes first. Headline and causes are empty if some learner beats random control under each
    condition.
    """
    places = np.argwhere(unbeaten(data))
    if not len(places):
        return "", []
    noises, rates = (data[axis].values for axis in ("noise", "frequency"))
    run = runs_there(data).any(["learner", "strategy", "seed"])
    where = "; at ".join(f"noise {noises[i]:g}, {rates[j]:g} Hz" for i, j in places)
    headline = NONE_BEATS_RANDOM
    if len(places) < (count := int(run.sum())):
        headline += f" at {where}" if len(places) <= _MOST_CONDITIONS else f" in {len(places)} of {count} conditions"
    here = data.isel(noise=sorted({i for i, _ in places}), frequency=sorted({j for _, j in places}))
    return headline, [*_runaway(here), *_discounts(here), _length(here), _exploration(here)]


def _runaway(data: xr.Dataset) -> Iterator[str]:
    final, random = final_rewards(data), data["reference_random"]
    lowest, usual = float(final.min()), float(random.min())
    if lowest < -_RUNAWAY * float(abs(random).max()):
        yield (
            f"states that run away: rewards fall to {lowest:,.3g}, those of random control are {usual:,.3g}; let the "
            "plant terminate such episodes or stop at a limit, or lower its reward_scale"
        )


def _discounts(data: xr.Dataset) -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for learner, rate in itertools.product(data["learner"].values, data["frequency"].values):
        cell = data.sel(learner=learner, frequency=rate)
        gamma, episode = float(cell["discount"]), float(cell["episode_steps"].max()) / rate
        if not np.isfinite([gamma, episode]).all():  # no run of this learner at this rate
            continue
        ahead = np.inf if gamma >= 1 else 1 / ((1 - gamma) * rate)
        part = ahead / episode
        verdict = "perhaps not far enough" if part < _TOO_SHORT else "too far" if part > _TOO_FAR else "plausible"
        looks = "to its end and beyond" if np.isinf(ahead) else f"{duration(ahead)} ahead"
        text = f"γ = {gamma:g} at {rate:g} Hz looks {looks}, an episode takes {duration(episode)}: {verdict}"
        by_text.setdefault(text, []).append(str(learner))
    for text, learners in by_text.items():
        whose = f" of {', '.join(learners)}" if len(learners) < data.sizes["learner"] else ""
        yield f"the discount{whose}: {text}"


def _length(data: xr.Dataset) -> str:
    episodes = data.sizes["episode"]
    curve = data["reward"].where(np.isfinite(data["reward"])).mean([d for d in data["reward"].dims if d != "episode"])
    tenth = max(1, episodes // 10)
    ends = [float(curve.isel(episode=part).mean()) for part in (slice(-2 * tenth, -tenth), slice(-tenth, None))]
    digits = decimals(ends)
    rose = f"rewards went from {fixed(ends[0], digits)} to {fixed(ends[1], digits)} over its last two tenths"
    if not np.isfinite(ends).all():
        rose = "too short to decide whether rewards still rise"
    return f"the length of the run: {episodes:,} {counted_in(data)}; {rose}"


def _exploration(data: xr.Dataset) -> str:
    last = data["greedy_episode"].values > data.sizes["episode"] - last_of(data)
    greedy = data["reward_greedy"].isel(greedy_episode=last).mean(["greedy_episode", "seed"])
    ahead = (greedy - data["reference_random"]).values
    if not np.isfinite(ahead).any():
        return "exploration: no greedy episode at the end shows what it costs"
    gap = float(np.nanmax(ahead))
    verdict = "explore less at the end of the run" if gap > 0 else "so it is not exploration alone that costs reward"
    position = f"{fixed(abs(gap), decimals([gap]))} {'above' if gap > 0 else 'below'} random control"
    return f"exploration: without it, greedy episodes of the best are {position}, {verdict}"


Axis = Literal["strategy", "learner", "noise", "frequency", "plant"]
COMPARED: Final[tuple[Axis, ...]] = ("strategy", "learner", "noise", "frequency", "plant")
"""Axes of results along which runs can be compared. By default, the first axis with several values is used."""
_MOST_NAMED: Final = 4


class Comparison(NamedTuple):
    """A paired comparison of one combination of settings with a baseline that differs in one setting.

    Attributes:
        scores: Final score of each seed that was run; NaN for failed runs.
        effect: Paired differences from the baseline. None for the baseline itself, and if the baseline was not run.
        chance: p value of the paired sign-flip test, corrected for the tests of its family (`effects.family_p`): all
            comparisons with the baseline of one plant at one noise and control rate.
        better: Probability that a run is better than a run of the baseline.
        same: Whether all rewards equal those of the baseline, as with buffers that never fill. Equal runs are not
            tested.
        on_scale: Whether scores are normalised (μ_r), not rewards.
        undecided: Number of tests of the family that are not significant, and share Holm's correction.
    """

    learner: str
    strategy: str
    noise: float
    frequency: float
    scores: Floats
    effect: effects.Effect | None
    chance: float
    better: Interval | None
    same: bool = False
    plant: str = ""
    on_scale: bool = True
    undecided: int = 1

    @property
    def sign(self) -> int:
        """1 if the scores are significantly better than those of the baseline, −1 if significantly worse, else 0.

        Every verdict on a difference is this one: of tables, figures, reports and the sentence after a sweep.
        """
        if self.effect is None or self.chance >= effects.SIGNIFICANT:
            return 0
        return 1 if self.effect.estimate > 0 else -1

    @property
    def needed(self) -> int | None:
        """The number of seeds that would make a difference like this one significant, or None for too many."""
        return None if self.effect is None else effects.seeds_needed(self.effect, self.undecided)

    @property
    def failed(self) -> int:
        """The number of failed runs."""
        return int((~np.isfinite(self.scores)).sum())


def final_scores(data: xr.Dataset) -> xr.DataArray:
    """Return the final score μ_r of each run of one plant, or the final reward where μ_r is undefined.

    Failed runs are NaN.
    """
    return data["mu_final"].where(scaled(data), final_rewards(data)).transpose("noise", "frequency", ...)


def scaled(data: xr.Dataset) -> xr.DataArray:
    """Return a mask of the noise levels and control rates at which the normalised score μ_r of one plant is defined."""
    return mu_r(data, data["reference_dp"]).notnull()


def baseline_of(data: xr.Dataset, asked: str | None, axis: Axis = "strategy") -> str:
    """Return the baseline on an axis of results: the value `asked` as the results spell it, or else the first value."""
    return _name(data[axis].values[0]) if asked is None else value_of(data, asked, axis)


def value_of(data: xr.Dataset, asked: str, axis: Axis = "strategy") -> str:
    """Return a value on an axis of results as they spell it, given that spelling, that of tables, or another one."""
    names = [_name(value) for value in data[axis].values]
    spellings = {short: name for name, short in shortened(names).items()} | {name: name for name in names}
    if asked in spellings:
        return spellings[asked]
    if axis == "strategy":
        with contextlib.suppress(UserError):
            asked = str(parse(asked))
    elif axis in ("noise", "frequency"):
        with contextlib.suppress(ValueError):
            asked = _name(float(asked))
    if asked not in names:
        raise unknown(f"{axis} of this run:", asked, names)
    return asked


def _plants(data: xr.Dataset) -> list[xr.Dataset]:
    return [data] if "plant" not in data.dims else [data.isel(plant=i) for i in range(data.sizes["plant"])]


def _name(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:g}"


def compared(data: xr.Dataset, baseline: str, axis: Axis = "strategy") -> list[Comparison]:
    """Compare each combination of settings with a baseline, which has the value `baseline` on the given axis.

    All other settings of the baseline are equal. Differences are taken seed by seed, without failed runs. p values are
    corrected for all tests at one noise and control rate, except along the compared axis (Holm, 1979). Where μ_r is
    undefined, rewards are compared within a plant and control rate only.
    """
    plants = _plants(data)
    cells = ("noise", "frequency", "learner", "strategy")
    scores = np.stack([final_scores(one).transpose(*cells, "seed").values for one in plants])
    run = np.stack([runs_there(one).transpose(*cells, "seed").values for one in plants])
    rewards = np.stack([one["reward"].transpose(*cells, "seed", "episode").values for one in plants])
    known = np.stack([scaled(one).transpose("noise", "frequency").values for one in plants])
    values = [np.atleast_1d(data["plant"].values), *(data[name].values for name in cells)]
    along = ("plant", *cells).index(axis)
    first = [_name(value) for value in values[along]].index(baseline)
    families: dict[tuple[int, ...], list[Comparison]] = {}
    for place in np.ndindex(run.shape[:-1]):
        there, base = run[place], (*place[:along], first, *place[along + 1 :])
        if not there.any():
            continue
        effect, better, same = None, None, False
        one_scale = known[place[:3]] or (place[0] == base[0] and place[2] == base[2])
        if place != base and one_scale and known[place[:3]] == known[base[:3]]:
            differences = effects.paired([scores[place]], [scores[base]])
            if differences.n:
                effect, better = differences, effects.improvement(scores[place], scores[base])
                same = np.array_equal(rewards[place], rewards[base], equal_nan=True)
        plant, noise, frequency, learner, strategy = (each[i] for each, i in zip(values, place, strict=True))
        point = str(learner), str(strategy), float(noise), float(frequency)
        scale = bool(known[place[:3]])
        row = Comparison(*point, scores[place][there], effect, 1.0, better, same, str(plant), scale)
        families.setdefault(base[:3], []).append(row)
    for family in families.values():  # equal runs are not tested
        tested = {i: row.effect for i, row in enumerate(family) if row.effect is not None and not row.same}
        chances = effects.family_p([*tested.values()])
        undecided = sum(chance >= effects.SIGNIFICANT for chance in chances)
        for i, chance in zip(tested, chances, strict=True):
            family[i] = family[i]._replace(chance=chance, undecided=undecided)
    return [row for family in families.values() for row in family]


def comparison_tables(
    data: xr.Dataset, baseline: str | None = None, axis: Axis | None = None, explain: bool = False
) -> list[FittedTable]:
    """Return tables that compare values on one axis of results with a baseline, seed by seed.

    There is one table per plant, or a single table if plants are compared. The default axis is the first axis with
    several values. The default baseline is the first value that was run. A footnote explains the columns if `explain`.
    """
    if baseline is not None:
        axis = axis or ("learner" if baseline in data["learner"].values else "strategy")
        baseline = baseline_of(data, baseline, axis)
    parts = [(data.sel(plant=plant), (axis,) if axis else COMPARED[:-1]) for plant in data["plant"].values]
    if axis == "plant":
        parts = [(data, ("plant",))]
    comparisons = [(part, first_comparison(part, axes, baseline)) for part, axes in parts]
    if axis is None and not any(each for _, each in comparisons):
        comparisons = [(data, first_comparison(data, ("plant",)))]
    tables = [_table(part, *each, explain) for part, each in comparisons if each is not None]
    if axis is not None and not tables:
        value = baseline or baseline_of(data, None, axis)
        if data[axis].size > 1 and axis not in (known := _comparable(data)):
            reason = f"without μ_r, rewards at another {'rate' if axis == 'frequency' else axis} have another scale"
            hint = f"; --compare {' or '.join(known)}" if known else ""
            raise UserError(f"values of {axis} cannot be compared: {reason}{hint}")
        named = ", ".join(name for name in COMPARED if data[name].size > 1) or "nothing"
        raise UserError(f"no other {axis} was run with which {value} could be compared; axes that vary there: {named}")
    return tables


def _comparable(data: xr.Dataset) -> list[Axis]:
    """Return the axes along which several values were run, and whose scores have a common scale."""
    on_scale, run = all(scaled(one).any() for one in _plants(data)), runs_there(data)
    several = [axis for axis in run.dims if run.any([other for other in run.dims if other != axis]).sum() > 1]
    return [axis for axis in COMPARED if axis in several and (on_scale or axis not in ("frequency", "plant"))]


def first_comparison(
    data: xr.Dataset, axes: Sequence[Axis] = COMPARED[:-1], baseline: str | None = None
) -> tuple[list[Comparison], str, Axis] | None:
    """Compare runs with a baseline along the first axis for which suitable runs exist.

    The comparisons, the baseline and the axis are returned, or None if there is no such axis.
    """
    for axis in axes:
        run = runs_there(data)
        here = data[axis].values[np.atleast_1d(run.any([other for other in run.dims if other != axis]).values)]
        if here.size:
            value = baseline or _name(here[0])
            rows = compared(data, value, axis)
            if any(row.effect is not None for row in rows):
                return rows, value, axis
    return None


def families(points: Iterable[tuple[str, str, str, float, float]]) -> list[tuple[str, int]]:
    """Return the baseline and the number of comparisons of each family in a study that is still to be run.

    Args:
        points: Plant, learner, strategy, noise and control rate of each cell.
    """
    found = []
    for _, group in itertools.groupby(sorted(dict.fromkeys(points), key=itemgetter(0)), itemgetter(0)):
        own = [dict(zip(("plant", "learner", "strategy", "noise", "frequency"), point, strict=True)) for point in group]
        axis = next((axis for axis in COMPARED[:-1] if len({point[axis] for point in own}) > 1), None)
        if axis is None:
            continue
        base = own[0][axis]
        sizes = Counter(
            tuple(point[name] for name in ("noise", "frequency") if name != axis)
            for point in own
            if point[axis] != base and {**point, axis: base} in own
        )
        found += [(baseline_label(_name(base), axis), size) for size in sizes.values()]
    return found


_PLURALS: Final = {"strategy": "strategies", "learner": "learners", "noise": "noises", "frequency": "rates"}


def headline(rows: Sequence[Comparison], baseline: str, axis: Axis = "strategy") -> str:
    """Return the verdict on comparisons with a baseline: which values differ significantly, and how often.

    Args:
        rows: Paired comparisons with the baseline.
        axis: What is compared, for example "strategy" or "noise".
    """
    counts: dict[str, Counter[int]] = {}
    for row in rows:
        if row.effect is not None:
            values = {"noise": f"noise {row.noise:g}", "frequency": f"{row.frequency:g} Hz"}
            counts.setdefault(values.get(axis, str(getattr(row, axis))), Counter())[row.sign] += 1
    conditions, parts = max((each.total() for each in counts.values()), default=0), list[str]()
    names, value = shortened([*counts, baseline]), baseline_label(baseline, axis)
    for sign, word in ((1, "higher"), (-1, "lower")):
        hits = [name for name in counts if counts[name][sign]]
        if not hits:
            continue
        who = " and ".join(names[name] for name in hits)
        if len(hits) > 2:
            who = f"{len(hits)} of {len(counts)} {_PLURALS.get(axis, f'{axis}s')}"
        often = sorted({counts[name][sign] for name in hits})
        where = f" in {'at least ' * (len(often) > 1)}{often[0]} of {conditions} conditions" if conditions > 1 else ""
        end = f"end{'s' * (len(hits) == 1)} significantly {word} than {names.get(value, value)}"
        parts.append(f"{who} {word if parts else end}{where}")
    return ", ".join(parts) or f"{'no significant difference from' if counts else 'compared with'} {value}"


def verdict(data: xr.Dataset, found: tuple[list[Comparison], str, Axis] | None) -> str:
    """Return the verdict on one plant's results as a sentence, which never averages over conditions.

    Args:
        found: Result of `first_comparison`.
    """
    if all_failed(data):
        return "every run failed, with a reward that is not finite"
    beaten, _ = no_learning(data)
    if beaten == NONE_BEATS_RANDOM:
        return f"{beaten}, so these runs do not show which strategy or learner is better"
    if found is None:
        return f"no verdict, because there is nothing to compare with {baseline_of(data, None)}"
    text = _sentence(data, found)
    return f"{text}; {beaten[0].lower()}{beaten[1:]}" if beaten else text


def _sentence(data: xr.Dataset, found: tuple[list[Comparison], str, Axis]) -> str:
    tested = [row for row in found[0] if row.effect is not None and not row.same]
    text = headline(*found)
    if not tested:
        return f"{text}: {why_same(data)}"
    row = min(tested, key=lambda each: each.chance)
    if len(tested) > 1 and any(each.sign for each in tested):
        return text
    assert row.effect is not None
    low, high = row.effect.interval()
    ends = f" [{low:+.3g}, {high:+.3g}]" if np.isfinite(low) else ""
    sizes = f"{row.effect.estimate:+.3g}{ends}, p {'' if row.chance < 0.001 else '= '}{effects.p_text(row.chance)}"
    text += f" ({'smallest p: ' * (len(tested) > 1)}{sizes}, n = {row.effect.n})"
    if row.sign:
        return text
    if row.effect.n < (fewest := effects.fewest_seeds(row.undecided)):
        return f"{text}; {row.effect.n} seeds cannot decide this, {fewest} or more can"
    return f"{text}; about {needed:,} seeds would decide it" if (needed := row.needed) else text


_CAPTION: Final = (
    "differences are of paired seeds, with BCa intervals; p: paired sign-flip test, corrected (Holm) for the family of "
    "all comparisons of this table within {family}, which decides, not whether intervals overlap (--strategies "
    "declares a smaller family); seeds: if p is not below 0.05, how many would make a difference like this one "
    "significant with a power of 0.8, after the same correction. IQM: interquartile mean of the runs; P(better): "
    "probability that a run is better than one of the other; reach: score that so many of further runs reach, with "
    "95 % confidence; of too few runs for that, the worst, with the share of further runs that reach it"
)


def baseline_label(baseline: str, axis: Axis) -> str:
    """Return a baseline as text, with its unit if it is a noise or a control rate."""
    return {"noise": f"noise {baseline}", "frequency": f"{baseline} Hz"}.get(axis, baseline)


def _table(data: xr.Dataset, rows: list[Comparison], baseline: str, axis: Axis, explain: bool) -> FittedTable:
    named: list[Axis] = [name for name in ("plant", "learner", "strategy") if data[name].size > 1 or name == "strategy"]
    short = {name: shortened(np.atleast_1d(data[name].values).tolist()) for name in named}
    value = baseline_label(baseline, axis)
    nearly = f"{100 * effects.ASSURED:g} % reach"
    beyond = f"− {short.get(axis, {}).get(baseline, value)} [95 %]"
    numbers = ("n", "failed", "IQM [95 %]", beyond, "p", "seeds", "P(better)", nearly)
    plants = _plants(data)
    middles = [interval(row.scores, "interquartile mean") for row in rows]
    written: dict[bool, list[float]] = {}
    for row, mid in zip(rows, middles, strict=True):
        written.setdefault(row.on_scale, []).extend((mid.mean, mid.low, mid.high, row.scores.min()))
    digits = {scale: decimals(values) for scale, values in written.items()}
    measures = ["μ_final"] if True in digits else []
    measures += dict.fromkeys(episode_metric(one) for one in plants) if False in digits else []
    family = {"noise": "a rate", "frequency": "a noise"}.get(axis, "a noise and rate")
    whose = "all plants" if axis == "plant" else data["plant"].item()
    table = FittedTable(
        ("Hz", "noise", *named, *numbers),
        named,
        ("Hz", "noise", *numbers),
        droppable=("failed", "seeds", nearly, "P(better)"),
        title=f"{whose}: {' or '.join(measures)} of {the_last(plants[0])}, compared with {value}",
        caption="\n".join([*_notes(data, rows, baseline, axis), *[_CAPTION.format(family=family)] * explain]),
    )
    for row, mid in zip(rows, middles, strict=True):
        names = (short[name][getattr(row, name)] for name in named)
        counts, places = (f"{len(row.scores) - row.failed}", f"{row.failed}"), digits[row.on_scale]
        difference, reach = _difference(row, places + 1), _reach(row.scores, places)
        table.add(f"{row.frequency:g}", f"{row.noise:g}", *names, *counts, mid.text(places), *difference, reach)
    return table


def _notes(data: xr.Dataset, rows: list[Comparison], baseline: str, axis: Axis) -> Iterator[str]:
    if any(row.same for row in rows):
        yield f"same runs: {why_same(data)}"
    blank = [row for row in rows if row.effect is None and _name(getattr(row, axis)) != baseline]
    if blank:
        who = dict.fromkeys(
            " ".join(_name(getattr(row, name)) for name in COMPARED[:2] if name != axis) for row in blank
        )
        names = ", ".join(itertools.islice(who, _MOST_NAMED)) + (" …" if len(who) > _MOST_NAMED else "")
        scale = ", or on another scale" if axis in ("frequency", "plant") else ""
        yield f"blank: {baseline} was not run with {names}{scale}; --baseline chooses another"
    varied = [name for name in _comparable(data) if name != axis]
    if varied:
        yield f"other comparisons: --compare {' or '.join(varied)}"


def _difference(row: Comparison, digits: int) -> tuple[str, str, str, str]:
    if row.effect is None or row.better is None or row.same:
        return "same runs" if row.same else "", "", "", ""
    low, high = row.effect.interval()
    alone = " (one pair)" if row.effect.n == 1 else " (no spread)"
    ends = f" [{fixed(low, digits, '+')}, {fixed(high, digits, '+')}]" if np.isfinite(low) else alone
    difference, seeds = f"{fixed(row.effect.estimate, digits, '+')}{ends}", ""
    if not row.sign:
        seeds = "–" if (needed := row.needed) is None else f"{needed:,}"
    return difference, effects.p_text(row.chance), seeds, f"{row.better.mean:.2f}"


def _reach(scores: Floats, digits: int) -> str:
    if not np.isfinite(scores).all():
        return "–"
    bound = effects.assured(scores)
    if np.isfinite(bound):
        return f"{bound:.{digits}f}"
    return f"{scores.min():.{digits}f} ({100 * effects.assured_share(len(scores)):.0f} %)"
