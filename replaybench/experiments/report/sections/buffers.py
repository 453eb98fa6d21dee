"""What buffers held along the run: shares by the tenth of the run that experiences come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.experiments.figures.learning_curves import EPISODE_LABELS
from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.report.look import INK, Panel, Row, Section, Table, new_figure, number, small
from replaybench.experiments.report.material import Material
from replaybench.experiments.report.snapshots import Kept, of_first_block, share_out
from replaybench.experiments.results.dataset import counted_in, in_rounds

MOST_PANELS: Final = 40
_TENTHS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "last")


def buffers_section(material: Material, kept: Sequence[Kept]) -> Section:
    """Draw the composition of each cell's buffers over time."""
    if not kept:
        return Section("buffers", "What buffers held", [])
    lead = (
        "Of all that is stored at a time, the share that each tenth of the run has brought in: dark from the first, "
        "bright from the last. A buffer that forgets the oldest becomes all bright, one that keeps everything has "
        f"equal layers. All seeds of a cell together{of_first_block(material)}."
    )
    shown = share_out(kept, MOST_PANELS)
    notes = ["Pictures are of the first cells of each plant; the table has all."] if len(shown) < len(kept) else []
    panels = [_panel(material, one) for one in shown]
    return Section("buffers", "What buffers held", [lead], panels, [_table(material, kept)], notes=notes)


def _panel(material: Material, kept: Kept) -> Panel:
    data = material.data.isel(plant=kept.point.plant)
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
        EPISODE_LABELS[in_rounds(data)],
        "share of the buffer [%]",
        height=230,
        hovermode="x unified",
        xaxis={"range": [kept.rounds[0], kept.rounds[-1]], "color": INK},
        yaxis={"range": [0, 100]},
    )
    title = f"{plant_name(material.plants[kept.point.plant])}, {material.condition(kept.point)}, {kept.series.label}"
    learner, strategy = material.place(kept.series)
    words = f"What the buffers of {title} held. {_told(kept)}"
    return Panel(title, words, figure, {**kept.point._asdict(), "learner": learner, "strategy": strategy})


def _told(kept: Kept) -> str:
    """Say what was stored at the end."""
    last = kept.origin[-1]
    total, collected = int(last.sum()), int(kept.collected.sum())
    halves = 100 * np.array([last[:5].sum(), last[5:].sum()]) / max(1, total)
    return (
        f"At the end {total:,} of {collected:,} collected experiences were stored, {halves[0]:.0f} % from the first "
        f"half of the run and {halves[1]:.0f} % from the second."
    )


def _table(material: Material, kept: Sequence[Kept]) -> Table:
    rows = []
    for one in kept:
        learner, strategy = material.place(one.series)
        last, stored = one.origin[-1], int(one.origin[-1].sum())
        cells = [
            f"{plant_name(material.plants[one.point.plant])}, {material.condition(one.point)}",
            one.series.label,
            f"{stored:,}",
            f"{100 * stored / max(1, int(one.collected.sum())):.3g} %",
            f"{100 * last[0] / max(1, stored):.0f} %",
            f"{100 * last[-1] / max(1, stored):.0f} %",
            number(float(one.exploration[0]), 3),
            number(float(one.exploration[-1]), 3),
        ]
        rows.append(Row(cells, {**one.point._asdict(), "learner": learner, "strategy": strategy}))
    heads = (
        "condition", "learner and strategy", "stored at the end", "of those collected", "from the first tenth",
        "from the last tenth", "mean exploration in it at first", "at the end",
    )  # fmt: skip
    counted = counted_in(material.data.isel(plant=0))[:-1]
    caption = f"What was stored after {counted} {kept[0].rounds[0]:,} and at the end"
    return Table(caption, heads, rows, 2)
