"""Contents of buffers over the run: shares by the tenth of the run in which experiences were collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.experiments.figures.curves import EPISODE_LABELS
from replaybench.experiments.report.look import INK, Panel, Row, Section, Table, new_figure, number, small
from replaybench.experiments.report.material import Material
from replaybench.experiments.report.snapshots import Kept, of_first_block, share_out
from replaybench.experiments.results.dataset import counted_in, in_rounds

MOST_PANELS: Final = 40
_TENTHS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "last")
_TITLE: Final = "Contents of buffers"


def buffers_section(material: Material, kept: Sequence[Kept]) -> Section:
    """Draw the composition of each cell's buffers over time."""
    if not kept:
        return Section("buffers", _TITLE, [])
    lead = (
        "Share of the stored experiences that was collected in each tenth of the run: dark for the first, bright for "
        "the last. The picture of a buffer that evicts the oldest experiences becomes bright; that of a buffer that "
        f"keeps everything has equal layers. All seeds of a cell together{of_first_block(material)}."
    )
    shown = share_out(kept, MOST_PANELS)
    notes = ["Pictures are of the first cells of each plant; the table lists all."] if len(shown) < len(kept) else []
    panels = [_panel(material, one) for one in shown]
    return Section("buffers", _TITLE, [lead], panels, [_table(material, kept)], notes=notes)


def _panel(material: Material, kept: Kept) -> Panel:
    total = np.maximum(kept.origin.sum(axis=1), 1)
    colors = sample_colorscale("Viridis", list(np.linspace(0.0, 1.0, len(_TENTHS))), colortype="rgb")
    traces = [
        {
            "type": "scatter",
            "x": kept.rounds,
            "y": small(100 * kept.origin[:, tenth] / total),
            "mode": "lines",
            "line": {"width": 0.4, "color": colors[tenth]},
            "fillcolor": colors[tenth],
            "stackgroup": "all",
            "name": f"{name} tenth",
            "hovertemplate": "%{y:.0f} %",
        }
        for tenth, name in enumerate(_TENTHS)
    ]
    figure = new_figure(
        traces,
        EPISODE_LABELS[in_rounds(material.of_plants[kept.point.plant])],
        "share of the buffer [%]",
        height=230,
        hovermode="x unified",
        xaxis={"range": [kept.rounds[0], kept.rounds[-1]], "color": INK},
        yaxis={"range": [0, 100]},
    )
    title, last, collected = material.title(kept.point, kept.series), kept.origin[-1], kept.collected.sum()
    stored = int(last.sum())
    early, late = 100 * np.array([last[:5].sum(), last[5:].sum()]) / max(1, stored)
    words = (
        f"Contents of the buffers of {title}. At the end {stored:,} of {collected:,} collected experiences were "
        f"stored, {early:.0f} % from the first half of the run and {late:.0f} % from the second."
    )
    return Panel(title, words, figure, material.places(kept.series, kept.point))


def _table(material: Material, kept: Sequence[Kept]) -> Table:
    rows = []
    for one in kept:
        last, stored = one.origin[-1], int(one.origin[-1].sum())
        cells = [
            material.title(one.point),
            one.series.label,
            f"{stored:,}",
            f"{100 * stored / max(1, int(one.collected.sum())):.3g} %",
            f"{100 * last[0] / max(1, stored):.0f} %",
            f"{100 * last[-1] / max(1, stored):.0f} %",
            number(float(one.exploration[0]), 3),
            number(float(one.exploration[-1]), 3),
        ]
        rows.append(Row(cells, material.places(one.series, one.point)))
    heads = (
        "condition", "learner and strategy", "stored at the end", "of those collected", "from the first tenth",
        "from the last tenth", "mean exploration at first", "at the end",
    )  # fmt: skip
    counted = counted_in(material.of_plants[0])[:-1]
    return Table(f"Stored experiences after {counted} {kept[0].rounds[0]:,} and at the end", heads, rows, 2)
