"""Summary of a report in sentences, with the best learner and strategy and the significance of its lead."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from replaybench.experiments.comparison import against_rivals, baseline_label, no_learning, verdict
from replaybench.experiments.dataset import counted_in
from replaybench.experiments.effects import p_text
from replaybench.experiments.statistics import DEAD_LEVEL
from replaybench.reports.figures.style import condition, plant_name
from replaybench.reports.page.report_data import ReportData, Standing, interval_of
from replaybench.reports.page.theme import MU, number, worded
from replaybench.runtime.quantities import decimals

_MOST_CONDITIONS: Final = 3
_MOST_NAMED: Final = 4


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
        "taken seed by seed. Significant: p < 0.05 in a paired sign-flip test, corrected for all comparisons with the "
        "baseline at one noise and control rate (Holm). Only comparisons with the baseline are tested. The highest "
        "score is chosen by the same runs that score it, which overestimates it a little."
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
    finished = int((data["started"].values != "").sum())
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
        words = re.sub(r"(?<=[ \[(])-(?=\d)", "−", verdict(report.of_plants[plant], report.comparisons[plant]))
        headline = words[0].upper() + words[1:]
        sentences = [*_highest(learnt), *_differences(report, plant), *([f"{unlearned}."] if unlearned else [])]
        beside = [f"At {words}." for words in against_rivals(report.of_plants[plant])]
        sentences += [re.sub(r"(?<=[ \[(])-(?=\d)", "−", each) for each in beside]
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


def _highest(rankings: list[list[Standing]]) -> list[str]:
    """Return a sentence about the highest score, or about how often each learner with a strategy had the highest."""
    firsts = [ranked[0] for ranked in rankings if ranked]
    if len(firsts) == 1:
        (best,) = firsts
        return [f"{best.series.label} has the highest score: {worded(best.score)}, n = {amount(best.seeds, 'seed')}."]
    counts = Counter(first.series.label for first in firsts).most_common()
    parts = [f"{label} in {count}" for label, count in counts]
    most = listed(parts) if len(parts) <= 4 else f"{listed(parts[:4])}, others in the rest"
    return [f"Highest score by condition: {most} (of {len(firsts)})."] if firsts else []


def _differences(report: ReportData, plant: int) -> list[str]:
    """Return sentences about the differences of one plant's scores from those of its baseline."""
    if (found := report.comparisons[plant]) is None:
        return []
    rows, baseline, axis = found
    effects = [(row, row.effect) for row in rows if row.effect is not None and not row.same]
    clear = sorted(((row, effect) for row, effect in effects if row.sign), key=lambda pair: -abs(pair[1].estimate))
    labels = {(one.learner, one.strategy): one.label for one in report.series}
    parts = [
        f"{labels[row.learner, row.strategy]} at {condition(row.noise, row.frequency)} {worded(interval_of(effect))} "
        f"(p {'' if row.chance < 0.001 else '= '}{p_text(row.chance)})"
        for row, effect in clear[:_MOST_NAMED]
    ]
    sentences = []
    if parts:
        more = f"; {amount(len(clear) - _MOST_NAMED, 'other')}" if len(clear) > _MOST_NAMED else ""
        sentences.append(f"Significant differences from {baseline_label(baseline, axis)}: {'; '.join(parts)}{more}.")
    if 0 < len(clear) < len(effects):
        sentences.append(f"{len(effects) - len(clear)} of {len(effects)} differences are not significant.")
    return sentences


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
