"""Composition of a stored buffer as a figure: histograms of age and annotations, maps of the visited states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.figures.single_file import write_figure
from replaybench.experiments.figures.style import GREY, PALETTE, label_angle, new_figure, plant_name, style, write_note
from replaybench.experiments.figures.surfaces import draw_ends
from replaybench.experiments.inspection.composition import Composition
from replaybench.experiments.inspection.composition_report import QUANTITIES, whose
from replaybench.experiments.inspection.float_histogram import FloatHistogram
from replaybench.experiments.inspection.state_visits import Visits
from replaybench.replay.files.buffer_schema import BufferFacts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS: Final = 40
_LOGARITHMIC: Final = ("td_error", "priority")
_HEIGHT: Final = 2.35


def draw_composition(found: Composition, facts: BufferFacts, plant: Plant | None, path: Path) -> None:
    """Draw the result of `measure` for a known or unknown plant, and write it to `path`, atomically."""
    with style():
        write_figure(_draw(found, facts, plant), path)


def _draw(found: Composition, facts: BufferFacts, plant: Plant | None) -> Figure:
    """Draw the histograms, and a single map right of them or several maps in rows below them."""
    planes = found.visits.planes if found.visits is not None else []
    single, histograms = len(planes) == 1, len(found.quantities)
    across = (1 if histograms <= 3 else 2) if single else 3
    above = -(-histograms // across)
    rows = max(2, above) if single else above - (-len(planes) // across)
    title = f"{plant_name(str(facts.plant))}: {whose(found, facts)}".replace("$", r"\$")  # not a formula
    figure = new_figure(2.9 * across + 5.4 * single, _HEIGHT * rows, title, _caption(found, plant is not None))
    cells = figure.add_gridspec(rows, across + single, width_ratios=[1.0] * across + [2.0] * single)
    for place, (name, counted) in enumerate(found.quantities.items()):
        axes = figure.add_subplot(cells[divmod(place, across)])
        if name == "age":
            _draw_ages(axes, found)
        else:
            _draw_histogram(axes, name, counted)
    for plane in range(len(planes)):
        assert found.visits is not None
        cell = cells[:, -1] if single else cells[above + plane // across, plane % across]
        _draw_plane(figure, figure.add_subplot(cell), found.visits, plane, plant)
    return figure


def _caption(found: Composition, known: bool) -> str:
    share = found.stored / max(1, int(found.collected.sum()))
    each = f"units of up to {found.unit_steps} steps, " if found.unit_steps > 1 else ""
    text = (
        f"{found.stored:,} experiences stored ({each}{100 * share:.3g} % of those collected). Age: experiences that "
        "the member has collected since. Grey: the same number, retained uniformly over the run."
    )
    if found.visits is not None:
        text += " Map: states in which they begin, as observed; white was never visited."
        text += " Circle: start; cross: reference." if known else ""
    return text


def _draw_ages(axes: Axes, found: Composition) -> None:
    ages = found.ages
    edges = np.arange(len(ages.stored) + 1) * ages.width
    even = 100 * ages.collected / max(1, ages.collected.sum())
    axes.stairs(100 * ages.stored / max(1, found.stored), edges, fill=True, color=PALETTE[0])
    axes.stairs(even, edges, color=GREY, linewidth=1.0, baseline=None)
    axes.set(xlabel="age [experiences]", ylabel="share [%]", xlim=(0, edges[-1]))
    axes.locator_params(axis="x", nbins=4)


def _draw_histogram(axes: Axes, name: str, counted: FloatHistogram) -> None:
    quantity = QUANTITIES[name]
    unit = f" [{quantity.unit}]" if quantity.unit else ""
    axes.set(xlabel=f"{quantity.label}{unit}", ylabel="share [%]")
    numbers, counts = counted.numbers.astype(np.float64), counted.counts
    if not numbers.size:
        write_note(axes, "none is finite" if counted.infinite + counted.undefined else "nothing is stored")
        return
    logarithmic = name in _LOGARITHMIC and numbers[-1] > 0
    if logarithmic:
        numbers = np.maximum(numbers, numbers[numbers > 0][0])
        axes.set_xscale("log")
    edges = histogram_edges(float(numbers[0]), float(numbers[-1]), quantity.whole, logarithmic)
    heights, _ = np.histogram(numbers, edges, weights=counts)
    axes.stairs(100 * heights / counts.sum(), edges, fill=True, color=PALETTE[0])
    if counted.infinite or counted.undefined:
        words = [f"{counted.infinite:,} {quantity.infinite}"] * bool(counted.infinite)
        words += [f"{counted.undefined:,} NaN"] * bool(counted.undefined)
        axes.set_title(f"not shown: {', '.join(words)}", color=GREY, size=8)


def histogram_edges(low: float, high: float, whole: bool, logarithmic: bool) -> NDArray[np.float64]:
    """Return the edges of at most 40 equal bins that hold [low, high]; for whole numbers, edges lie between them."""
    if whole:
        width = max(1, int(np.ceil((high - low + 1) / _BINS)))
        return np.arange(low, high + 1 + width, width) - 0.5
    if logarithmic:
        return np.geomspace(low / 1.001, high * 1.001, _BINS + 1)
    room = (high - low) / 1e3 or 0.5 * max(abs(low), 1e-3)
    return np.linspace(low - room, high + room, _BINS + 1)


def _draw_plane(figure: Figure, axes: Axes, visits: Visits, plane: int, plant: Plant | None) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator

    pair = visits.planes[plane]
    across, up = (visits.axes[s] for s in pair)
    counts = np.ma.masked_equal(visits.plane[plane].T, 0)
    look: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest", "cmap": "viridis"}
    norm = LogNorm(1, max(2, int(visits.plane[plane].max())))
    image = axes.imshow(counts, extent=(across.low, across.high, up.low, up.high), norm=norm, **look)
    figure.colorbar(image, ax=axes, label="experiences", pad=0.015, ticks=LogLocator(subs=(1, 2, 5)), format="%d")
    axes.set(xlabel=across.label, ylabel=up.label)
    label_angle(axes, across.periodic, 5)
    if isinstance(plant, OdePlant):
        draw_ends(axes, plant, pair)
        axes.set(xlim=(across.low, across.high), ylim=(up.low, up.high))
