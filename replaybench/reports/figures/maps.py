"""Maps of differences between strategies over noise level and control rate."""

from collections.abc import Sequence
from typing import Any, Final

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from replaybench.experiments.advantage import BASELINES, MATTERS, advantages, by_capacity
from replaybench.experiments.comparison import baseline_of, compared, headline, scaled
from replaybench.experiments.dataset import last_of, the_last
from replaybench.experiments.effects import SIGNIFICANT
from replaybench.reports.figures.style import GREY, MU, minus, new_panels, span
from replaybench.runtime.arrays import Floats
from replaybench.runtime.user_file import shortened

_RANGE: Final = 0.4
"""Largest difference in μ_r that has a colour of its own."""
_LEAST_CONDITIONS: Final = 4
_FEW_COLUMNS: Final = 4
"""Largest number of columns of squares for which labels have larger letters."""
_LEAST_SQUARES: Final = 3
_LEAST_STRATEGIES: Final = 3
"""Smallest number of strategies in a map. The figure of paired differences shows fewer strategies with intervals."""


def color_map() -> Colormap:
    """Return a colour map from violet (negative) to orange (positive), light enough for black text."""
    return LinearSegmentedColormap.from_list("differences", matplotlib.colormaps["PuOr_r"](np.linspace(0.22, 0.78, 15)))


def _draw_squares(axes: Axes, sizes: Floats, **place: Any) -> AxesImage:
    """Draw a matrix of differences as coloured squares, and leave the squares of NaN empty."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    image = axes.imshow(sizes, cmap=color_map(), vmin=-_RANGE, vmax=_RANGE, aspect="auto", **place)
    axes.set_xticks(np.arange(0.5, sizes.shape[1] - 1), minor=True)
    axes.set_yticks(np.arange(0.5, sizes.shape[0] - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    return image


def _signed(size: float) -> str:
    return minus(f"{round(size, 2) + 0.0:+.2f}")


def _add_color_bar(figure: Figure, image: AxesImage, panels: Sequence[Axes] | NDArray[np.object_]) -> None:
    bar = figure.colorbar(image, ax=panels, label=f"difference in {MU}", shrink=0.8, extend="both", aspect=25)
    bar.outline.set_visible(False)


def advantage_map(data: xr.Dataset) -> Figure | None:
    """Draw the lead of the best strategy of one plant over two baselines, FIFO[Uniform] and FULL[Uniform].

    In each panel, rows are noise levels and columns are control rates. Each baseline has a row of panels. Each pair of
    learner and buffer capacity has a column of panels. Leads are differences in the score μ_r. The result is None if
    fewer than eight leads are known.
    """
    by_baseline = {name: advantages(data, name) for name in BASELINES}
    places = list(dict.fromkeys(place[:2] for each in by_baseline.values() for place in each))
    if sum(map(len, by_baseline.values())) < 2 * _LEAST_CONDITIONS:
        return None
    noises, rates = data["noise"].values.tolist(), data["frequency"].values.tolist()
    wide, high = max(1.8, 0.95 * len(rates)), max(1.2, 0.55 * len(noises))
    caption = (
        f"Lead of the best strategy in {MU}, and its name. Framed: significantly more than {MATTERS:g}.\n"
        f"n = {span(one.seeds for each in by_baseline.values() for one in each.values())} seeds; {_scored(data)}; "
        "chosen on one half of the seeds and measured on the other, both ways; sign-flip test, Holm over all, p < 0.05."
    )
    size = max(6.2, wide * len(places) + 1.4), high * len(BASELINES) + 1.5
    shape, title = (len(BASELINES), len(places)), "lead of the best strategy over FIFO and FULL"
    figure, panels = new_panels(data, title, caption, size, shape, sharex=True, sharey=True)
    learners = shortened([str(name) for name in data["learner"].values])
    letters = 7.5 if len(places) * len(rates) <= _FEW_COLUMNS else 5.5
    for (row, column), axes in np.ndenumerate(panels):
        learner, capacity = places[column]
        sizes = np.full((len(noises), len(rates)), np.nan)
        for place, one in by_baseline[BASELINES[row]].items():
            if place[:2] != places[column]:
                continue
            x, y = rates.index(place[3]), noises.index(place[2])
            sizes[y, x] = one.size
            axes.text(x, y, f"{_signed(one.size)}\n{one.best}", ha="center", va="center", size=letters)
            if one.certain:
                frame: dict[str, Any] = {"fill": False, "edgecolor": "0.05", "linewidth": 1.5, "zorder": 4}
                axes.add_patch(Rectangle((x - 0.45, y - 0.43), 0.9, 0.86, **frame))
        image = _draw_squares(axes, sizes, origin="lower")
        axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axes.set_yticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        named = [learners[learner]] * (len(learners) > 1) + ([f"C = {capacity:,}"] if capacity is not None else [])
        if row == 0:
            axes.set_title("\n".join(named), color=GREY)
        if column == 0:
            axes.set_ylabel(f"over {BASELINES[row]}\nnoise")
        if row == len(BASELINES) - 1:
            axes.set_xlabel("control rate [Hz]")
    _add_color_bar(figure, image, panels)
    return figure


def _scored(data: xr.Dataset) -> str:
    """Return a text that names the episodes whose mean is the final score."""
    of = f" of {data.sizes['episode']:,}" if last_of(data) < data.sizes["episode"] else ""
    return f"{the_last(data, 'training')}{of}"


def condition_map(data: xr.Dataset) -> Figure | None:
    """Show by colours how the final scores of one plant's strategies differ from those of the study's first strategy.

    Each noise level and learner has a panel, with a row for each strategy and a column for each control rate. If the
    control rate does not vary, the columns are noise levels. The result is None for fewer than three strategies, fewer
    than three combinations of learner, noise level and control rate, or a single noise level and control rate. It is
    also None if the score μ_r is undefined in some condition.
    """
    baseline = baseline_of(data, None)
    rows = [row for row in compared(data, baseline) if row.effect is not None and row.effect.n > 1]
    places = list(dict.fromkeys((row.noise, row.frequency) for row in rows))
    learners, means = list(dict.fromkeys(row.learner for row in rows)), dict[str, list[float]]()
    for row in rows:
        means.setdefault(row.strategy, []).append(row.effect.estimate if row.effect else np.nan)
    strategies = sorted(means, key=lambda strategy: -float(np.mean(means[strategy])))
    few = len(places) < 2 or len(places) * len(learners) < _LEAST_SQUARES or len(strategies) < _LEAST_STRATEGIES - 1
    measured = scaled(data)
    if few or not all(bool(measured.sel(noise=noise, frequency=rate)) for noise, rate in places):
        return None
    names, titles, room = shortened(strategies), shortened(learners), ""
    capacities = by_capacity([baseline, *strategies])
    if len(capacities) == 1:
        ((capacity, plain),) = capacities.items()
        names |= {name: short for short, name in plain.items()}
        room = f" Capacity of buffers that evict: {capacity:,}." if capacity is not None else ""
    noises, rates = (sorted({place[axis] for place in places}) for axis in (0, 1))
    facets: list[float | None] = [*noises] if len(noises) > 1 and len(rates) > 1 else [None]
    along = rates if len(rates) > 1 else noises
    shape = (len(learners), len(facets)) if len(facets) > 1 else (1, len(learners))
    caption = (
        f"Differences in {MU}, ordered by mean. Bold: p < {SIGNIFICANT:g}.{room}"
        f"{' Same: equal rewards in all episodes.' * any(row.same for row in rows)}\n"
        f"n = {span(row.effect.n for row in rows if row.effect is not None)} paired seeds; mean of {_scored(data)}, "
        "exploration included; sign-flip test, Holm within a condition."
    )
    width = 0.062 * max(map(len, names.values())) + max(3.6, shape[1] * (0.5 * len(along) + 0.15)) + 1.4
    size = width, max(1.8, (0.25 * len(strategies) + 0.35) * shape[0] + 0.5)
    figure, panels = new_panels(data, headline(rows, baseline), caption, size, shape, sharex=True, sharey=True)
    parts = [(learner, facet) for learner in learners for facet in facets]
    for axes, (learner, facet) in zip(panels.flat, parts, strict=True):
        sizes = np.full((len(strategies), len(along)), np.nan)
        for row in rows:
            if row.effect is None or row.learner != learner or facet not in (None, row.noise):
                continue
            y, x = strategies.index(row.strategy), along.index(row.frequency if along is rates else row.noise)
            sizes[y, x] = size_here = row.effect.estimate
            weight = "bold" if row.sign else "normal"
            text = "same" if row.same else _signed(size_here)
            axes.text(x, y, text, ha="center", va="center", size=7, weight=weight)
        image = _draw_squares(axes, sizes)
        axes.set_xticks(range(len(along)), [f"{value:g}" for value in along])
        named = [titles[learner]] * (len(learners) > 1) + ([f"noise {facet:g}"] if facet is not None else [])
        axes.set_title(", ".join(named), color=GREY)
    for axes in panels[-1]:
        axes.set_xlabel("control rate [Hz]" if along is rates else "noise")
    panels[0, 0].set_yticks(range(len(strategies)), [names[strategy] for strategy in strategies])
    _add_color_bar(figure, image, panels)
    return figure
