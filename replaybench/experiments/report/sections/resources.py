"""Computing time and memory of every cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replaybench.data.quantities import duration
from replaybench.experiments.figures.style import Series, plant_name
from replaybench.experiments.report.look import Panel, Row, Section, Table, new_figure, number, plain, symbol
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.summary import amount
from replaybench.experiments.results.dataset import in_rounds


class Cost(NamedTuple):
    """Cost of one cell, its blocks of seeds together.

    Attributes:
        seconds: of all processes that computed it.
        rate: of the plant's steps, over all members and training episodes [1/s]; 0 if not known.
        memory: largest memory of a process that computed it [B]; NaN if not known.
        processor: model name.
    """

    seconds: float
    rate: float
    memory: float
    processor: str


Costs = dict[tuple[Point, Series], Cost]


def resources_section(material: Material) -> Section:
    """Draw and list the computing time of cells."""
    costs = _costs(material)
    if not costs:
        return Section("resources", "Resources", [])
    seconds = [cost.seconds for cost in costs.values()]
    processors = dict.fromkeys(cost.processor for cost in costs.values() if cost.processor)
    where = f", on {' and '.join(processors)}" if 0 < len(processors) < 4 else ""
    lead = f"{amount(len(costs), 'cell')} took {duration(sum(seconds))} of computing in all{where}."
    lead += f" The longest took {duration(max(seconds))}"
    memory = [cost.memory for cost in costs.values() if np.isfinite(cost.memory)]
    lead += f"; the largest process had {max(memory) / 1e6:,.0f} MB of memory." if memory else "."
    lead += " A dot is a cell: one series in one condition, all of its seeds together."
    panels = [_panel(material, plant, costs) for plant in sorted({point.plant for point, _ in costs})]
    return Section("resources", "Resources", [lead], panels, [_table(material, costs)])


def _costs(material: Material) -> Costs:
    data = material.data
    if "seconds" not in data:
        return {}
    # In a round several episodes may end, of which only the mean length is known.
    counted = ["episode_steps" in data and not in_rounds(mine) for mine in material.of_plants]
    found = {}
    for point in material.points():
        for series in material.series:
            here = data.isel(material.places(series, point))
            seconds = float(here["seconds"].sum())
            if not seconds > 0:
                continue
            steps = float(here["episode_steps"].sum()) if counted[point.plant] else 0.0
            memory = float(here["memory"].max()) if "memory" in data else np.nan
            names = dict.fromkeys(map(str, here["processor"].values)) if "processor" in here.coords else {}
            found[point, series] = Cost(seconds, steps / seconds, memory, ", ".join(filter(None, names)))
    return found


def _panel(material: Material, plant: int, costs: Costs) -> Panel:
    mine = {key: cost for key, cost in costs.items() if key[0].plant == plant}
    means = {
        one.label: float(np.mean(own))
        for one in material.series
        if (own := [cost.seconds for (_, series), cost in mine.items() if series == one])
    }
    order = list(means)
    traces = []
    for (point, series), cost in sorted(mine.items(), key=lambda pair: order.index(pair[0][1].label)):
        rate, name = f", {cost.rate:,.0f} steps/s" if cost.rate else "", plain(series.label)
        traces.append(
            {
                "type": "scatter",
                "x": [cost.seconds],
                "y": [name],
                "mode": "markers",
                "marker": {"color": series.color, "size": 9, "symbol": symbol(series), "opacity": 0.8},
                "name": name,
                "hovertemplate": f"{material.condition(point)}: {duration(cost.seconds)}{rate}<extra></extra>",
                "meta": material.places(series, point),
            }
        )
    names = {"categoryorder": "array", "categoryarray": [plain(name) for name in reversed(order)]}
    figure = new_figure(
        traces,
        "seconds of a cell",
        "",
        height=76 + 26 * len(order),
        xaxis={"showgrid": True, "range": [0, 1.08 * max(cost.seconds for cost in mine.values())]},
        yaxis={"type": "category", "showgrid": True, **names},
    )
    title = plant_name(material.plants[plant])
    words = "; ".join(f"{name} {number(mean, 1)}" for name, mean in means.items())
    return Panel(title, f"Mean seconds of a cell on {title}: {words}.", figure, {"plant": plant})


def _table(material: Material, costs: Costs) -> Table:
    rows = []
    for (point, series), cost in costs.items():
        cells = [
            plant_name(material.plants[point.plant]),
            series.label,
            *material.numbers(point),
            str(material.started(point, series)),
            f"{cost.seconds:,.1f}",
            f"{cost.rate:,.0f}" if cost.rate else "–",
            f"{cost.memory / 1e6:,.0f}" if np.isfinite(cost.memory) else "–",
        ]
        rows.append(Row(cells, material.places(series, point)))
    heads = ("plant", "learner and strategy", "noise", "Hz", "seeds", "seconds", "steps per second", "memory [MB]")
    return Table("Seconds and memory of all cells", heads, rows, 2)
