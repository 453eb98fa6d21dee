"""Map of the lead of the best strategy over the usual ones, by condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.figures.maps.difference_squares import add_color_bar, draw_squares, ink, signed
from replaybench.experiments.figures.style import GREY, MU, new_panels, span
from replaybench.experiments.results.advantage import BASELINES, MATTERS, Advantage, advantages
from replaybench.experiments.results.dataset import the_last

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_LEAST_CONDITIONS: Final = 4
_FEW_COLUMNS: Final = 4
"""At most this many leave room for larger letters."""


def advantage_map(data: xr.Dataset) -> Figure | None:
    """Draw one plant's map: noise over control rate, a row of panels a baseline, a column a capacity and learner.

    None for fewer than four conditions, of those in which μ_r is defined.
    """
    found = {name: advantages(data, name) for name in BASELINES}
    places = list(dict.fromkeys(place[:2] for each in found.values() for place in each))
    if sum(map(len, found.values())) < 2 * _LEAST_CONDITIONS:
        return None
    noises, rates = data["noise"].values.astype(float), data["frequency"].values.astype(float)
    wide, high = max(1.8, 0.95 * len(rates)), max(1.2, 0.55 * len(noises))
    seeds = span(one.seeds for each in found.values() for one in each.values())
    caption = (
        f"Lead of the best strategy in {MU} of {the_last(data, 'training')} of {data.sizes['episode']:,}: chosen on "
        "one half of the seeds and measured on the other, both ways. Below: the strategy that all seeds choose. "
        f"Framed: a strategy is significantly more than {MATTERS:g} ahead (paired sign-flip test, p < 0.05, Holm over "
        f"all). n = {seeds} seeds."
    )
    size = max(6.2, wide * len(places) + 1.4), high * len(BASELINES) + 1.5
    shape, title = (len(BASELINES), len(places)), "when does experience selection matter?"
    figure, panels = new_panels(data, title, caption, size, shape, sharex=True, sharey=True)
    learners = shortened([str(name) for name in data["learner"].values])
    for number, (row, baseline) in enumerate(zip(panels, BASELINES, strict=True)):
        for axes, (learner, capacity) in zip(row, places, strict=True):
            here = {place[2:]: one for place, one in found[baseline].items() if place[:2] == (learner, capacity)}
            image = _draw(axes, here, list(noises), list(rates), len(row))
            if number == 0:
                named = [learners[learner]] if len(learners) > 1 else []
                named += [f"C = {capacity:,}"] if capacity is not None else []
                axes.set_title("\n".join(named), color=GREY)
        row[0].set_ylabel(f"over {baseline}\nnoise")
    for axes in panels[-1]:
        axes.set_xlabel("Hz")
    add_color_bar(figure, image, panels)
    return figure


def _draw(
    axes: Axes, found: dict[tuple[float, float], Advantage], noises: list[float], rates: list[float], panels: int
) -> AxesImage:
    from matplotlib.patches import Rectangle

    sizes = np.full((len(noises), len(rates)), np.nan)
    letters = 7.5 if panels * len(rates) <= _FEW_COLUMNS else 5.5
    for (noise, rate), one in found.items():
        x, y = rates.index(rate), noises.index(noise)
        sizes[y, x] = one.size
        text = f"{signed(one.size)}\n{one.best}"
        axes.text(x, y, text, ha="center", va="center", size=letters, color=ink(one.size))
        if one.certain:
            frame = Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor="0.05", linewidth=1.8, zorder=4)
            axes.add_patch(frame)
    image = draw_squares(axes, sizes, upward=True)
    axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axes.set_yticks(range(len(noises)), [f"{noise:g}" for noise in noises])
    return image
