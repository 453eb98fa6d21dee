"""Report of an offline replay: learners, compared with the recording and with controllers that learn nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.all_figures import offline_series
from replaybench.experiments.figures.style import PALETTE, RAW_LABELS, plant_name
from replaybench.experiments.offline.scores import OfflineScores, read_scores
from replaybench.experiments.report.look import MU, REFERENCE_WORDS, Panel, Row, Section, Table, in_reach, new_figure
from replaybench.experiments.report.page import Page, render
from replaybench.experiments.report.sections.curves import curve_traces, level_trace, reference_traces
from replaybench.experiments.report.summary import Conclusion, Summary, amount


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
        f"{scores.updates[-1]:,} updates and were evaluated on {plant} at {found.frequency:g} Hz with noise "
        f"{found.noise:g}, without exploration.",
        [Conclusion(plant, headlines[0], sentences)],
        f"{amount(failed, 'learner')} failed." if failed else "No learner failed.",
        "The 95 % intervals hold for other seeds of the learners, not for another recording.",
    )
    cells = [Row(row, {}) for row in (head, *rows)]
    heads = ("", RAW_LABELS[found.episode_metric], MU)
    table = Table("Learners, the recording and controllers that learn nothing", heads, cells, 1, open=True)
    about = [Row((name, json.dumps(value)[:400]), {}) for name, value in scores.about.items()]
    sections = [
        Section("scores", "Scores", ["Means over runs, with intervals if there are several."], tables=[table]),
        _curves(scores, plant),
        Section("provenance", "Provenance", [], tables=[Table("Settings", ("what", "value"), about, 2, open=True)]),
    ]
    return render(Page(f"{scores.label}, offline on {plant}", summary, [], sections, []))


def _curves(scores: OfflineScores, plant: str) -> Section:
    found, last = scores.reference, int(scores.updates[-1])
    series, runs, curve, levels, known = offline_series(scores)
    references = in_reach(known, *((runs.min(), runs.max()) if curve else (-np.inf, np.inf)))
    digits = decimals([*references.values(), *runs.ravel()])
    traces = reference_traces(references, last, digits)
    for (name, level), color in zip(levels.items(), PALETTE[1:], strict=False):
        traces.append(level_trace(name, level.mean, last, {"color": color, "width": 1.3}))
    if curve:
        traces += curve_traces({}, series, curve, digits)
    unit = MU if found.usable else RAW_LABELS[found.episode_metric]
    figure = new_figure(traces, "updates", unit, hovermode="x")
    title = f"{plant}, {found.frequency:g} Hz, noise {found.noise:g}"
    lead = f"Greedy episodes: the mean over learners and its band. {REFERENCE_WORDS}."
    lead += f" Coloured lines: {'; '.join(levels)}." if levels else ""
    return Section("curves", "Learning curve", [lead], [Panel(title, f"Rewards over updates of {title}.", figure, {})])
