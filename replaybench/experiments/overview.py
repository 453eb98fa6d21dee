"""The overview of a study's results that a finished sweep prints: a small table of each plant, and the verdicts."""

import io
import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from replaybench.experiments.comparison import (
    Comparison,
    final_scores,
    first_comparison,
    reference_rows,
    scaled,
    verdict,
)
from replaybench.experiments.dataset import episode_metric, runs_there, the_last
from replaybench.experiments.effects import SIGNIFICANT
from replaybench.experiments.statistics import DEAD_LEVEL
from replaybench.experiments.text_table import FittedTable
from replaybench.runtime.quantities import decimals, fixed
from replaybench.runtime.user_file import shortened

LINES: Final = 25
WIDTH: Final = 80
_GAP: Final = 3
"""Width of the gap between two columns."""
_LEFT_OUT: Final = ("with lower scores", "noise levels or control rates")
_AXES: Final = ("learner", "strategy", "noise", "frequency")
_COUNTED: Final = {"dead": "†", "failed": "×"}
_LEGEND: Final = {
    "μ": "μ_final: 0 = random control, 1 = dynamic programming",
    "*": f"* differs significantly from the baseline (p < {SIGNIFICANT:g}, Holm for each condition)",
    "†": f"† runs that collapsed (μ_final < {DEAD_LEVEL:g})",
    "×": "× runs that failed",
}


def overview_table(data: xr.Dataset, rows: Sequence[Comparison], most: int) -> FittedTable:
    """Return a small table of one plant's final scores, with a column for each noise level and control rate.

    Args:
        rows: Comparisons of the plant with a baseline. Significant differences are marked.
        most: Largest number of rows. The first one and those with the highest scores are kept.
    """
    scores = final_scores(data).transpose(*_AXES, "seed").values
    run = runs_there(data).transpose(*_AXES, "seed").values
    usable = scaled(data).transpose("noise", "frequency").values
    counts = {mark: data[name].transpose(*_AXES).values for name, mark in _COUNTED.items()}
    signs = {(row.learner, row.strategy, row.noise, row.frequency): row.sign for row in rows}
    places = [tuple(place) for place in np.argwhere(run.any(axis=(0, 1, 4))).tolist()]
    means = {place: _mean(scores[place]) for place in np.ndindex(run.shape[:-1]) if run[place].any()}
    series = list(dict.fromkeys(place[:2] for place in means))
    overall = {one: _mean(scores[one]) for one in series}
    best = sorted(series[1:], key=lambda one: -np.nan_to_num(overall[one], nan=-np.inf))[: most - 1]
    kept = [one for one in series if one in (series[0], *best)]
    metric = "return" if episode_metric(data) == "return" else "reward"
    raw_digits = decimals(mean for place, mean in means.items() if not usable[place[2:]])
    names = ["learner", "strategy"] if data.sizes["learner"] > 1 else ["strategy"]
    short = {name: shortened(data[name].values.tolist()) for name in names}
    columns = {name: [short[name][str(data[name].values[one[_AXES.index(name)]])] for one in kept] for name in names}
    room = WIDTH - sum(max(map(cell_len, [name, *texts])) + _GAP for name, texts in columns.items())
    headings, shared = _headings(data, places)
    for (noise, rate), heading in zip(places, headings, strict=True):
        on_scale, cells = usable[noise, rate], list[tuple[str, str]]()
        for one in kept:
            place = (*one, noise, rate)
            mean = means.get(place, np.inf)
            text = "" if np.isinf(mean) else "–" if np.isnan(mean) else fixed(mean, 2 if on_scale else raw_digits)
            star = "*" if signs.get(tuple(data[axis].values[i] for axis, i in zip(_AXES, place, strict=True))) else ""
            marks = [f" {int(count[place])}{mark}" for mark, count in counts.items() if count[place] > 0]
            cells.append((text, star + "".join(marks)))
        wide = max(len(mark) for _, mark in cells)
        column = [f"{text}{mark:<{wide}}" for text, mark in cells]
        heading += f"\n{metric}" * (not on_scale and bool(usable[tuple(zip(*places, strict=True))].any()))
        room -= max(map(cell_len, [*heading.splitlines(), *column])) + _GAP
        if room < 0:
            break
        columns[heading] = column
    left_out = len(series) - len(kept), len(places) - (len(columns) - len(names))
    notes = [f"{count} more {what}" for count, what in zip(left_out, _LEFT_OUT, strict=True) if count]
    measure = "μ_final" if usable[tuple(zip(*places, strict=True))].any() else metric
    seeds = sorted({int(run[place].sum()) for place in means})
    n = " to ".join(dict.fromkeys((f"{seeds[0]}", f"{seeds[-1]}")))
    table = FittedTable(
        [*columns],
        names,
        [heading for heading in columns if heading not in names],
        title=f"{data['plant'].item()}{shared}: {measure} of {the_last(data)}, n = {n}",
        caption=f"… and {' and '.join(notes)}" if notes else "",
        edge=False,
    )
    for row in zip(*columns.values(), strict=True):
        table.add(*row)
    return table


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


def _headings(data: xr.Dataset, places: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """Return a heading for each condition, and the text of a value that all conditions share."""
    texts = [
        [f"noise {data['noise'].values[noise]:g}", f"{data['frequency'].values[rate]:g} Hz"] for noise, rate in places
    ]
    varied = [len({*column}) > 1 for column in zip(*texts, strict=True)]
    if not any(varied):
        return ["score"], "".join(f", {part}" for part in texts[0])
    shared = [f", {part}" for part, vary in zip(texts[0], varied, strict=True) if not vary]
    return ["\n".join(itertools.compress(parts, varied)) for parts in texts], "".join(shared)


def reference_line(data: xr.Dataset) -> str:
    """Return the scores of one plant's reference controllers, or their range over conditions, on one line."""
    usable, known = bool(scaled(data).values.any()), dict[str, list[float]]()
    for noise, rate in np.ndindex(data.sizes["noise"], data.sizes["frequency"]):
        for row in reference_rows(data.isel(noise=noise, frequency=rate)):
            if not usable or row.name not in ("reference_random", "reference_dp"):  # 0 and 1
                known.setdefault(row.label, []).append(row.mu if usable else row.reward)
    digits = 2 if usable else decimals(itertools.chain(*known.values()))
    text = ""
    for label, values in known.items():
        finite = [value for value in values if np.isfinite(value)]
        ends = dict.fromkeys(fixed(value, digits) for value in (min(finite), max(finite))) if finite else ["–"]
        part = f"{', ' if text else 'references: '}{label} {'–'.join(ends)}"
        if len(text) + len(part) > WIDTH - 2:
            return f"{text} …"
        text += part
    return text


def screen(data: xr.Dataset, lines: int | None = LINES) -> list[FittedTable | Text]:
    """Return the overview of all plants: tables, lines of references, a legend, an empty line and the verdicts.

    If these need more than `lines` lines of 80 columns, rows of tables are left out, and then whole plants.
    """
    plants = [data.isel(plant=place) for place in range(data.sizes["plant"])]
    plants = [plant for plant in plants if runs_there(plant).any()]
    found = [first_comparison(plant) for plant in plants]
    verdicts = [
        Text(f"verdict  {plant['plant'].item()}: {verdict(plant, each)}")
        for plant, each in zip(plants, found, strict=True)
    ]
    references = [reference_line(plant) for plant in plants]
    every = max(2, data.sizes["learner"] * data.sizes["strategy"])
    parts: list[FittedTable | Text] = []
    for count, most in itertools.product(range(len(plants), 0, -1), range(every, 1, -1)):
        parts = []
        for plant, each, line in zip(plants[:count], found, references, strict=False):
            parts += [overview_table(plant, each[0] if each else (), most), *([Text(line)] if line else [])]
        tables = [part for part in parts if isinstance(part, FittedTable)]
        texts = [text for table in tables for text in (table.title, *map(str, itertools.chain(*table.rows)))]
        parts += [Text(text) for mark, text in _LEGEND.items() if any(mark in each for each in texts)]
        parts += [Text(f"… and {len(plants) - count} more plants")] * (count < len(plants))
        parts += [Text(), *verdicts[:count]]
        if lines is None or _length(parts) <= lines:
            break
    return parts


def _length(parts: Sequence[FittedTable | Text]) -> int:
    written = io.StringIO()
    console = Console(file=written, width=WIDTH)
    for part in parts:
        console.print(part)
    return written.getvalue().count("\n")
