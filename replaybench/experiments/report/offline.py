"""The report of an offline replay: what learners reach, next to the recording and controllers that learn nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.references import normalise
from replaybench.data.numerics import VERSION
from replaybench.data.quantities import decimals
from replaybench.experiments.figures.curves import learning_curve
from replaybench.experiments.figures.style import PALETTE, RAW_LABELS, Series, plant_name
from replaybench.experiments.offline.scores import OfflineScores, read_scores
from replaybench.experiments.report.look import (
    MU,
    REFERENCE_DASHES,
    REFERENCE_WORDS,
    Panel,
    Row,
    Section,
    Table,
    in_reach,
    new_figure,
    plain,
)
from replaybench.experiments.report.page import Page, render
from replaybench.experiments.report.sections.curves import curve_traces, reference_traces
from replaybench.experiments.report.summary import Conclusion, Summary, amount

Floats = NDArray[np.float64]


def make_offline_report(path: Path) -> str:
    """Return the report of an offline replay's `scores.h5`, as HTML.

    Raises:
        UserError: it is damaged, holds something else, or an older version wrote it.
    """
    scores = read_scores(path)
    head, *rows = scores.rows()
    failed = int((~np.isfinite(scores.reward[:, -1])).sum())
    headlines = scores.headlines() or [f"{scores.label} ends at {head[1]}"]
    sentences = [f"{headline}." for headline in headlines[1:]] + [f"{why}." for why in [scores.no_score()] if why]
    plant, found = plant_name(str(scores.about["plant"])), scores.reference
    summary = Summary(
        f"{amount(len(scores.reward), 'learner')} ({scores.label}) learned offline from {scores.about['buffer']} in "
        f"{scores.updates[-1]:,} updates, and were then run on {plant} at {found.frequency:g} Hz with noise "
        f"{found.noise:g}, without exploration.",
        [Conclusion(plant, headlines[0], sentences, 0)],
        f"{amount(failed, 'learner')} failed." if failed else "No learner failed.",
        "Intervals hold with 95 % confidence for other seeds of the learners, not for another recording.",
    )
    unit = RAW_LABELS[found.episode_metric]
    cells = [Row(row, {}) for row in (head, *rows)]
    table = Table("Learners, the recording and controllers that learn nothing", ("", unit, MU), cells, 1, open=True)
    about = [Row((name, json.dumps(value)[:400]), {}) for name, value in scores.about.items()]
    sections = [
        Section("scores", "Scores", ["Means over runs, with intervals where there are several."], tables=[table]),
        _curves(scores, plant),
        Section("provenance", "Provenance", [], tables=[Table("Settings", ("what", "value"), about, 2, open=True)]),
    ]
    made = f"replaybench {VERSION}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    return render(Page(f"{scores.label}, offline on {plant}", summary, [], sections, [], made))


def _curves(scores: OfflineScores, plant: str) -> Section:
    """Draw rewards over updates, with the levels of what they are compared with."""
    found, usable = scores.reference, scores.reference.usable
    whole = scores.reward[np.isfinite(scores.reward).all(axis=1)]
    last = int(scores.updates[-1])

    def scale(reward: Floats | float) -> Floats:
        return normalise(reward, found) if usable else np.asarray(reward)

    rewards = {name: float(getattr(found, name.removeprefix("reference_"))) for name in REFERENCE_DASHES}
    finite = scale(whole).ravel()
    known = {name: float(scale(reward)) for name, reward in rewards.items() if np.isfinite(reward)}
    levels = in_reach(known, finite.min(initial=np.inf), finite.max(initial=-np.inf)) if len(whole) else known
    digits = decimals([*levels.values(), *finite])
    traces = reference_traces(levels, last, digits)
    names = []
    for (name, values), color in zip(scores.levels().items(), PALETTE[1:], strict=False):
        level = float(np.nanmean(scale(values)))
        line = {"type": "scatter", "x": [0, last], "y": [level, level], "mode": "lines", "hoverinfo": "skip"}
        traces.append({**line, "line": {"color": color, "width": 1.3}, "name": plain(name)})
        names.append(name)
    if len(whole):
        curve = learning_curve(scale(whole), window=1)
        series = Series("", scores.label, scores.label, PALETTE[0], "o", "-", "")
        traces += curve_traces({}, series, curve._replace(episode=scores.updates.astype(np.float64)), digits)
    figure = new_figure(traces, "updates", MU if usable else RAW_LABELS[found.episode_metric], hovermode="x")
    title = f"{plant}, {found.frequency:g} Hz, noise {found.noise:g}"
    lead = f"Greedy episodes: the mean over learners and its band. {REFERENCE_WORDS}."
    lead += f" Coloured lines: {'; '.join(names)}." if names else ""
    return Section("curves", "Learning curve", [lead], [Panel(title, f"Rewards over updates of {title}.", figure, {})])
