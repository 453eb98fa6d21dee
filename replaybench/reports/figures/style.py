"""Colours, markers, captions, legends and file formats of figures.

A strategy has the same colour and marker in every figure of a dataset, and a learner the same dashes. Figures are
created without pyplot, so they open no window and change no global state.
"""

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, MaxNLocator, NullFormatter
from PIL import Image, ImageChops, ImageStat
from PIL.PngImagePlugin import PngInfo

from replaybench.data.run_folder import AUTHOR, refuse_foreign
from replaybench.envs.registry import without_delay
from replaybench.experiments.comparison import LABELS
from replaybench.experiments.dataset import runs_there
from replaybench.runtime.atomic import atomic_path, new_path
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import shortened

KINDS: Final = (".png", ".svg", ".pdf")
"""Suffixes of figure files."""
_VISIBLE: Final = 1.0
"""Mean change of a colour, of 255, that shows as bands. Curves change by at most 0.3, maps of values by 1.5."""
_MOVED_PIXELS: Final = 1000
"""The palette is refined until at most so many pixels change their colour in a step. More steps take twice as long."""
_DATES: Final[dict[str, str]] = {".svg": "Date", ".pdf": "CreationDate"}
_AUTHOR_KEYS: Final[dict[str, str]] = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}


def check_figure(path: Path) -> Path:
    """Return the absolute path of a figure to write, or raise an error before long computations.

    Raises:
        UserError: The suffix is not one of `KINDS`, or the file exists already.
    """
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--figure must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}, not be {str(path)!r}")
    return new_path(path, "remove it or choose another --figure")


def write_figure(figure: Figure, path: Path, dpi: int = 150, description: str = "") -> None:
    """Write a figure in the format of the path's suffix.

    The file is written atomically, and equal figures give equal bytes. A description is written into a PNG's metadata.
    """
    suffix = path.suffix.lower()
    metadata: dict[str, Any] = {_AUTHOR_KEYS[suffix]: AUTHOR}
    if suffix in _DATES:
        metadata[_DATES[suffix]] = None
    if description:
        metadata["Description"] = description
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=suffix[1:], dpi=dpi, metadata=metadata)
        if suffix == ".png":
            _reduce_colours(temporary, metadata)


def _reduce_colours(path: Path, texts: Mapping[str, str]) -> None:
    """Store a PNG with a palette of 256 colours, which takes a third of the bytes.

    On smooth surfaces, the palette would show as bands. Such a picture keeps all colours.
    """
    with Image.open(path) as picture:
        full, resolution = picture.convert("RGB"), picture.info["dpi"]
    few = full.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=_MOVED_PIXELS, dither=Image.Dither.NONE)
    change = max(ImageStat.Stat(ImageChops.difference(full, few.convert("RGB"))).mean)
    info = PngInfo()
    for key, text in texts.items():
        info.add_text(key, text)
    (few if change < _VISIBLE else full).save(path, "PNG", optimize=True, dpi=resolution, pnginfo=info)


# Okabe and Ito's colours, which colour-blind readers can distinguish; yellow is darker here, for lines.
PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#2b2b2b", "#8c7a00")
MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
GREY: Final = "0.35"
MU: Final = "μᵣ"
MU_LABEL: Final = f"{MU}  (0 = random, 1 = DP)"
RAW_LABELS: Final = {"mean reward": "raw mean reward per step", "return": "return"}
"""Axis labels of raw rewards, by the attribute `episode_metric` of plants."""

_REFERENCE_DASHES: Final[dict[str, Any]] = {
    LABELS["reference_random"]: (0, (4, 3)),
    **{LABELS[name]: (0, (8, 3)) for name in ("reference_lqr", "reference_lqr_predicted")},
    LABELS["reference_dp"]: "-",
}
"""Dashes of the grey lines of reference controllers, by their labels."""
_RIVAL_DASHES: Final[tuple[Any, ...]] = (
    (0, (6, 2, 1, 2)), (0, (1, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (10, 2, 3, 2)), (0, (2, 4)),
)  # fmt: skip

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
    "grid.color": "0.92",
    "grid.linewidth": 0.7,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,  # names and units may contain $
    "svg.hashsalt": "replaybench",  # equal data give equal bytes
    "figure.facecolor": "white",
}
_TITLE_SIZE, _CAPTION_SIZE = 11.5, 8.0


@dataclass(frozen=True)
class Medium:
    """The formats, resolution, widths and font sizes of figures for screens or for print.

    Attributes:
        formats: File formats in which each figure is written.
        dpi: Resolution of pixel formats [dots per inch].
        columns: Allowed widths of figures [inch], or () for any width. A medium with fixed widths is a printed page, in
            which figures have neither title nor caption.
        changes: Matplotlib settings that differ from those for screens.
    """

    formats: tuple[str, ...]
    dpi: int = 150
    columns: tuple[float, ...] = ()
    changes: Mapping[Any, Any] = field(default_factory=dict)


SCREEN: Final = Medium(("svg", "png"))
PAPER: Final = Medium(
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
"""Figures for print in columns of 89 or 183 mm (Nature; IEEE and Elsevier differ by at most 4 %), with 7-point text."""

_MEDIUM: Final = ContextVar("medium", default=SCREEN)


@dataclass(frozen=True)
class Series:
    """A learner with a strategy, and their appearance in every figure."""

    learner: str
    strategy: str
    label: str
    color: str
    marker: str
    dashes: Any

    @property
    def face(self) -> str:
        """Fill colour of markers, which is white for dashed lines, as a solid line may have the same colour."""
        return self.color if self.dashes == "-" else "white"

    @property
    def where(self) -> dict[str, str]:
        """The learner and strategy as coordinates in a dataset of results, for xarray's `sel`."""
        return {"learner": self.learner, "strategy": self.strategy}


def all_series(data: xr.Dataset) -> list[Series]:
    """Return the pairs of learner and strategy that have runs, in the order of the study.

    Pairs whose runs all failed are included. Colours distinguish strategies, and dashes distinguish learners. If
    there are more learners than strategies, colours distinguish learners, and dashes distinguish strategies.
    """
    present = runs_there(data)
    learners, strategies = ([str(name) for name in data[axis].values] for axis in ("learner", "strategy"))
    names = shortened(learners) | shortened(strategies)
    series = []
    for (i, learner), (j, strategy) in itertools.product(enumerate(learners), enumerate(strategies)):
        if not present.sel(learner=learner, strategy=strategy).any():
            continue
        color, line = (i, j) if len(learners) > len(strategies) else (j, i)
        line += min(len(learners), len(strategies)) * (color // len(PALETTE))
        series.append(
            Series(
                learner=learner,
                strategy=strategy,
                label=f"{names[learner]} {names[strategy]}" if len(learners) > 1 else names[strategy],
                color=PALETTE[color % len(PALETTE)],
                marker=MARKERS[(color + line // len(DASHES)) % len(MARKERS)],
                dashes=DASHES[line % len(DASHES)],
            )
        )
    return series


def reference_looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the appearance of the grey lines of reference controllers, by label. Up to five rivals differ."""
    rivals = itertools.cycle(_RIVAL_DASHES)
    grey = {"color": "0.55", "linewidth": 1.1}
    return {label: {**grey, "linestyle": _REFERENCE_DASHES.get(label) or next(rivals)} for label in labels}


def plain_log_labels(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers: Matplotlib's own labels need its mathematics, which is off here."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


@contextmanager
def own_settings() -> Iterator[None]:
    """Use Matplotlib's defaults in the `with` block: a `matplotlibrc` in the working folder may be a stranger's."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


@contextmanager
def style(medium: Medium = SCREEN) -> Iterator[None]:
    """Apply the style of this package to figures that are drawn and written in the `with` block."""
    before = _MEDIUM.set(medium)
    try:
        with own_settings():
            matplotlib.rcParams.update({**_STYLE, **medium.changes})
            yield
    finally:
        _MEDIUM.reset(before)


def new_figure(width: float, height: float, title: str, caption: str) -> Figure:
    """Return a figure with title and caption above an empty area of `width` × `height` inches for the panels.

    The second line of `caption` should state the number of runs, episodes and intervals. A figure for print gets the
    column width of a journal that fits best, and shows neither title nor caption, but `caption_of` returns them.
    """
    if columns := _MEDIUM.get().columns:
        wide = columns[width > 2 * columns[0]]
        figure = Figure(figsize=(wide, height * min(1.0, max(0.75, 1.15 * wide / width))), layout="constrained")
        figure.set_label(f"{title}. {caption}")
        return figure
    unbroken = re.sub(r" (?=%)| (?=[=<≥] )|(?<= [=<≥]) ", "\u00a0", caption)  # numbers stay with their signs
    letters = max(30, int(width * 72 / (0.56 * _CAPTION_SIZE)))
    lines = [line for part in unbroken.split("\n") for line in textwrap.wrap(part, letters)]
    titles = textwrap.wrap(title, max(20, int(width * 72 / (0.62 * _TITLE_SIZE))))
    head = ((0.6 + 1.3 * len(titles)) * _TITLE_SIZE + 1.3 * _CAPTION_SIZE * len(lines) + 6) / 72
    total = height + head
    figure = Figure(figsize=(width, total), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0.0, 0.0, 1.0, height / total), w_pad=0.06, h_pad=0.06)
    below = 0.09 + (0.2 + 1.3 * len(titles)) * _TITLE_SIZE / 72
    at = 0.1 / width, 1 - 0.09 / total
    figure.text(*at, "\n".join(titles), va="top", size=_TITLE_SIZE, weight="bold", linespacing=1.15)
    at = 0.1 / width, 1 - below / total
    figure.text(*at, "\n".join(lines), va="top", size=_CAPTION_SIZE, color=GREY, linespacing=1.25)
    return figure


def new_panels(
    data: xr.Dataset,
    title: str,
    caption: str,
    size: tuple[float, float],
    shape: tuple[int, int] = (1, 1),
    labels: Sequence[str] = (),
    **shared: Any,
) -> tuple[Figure, Any]:
    """Return a figure whose title begins with the plant's name, and its axes as an array of shape `[rows, columns]`.

    Args:
        size: Width and height of all panels together [inch].
        shape: Number of rows and of columns.
        labels: Texts of the legend, which adds to the width of the figure.
        shared: Further arguments of Matplotlib's `Figure.subplots`, such as `sharex`.
    """
    width, height = size
    if labels and not _MEDIUM.get().columns:
        width, height = width + legend_width(labels), max(height, 0.7 + 0.195 * len(labels))
    figure = new_figure(width, height, f"{plant_name(str(data['plant'].item()))}: {title}", caption)
    return figure, figure.subplots(*shape, squeeze=False, **shared)


def legend_width(labels: Sequence[str]) -> float:
    """Return the width that a legend with these labels needs next to the panels [inch]."""
    return 0.0 if _MEDIUM.get().columns else 0.75 + 0.062 * max(map(len, labels), default=0)


def luminance(color: Sequence[float]) -> float:
    """Return the relative luminance of an sRGB colour as WCAG defines it, from 0 (black) to 1 (white)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def broken(text: str, most: int) -> str:
    """Break a strategy's name between its parts into lines of at most `most` characters, if the parts permit this."""
    lines = [""]
    for part in re.split(r"(?<=[*+,) ])|(?=\[)", text):
        if lines[-1] and len(lines[-1] + part) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def caption_of(figure: Figure) -> str:
    """Return the title and the caption of a figure for print as one line of text."""
    return str(figure.get_label()).replace(MU, "μ_r").replace("\n", " ")


def add_legend(figure: Figure, handles: Sequence[Any], below: bool = False) -> None:
    """Add a legend to the right of the panels, or below the panels if `below` is True or the figure is for print."""
    if not below and not _MEDIUM.get().columns:
        figure.legend(handles=list(handles), loc="outside right center", handlelength=2.4, labelspacing=0.7)
        return
    width, height = figure.get_size_inches()
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    across = max(1, min(len(handles), int(width / (0.5 + 0.05 * longest))))
    figure.set_size_inches(width, height + 0.15 * -(-len(handles) // across))
    figure.legend(handles=list(handles), loc="outside lower center", ncols=across, handlelength=2.4)


def legend_lines(series: Iterable[Series], marked: bool = False, width: float = 1.8) -> list[Any]:
    """Return legend handles for the lines of learners with strategies, with markers if `marked`."""

    def handle(one: Series) -> Line2D:
        mark: dict[str, Any] = {"marker": one.marker, "markersize": 4, "markerfacecolor": one.face} if marked else {}
        return Line2D([], [], color=one.color, linestyle=one.dashes, linewidth=width, label=one.label, **mark)

    return [handle(one) for one in series]


def panel_width(columns: int) -> float:
    """Return the width of each of `columns` panels in a row [inch]."""
    return {1: 5.0, 2: 3.7, 3: 3.1}.get(columns, max(2.2, 10 / columns))


def panels_across(count: int) -> int:
    """Return the number of columns for `count` panels, which is two for four panels and otherwise at most three."""
    return 2 if count == 4 else min(3, count)


def write_note(axes: Axes, text: str) -> None:
    """Write a note into the middle of empty axes."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY, style="italic")


def whole_numbers(most: int, largest: float) -> Locator:
    """Return a locator of ticks at whole numbers from 0 to `largest`, with at most `most` intervals."""
    ticks = MaxNLocator(most, integer=True).tick_values(0, largest)
    return FixedLocator([tick for tick in ticks if 0 <= tick <= 1.001 * largest])


def label_angle(axes: Axes, periodic: bool, ticks: int) -> None:
    """Set the ticks of an x axis to multiples of π/2 if the axis is an angle, else to at most `ticks` intervals."""
    if not periodic:
        axes.locator_params(axis="x", nbins=ticks)
        return
    low, high = (2 / np.pi * end for end in axes.get_xlim())
    names = {0: "0", 1: "π/2", 2: "π", -1: "−π/2", -2: "−π"}
    quarters = range(int(np.ceil(low - 1e-3)), int(np.floor(high + 1e-3)) + 1)
    labels = [names.get(q, f"{minus(str(q // 2 if q % 2 == 0 else q))}π{'/2' * (q % 2)}") for q in quarters]
    axes.set_xticks(np.pi / 2 * np.array(quarters), labels)


def condition(noise: float, frequency: float) -> str:
    """Return a noise level and control rate as text, for example "noise 0.02, 50 Hz"."""
    return f"noise {noise:g}, {frequency:g} Hz"


def span(counts: Iterable[int]) -> str:
    """Return the range of counts as text, for example "6" or "5 to 6"."""
    ordered = sorted(counts)
    return " to ".join(dict.fromkeys((f"{ordered[0]}", f"{ordered[-1]}")))


def run_count(data: xr.Dataset) -> str:
    """Return the number of runs of each learner and strategy as text for captions, for example "n = 5 to 6 runs"."""
    present = runs_there(data).sum("seed").values
    return f"n = {span(present[present > 0])} run{'s' * bool(present.max() > 1)}"


def minus(text: str) -> str:
    """Replace hyphens in a formatted number by typographic minus signs."""
    return text.replace("-", "−")


def plant_name(plant: str) -> str:
    """Return the name of a plant without the path of its Python file, and its delay in words."""
    bare, delay = without_delay(plant)
    return bare.rpartition(":")[2] + ("" if delay is None else f", delay {1e3 * delay:g} ms")


def file_names(plants: Sequence[str]) -> list[str]:
    """Return a unique file name without suffix for each plant."""
    plain = [re.sub(r"[^\w.-]+", "_", plant_name(plant)) for plant in plants]
    return [name if plain.count(name) == 1 else f"{name}-{index + 1}" for index, name in enumerate(plain)]


def check_saved(folder: Path, name: str) -> None:
    """Raise `UserError` if `save` would replace a file that this package did not write."""
    for suffix in KINDS:
        refuse_foreign(folder / f"{name}{suffix}")


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure in each format of the current medium, and return the path of the last file."""
    check_saved(folder, name)
    medium = _MEDIUM.get()
    figure.set_dpi(medium.dpi)  # the width of text is rounded to pixels, so the layout depends on the resolution
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # all files have the same layout; with "none", Matplotlib draws twice
    for suffix in medium.formats:
        path = folder / f"{name}.{suffix}"
        write_figure(figure, path, medium.dpi)
    return path
