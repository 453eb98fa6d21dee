"""Maps of differences between strategies over noise and control rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.advantage import BASELINES, MATTERS, Advantage, advantages, by_capacity
from replaybench.experiments.comparison import Comparison, baseline_of, compared, scaled
from replaybench.experiments.dataset import last_of, the_last
from replaybench.experiments.effects import SIGNIFICANT
from replaybench.reports.figures.style import GREY, MU, luminance, minus, new_panels, span
from replaybench.runtime.user_file import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_COLORS: Final = "PuOr_r"
_READABLE: Final = 4.5
"""Least contrast of text (WCAG)."""
_RANGE: Final = 0.4
"""Larger differences have the same colour."""


def draw_squares(axes: Axes, sizes: NDArray[np.float64], upward: bool) -> AxesImage:
    """Draw differences `[rows, columns]` as squares, NaN for none, the first row lowest if `upward`."""
    axes.tick_params(length=0)
    origin: Literal["lower", "upper"] = "lower" if upward else "upper"
    return axes.imshow(sizes, cmap=_COLORS, vmin=-_RANGE, vmax=_RANGE, origin=origin, aspect="auto")


def ink(size: float, otherwise: str = "0.1") -> str:
    """Return the colour of text on the square of a difference: `otherwise` if it is readable there."""
    return next((text for text in (otherwise, "white") if contrast(size, text) >= _READABLE), "black")


def contrast(size: float, text: str) -> float:
    """Return the contrast (WCAG) of text on the square of a difference."""
    import matplotlib
    from matplotlib.colors import to_rgb

    place = 0.5 + 0.5 * min(1.0, max(-1.0, size / _RANGE))
    dark, light = sorted(map(luminance, (matplotlib.colormaps[_COLORS](place), to_rgb(text))))
    return (light + 0.05) / (dark + 0.05)


def signed(size: float) -> str:
    """Return the text of a difference."""
    return minus(f"{round(size, 2) + 0.0:+.2f}")


def add_color_bar(figure: Figure, image: AxesImage, panels: Sequence[Axes] | NDArray[np.object_]) -> None:
    """Add the colour bar next to the panels."""
    figure.colorbar(image, ax=panels, label=f"difference in {MU}", shrink=0.8, extend="both")


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
            image = _draw_advantage(axes, here, list(noises), list(rates), len(row))
            if number == 0:
                named = [learners[learner]] if len(learners) > 1 else []
                named += [f"C = {capacity:,}"] if capacity is not None else []
                axes.set_title("\n".join(named), color=GREY)
        row[0].set_ylabel(f"over {baseline}\nnoise")
    for axes in panels[-1]:
        axes.set_xlabel("Hz")
    add_color_bar(figure, image, panels)
    return figure


def _draw_advantage(
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


_LEAST_SQUARES: Final = 3
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
    few = len(places) < 2 or len(places) * len(learners) < _LEAST_SQUARES or len(strategies) < _LEAST_STRATEGIES - 1
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
        image = _draw_conditions(axes, [row for row in rows if row.learner == learner], strategies, places)
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


def _draw_conditions(axes: Axes, rows: list[Comparison], strategies: list[str], places: list[_Place]) -> AxesImage:
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
