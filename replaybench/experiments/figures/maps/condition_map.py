"""Map of the differences of every strategy from a baseline in every condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.figures.maps.difference_squares import add_color_bar, draw_squares, ink, signed
from replaybench.experiments.figures.style import GREY, MU, new_panels, span
from replaybench.experiments.results.advantage import by_capacity
from replaybench.experiments.results.comparison_tables import Comparison, baseline_of, compared, scaled
from replaybench.experiments.results.dataset import last_of, the_last
from replaybench.experiments.results.effects import SIGNIFICANT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_LEAST_CONDITIONS: Final = 3
_LEAST_STRATEGIES: Final = 3
"""The figure of paired differences shows fewer, with their intervals."""
_Place = tuple[float, float]


def condition_map(data: xr.Dataset) -> Figure | None:
    """Draw one plant's differences from the study's first strategy: strategies over noise and rate, a panel a learner.

    None for fewer than three strategies or pairs of condition and learner, for a single condition, or without μ_r.
    """
    baseline = baseline_of(data, None)
    rows = [row for row in compared(data, baseline) if row.effect is not None and row.effect.n > 1]
    places = list(dict.fromkeys((row.noise, row.frequency) for row in rows))
    learners, strategies = list(dict.fromkeys(row.learner for row in rows)), _ordered(rows)
    few = len(places) < 2 or len(places) * len(learners) < _LEAST_CONDITIONS or len(strategies) < _LEAST_STRATEGIES - 1
    measured = scaled(data)
    if few or not all(bool(measured.sel(noise=noise, frequency=rate)) for noise, rate in places):
        return None
    names, titles, room = shortened(strategies), shortened(learners), ""
    capacities = by_capacity([baseline, *strategies])
    if len(capacities) == 1:
        ((capacity, plain),) = capacities.items()
        names |= {name: short for short, name in plain.items()}
        room = f"Capacity of buffers that evict: {capacity:,}. " if capacity is not None else ""
    of = f" of {data.sizes['episode']:,}" if last_of(data) < data.sizes["episode"] else ""
    caption = (
        f"Mean differences of paired seeds in {MU} of {the_last(data, 'training')}{of}, exploration included. "
        f"Bold: p < {SIGNIFICANT:g} (paired sign-flip test, Holm within a condition). "
        f"{'Same: equal rewards in all episodes. ' * any(row.same for row in rows)}Strategies in the order of their "
        f"means. {room}n = {span(row.effect.n for row in rows if row.effect is not None)} pairs."
    )
    width = 0.062 * max(map(len, names.values())) + max(3.6, 0.6 * len(places) * len(learners)) + 1.4
    size, title = (width, max(1.8, 0.27 * len(strategies) + 1.0)), f"compared with {baseline}, condition by condition"
    figure, (panels,) = new_panels(data, title, caption, size, (1, len(learners)), sharey=True)
    for axes, learner in zip(panels, learners, strict=True):
        image = _draw(axes, [row for row in rows if row.learner == learner], strategies, places)
        if len(learners) > 1:
            axes.set_title(titles[learner], color=GREY)
    panels[0].set_yticks(range(len(strategies)), [names[strategy] for strategy in strategies])
    add_color_bar(figure, image, panels)
    return figure


def _ordered(rows: list[Comparison]) -> list[str]:
    sizes: dict[str, list[float]] = {}
    for row in rows:
        assert row.effect is not None
        sizes.setdefault(row.strategy, []).append(row.effect.estimate)
    return sorted(sizes, key=lambda strategy: -float(np.mean(sizes[strategy])))


def _draw(axes: Axes, rows: list[Comparison], strategies: list[str], places: list[_Place]) -> AxesImage:
    sizes = np.full((len(strategies), len(places)), np.nan)
    for row in rows:
        assert row.effect is not None
        y, x = strategies.index(row.strategy), places.index((row.noise, row.frequency))
        sizes[y, x] = size = row.effect.estimate
        color, weight = ("0.1", "bold") if row.chance < SIGNIFICANT else ("0.3", "normal")
        text = "same" if row.same else signed(size)
        axes.text(x, y, text, ha="center", va="center", size=7, color=ink(size, color), weight=weight)
    image = draw_squares(axes, sizes, upward=False)
    noises, rates = zip(*places, strict=True)
    varied = {name: values for name, values in {"noise": noises, "Hz": rates}.items() if len(set(values)) > 1}
    for x in range(1, len(places)) if len(varied) > 1 else ():
        if noises[x] != noises[x - 1]:
            axes.axvline(x - 0.5, color="white", linewidth=3)
    ticks = ["\n".join(f"{value:g}" for value in each) for each in zip(*varied.values(), strict=True)]
    axes.set_xticks(range(len(places)), ticks)
    axes.set_xlabel(", and ".join(varied))
    return image
