"""Summary of a report in sentences, with the best learner and strategy and the significance of its lead."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from replaybench.experiments.comparison import no_learning, why_same
from replaybench.experiments.dataset import counted_in, episode_metric
from replaybench.experiments.effects import FEWEST_SEEDS
from replaybench.experiments.statistics import DEAD_LEVEL, Interval
from replaybench.reports.figures.style import plant_name
from replaybench.reports.page.report_data import Lead, Point, ReportData, Standing
from replaybench.reports.page.theme import MU, number, worded
from replaybench.runtime.quantities import decimals

_MOST_CONDITIONS: Final = 3
NARROW: Final = 0.02
"""Leads in μ_r below this value are called narrow."""


class Conclusion(NamedTuple):
    """The conclusion about one plant, as a headline and sentences."""

    plant: str
    headline: str
    sentences: list[str]


class Summary(NamedTuple):
    """The text at the head of a report.

    Attributes:
        compared: Sentences about what was compared.
        conclusions: Results of each plant.
        counted: Sentences about the number of failed and collapsed runs.
        caution: Sentences about the limits of intervals and tests.
    """

    compared: str
    conclusions: list[Conclusion]
    counted: str
    caution: str


def summarise(report: ReportData) -> Summary:
    """Return a summary of a study, based on a ranking for each plant, noise level and control rate."""
    caution = (
        "Seeds are the units of all intervals (95 %, BCa bootstrap). Strategies share their seeds, so differences are "
        "taken seed by seed. Significant: p < 0.05 in a paired sign-flip test. The best is chosen by the same runs "
        "that score it, which overestimates its lead a little. Neither tests nor intervals are corrected for the "
        "number of comparisons."
    )
    if report.data.sizes["seed"] < 2:
        caution = "Every cell has a single seed, so differences may be due to chance."
    conclusions = [_conclusion(report, plant) for plant in range(len(report.plants))]
    return Summary(_compared(report), [each for each in conclusions if each], _failures(report), caution)


def listed(names: Sequence[str]) -> str:
    """Join names by commas, and the last name by "and"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def some(parts: Sequence[str], most: int) -> str:
    """Join the first `most` names, and state only the number of the others."""
    return listed(parts if len(parts) <= most else [*parts[:most], amount(len(parts) - most, "other")])


def amount(count: int, noun: str) -> str:
    """Return a count and a noun as text, with the noun in the plural unless the count is 1."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def _compared(report: ReportData) -> str:
    data, points = report.data, report.points
    strategies = list(dict.fromkeys(one.strategy for one in report.series))
    learners = list(dict.fromkeys(one.learner for one in report.series))
    plants = [plant_name(report.plants[p]) for p in dict.fromkeys(point.plant for point in points)]
    seeds = [report.started(point, one) for point in points for one in report.series]
    seeds = [count for count in seeds if count]
    what = "strategy" if len(strategies) == 1 else "strategies"
    text = f"The replay {what} {listed(strategies)}" if len(strategies) <= 6 else f"{len(strategies)} replay {what}"
    text += f" of {listed(learners)}" if len(learners) <= 6 else f" of {len(learners)} learners"
    noise, rates = (
        [f"{value:g}" for value in data[axis].values[sorted({getattr(point, axis) for point in points})]]
        for axis in ("noise", "frequency")
    )
    text += f" {'were' if len(strategies) > 1 else 'was'} run on {listed(plants)}"
    text += f", at noise {listed(noise)} and at {listed(rates)} Hz"
    spanned = len(strategies) * len(learners) * len(plants) * len(noise) * len(rates)
    text += ", though not in every combination of these" if len(seeds) < spanned else ""
    each = f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    text += f": {amount(len(seeds), 'cell')} of {each} {'seed' if each == '1' else 'seeds'}, "
    counted = f"{data.sizes['episode']:,} {counted_in(report.of_plants[0])}"
    text += f"{amount(sum(seeds), 'run')} in all, of {counted} each."
    cells = report.origin.get("cells")
    if report.origin.get("complete") is not False or not isinstance(cells, dict):
        return text
    finished = int((data["started"].values != "").sum()) if "started" in data.coords else 0
    return f"{text} The sweep is not complete: {finished:,} of its {amount(len(cells), 'cell')} had finished."


def _conclusion(report: ReportData, plant: int) -> Conclusion | None:
    standings = {point: ranked for point, ranked in report.standings.items() if point.plant == plant}
    if not standings:
        return None
    name = plant_name(report.plants[plant])
    unlearned, causes = no_learning(report.of_plants[plant])
    numbered = "; ".join(f"({place}) {cause}" for place, cause in enumerate(causes, 1))
    why = [re.sub(r"-(?=\d)", "−", f"Likely causes, in order: {numbered}.")] if causes else []
    learnt = [ranked for point, ranked in standings.items() if not report.unbeaten(point)]
    if learnt or not unlearned:
        headline, sentences = _headline(report, *report.over_points(plant))
        sentences += [*_by_condition(learnt), *([f"{unlearned}."] if unlearned else [])]
        return Conclusion(name, headline, [*sentences, *why])
    levels_by_condition = []
    for point, ranked in itertools.islice(standings.items(), _MOST_CONDITIONS):
        means = [float(np.nanmean(report.final(point, one.series, raw=True))) for one in ranked]
        references = report.references(point)
        digits = decimals([*means, *(row.reward for row in references)])
        levels = listed([f"{row.label} {number(row.reward, digits)}" for row in references])
        spread = " to ".join(dict.fromkeys((number(min(means), digits), number(max(means), digits))))
        levels_by_condition.append(f"At {report.condition(point)} learners end at {spread}; {levels}.")
    undecided = "These runs do not show which strategy or learner is better."
    return Conclusion(name, unlearned, [*levels_by_condition, undecided, *why])


def _headline(report: ReportData, points: list[Point], ranked: list[Standing]) -> tuple[str, list[str]]:
    """Return a headline that names the best learner and strategy overall, and sentences about the lead over others."""
    if not ranked:
        lacking = "No strategy has a score in every condition"
        reason = lacking if points else f"Without {MU}, conditions have no common scale"
        return "No overall winner", [f"{reason}, so there is no ranking over all of them."]
    best, *others = ranked
    data = report.of_plants[points[0].plant]
    unit = MU if report.normalised(points[0]) else episode_metric(data)
    where = f" on average over {amount(len(points), 'condition')}" if len(points) > 1 else ""
    score, name = f"{unit} {worded(best.score)}{where}", best.series.label
    leads = {one.series.label: one.behind for one in others if one.behind is not None}
    if not leads:
        return f"{name} stands alone", [f"{name} reached {score} ({amount(best.seeds, 'seed')})."]
    same = [label for label, lead in leads.items() if lead.same]
    tied = [label for label, lead in leads.items() if not lead.significant]
    reason = why_same(data)
    if len(same) == len(leads):
        names, seeds = listed([name, *same]), amount(best.seeds, "seed")
        headline = f"Nothing to compare: {names} have the same scores"
        return headline, [f"On every seed they reached {score} ({seeds}): {reason}."]
    close, lead = others[0], leads[others[0].series.label]
    sentences = [f"{name} scored highest: {score}, n = {best.seeds} seeds.", _against(close, lead, reason)]
    means = {label: lead.difference.mean for label, lead in [*leads.items()][1:] if lead.significant}
    behind = [f"{label} by {number(mean, 3 if mean < NARROW else 2)}" for label, mean in means.items()]
    if behind:
        sentences.append(f"Significantly behind it (p < 0.05): {some(behind, 4)}.")
    if not tied:
        return f"{name} came first{', narrowly' * (lead.difference.mean < NARROW and unit == MU)}", sentences
    if same:
        return f"No clear winner: {listed([name, *same])} have the same scores", sentences
    if lead.pairs < FEWEST_SEEDS:
        return f"{name} scored highest, but there are too few seeds for a test", sentences
    who = listed([name, *tied]) if len(tied) <= 2 else f"{len(tied) + 1} of {len(ranked)}"
    return f"No clear winner: {who} do not differ significantly", sentences


def _against(close: Standing, lead: Lead, reason: str) -> str:
    """Return a sentence about the lead over the second-best learner and strategy, with a `reason` for equal scores."""
    if not lead.pairs:
        return f"The next best is {close.series.label}, with {worded(close.score)}; no seed finished under both."
    if lead.same:
        return f"{close.series.label} has the same score on every seed: {reason}."
    if (gap := lead.difference).mean < 0:
        behind = Interval(-gap.mean, -gap.high, -gap.low, gap.degenerate)
        text = f"On the {amount(lead.pairs, 'seed')} that both finished it is behind the next best, "
        text += f"{close.series.label} ({worded(close.score)}), by {worded(behind)}"
        return f"{text}: its mean is higher because of seeds that only one of them finished."
    text = f"Seed by seed it is ahead of the next best, {close.series.label} ({worded(close.score)}), "
    text += f"by {worded(lead.difference)}, in {lead.ahead} of {lead.pairs} seeds"
    chance = f"p = {lead.chance:.3f}" if lead.chance >= 0.001 else "p < 0.001"
    if lead.significant:
        return f"{text}: a significant lead ({chance})."
    few = f"{amount(lead.pairs, 'seed')} {'is' if lead.pairs == 1 else 'are'} too few for a test"
    if lead.pairs < 2:
        return f"{text}; {few}."
    doubt = few if lead.pairs < FEWEST_SEEDS else f"the lead is not significant ({chance})"
    enough = f"about {lead.needed:,} seeds would be" if lead.needed else "more seeds than are practical would be"
    return f"{text}; {doubt}. If the true difference is as large as here, {enough} needed."


def _by_condition(rankings: list[list[Standing]]) -> list[str]:
    """Return a sentence that counts at how many noise levels and rates each learner with a strategy was best."""
    rankings = [
        ranked
        for ranked in rankings
        if len(ranked) < 2 or not all(one.behind and one.behind.same for one in ranked[1:])
    ]
    if len(rankings) < 2:
        return []
    counts = Counter(ranked[0].series.label for ranked in rankings if ranked).most_common()
    parts = [f"{label} in {count}" for label, count in counts]
    best = listed(parts) if len(parts) <= 4 else f"{listed(parts[:4])}, others in the rest"
    clear = sum(
        len(ranked) > 1 and all(one.behind and one.behind.significant for one in ranked[1:]) for ranked in rankings
    )
    return [
        f"Highest score by condition: {best} (of {len(rankings)}); "
        f"in {clear} of them the lead over every other is significant (p < 0.05)."
    ]


def _failures(report: ReportData) -> str:
    sentences = []
    normalised = any(map(report.normalised, report.points))
    causes = {
        "failed": ("failed", "a reward that is not finite", "are left out of scores and curves"),
        "dead": ("collapsed", f"final {MU} below {DEAD_LEVEL:g}", "count as any other"),
    }
    for name, (verb, meaning, effect) in causes.items():
        by_series = {one.label: sum(report.count(name, point, one) for point in report.points) for one in report.series}
        if total := sum(by_series.values()):
            counts = some([f"{count} of {label}" for label, count in by_series.items() if count], 7)
            sentences.append(f"{amount(total, 'run')} {verb} ({meaning}): {counts}; they {effect}.")
        elif name == "failed" or normalised:  # whether runs collapsed is known with μ_r only
            sentences.append(f"No run {verb}.")
    return " ".join(sentences)
