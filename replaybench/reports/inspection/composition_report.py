"""Text and figure of the composition of a stored buffer."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.registry import stored_plant
from replaybench.experiments.text_table import plain_table
from replaybench.replay.storage.schema import BufferFacts, BufferFile, open_buffer
from replaybench.reports.figures import style
from replaybench.reports.figures.surfaces import draw_ends
from replaybench.reports.inspection import composition
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.errors import UserError

_SHADES: Final = "░▒▓█"


def coverage(visits: composition.Visits, facts: BufferFacts, plant: Plant | None) -> Iterator[Table | Text]:
    """Yield a table of the visited range of each state, notes and, for two states, a picture of the visited plane."""
    numbers = ("from", "to", "visited", "outside")
    title = "states in which stored experiences begin, as observed"
    table = plain_table(("", "unit", *numbers, "never visited"), numbers, title)
    for each, outside in zip(visits.dimensions(), visits.outside, strict=True):
        extent = (f"{each.low:.4g}", f"{each.high:.4g}") if each.low <= each.high else ("–", "–")
        beyond = percent(outside / max(1, visits.total)) if outside else ""
        table.add_row(*map(Text, (each.name, each.unit, *extent, f"{each.visited:.0%}", beyond, each.gaps())))
    yield table
    notes = ["visited: share of 21 equal bins over the plant's range (that of its reference solution, if it has one)"]
    notes += ["outside: beyond that range"] * bool(visits.outside.any())
    both = visits.plane_coverage()
    if both is not None:
        notes.append(f"both states together: {both:.0%} of 21 × 21 bins visited")
    if plant is None:
        unknown = f"the plant {facts.plant} is not known here"
        notes.append(f"{unknown}; if you trust its file, pass --plant path/to/file.py:ClassName")
    yield Text("".join(f" {note}\n" for note in notes), style="dim")
    if len(visits.axes) == 2:
        yield _picture(visits.plane[0], *visits.axes)


def _picture(counts: Integers, across: composition.Axis, up: composition.Axis) -> Text:
    """Draw the density of states over a plane as text, with characters of four shades on a logarithmic scale."""
    rows = counts.reshape(composition.BINS, composition.BINS // composition.FINE, composition.FINE).sum(axis=2).T[::-1]
    most = max(1, int(rows.max()))
    limits = [int(np.ceil(most ** (level / len(_SHADES)))) for level in range(len(_SHADES))]
    shade: np.ndarray = np.array(list(" " + _SHADES))[np.searchsorted(limits, rows, side="right")]
    top, middle, bottom = (f"{value:.3g}" for value in (up.high, (up.low + up.high) / 2, up.low))
    labels = {0: top, len(rows) // 2: middle, len(rows) - 1: bottom}
    margin = max(map(len, labels.values())) + 2
    blank, line = " " * margin, "─" * composition.BINS
    lines = [f"{blank}{up.label}, upwards; {across.label}, to the right", f"{blank}┌{line}┐"]
    lines += [f"{labels.get(i, ''):>{margin - 1}} │{''.join(row)}│" for i, row in enumerate(shade)]
    low, middle, high = (f"{value:.3g}" for value in (across.low, (across.low + across.high) / 2, across.high))
    lines += [f"{blank}└{line}┘", f"{blank} {low:<21}{middle:^21}{high:>21}"]
    key = "   ".join(f"{mark} {limit:,} or more" for mark, limit in zip(_SHADES, limits, strict=True))
    return Text("\n".join([*lines, f"{blank} experiences: {key}", ""]), no_wrap=True, overflow="crop")


def percent(share: float) -> str:
    """Return a share as text in per cent."""
    return f"{100 * share:.3g} %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_BAR: Final = 36
_ROWS: Final = 5
"""Number of bins of ages in one line of the table."""


@dataclass(frozen=True)
class Quantity:
    """The label and unit of a quantity, whether its values are whole numbers, and the meaning of an infinite value."""

    label: str
    unit: str
    whole: bool = False
    infinite: str = "infinite"


QUANTITIES: Final = {
    "age": Quantity("age", "experiences", whole=True),
    "td_error": Quantity("last |TD error|", "scaled reward", infinite="never used"),
    "priority": Quantity("proportional priority", ""),
    "replays": Quantity("replays", "", whole=True),
    "exploration": Quantity("exploration", "normalised action"),
    "reward": Quantity("reward per step", ""),
}


def whose(contents: composition.Composition, facts: BufferFacts) -> str:
    """Return a title that names the strategy and the members whose buffers are described."""
    title = f"composition of {facts.strategy or 'a recording'}"
    if len(contents.members) > 1:
        return f"{title}, {len(contents.members)} members pooled"
    (member,) = contents.members
    number = facts.members[member] if facts.members else member
    return f"{title}, member {member}{'' if number == member else f' (seed {number})'}"


def _counts(contents: composition.Composition) -> Table:
    def each(counts: Integers) -> str:
        ends = dict.fromkeys((f"{counts.min():,}", f"{counts.max():,}"))
        return f" ({' to '.join(ends)} each)" if len(counts) > 1 else ""

    table = Table(show_header=False, box=None)
    steps, share = contents.unit_steps, contents.stored / max(1, int(contents.collected.sum()))
    offered = f" units of up to {steps} steps" if steps > 1 else ""
    units = f" in {contents.slots.sum():,} units" if steps > 1 else ""
    table.add_row("collected", f"{contents.collected.sum():,}{each(contents.collected)}")
    table.add_row("offered", f"{contents.offers.sum():,}{offered}{each(contents.offers)}")
    table.add_row("stored", f"{contents.stored:,}{units}{each(contents.slots)}: {percent(share)} of those collected")
    if contents.synthetic is not None:
        table.add_row(
            "synthetic", f"{contents.synthetic:,}: {percent(contents.synthetic / max(1, contents.slots.sum()))}"
        )
    return table


def _ages(contents: composition.Composition) -> Iterator[Table | Text]:
    title, headings = "age: experiences that the member has collected since", ("age", "share of stored", "", "retained")
    table = plain_table(headings, ("age", "", "retained"), title)
    table.columns[1].min_width = _BAR
    lines = -(-len(contents.ages.stored) // _ROWS)
    stored, collected = (
        np.pad(bins, (0, lines * _ROWS - len(bins))).reshape(lines, _ROWS).sum(axis=1)
        for bins in (contents.ages.stored, contents.ages.collected)
    )
    wide = contents.ages.width * _ROWS
    for row, (here, there) in enumerate(zip(stored, collected, strict=True)):
        ends = f"{row * wide:,} – {(row + 1) * wide - 1:,}"
        retained = percent(here / there) if there else ""
        table.add_row(ends, bar(here / stored.max(), _BAR), percent(here / contents.stored), retained)
    yield table
    note = " retained: share of the experiences of that age that are still stored\n"
    if contents.stored < contents.collected.sum():
        note += f" a FIFO buffer of the same size would hold {percent(contents.young / contents.stored)} of them too\n"
    yield Text(note, style="dim")


def bar(share: float, width: int) -> str:
    """Return a bar of block characters that fills a share of `width`, with at least one mark for a positive share."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _quantiles(contents: composition.Composition) -> Iterator[Table | Text]:
    shares = [f"{share:.0%}" for share in SHARES]
    table = plain_table(("", "unit", *shares, "not counted"), shares, "quantiles")
    for name, counted in contents.quantities.items():
        quantity = QUANTITIES[name]
        values = counted.quantiles(SHARES)
        cells = [format(v, ",.0f" if quantity.whole else ".3g") if np.isfinite(v) else "–" for v in values]
        table.add_row(quantity.label, quantity.unit, *cells, _infinite_or_nan(quantity, counted))
    yield table
    yield Text(" over all stored experiences, with a relative error of 1/2000\n", style="dim")


def _infinite_or_nan(quantity: Quantity, counted: composition.FloatHistogram) -> str:
    counts = [(counted.infinite, quantity.infinite), (counted.undefined, "NaN")]
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


_BINS: Final = 40
_LOGARITHMIC: Final = ("td_error", "priority")
_HEIGHT: Final = 2.35


def _draw(contents: composition.Composition, facts: BufferFacts, plant: Plant | None) -> Figure:
    """Draw the histograms of a buffer, with a single map of states to their right or several maps below."""
    planes = contents.visits.planes if contents.visits is not None else []
    single, histograms = len(planes) == 1, len(contents.quantities)
    across = (1 if histograms <= 3 else 2) if single else 3
    above = -(-histograms // across)
    rows = max(2, above) if single else above - (-len(planes) // across)
    title = f"{style.plant_name(str(facts.plant))}: {whose(contents, facts)}"
    figure = style.new_figure(2.9 * across + 5.4 * single, _HEIGHT * rows, title, _caption(contents, plant is not None))
    cells = figure.add_gridspec(rows, across + single, width_ratios=[1.0] * across + [2.0] * single)
    for place, (name, counted) in enumerate(contents.quantities.items()):
        axes = figure.add_subplot(cells[divmod(place, across)])
        if name == "age":
            edges = np.arange(len(contents.ages.stored) + 1) * contents.ages.width
            even = 100 * contents.ages.collected / max(1, contents.ages.collected.sum())
            axes.stairs(100 * contents.ages.stored / max(1, contents.stored), edges, fill=True, color=style.PALETTE[0])
            axes.stairs(even, edges, color=style.GREY, linewidth=1.0, baseline=None)
            axes.set(xlabel="age [experiences]", ylabel="share [%]", xlim=(0, edges[-1]))
            axes.locator_params(axis="x", nbins=4)
        else:
            _draw_histogram(axes, name, counted)
    for plane in range(len(planes)):
        assert contents.visits is not None
        cell = cells[:, -1] if single else cells[above + plane // across, plane % across]
        _draw_plane(figure, figure.add_subplot(cell), contents.visits, plane, plant)
    return figure


def _caption(contents: composition.Composition, known: bool) -> str:
    share = contents.stored / max(1, int(contents.collected.sum()))
    each = f"units of up to {contents.unit_steps} steps, " if contents.unit_steps > 1 else ""
    text = (
        f"{contents.stored:,} experiences stored ({each}{100 * share:.3g} % of those collected). Age: experiences that "
        "the member has collected since. Grey: the same number, retained uniformly over the run."
    )
    if contents.visits is not None:
        text += " Map: states in which they begin, as observed; white was never visited."
        text += " Circle: start; cross: reference." if known else ""
    return text


def _draw_histogram(axes: Axes, name: str, counted: composition.FloatHistogram) -> None:
    quantity = QUANTITIES[name]
    unit = f" [{quantity.unit}]" if quantity.unit else ""
    axes.set(xlabel=f"{quantity.label}{unit}", ylabel="share [%]")
    numbers, counts = counted.numbers.astype(np.float64), counted.counts
    if not numbers.size:
        style.write_note(axes, "none is finite" if counted.infinite + counted.undefined else "nothing is stored")
        return
    logarithmic = name in _LOGARITHMIC and numbers[-1] > 0
    if logarithmic:
        numbers = np.maximum(numbers, numbers[numbers > 0][0])
        axes.set_xscale("log")
        style.plain_log_labels(axes.xaxis)
    edges = histogram_edges(float(numbers[0]), float(numbers[-1]), quantity.whole, logarithmic)
    heights, _ = np.histogram(numbers, edges, weights=counts)
    axes.stairs(100 * heights / counts.sum(), edges, fill=True, color=style.PALETTE[0])
    if words := _infinite_or_nan(quantity, counted):
        axes.set_title(f"not shown: {words}", color=style.GREY, size=8)


def histogram_edges(low: float, high: float, whole: bool, logarithmic: bool) -> Floats:
    """Return the edges of up to 40 bins that cover the values from `low` to `high`.

    Edges lie between whole numbers if `whole`. Bins have equal relative widths if `logarithmic`.
    """
    if whole:
        width = max(1, int(np.ceil((high - low + 1) / _BINS)))
        return np.arange(low, high + 1 + width, width) - 0.5
    if logarithmic:
        return np.geomspace(low / 1.001, high * 1.001, _BINS + 1)
    room = (high - low) / 1e3 or 0.5 * max(abs(low), 1e-3)
    return np.linspace(low - room, high + room, _BINS + 1)


def _draw_plane(figure: Figure, axes: Axes, visits: composition.Visits, plane: int, plant: Plant | None) -> None:
    pair = visits.planes[plane]
    across, up = (visits.axes[s] for s in pair)
    counts = np.ma.masked_equal(visits.plane[plane].T, 0)
    shown: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest", "cmap": "viridis"}
    norm = LogNorm(1, max(2, int(visits.plane[plane].max())))
    image = axes.imshow(counts, extent=(across.low, across.high, up.low, up.high), norm=norm, **shown)
    ticks = LogLocator(subs=(1, 2, 5))
    bar = figure.colorbar(image, ax=axes, label="experiences", pad=0.015, ticks=ticks, format="%d")
    bar.minorticks_off()
    axes.set(xlabel=across.label, ylabel=up.label)
    style.label_angle(axes, across.periodic, 5)
    if isinstance(plant, OdePlant):
        draw_ends(axes, *([state[axis] for axis in pair] for state in (plant.initial_state, plant.reference_state)))
        axes.set(xlim=(across.low, across.high), ylim=(up.low, up.high))


def describe_composition(
    path: Path, member: int | None, plant_name: str | None, figure: Path | None
) -> list[RenderableType]:
    """Return statistics of the experiences in a buffer file, and draw them into the file `figure` if it is not None."""
    with open_buffer(path) as file:
        plant, axes = _known_plant(file, plant_name)
        contents, facts = composition.measure(file, member, axes), file.facts
    parts: list[RenderableType] = [Text(whose(contents, facts), style="bold"), _counts(contents)]
    if contents.stored:
        parts += [*_ages(contents), *_quantiles(contents)]
        parts += coverage(contents.visits, facts, plant) if contents.visits is not None else []
    if figure is not None:
        with style.style():
            style.write_figure(_draw(contents, facts, plant), figure)
    return parts


def check_choice(path: Path, member: int | None, plant_name: str | None) -> None:
    """Raise `UserError` if a buffer file lacks the index `member` or does not fit the named plant."""
    with open_buffer(path) as file:
        _known_plant(file, plant_name)
        composition.choose(file, member)


def _known_plant(file: BufferFile, plant_name: str | None) -> tuple[Plant | None, list[composition.Axis] | None]:
    """Return the plant of a buffer and its states, or None and None if the plant is unknown.

    A plant in a Python file is used only if the user names it, because a buffer file must not run code.
    """
    facts, states = file.facts, file.facts.fields.get("observation", 0)
    try:
        plant = stored_plant(facts.plant or "", plant_name, facts.parameters)
        axes = None if plant is None else composition.plant_axes(plant)
    except (UserError, ArithmeticError) as error:
        if plant_name is not None:
            raise UserError(f"{plant_name} does not fit {file.path}: {error}") from None
        return None, None
    if axes is not None and len(axes) == states:
        return plant, axes
    if plant is not None and plant_name is not None:
        raise UserError(f"{file.path} holds {states} states, {plant_name} has {len(plant.state_names)}")
    return None, None
