"""Propose a strategy from probes, with reasons, and a capacity by the 90 % rule (de Bruin et al. 2018, section 9.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from replaybench.evidence.advice.rules import SAMPLINGS, Candidate, Traits, candidates, rules
from replaybench.experiments.comparison import final_scores, reference_rows, scaled
from replaybench.experiments.dataset import runs_there
from replaybench.experiments.effects import SIGNIFICANT, Effect, flipped, holm, paired
from replaybench.runtime.arrays import Floats

SHARE: Final = 0.9
LEAST_EPISODES: Final = 20
"""With fewer episodes there is no learning curve."""
_SMOOTHED: Final = 0.05
"""Share of a run over which curves are averaged."""
_STILL: Final = 0.02
"""A curve has converged if its last rise is below this share of final − start."""
_PARTS: Final = 4
"""Something was learned if the last of this number of parts is significantly better than the first."""


@dataclass(frozen=True)
class Capacity:
    """The capacity that the 90 % rule derives from a learning curve.

    Attributes:
        steps: experiences collected when the curve has risen by 90 % of the way from start to final performance.
        stored: experiences of the whole run.
        start, final: rewards at 0 % and at 100 %.
        rise: rise from the last but one tenth of the run to the last, as a share of final − start.
        rising: whether the rise is significantly above 0; then `steps` is a lower bound.
        converged: whether the rise is significantly below 2 %.
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
        """Describe whether the curve still rises."""
        if self.converged:
            return "no longer rising"
        return "still rising" if self.rising else "not known to have converged"


def ninety_percent(rewards: Floats, steps: Floats, start: float) -> Capacity | None:
    """Apply the 90 % rule to training rewards `[S, E]` of FULL[Uniform] and the lengths of episodes `[S, E]`.

    The paper divides curves by the final performance, which needs rewards that begin near 0. Here 90 % is nine tenths
    of the way from the random controller's reward, `start`, to the final reward. Failed seeds are left out.

    Returns:
        None if the final performance is not above the start, or for fewer than 20 episodes.
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
    """Return whether the last quarter of curves `[S, E]` is significantly better than the first (Mann-Whitney)."""
    quarter = max(1, rewards.shape[1] // _PARTS)
    whole = rewards[np.isfinite(rewards).all(axis=1)]
    first, last = whole[:, :quarter].ravel(), whole[:, -quarter:].ravel()
    return len(whole) > 0 and bool(stats.mannwhitneyu(last, first, alternative="greater").pvalue < SIGNIFICANT)


def moving_mean(curve: Floats, window: int) -> Floats:
    """Return the mean of the last `window` values of a curve `[E]` at each place, of fewer at its beginning."""
    # A running sum would lose the digits of all values after one huge reward.
    begins = np.maximum(0, np.arange(1, len(curve) + 1) - window)
    return np.array([curve[begin : end + 1].mean() for end, begin in enumerate(begins)])


def rounded(steps: int) -> int:
    """Round a number of experiences up to two significant digits."""
    if steps < 10:
        return max(1, steps)
    unit = int(10 ** (len(str(steps)) - 2))
    return -(-steps // unit) * unit


NEAR: Final = 0.01
"""Scores that are below the best by at most this count as equal; the rules decide between them."""
_FEW: Final = 8
_NAMED: Final = 3


class Probe(NamedTuple):
    """A strategy that was tried, or could be.

    Attributes:
        name: notation, with the capacity.
        scores: final scores `[seed]`, NaN where a run failed or was not done; empty if not tried.
        beyond: paired differences from FULL[Uniform]; None for FULL[Uniform] itself.
        chance: p value of the sign-flip test of these differences, corrected (Holm 1979).
        missing: number of seeds whose runs were not done, because the sweep was stopped.
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
        """Mean score; a failed run counts as 0."""
        return float(np.where(np.isfinite(self.scores), self.scores, 0.0).sum() / (len(self.scores) - self.missing))


@dataclass(frozen=True)
class Advice:
    """A proposal and its reasons.

    Attributes:
        plant, frequency, noise, learner, episodes, seeds: the conditions; noise is None if it is not known.
        unit: unit of scores.
        known: scores of the reference controllers, by name.
        capacity: from the learning curve of FULL[Uniform] or of a recording; None if nothing was learned.
        probes: all strategies that were tried, the best first.
        ranked: candidates if nothing was tried, most votes first.
        chosen: the proposal; None if no learner beats random control.
        changes: what would change the proposal, in sentences.
        cautions: limits of the advice, in sentences.
        headline, causes: the reason and its likely causes, in order, if nothing is proposed.
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


def scores_of(here: xr.Dataset) -> tuple[dict[str, Floats], dict[str, float], str]:
    """Return final scores of one plant, learner, noise and rate, those of reference controllers, and their unit.

    Scores `[seed]` are by strategy that was run; all have the same seeds, NaN where a run failed or was not done.
    Without μ_r, 1 is the best single run and 0 the random controller; if its reward is unknown, 0 is the worst single
    run. If no run beats the random controller, scores are differences from its reward.
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
    """Compare the tried strategies with FULL[Uniform], seed by seed; sort by score. `missing` counts seeds not run."""
    full = scores["FULL[Uniform]"]
    probes = []
    for candidate, name, capacity in tried:
        beyond = paired([scores[name]], [full]) if name != "FULL[Uniform]" else None
        probes.append(Probe(candidate, name, capacity, scores[name], beyond, 1.0, missing[name]))
    chances = iter(holm([float(flipped(probe.beyond.differences)) for probe in probes if probe.beyond is not None]))
    probes = [probe if probe.beyond is None else probe._replace(chance=next(chances)) for probe in probes]
    return sorted(probes, key=lambda probe: -probe.mean)


def choose(probes: Sequence[Probe]) -> Probe:
    """Return the best probe; among probes with equal scores (`NEAR`), the one with most votes."""
    near = [probe for probe in probes if probe.mean >= probes[0].mean - NEAR]
    return max(near, key=lambda probe: (probe.candidate.votes, probe.mean))


def changes_of(
    traits: Traits, probes: Sequence[Probe], affordable: Sequence[Probe], chosen: Probe, capacity: Capacity | None
) -> list[str]:
    """Return sentences about what would change the proposal; `affordable` are the probes that fit into the memory."""
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
    """Return sentences about the values of traits at which rules about a strategy begin or cease to hold."""
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
    """Return a sentence about how longer runs may change the capacity, or an empty list if the curve has converged."""
    if capacity is None or capacity.converged:
        return []
    verb = "would raise the capacity above" if capacity.rising else "may ask for another capacity than"
    return [
        f"the learning curve is {capacity.state} ({capacity.rise:+z.1%} over the last tenth): longer runs "
        f"{verb} {capacity.steps}"
    ]


def _next(chosen: Probe, rival: Probe) -> list[str]:
    """Compare the proposal with the best other probe; return a sentence about what would change the choice."""
    between = paired([chosen.scores], [rival.scores])
    if not between.n:
        return []
    low, high = between.interval()
    ends = f" [{low:+z.3f}, {high:+z.3f}]" if np.isfinite(low) else ""
    significance = "significant" if flipped(between.differences) < SIGNIFICANT else "not significant"
    own, other = chosen.candidate.votes, rival.candidate.votes
    if own == other:
        why, turn = "as many rules speak for both", "be better"
    else:
        more, turn = (chosen, f"be better by more than {NEAR}") if own > other else (rival, f"come within {NEAR}")
        votes = f"{max(own, other):+d} to {min(own, other):+d}"
        why = f"within {NEAR} the rules decide, of which more speak for {more.name} ({votes})"
    return [
        f"{rival.name} is next: {chosen.name} − {rival.name} = {between.estimate:+z.3f}{ends} over {between.n} seeds, "
        f"{significance}; {why}: to be proposed it would have to {turn} over more seeds"
    ]


def cautions_of(
    capacity: Capacity | None, chosen: Probe | None, seeds: int, episodes: int, traits: Traits, counted: bool = True
) -> Iterator[str]:
    """Yield sentences about limits of the advice; `counted` is whether the number of experiences is known."""
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
    if traits.authority is None:
        yield "how far single actions move the plant was not measured"
    if traits.decay is None:
        yield "whether exploration decayed is not known: the run's study.toml lacks the learner's settings"


def about_capacities(capacity: Capacity | None, probes: Sequence[Probe], never: Sequence[str]) -> Iterator[str]:
    """Yield sentences about strategies left out because no experience was overwritten, and about capacities."""
    if never:
        yield (
            f"not judged, because their capacity holds the whole run, as FULL does: {', '.join(never)}; "
            "run them longer, or with a smaller capacity"
        )
    sizes = sorted({each.capacity for each in probes if each.capacity is not None})
    if sizes and (capacity is None or rounded(capacity.steps) > sizes[-1]):
        asked = "gives none" if capacity is None else f"asks for {rounded(capacity.steps)}"
        yield f"bounded retentions were tried with {sizes[-1]} experiences; the 90 % rule {asked}"
