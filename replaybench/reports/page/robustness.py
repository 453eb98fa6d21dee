"""Section of the report page about scores on changed plants, which the command `robustness` has evaluated."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from replaybench.experiments.comparison import LABELS, RIVAL
from replaybench.experiments.robustness import FOLDER, read_rows
from replaybench.reports.figures.robustness import Line, Part, axis_label, parts_of
from replaybench.reports.figures.style import plant_name
from replaybench.reports.page import theme
from replaybench.reports.page.report_data import ReportData
from replaybench.reports.page.theme import MU, Panel, Row, Section, Table, Trace, number, plain, small
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals

_NAMES: Final = {label: name for name, label in LABELS.items()}


def robustness_section(report: ReportData) -> Section:
    """Return the section with the scores of policies and reference controllers on changed plants."""
    panels, tables, notes = list[Panel](), list[Table](), list[str]()
    files = [] if report.folder is None else sorted((report.folder.path / FOLDER).glob("*.csv"))
    for path in files:
        try:
            parts = list(parts_of(read_rows(path)))
        except UserError as error:
            notes.append(f"{error}.")
            continue
        for part in parts:
            panels.append(_panel(report, part))
            tables.append(_table(report, part))
    lead = "Greedy episodes of the final policies on plants that differ from the plant of the training in one value. "
    lead += (
        "Nothing was trained, tuned or solved again, and reference controllers (grey) are made for the plant of the "
    )
    lead += f"training, whose random control and dynamic programming have {MU} 0 and 1. Bands are 95 % intervals over "
    lead += "seeds. The dotted line is the value in the training."
    return Section("robustness", "Robustness", [lead], panels, tables, notes=notes)


def _title(part: Part) -> str:
    return f"{plant_name(part.plant)}, noise {part.noise:g}, {part.frequency:g} Hz: {part.parameter}"


def _places(report: ReportData, part: Part, line: Line | None = None) -> dict[str, int]:
    """Return the places on the axes of the study of a condition and, if given, of a learner with a strategy."""
    values = {"plant": part.plant, "noise": part.noise, "frequency": part.frequency}
    if line is not None and line.learner:
        values |= {"learner": line.learner, "strategy": line.strategy}
    known = {axis: report.data[axis].values.tolist() for axis in values}
    return {axis: known[axis].index(value) for axis, value in values.items() if value in known[axis]}


def _panel(report: ReportData, part: Part) -> Panel:
    digits = decimals(part.lines[0].scores[:, 0])
    traces = [trace for line in reversed(part.lines) for trace in _traces(report, part, line, digits)]
    y = MU if part.normalised else "reward"
    mark = {"type": "line", "x0": part.trained, "x1": part.trained, "y0": 0, "y1": 1, "yref": "paper"}
    mark["line"] = {"color": theme.REFERENCE, "width": 1, "dash": "dot"}
    figure = theme.new_figure(traces, axis_label(part), y, hovermode="x", shapes=[mark])
    ends = "; ".join(
        f"{line.controller} from {number(line.scores[0, 0], digits)} to {number(line.scores[-1, 0], digits)}"
        for line in part.lines
    )
    return Panel(_title(part), f"Scores by {part.parameter}. {ends}.", figure, _places(report, part))


def _traces(report: ReportData, part: Part, line: Line, digits: int) -> list[Trace]:
    mean, low, high = line.scores.T
    common: Trace = {"type": "scatter", "x": line.values.tolist(), "mode": "lines"}
    shown = {"name": plain(line.controller), "hovertemplate": f"%{{y:.{digits}f}}", "y": small(mean)}
    if not line.learner:
        name = _NAMES.get(line.controller, RIVAL + line.controller)
        return [{**common, **shown, "line": theme.reference_line(name)}]
    own = [one for one in report.series if (one.learner, one.strategy) == (line.learner, line.strategy)]
    look: Mapping[str, str] = {"color": own[0].color, "dash": theme.dash(own[0])} if own else {"color": theme.INK}
    common |= {"meta": _places(report, part, line)}
    edge = {**common, "line": {"width": 0}, "hoverinfo": "skip"}
    band = [{**edge, "y": small(low)}, {**edge, "y": small(high), "fill": "tonexty"}]
    if own:
        band[1]["fillcolor"] = theme.faded(own[0].color)
    return [*band, {**common, **shown, "mode": "lines+markers", "line": {"width": 1.8, **look}}]


def _table(report: ReportData, part: Part) -> Table:
    heads = ("controller", *(f"{value:.4g}" for value in part.lines[0].values))
    digits = decimals(np.concatenate([line.scores[:, 0] for line in part.lines]), least=2)
    rows = [
        Row((line.controller, *(_cell(line, k, digits) for k in range(len(line.values)))), _places(report, part, line))
        for line in part.lines
    ]
    return Table(f"{_title(part)}, {MU if part.normalised else 'reward'}", heads, rows, 1)


def _cell(line: Line, place: int, digits: int) -> str:
    mean, low, high = (number(value, digits) for value in line.scores[place])
    return f"{mean} [{low}, {high}]" if low != high else mean
