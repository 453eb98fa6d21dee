"""Proposal of a strategy from trial runs, and of a capacity by the 90 % rule (de Bruin et al., 2018, section 9.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from replaybench.evidence.advice.rules import SAMPLINGS, Candidate, Traits, candidates, rules
from replaybench.experiments.comparison import final_scores, reference_rows, scaled
from replaybench.experiments.dataset import runs_there
from replaybench.experiments.effects import SIGNIFICANT, Effect, family_p, paired
from replaybench.runtime.arrays import Floats

SHARE: Final = 0.9
LEAST_EPISODES: Final = 20
"""Smallest number of episodes of a learning curve."""
_SMOOTHED: Final = 0.05
"""Window of the moving mean of learning curves, as a fraction of the run."""
_STILL: Final = 0.02
"""Rise in the last tenth of a learning curve below which it has converged, as a fraction of final − start."""
_PARTS: Final = 4
"""Number of equal parts of a learning curve, of which the first and the last are compared."""


@dataclass(frozen=True)
class Capacity:
    """The buffer capacity by the 90 % rule (de Bruin et al., 2018, section 9.1), and properties of the learning curve.

    Attributes:
        steps: Number of experiences collected until the curve has risen by 90 % of the difference final − start. This
            is the capacity.
        stored: Number of experiences of the whole run.
        start: Reward at the beginning of the curve.
        final: Mean reward of the last tenth of the curve.
        rise: Difference between the last tenth of the curve and the tenth before, as a fraction of final − start.
        rising: Whether the rise is significantly above 0. If so, `steps` is a lower bound.
        converged: Whether the rise is significantly below 2 %.
    """

    steps: int
    stored: int
    start: float
    final: float
    rise: float
    rising: bool
    converged: bool

    @property
    def state(self) -> str:
        """Text that describes whether the learning curve still rises."""
        if self.converged:
            return "no longer rising"
        return "still rising" if self.rising else "not known to have converged"


def ninety_percent(rewards: Floats, steps: Floats, start: float) -> Capacity | None:
    """Derive a buffer capacity from a learning curve by the 90 % rule (de Bruin et al., 2018, section 9.1).

    The rule asks for the number of experiences that were collected until 90 % of the final performance was reached. The
    paper divides curves by the final performance, which needs rewards that begin near 0. Here, 90 % means nine tenths
    of the difference between `start` and the final reward. Seeds whose runs failed are left out. Return None for fewer
    than 20 episodes, or if the final reward is not above `start`.

    Args:
        rewards: Reward of each training episode with FULL[Uniform] (uniform sampling from all experiences), shape
            `[seeds, episodes]`.
        steps: Length of each episode, `[seeds, episodes]`.
        start: Reward before learning, for example that of random control.
    """
    whole = np.isfinite(rewards).all(axis=1)
    rewards, steps = rewards[whole], steps[whole]
    episodes = rewards.shape[1]
    if not whole.any() or episodes < LEAST_EPISODES:
        return None
    last = max(1, episodes // 10)
    final = float(rewards[:, -last:].mean())
    if not final > start:
        return None
    smooth = moving_mean(rewards.mean(axis=0), max(1, round(_SMOOTHED * episodes)))
    reached = int(np.argmax(smooth >= start + SHARE * (final - start)))
    counts = steps.mean(axis=0).cumsum()
    rising = paired([rewards[:, -last:].mean(axis=1)], [rewards[:, -2 * last : -last].mean(axis=1)])
    least, most = rising.interval()
    return Capacity(
        steps=int(counts[reached]),
        stored=int(counts[-1]),
        start=start,
        final=final,
        rise=rising.estimate / (final - start),
        rising=bool(least > 0),
        converged=bool(most < _STILL * (final - start)),
    )


def improves(rewards: Floats) -> bool:
    """Return whether the last quarter of learning curves has significantly higher rewards than the first quarter.

    The Mann-Whitney test is used. `rewards` has shape `[seeds, episodes]`.
    """
    quarter = max(1, rewards.shape[1] // _PARTS)
    whole = rewards[np.isfinite(rewards).all(axis=1)]
    first, last = whole[:, :quarter].ravel(), whole[:, -quarter:].ravel()
    return len(whole) > 0 and bool(stats.mannwhitneyu(last, first, alternative="greater").pvalue < SIGNIFICANT)


def moving_mean(curve: Floats, window: int) -> Floats:
    """Return the mean `[n]` over the last `window` values at each point of a curve `[n]`, over fewer at the start."""
    # A running sum would lose the digits of all values after one huge reward.
    begins = np.maximum(0, np.arange(1, len(curve) + 1) - window)
    return np.array([curve[begin : end + 1].mean() for end, begin in enumerate(begins)])


def rounded(steps: int) -> int:
    """Round a number of experiences up to two significant digits, and to at least 1."""
    if steps < 10:
        return max(1, steps)
    unit = int(10 ** (len(str(steps)) - 2))
    return -(-steps // unit) * unit


NEAR: Final = 0.01
"""Largest difference from the best score at which a score counts as equal. Rules of advice then decide."""
_FEW: Final = 8
_NAMED: Final = 3


class Probe(NamedTuple):
    """A replay strategy and the scores of its trial runs.

    Attributes:
        name: Notation of the strategy with its capacity, for example `FIFO(1000)[PER]`.
        capacity: Capacity of the buffer; None if the buffer holds the whole run, or if the capacity is not known.
        scores: Final score of each seed; NaN where a run failed or was not done. Empty if the strategy was not tried.
        beyond: Differences from FULL[Uniform] (all experiences, sampled uniformly), paired by seed; None for
            FULL[Uniform] itself.
        chance: p value of a paired sign-flip test of these differences, corrected for several tests (Holm, 1979).
        missing: Number of seeds whose runs were not done, because the study was stopped.
    """

    candidate: Candidate
    name: str
    capacity: int | None
    scores: Floats
    beyond: Effect | None
    chance: float
    missing: int = 0

    @property
    def failed(self) -> int:
        """Number of runs that failed."""
        return int((~np.isfinite(self.scores)).sum()) - self.missing

    @property
    def mean(self) -> float:
        """Mean score, in which a failed run counts as 0."""
        return float(np.where(np.isfinite(self.scores), self.scores, 0.0).sum() / (len(self.scores) - self.missing))


@dataclass(frozen=True)
class Advice:
    """A proposed replay strategy for a plant, with the reasons for the proposal.

    Attributes:
        noise: Standard deviation of the normalised sensor and actuator noise; None if unknown.
        unit: Text that explains the scale of the scores.
        capacity: Capacity by the 90 % rule; None if there is no learning curve or nothing was learned.
        probes: All strategies that were tried, with the best score first.
        chosen: The proposal; None if no strategy beats random control.
        changes: Sentences about what would change the proposal.
        cautions: Sentences about the limits of the advice.
        ranked: Strategies if nothing was tried, sorted by the number of rules that recommend them.
        known: Scores of the reference controllers by name.
        headline: Reason why nothing is proposed; empty if there is a proposal.
        causes: Likely causes of that reason, the likeliest first.
        volume: Replay volume of the learner, which is the number of replays for each experience; None if unknown.
    """

    plant: str
    frequency: float
    noise: float | None
    learner: str
    episodes: int
    seeds: int
    unit: str
    traits: Traits
    capacity: Capacity | None
    probes: Sequence[Probe]
    chosen: Probe | None
    changes: Sequence[str]
    cautions: Sequence[str]
    ranked: Sequence[Probe] = ()
    known: Mapping[str, float] = field(default_factory=dict)
    headline: str = ""
    causes: Sequence[str] = ()
    volume: float | None = None


def scores_of(here: xr.Dataset) -> tuple[dict[str, Floats], dict[str, float], str]:
    """Return the final scores of all strategies for one plant, learner, noise and control rate.

    Scores are μ_r (0: random control, 1: dynamic programming) where μ_r is defined. Otherwise 0 is random control and 1
    is the best single run. If the reward of random control is not known, 0 is the worst single run. If no run beats
    random control, scores are rewards minus the reward of random control.

    Returns:
        scores: Score of each seed by strategy; NaN where a run failed or was not done.
        known: Scores of the reference controllers by name.
        unit: Text that explains the scale of the scores.
    """
    data = here.expand_dims(["noise", "frequency", "learner"]).transpose("noise", "frequency", "learner", ...)
    final = final_scores(data).isel(noise=0, frequency=0, learner=0)
    run = runs_there(here).any("seed")
    by_name = {str(name): final.sel(strategy=name).values for name in here["strategy"].values[run.values]}
    known = reference_rows(here)
    if bool(scaled(data).values.all()):
        return by_name, {row.label: row.mu for row in known}, "μ_r (0 = random, 1 = dynamic programming)"
    low, least = float(here["reference_random"]), "random control"
    single = [float(value) for values in by_name.values() for value in values if np.isfinite(value)]
    if not np.isfinite(low):  # the sweep stopped before its references, or random control diverges
        low, least = min(single, default=0.0), "worst single run"
    high = max(single, default=low)
    beaten = high > low
    span = high - low if beaten else 1.0
    return (
        {name: (values - low) / span for name, values in by_name.items()},
        {row.label: (row.reward - low) / span for row in known},
        f"0 = {least}, 1 = best single run" if beaten else f"final reward less that of {least}, {low:.4g}",
    )


def probes_of(
    scores: dict[str, Floats], missing: Mapping[str, int], tried: Sequence[tuple[Candidate, str, int | None]]
) -> list[Probe]:
    """Compare strategies seed by seed with the baseline FULL[Uniform], and return the best score first.

    `scores` has the score of each seed by strategy, and `missing` the number of seeds that were not run. `tried` lists
    the strategies to compare, each with its notation and capacity.
    """
    full = scores["FULL[Uniform]"]
    probes = []
    for candidate, name, capacity in tried:
        beyond = paired([scores[name]], [full]) if name != "FULL[Uniform]" else None
        probes.append(Probe(candidate, name, capacity, scores[name], beyond, 1.0, missing[name]))
    chances = iter(family_p([probe.beyond for probe in probes if probe.beyond is not None]))
    probes = [probe if probe.beyond is None else probe._replace(chance=next(chances)) for probe in probes]
    return sorted(probes, key=lambda probe: -probe.mean)


def choose(probes: Sequence[Probe]) -> Probe:
    """Return the most recommended strategy among those whose scores are within 0.01 of the best score.

    Recommendations are votes of the rules of advice. `probes` must be sorted, with the best score first.
    """
    near = [probe for probe in probes if probe.mean >= probes[0].mean - NEAR]
    return max(near, key=lambda probe: (probe.candidate.votes, probe.mean))


def changes_of(
    traits: Traits, probes: Sequence[Probe], affordable: Sequence[Probe], chosen: Probe, capacity: Capacity | None
) -> list[str]:
    """Return sentences about what would change the proposal.

    `probes` are all strategies that were tried, and `affordable` those whose buffers fit into the allowed memory. Each
    sequence begins with the best score.
    """
    changes = []
    rivals = [probe for probe in affordable if probe.name != chosen.name]
    if rivals:
        changes += _next(chosen, rivals[0])
    if probes[0] is not affordable[0]:
        changes.append(f"{probes[0].name} has the best score, but does not fit into the memory")
    changes += edges_of(traits, chosen.candidate)
    tried = {(probe.candidate.retention, probe.candidate.sampling) for probe in probes}
    if all(probe.candidate.retention != "FULL" for probe in affordable):
        tried |= {("FULL", sampling) for sampling in SAMPLINGS}  # not untried: it does not fit into the memory
    best = chosen.candidate.votes
    untried = [one for one in candidates(traits) if (one.retention, one.sampling) not in tried and one.votes > best]
    if untried:
        named = ", ".join(f"{one.strategy()} ({one.votes:+d})" for one in untried[:_NAMED])
        changes.append(f"not tried, though more rules speak for it: {named}; a larger budget would try it")
    return [*changes, *capacity_change(capacity)]


def edges_of(traits: Traits, chosen: Candidate) -> list[str]:
    """Return one sentence per rule of advice about a strategy, with the limit of the trait where the rule holds."""
    parts, sentences = {chosen.retention, chosen.sampling}, []
    for rule in rules():
        value = rule.value(traits)
        if value is not None and np.isfinite(value) and not parts.isdisjoint((*rule.for_, *rule.against)):
            state = "speaks" if rule.least <= value <= rule.most else "would speak"
            sides = (("for", rule.for_), ("against", rule.against))
            verbs = [f"{verb} {' and '.join(named)}" for verb, side in sides if (named := sorted(parts & {*side}))]
            known = f"{rule.trait} is {value:.3g}: rule {rule.id} {state} {', and '.join(verbs)}"
            sentences.append(f"{known} where it is {rule.ends()}")
    return sentences


def capacity_change(capacity: Capacity | None) -> list[str]:
    """Return a sentence about how longer runs may change the capacity, or no sentence for a converged curve."""
    if capacity is None or capacity.converged:
        return []
    verb = "would raise the capacity above" if capacity.rising else "may ask for another capacity than"
    return [
        f"the learning curve is {capacity.state} ({capacity.rise:+z.1%} over the last tenth): longer runs "
        f"{verb} {capacity.steps}"
    ]


def _next(chosen: Probe, rival: Probe) -> list[str]:
    """Return a sentence that compares the proposal with the next best strategy, if a seed was run with each."""
    between = paired([chosen.scores], [rival.scores])
    if not between.n:
        return []
    low, high = between.interval()
    ends = f" [{low:+z.3f}, {high:+z.3f}]" if np.isfinite(low) else ""
    own, other = chosen.candidate.votes, rival.candidate.votes
    if own == other:
        why, turn = "as many rules speak for both", "be better"
    else:
        more, turn = (chosen, f"be better by more than {NEAR}") if own > other else (rival, f"come within {NEAR}")
        votes = f"{max(own, other):+d} to {min(own, other):+d}"
        why = f"within {NEAR} the rules decide, of which more speak for {more.name} ({votes})"
    return [
        f"{rival.name} is next: {chosen.name} − {rival.name} = {between.estimate:+z.3f}{ends} over {between.n} seeds; "
        f"{why}: to be proposed it would have to {turn} over more seeds"
    ]


def cautions_of(
    capacity: Capacity | None, chosen: Probe | None, seeds: int, episodes: int, traits: Traits, counted: bool = True
) -> Iterator[str]:
    """Yield sentences about the limits of the advice. `counted` is whether lengths of episodes in steps are known."""
    if not counted:
        yield "only the plant's file gives the number of experiences of an iteration; name it with --plant"
    elif capacity is None and episodes < LEAST_EPISODES:
        few = f"{episodes} episodes are too few for the 90 % rule"
        yield f"{few}, which gives no capacity; --episodes {LEAST_EPISODES} or more"
    elif capacity is None and chosen is not None:
        yield "FULL[Uniform] learned nothing here, or next to nothing: run longer before you rely on this"
    if seeds < _FEW:
        yield f"intervals of {seeds} seeds are too narrow (docs/explanation/statistics.md); use 10 or more"
    if chosen is not None and chosen.beyond is not None and not chosen.chance < SIGNIFICANT:
        yield f"{chosen.name} is not significantly better than FULL[Uniform] (p = {chosen.chance:.2f})"
    if traits.symmetry is None:
        yield "whether the plant is its own mirror image is not known: it has no equations, or its file was not loaded"
    if traits.late:
        yield "learners do not observe all commands that are under way: set history in [channel]"
    if traits.authority is None:
        yield "how far single actions move the plant was not measured"
    if traits.decay is None:
        yield "whether exploration decayed is not known: the run's study.toml lacks the learner's settings"


def about_capacities(capacity: Capacity | None, probes: Sequence[Probe], never: Sequence[str]) -> Iterator[str]:
    """Yield sentences about capacities that were too small or too large.

    A capacity was too large if the buffer never overwrote an experience. `never` lists the strategies of such buffers.
    """
    if never:
        yield (
            f"not judged, because their capacity holds the whole run, as FULL does: {', '.join(never)}; "
            "run them longer, or with a smaller capacity"
        )
    sizes = sorted({each.capacity for each in probes if each.capacity is not None})
    if sizes and (capacity is None or rounded(capacity.steps) > sizes[-1]):
        asked = "gives none" if capacity is None else f"asks for {rounded(capacity.steps)}"
        yield f"bounded retentions were tried with {sizes[-1]} experiences; the 90 % rule {asked}"
