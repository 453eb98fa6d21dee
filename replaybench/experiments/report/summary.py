"""What a report says first, in words: what was compared, what won, and how sure that is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.report.comparison import Lead, Overall, Standing, over_points
from replaybench.experiments.report.look import MU, number, worded
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.dataset import counted_in, episode_metric
from replaybench.experiments.results.effects import FEWEST_SEEDS
from replaybench.experiments.results.references import no_learning, why_same
from replaybench.experiments.results.statistics import DEAD_LEVEL, Interval

_MOST_CONDITIONS: Final = 3
NARROW: Final = 0.02
"""A lead in μ_r that may be real and matters little."""


class Conclusion(NamedTuple):
    """What one plant's runs come to: a headline, sentences, and which plant it is."""

    plant: str
    headline: str
    sentences: list[str]
    place: int


class Summary(NamedTuple):
    """The words at the head of a report.

    Attributes:
        compared: what was compared.
        conclusions: by plant.
        counted: failed and dead runs.
        caution: how to read the intervals.
    """

    compared: str
    conclusions: list[Conclusion]
    counted: str
    caution: str


def summarise(material: Material, standings: dict[Point, list[Standing]]) -> Summary:
    """Say what a study found.

    Args:
        standings: the ranking at each condition.
    """
    found = [_conclusion(material, plant, standings) for plant in range(len(material.plants))]
    return Summary(
        _compared(material, standings), [each for each in found if each], _failures(material), _caution(material)
    )


def listed(names: Sequence[str]) -> str:
    """Write names as a sentence does."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def some(parts: Sequence[str], most: int) -> str:
    """Write the first of them as a sentence does, and how many others there are."""
    return listed(parts if len(parts) <= most else [*parts[:most], amount(len(parts) - most, "other")])


def amount(count: int, what: str) -> str:
    """Write how many of what there are."""
    return (
        f"{count:,} {what}"
        if count == 1
        else f"{count:,} {what[:-1]}ies"
        if what.endswith("y")
        else f"{count:,} {what}s"
    )


def _compared(material: Material, standings: dict[Point, list[Standing]]) -> str:
    data = material.data
    strategies = [str(name) for name in dict.fromkeys(one.strategy for one in material.series)]
    learners = [str(name) for name in dict.fromkeys(one.learner for one in material.series)]
    plants = [plant_name(material.plants[p]) for p in dict.fromkeys(point.plant for point in standings)]
    cells = [(point, one) for point in standings for one in material.series if material.started(point, one)]
    runs = sum(material.started(point, one) for point, one in cells)
    what = "The replay strategy" if len(strategies) == 1 else f"{_count(len(strategies))} replay strategies"
    text = f"{what} {listed(strategies)}" if len(strategies) <= 6 else what
    text += f" of {listed(learners)}" if len(learners) <= 6 else f" of {len(learners)} learners"
    text += f" {'were' if len(strategies) > 1 else 'was'} run on {listed(plants)}"
    noise, rates = (
        data[axis].values[sorted({getattr(point, axis) for point in standings})] for axis in ("noise", "frequency")
    )
    text += f", at {_values('noise', noise)} and at {_values('', rates)} Hz"
    seeds = sorted({material.started(point, one) for point, one in cells})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spanned = len(strategies) * len(learners) * len(plants) * len(noise) * len(rates)
    text += ", though not in every combination of these" if len(cells) < spanned else ""
    text += (
        f": {amount(len(cells), 'cell')} of {each} {'seed' if each == '1' else 'seeds'}, {amount(runs, 'run')} in all, "
    )
    return text + f"of {data.sizes['episode']:,} {counted_in(data.isel(plant=0))} each.{_incomplete(material)}"


def _incomplete(material: Material) -> str:
    """Say that cells are missing of a sweep that runs, or was interrupted."""
    cells = material.origin.get("cells")
    if material.origin.get("complete") is not False or not isinstance(cells, dict):
        return ""
    there = int((material.data["started"].values != "").sum()) if "started" in material.data.coords else 0
    return f" The sweep is not complete: {there:,} of its {amount(len(cells), 'cell')} had finished."


def _count(number: int) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    return words[number] if number < len(words) else str(number)


def _values(what: str, values: np.ndarray) -> str:
    return f"{what} {listed([f'{value:g}' for value in values])}".strip()


def _conclusion(material: Material, plant: int, standings: dict[Point, list[Standing]]) -> Conclusion | None:
    points = [point for point in standings if point.plant == plant]
    if not points:
        return None
    name, overall = plant_name(material.plants[plant]), over_points(material, plant)
    data = material.data.isel(plant=plant)
    vain, causes = no_learning(data)
    numbered = "; ".join(f"({place}) {cause}" for place, cause in enumerate(causes, 1))
    why = [re.sub(r"-(?=\d)", "−", f"Likely causes, in order: {numbered}.")] if causes else []
    learnt = {point: standings[point] for point in points if not material.unbeaten(point)}
    if not learnt and vain:
        return Conclusion(name, vain, [*_beside_references(material, points, standings), *why], plant)
    headline, sentences = _headline(material, overall)
    sentences += _by_condition(material, learnt)
    return Conclusion(name, headline, [*sentences, *([f"{vain}."] if vain else []), *why], plant)


def _beside_references(
    material: Material, points: Sequence[Point], standings: dict[Point, list[Standing]]
) -> list[str]:
    """Say what learners and references come to where no learner beats random control, and that none is ahead."""
    told = []
    for point in points[:_MOST_CONDITIONS]:
        means = [float(np.nanmean(material.final(point, one.series, raw=True))) for one in standings[point]]
        references = material.references(point)
        digits = decimals([*means, *(row.reward for row in references)])
        beside = listed([f"{row.label} {number(row.reward, digits)}" for row in references])
        spread = " to ".join(dict.fromkeys((number(min(means), digits), number(max(means), digits))))
        told.append(f"At {material.condition(point)} learners end at {spread}; {beside}.")
    return [*told, "So these runs do not say which strategy or learner is better."]


def _headline(material: Material, overall: Overall) -> tuple[str, list[str]]:
    """Say who leads over all conditions, against whom, and how sure that is."""
    if not overall.standings:
        lacking = "No strategy has a score in every condition"
        reason = lacking if overall.points else f"Without {MU}, conditions have no common scale"
        return "No overall winner", [f"{reason}, so there is no ranking over all of them."]
    best, *others = overall.standings
    first = overall.points[0]
    unit = MU if material.normalised(first) else episode_metric(material.data.isel(plant=first.plant))
    where = f" on average over {amount(len(overall.points), 'condition')}" if len(overall.points) > 1 else ""
    score = f"{best.series.label} reached {unit} {worded(best.score)}{where} ({amount(best.seeds, 'seed')})."
    if not others:
        return f"{best.series.label} stands alone", [score]
    close = others[0]
    assert close.behind is not None
    same = [one.series.label for one in others if one.behind is not None and one.behind.same]
    tied = [one.series.label for one in others if one.behind is not None and not one.behind.sure]
    reason = why_same(material.data.isel(plant=first.plant))
    if len(same) == len(others):
        everyone = listed([best.series.label, *same])
        reached = f"Seed by seed they reached {unit} {worded(best.score)}{where} ({amount(best.seeds, 'seed')})"
        return f"Nothing to compare: {everyone} came to the same scores", [f"{reached}: {reason}."]
    sentences = [f"{best.series.label} scored highest: {unit} {worded(best.score)}{where}, n = {best.seeds} seeds."]
    sentences.append(_against(close, close.behind, reason))
    behind = [one for one in others[1:] if one.behind is not None and one.behind.sure]
    if behind:
        told = some([f"{one.series.label} by {_short(one.behind)}" for one in behind if one.behind], 4)
        sentences.append(f"Surely behind it: {told}.")
    if not tied:
        narrowly = ", narrowly" if close.behind.difference.mean < NARROW and unit == MU else ""
        return f"{best.series.label} came first{narrowly}", sentences
    if same:
        return f"No clear winner: {listed([best.series.label, *same])} came to the same scores", sentences
    if close.behind.pairs < FEWEST_SEEDS:
        return f"{best.series.label} scored highest, but there are too few seeds to be sure", sentences
    if len(tied) > 2:
        return f"No clear winner: {len(tied) + 1} of {len(overall.standings)} are too close to call", sentences
    return f"No clear winner: {listed([best.series.label, *tied])} are too close to call", sentences


def _short(lead: Lead) -> str:
    return number(lead.difference.mean, 3 if lead.difference.mean < NARROW else 2)


def _against(close: Standing, lead: Lead, reason: str) -> str:
    """Say how far the best is ahead of the next one; `reason` is why equal scores are equal."""
    if not lead.pairs:
        return f"The next best is {close.series.label}, with {worded(close.score)}; no seed finished under both."
    if lead.same:
        return f"{close.series.label} came to the very same scores, seed by seed: {reason}."
    if (gap := lead.difference).mean < 0:
        behind = Interval(-gap.mean, -gap.high, -gap.low, gap.degenerate)
        text = f"On the {amount(lead.pairs, 'seed')} that both finished it is behind the next best, "
        text += f"{close.series.label} ({worded(close.score)}), by {worded(behind)}"
        return f"{text}: its mean is the higher one for seeds that only one of them finished."
    text = f"Seed by seed it is ahead of the next best, {close.series.label} ({worded(close.score)}), "
    text += f"by {worded(lead.difference)}, in {lead.ahead} of {lead.pairs} seeds"
    if lead.sure:
        return f"{text} ({_chance(lead)}): more than chance."
    few = f"{amount(lead.pairs, 'seed')} {'is' if lead.pairs == 1 else 'are'} too few for a claim"
    doubt = few if lead.pairs < FEWEST_SEEDS else f"these runs do not tell the two apart ({_chance(lead)})"
    if lead.pairs < 2:
        return f"{text}; {few}."
    enough = f"about {lead.needed:,} seeds would" if lead.needed else "more seeds than anybody runs would be needed"
    return f"{text}; {doubt}. If the difference is what it was here, {enough}."


def _chance(lead: Lead) -> str:
    return f"p = {lead.chance:.3f}" if lead.chance >= 0.001 else "p < 0.001"


def _by_condition(material: Material, standings: dict[Point, list[Standing]]) -> list[str]:
    """Say who was best where, of conditions in which not all came to the same scores."""
    standings = {
        point: ranked
        for point, ranked in standings.items()
        if len(ranked) < 2 or not all(one.behind and one.behind.same for one in ranked[1:])
    }
    if len(standings) < 2:
        return []
    best = {point: ranked[0].series.label for point, ranked in standings.items() if ranked}
    counts = Counter(best.values()).most_common()
    parts = [f"{label} in {count}" for label, count in counts]
    told = listed(parts) if len(parts) <= 4 else f"{listed(parts[:4])}, others in the rest"
    sure = sum(
        bool(ranked[1:]) and all(one.behind is not None and one.behind.sure for one in ranked[1:])
        for ranked in standings.values()
    )
    return [
        f"Condition by condition the highest score was that of {told} (of {len(standings)}); "
        f"in {sure} of them the lead over every other is beyond doubt of chance."
    ]


def _failures(material: Material) -> str:
    """Count failed and dead runs."""
    words = []
    normalised = any(material.normalised(point) for point in material.points())
    for name, meaning in (("failed", "a reward that is not finite"), ("dead", f"final {MU} below {DEAD_LEVEL:g}")):
        by_series = {
            one.label: sum(material.count(name, point, one) for point in material.points()) for one in material.series
        }
        total = sum(by_series.values())
        if total:
            told = some([f"{count} of {label}" for label, count in by_series.items() if count], 7)
            verb = "are left out of scores and curves" if name == "failed" else "count as any other"
            words.append(f"{amount(total, 'run')} {name} ({meaning}): {told}; they {verb}.")
        elif name == "failed" or normalised:  # without μ_r nobody knows
            words.append(f"No run {'failed' if name == 'failed' else 'was dead at its end'}.")
    return " ".join(words)


def _caution(material: Material) -> str:
    if material.data.sizes["seed"] < 2:
        return "Every cell has a single seed, so nothing here says how much chance is in it."
    return (
        "Seeds are the units of all intervals (95 %, BCa bootstrap). Strategies share their seeds, so differences are "
        "taken seed by seed; sure is what a test that flips their signs finds by chance in less than 1 of 20 cases. "
        "The winner is named by the same runs that score it, which flatters its lead a little, and neither test nor "
        "intervals are corrected for how many comparisons there are."
    )
