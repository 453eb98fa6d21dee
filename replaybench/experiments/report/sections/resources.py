"""What a study cost: seconds and memory of every cell, and who computed it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replaybench.experiments.figures.style import Series, plant_name
from replaybench.experiments.report.look import Panel, Row, Section, Table, new_figure, number, plain, symbol
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.report.summary import amount
from replaybench.experiments.results.dataset import in_rounds


class Cost(NamedTuple):
    """What one cell took, its blocks of seeds together.

    Attributes:
        seconds: of all processes that computed it.
        steps: of the plant, all members and training episodes; 0 where the results do not say.
        memory: most bytes of any process that computed it; NaN where the results do not say.
        processor: its model name.
    """

    seconds: float
    steps: float
    memory: float
    processor: str


def resources_section(material: Material) -> Section:
    """Draw how long cells took, and list it."""
    costs = _costs(material)
    if not costs:
        return Section("resources", "Resources", [])
    total = sum(cost.seconds for cost in costs.values())
    processors = dict.fromkeys(cost.processor for cost in costs.values() if cost.processor)
    where = f", on {' and '.join(processors)}" if 0 < len(processors) < 4 else ""
    lead = f"{amount(len(costs), 'cell')} took {duration(total)} of computing in all{where}."
    lead += f" The longest took {duration(max(cost.seconds for cost in costs.values()))}"
    memory = [cost.memory for cost in costs.values() if np.isfinite(cost.memory)]
    lead += f"; the process that needed most had {max(memory) / 1e6:,.0f} MB of memory." if memory else "."
    lead += " A dot is a cell: one series in one condition, all of its seeds together."
    plants = sorted({point.plant for point, _ in costs})
    panels = [_panel(material, plant, costs) for plant in plants]
    return Section("resources", "Resources", [lead], panels, [_table(material, costs)])


def duration(seconds: float) -> str:
    """Write a time for people."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _costs(material: Material) -> dict[tuple[Point, Series], Cost]:
    data = material.data
    if "seconds" not in data:
        return {}
    # In a round, several episodes may have ended, and only their mean length is known.
    counted = ["episode_steps" in data and not in_rounds(data.isel(plant=p)) for p in range(len(material.plants))]
    found = {}
    for point in material.points():
        for series in material.series:
            learner, strategy = material.place(series)
            here = data.isel(point._asdict() | {"learner": learner, "strategy": strategy})
            seconds = float(here["seconds"].sum())
            if not seconds > 0:
                continue
            steps = float(here["episode_steps"].sum()) if counted[point.plant] else 0.0
            memory = here["memory"].values if "memory" in data else np.array([np.nan])
            told = dict.fromkeys(str(name) for name in here["processor"].values) if "processor" in here.coords else {}
            most = float(np.max(memory[np.isfinite(memory)], initial=-np.inf))
            found[point, series] = Cost(
                seconds, steps, most if most > 0 else np.nan, ", ".join(name for name in told if name)
            )
    return found


def _panel(material: Material, plant: int, costs: dict[tuple[Point, Series], Cost]) -> Panel:
    mine = {key: cost for key, cost in costs.items() if key[0].plant == plant}
    names = [one.label for one in reversed(material.series) if any(series == one for _, series in mine)]
    traces = []
    for (point, series), cost in sorted(mine.items(), key=lambda pair: -names.index(pair[0][1].label)):
        learner, strategy = material.place(series)
        rate = f", {cost.steps / cost.seconds:,.0f} steps/s" if cost.steps else ""
        traces.append(
            {
                "type": "scatter",
                "x": [cost.seconds],
                "y": [plain(series.label)],
                "mode": "markers",
                "marker": {"color": series.color, "size": 9, "symbol": symbol(series), "opacity": 0.8},
                "name": plain(series.label),
                "hovertemplate": f"{material.condition(point)}: {duration(cost.seconds)}{rate}<extra></extra>",
                "meta": {"noise": point.noise, "frequency": point.frequency, "learner": learner, "strategy": strategy},
            }
        )
    figure = new_figure(
        traces,
        "seconds of a cell",
        "",
        height=76 + 26 * len(names),
        xaxis={"showgrid": True, "range": [0, 1.08 * max(cost.seconds for cost in mine.values())]},
        yaxis={
            "type": "category",
            "showgrid": True,
            "categoryorder": "array",
            "categoryarray": list(map(plain, names)),
        },
    )
    title = plant_name(material.plants[plant])
    told = []
    for name in reversed(names):
        own = [cost.seconds for (_, series), cost in mine.items() if series.label == name]
        told.append(f"{name} {number(float(np.mean(own)), 1)}")
    words = f"Mean seconds of a cell on {title}: {'; '.join(told)}."
    return Panel(title, words, figure, {"plant": plant})


def _table(material: Material, costs: dict[tuple[Point, Series], Cost]) -> Table:
    rows = []
    for (point, series), cost in costs.items():
        learner, strategy = material.place(series)
        cells = [
            plant_name(material.plants[point.plant]),
            series.label,
            f"{material.data['noise'].values[point.noise]:g}",
            f"{material.data['frequency'].values[point.frequency]:g}",
            str(material.started(point, series)),
            f"{cost.seconds:,.1f}",
            f"{cost.steps / cost.seconds:,.0f}" if cost.steps else "–",
            f"{cost.memory / 1e6:,.0f}" if np.isfinite(cost.memory) else "–",
        ]
        rows.append(Row(cells, {**point._asdict(), "learner": learner, "strategy": strategy}))
    heads = ("plant", "learner and strategy", "noise", "Hz", "seeds", "seconds", "steps per second", "memory [MB]")
    return Table("Seconds and memory of all cells", heads, rows, 2)
