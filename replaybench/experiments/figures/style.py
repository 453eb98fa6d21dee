"""How the figures of a sweep look, and how they are written: palette, captions, legends, files.

A strategy keeps its colour and marker in every figure of a dataset, a learner its dashes. Figures are Matplotlib
objects of their own, not pyplot's: no window and no global state. Nothing here knows what a figure shows.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import xarray as xr

from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.figures.single_file import write_figure
from replaybench.experiments.results.dataset import runs_there

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

# Okabe and Ito's colours, which the colour-blind can tell apart; their yellow, too pale for lines, is made darker.
PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#2b2b2b", "#8c7a00")
MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
HATCHES: Final = ("", "////", "....", "xxxx")
GREY: Final = "0.35"
MU: Final = r"$\mu_r$"
MU_LABEL: Final = f"{MU}  (0 = random, 1 = DP)"
RAW_LABELS: Final = {"mean reward": "raw mean reward per step", "return": "return"}
"""By what a plant tells of an episode."""

_STYLE: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.4",
    "axes.linewidth": 0.8,
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
    "lines.solid_capstyle": "round",
    "mathtext.fontset": "dejavusans",
    "svg.hashsalt": "replaybench",  # equal data, equal bytes
    "figure.facecolor": "white",
}
_TITLE_SIZE, _CAPTION_SIZE = 11.5, 8.0


@dataclass(frozen=True)
class Look:
    """What figures are made for.

    Attributes:
        formats: the files that each is written as; the last one's path is what `save` returns.
        dpi: dots per inch where a format has them.
        columns: widths [inch] that figures may have, without title and caption; free, with them, where there are none.
        changes: Matplotlib's settings, where they differ from those of the screen.
    """

    formats: tuple[str, ...]
    dpi: int = 150
    columns: tuple[float, ...] = ()
    changes: Mapping[Any, Any] = field(default_factory=dict)


SCREEN: Final = Look(("svg", "png"))
PAPER: Final = Look(
    ("pdf",),
    dpi=600,
    columns=(89 / 25.4, 183 / 25.4),
    changes={
        **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), 7),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 6.5),
        "axes.linewidth": 0.6,
        "pdf.fonttype": 42,  # TrueType, embedded: journals refuse Matplotlib's Type 3
        "ps.fonttype": 42,
    },
)
"""For print: columns of 89 and 183 mm (Nature; those of IEEE and Elsevier are within 4 %), text of 7 points."""

_LOOK: Final = ContextVar("look", default=SCREEN)


@dataclass(frozen=True)
class Series:
    """One learner under one strategy, and how it is drawn everywhere."""

    learner: str
    strategy: str
    label: str
    color: str
    marker: str
    dashes: Any
    hatch: str

    @property
    def face(self) -> str:
        """Return what its markers are filled with: white where its line is broken, as another may have both else."""
        return self.color if self.dashes == "-" else "white"

    @property
    def where(self) -> dict[str, str]:
        """Return its place in a dataset."""
        return {"learner": self.learner, "strategy": self.strategy}


def all_series(data: xr.Dataset) -> list[Series]:
    """Return the pairs of learner and strategy that have runs, failed ones included, in the order of the study.

    Colours tell strategies apart, lines learners; the other way round where there are more learners.
    """
    there = runs_there(data)
    learners, strategies = ([str(name) for name in data[axis].values] for axis in ("learner", "strategy"))
    names = shortened(learners) | shortened(strategies)
    found = []
    for (i, learner), (j, strategy) in itertools.product(enumerate(learners), enumerate(strategies)):
        color, line = (i, j) if len(learners) > len(strategies) else (j, i)
        kind = line + min(len(learners), len(strategies)) * (color // len(PALETTE))
        series = Series(
            learner=learner,
            strategy=strategy,
            label=f"{names[learner]} {names[strategy]}" if len(learners) > 1 else names[strategy],
            color=PALETTE[color % len(PALETTE)],
            marker=MARKERS[(color + kind // len(DASHES)) % len(MARKERS)],
            dashes=DASHES[kind % len(DASHES)],
            hatch=HATCHES[kind % len(HATCHES)],
        )
        if there.sel(series.where).any():
            found.append(series)
    return found


@contextmanager
def style(look: Look = SCREEN) -> Iterator[None]:
    """Draw and write figures in the style of this project while the context lasts."""
    import matplotlib

    before = _LOOK.set(look)
    try:
        with matplotlib.rc_context({**_STYLE, **look.changes}):
            yield
    finally:
        _LOOK.reset(before)


def new_figure(width: float, height: float, title: str, caption: str) -> Figure:
    """Return an empty figure, with its title and what it shows written above `width` × `height` inches of room.

    For print it is as wide as the column that it fits best, and both are left to the text around it: `caption_of`.
    """
    from matplotlib.figure import Figure

    if columns := _LOOK.get().columns:
        wide = columns[width > 2 * columns[0]]
        figure = Figure(figsize=(wide, height * min(1.0, max(0.75, 1.15 * wide / width))), layout="constrained")
        figure.set_label(f"{title}. {caption}")
        return figure
    lines = textwrap.wrap(_together(caption), max(30, int(width * 72 / (0.56 * _CAPTION_SIZE))))
    titles = textwrap.wrap(title, max(20, int(width * 72 / (0.62 * _TITLE_SIZE))))
    above = (0.6 + 1.3 * len(titles)) * _TITLE_SIZE
    head = (above + 1.3 * _CAPTION_SIZE * len(lines) + 6) / 72
    total = height + head
    figure = Figure(figsize=(width, total), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0.0, 0.0, 1.0, height / total), w_pad=0.06, h_pad=0.06)
    heading: dict[str, Any] = {"va": "top", "size": _TITLE_SIZE, "weight": "bold", "linespacing": 1.15}
    figure.text(0.1 / width, 1 - 0.09 / total, "\n".join(titles), **heading)
    below = 0.09 + (0.2 + 1.3 * len(titles)) * _TITLE_SIZE / 72
    text = "\n".join(lines)
    figure.text(0.1 / width, 1 - below / total, text, va="top", size=_CAPTION_SIZE, color=GREY, linespacing=1.25)
    return figure


def _together(caption: str) -> str:
    """Join numbers with their signs by spaces at which no line is broken."""
    return re.sub(r" (?=%)| (?=[=<≥] )|(?<= [=<≥]) ", "\u00a0", caption)


def luminance(color: Sequence[float]) -> float:
    """Return the relative luminance of a colour (sRGB), as WCAG defines it: 0 is black, 1 white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def broken(text: str, most: int) -> str:
    """Return a name in lines of at most so many characters, where its parts are no longer than that."""
    lines = [""]
    for part in re.split(r"(?<=[*+,) ])|(?=\[)", text):
        if lines[-1] and len(lines[-1] + part) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def caption_of(figure: Figure) -> str:
    """Return what is to stand under a figure for print."""
    return str(figure.get_label()).replace(MU, "μ_r")


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Put a legend beside the data, on the right; in print, where columns are narrow, below them."""
    if _LOOK.get().columns:
        width, height = figure.get_size_inches()
        longest = max((len(str(handle.get_label())) for handle in handles), default=0)
        across = max(1, min(len(handles), int(width / (0.5 + 0.05 * longest))))
        figure.set_size_inches(width, height + 0.15 * -(-len(handles) // across))
        figure.legend(handles=list(handles), loc="outside lower center", ncols=across, handlelength=2.4)
        return
    figure.legend(handles=list(handles), loc="outside right center", handlelength=2.4, labelspacing=0.7)


def legend_width(labels: Sequence[str]) -> float:
    """Return the inches that a legend of these labels takes beside the data."""
    return 0.0 if _LOOK.get().columns else 0.75 + 0.062 * max(map(len, labels), default=0)


def legend_height(labels: Sequence[str]) -> float:
    """Return the inches that a legend of these labels needs below title and caption; it stands mid-figure."""
    return 0.0 if _LOOK.get().columns else 0.7 + 0.195 * len(labels)


def panel_width(columns: int) -> float:
    """Return the inches of one of so many panels side by side."""
    return {1: 5.0, 2: 3.7, 3: 3.1}.get(columns, max(2.2, 10 / columns))


def panels_across(count: int) -> int:
    """Return how many of so many panels stand side by side: three at most, and four in a square."""
    return 2 if count == 4 else min(3, count)


def share_x(panels: Sequence[Axes]) -> None:
    """Give panels one view along x, which holds what each of them shows."""
    if panels:
        ends = [axes.get_xlim() for axes in panels]
        for axes in panels:
            axes.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))


def say(axes: Axes, text: str) -> None:
    """Write into axes why they are empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY, style="italic")


def whole_numbers(most: int, largest: float) -> Locator:
    """Return what sets at most so many steps between ticks up to the largest number, at whole numbers only."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    ticks = MaxNLocator(most, integer=True).tick_values(0, largest)
    return FixedLocator([tick for tick in ticks if 0 <= tick <= 1.001 * largest])


def condition(noise: float, frequency: float) -> str:
    """Say at which noise and control rate."""
    return f"noise {noise:g}, {frequency:g} Hz"


def plant_name(plant: str) -> str:
    """Return a plant's name for people: that of a user's plant without its file."""
    return plant.rpartition(":")[2]


def file_names(plants: Sequence[str]) -> list[str]:
    """Return a file name for each plant, no two alike."""
    plain = [re.sub(r"[^\w.-]+", "_", plant_name(plant)) for plant in plants]
    return [name if plain.count(name) == 1 else f"{name}-{index + 1}" for index, name in enumerate(plain)]


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure in each format of the present look, and return the path of the last, PNG on screens."""
    look = _LOOK.get()
    figure.set_dpi(look.dpi)  # names are longer at some resolutions: letters are whole dots wide
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, for all files
    for kind in look.formats:
        path = folder / f"{name}.{kind}"
        write_figure(figure, path, look.dpi)
    return path
