"""Section of the report page that shows policies and values during training, next to dynamic programming.

Each picture shows value, policy and a trajectory of a plant with two states, as in de Bruin et al. (2018, Figure 4).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.data.record import open_record
from replaybench.experiments.dataset import counted_in
from replaybench.experiments.snapshots import PIXELS, ActionAxis, SnapshotFacts, Solved, read_solved
from replaybench.reports.figures.style import Series, minus, plant_name
from replaybench.reports.figures.surfaces import cut_path, value_range
from replaybench.reports.page.report_data import Point, ReportData
from replaybench.reports.page.summary import amount, some
from replaybench.reports.page.theme import INK, PAPER, Figure, Panel, Section, Trace, new_figure, number, plain, small
from replaybench.runtime.arrays import AnyFloats, Floats, Floats32, Integers
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError


@dataclass(frozen=True)
class _Cell:
    fingerprint: str


@dataclass(frozen=True)
class PolicySnapshots:
    """The policy of one run at K times of its training.

    Attributes:
        value: Value times 1 − γ over X × Y pixels of the state space; shape `[K, X, Y]`.
        action: Actions in physical units; shape `[K, X, Y, A]`.
        path: States of a greedy episode of at most T steps in physical units, then NaN; shape `[K, T + 1, 2]`.
        greedy: Mean reward per step of the episode in `path`; shape `[K]`.
    """

    facts: SnapshotFacts
    value: Floats32
    action: Floats32
    path: Floats32
    greedy: Floats


@dataclass(frozen=True)
class Kept:
    """The contents of replay buffers and a policy, at K times of the training with one learner and strategy.

    Attributes:
        point: Plant, noise level and control rate.
        series: Learner and strategy.
        fingerprint: Hash that identifies the plant and its parameters.
        rounds: Number of finished episodes or iterations at each time.
        origin: Number of stored experiences from each tenth of the run, summed over independent runs; shape `[K, 10]`.
        collected: Number of experiences collected in each tenth of the run, summed over independent runs; shape `[10]`.
        exploration: Mean distance of the stored actions from the policy's actions; shape `[K]`.
        policy: Policy of the run with the median final reward; None if no policies were stored.
    """

    point: Point
    series: Series
    fingerprint: str
    rounds: list[int]
    origin: Integers
    collected: Integers
    exploration: Floats
    policy: PolicySnapshots | None


def read_snapshots(report: ReportData) -> Iterator[Kept]:
    """Yield snapshots of buffers and policies for each learner with a strategy, in the order of the study.

    If the seeds were run in several blocks, only the first block is read.
    """
    if report.folder is None or "cell" not in report.data.coords:
        return
    cells = report.data["cell"].isel(block=0)
    for point, series in itertools.product(report.points, report.series):
        name = str(cells.isel(report.places(series, point)).item())
        path = report.folder.cell(name) / "snapshots.h5"
        if name.isalnum() and path.is_file():
            yield _read(path, point, series)


def of_first_block(report: ReportData) -> str:
    """Return a note for captions that only the first block of seeds is shown, or "" if there is only one block."""
    return ", in the first block of seeds" if report.data.sizes.get("block", 1) > 1 else ""


def share_out(kept: Sequence[Kept], most: int) -> list[Kept]:
    """Choose about `most` of the snapshots, which are the first ones of each plant, in equal numbers."""
    plants = list(dict.fromkeys(one.point.plant for one in kept))
    each = max(1, most // max(1, len(plants)))
    return [one for plant in plants for one in [other for other in kept if other.point.plant == plant][:each]]


def _read(path: Path, point: Point, series: Series) -> Kept:
    with open_record(path, "snapshots") as record:
        facts, shapes = record.header.facts, record.header.shapes
        about = facts.get("cell")
        cell = build(_Cell, about if isinstance(about, dict) else {}, f"the cell of {path}", others=True)
        rounds = facts.get("rounds")
        if not isinstance(rounds, list) or not rounds or not all(isinstance(each, int) for each in rounds):
            raise UserError(f"{path} does not state when its snapshots were taken")
        members, count = (*shapes.get("origin", ()), 0, 0)[:2]
        due: dict[str, tuple[int, ...]] = {
            "origin": (members, len(rounds), 10), "collected": (members, 10), "exploration": (members, count),
        }  # fmt: skip
        policy = None
        if "value" in shapes:
            policy = build(SnapshotFacts, facts, f"the facts of {path}", others=True)
            pixels = shapes["value"][2:3] * 2
            due |= {"value": (1, count, *pixels), "action": (1, count, *pixels, len(policy.actions))}
            due |= {"path": (1, count, *shapes.get("path", ())[2:3], 2), "greedy": (1, count)}
            if len(policy.states) != 2 or not policy.actions:
                raise UserError(f"{path}: a policy must be over two states")
        for array, shape in due.items():
            if shapes.get(array) != shape:
                raise UserError(f"{path}: {array} is not of shape {shape}")
        arrays: dict[str, Any] = {array: record.read(array) for array in due}
    explored = np.ma.masked_invalid(arrays["exploration"]).mean(axis=0).filled(np.nan)
    surfaces = [arrays[array][0] for array in ("value", "action", "path", "greedy") if policy is not None]
    return Kept(
        point,
        series,
        cell.fingerprint,
        rounds,
        arrays["origin"].sum(axis=0),
        np.diff(arrays["collected"].sum(axis=0), prepend=0),
        explored,
        None if policy is None else PolicySnapshots(policy, *surfaces),
    )


_SHADES: Final = 255
_SIDES: Final = [0.0, 0.46], [0.54, 1.0]
"""Horizontal domains of the panels for value and action, as shares of the width."""
_SECOND: Final = {"xaxis": "x2", "yaxis": "y2"}
_MOST_POINTS: Final = 140
"""Largest number of points of a trajectory."""
_STROKES: Final = "#fdfdfd", "#161616"
"""Colours of the trajectory on value and on action; a dark page does not change them."""


def moment(
    facts: SnapshotFacts, value: AnyFloats, action: AnyFloats, path: AnyFloats, span: tuple[float, float],
    step: int | None = None,
) -> list[Trace]:  # fmt: skip
    """Return the Plotly traces of a policy at one time, which show value, first action and a trajectory.

    Args:
        value: Value over X × Y pixels of the state space; shape `[X, Y]`.
        action: Actions in physical units; shape `[X, Y, A]`.
        path: States of a trajectory in physical units; shape `[T + 1, 2]`.
        span: Lowest and highest value of the colour scale.
        step: Index of the time in an animation; None in a still picture.
    """
    first = facts.actions[0]
    path = path[np.isfinite(path).all(axis=1)].astype(np.float64)
    path = path[:: -(-len(path) // _MOST_POINTS) or 1]
    path = cut_path(path, [state.high - state.low if state.periodic else np.inf for state in facts.states])
    line = {"type": "scatter", "mode": "lines", "x": small(path[:, 0]), "y": small(path[:, 1])}
    traces: list[Trace] = []
    for side, (shown, low, high) in enumerate(((value, *span), (action[..., 0], first.low, first.high))):
        common = {"hoverinfo": "skip", "meta": {} if step is None else {"step": step}, **(_SECOND if side else {})}
        (x, dx), (y, dy) = ((axis.low, (axis.high - axis.low) / PIXELS) for axis in facts.states)
        share = (np.nan_to_num(shown.T, nan=low) - low) / (high - low)
        shades = small(np.round(_SHADES * np.clip(share, 0, 1)), np.uint8)  # one byte each: a page has many pixels
        pixels = {"x0": x + dx / 2, "dx": dx, "y0": y + dy / 2, "dy": dy}
        scale = "coloraxis2" if side else "coloraxis"
        traces.append({"type": "heatmap", "z": shades, **pixels, "coloraxis": scale, **common})
        traces.append({**line, "line": {"color": _STROKES[side], "width": 2}, **common})
    return traces


def surface_figure(facts: SnapshotFacts, traces: Sequence[Trace], span: tuple[float, float]) -> Figure:
    """Return a Plotly figure of value and policy next to each other, each with its own colour scale."""
    across, up = facts.states
    action = facts.actions[0]
    ends = {"type": "scatter", "mode": "markers", "hoverinfo": "skip", "cliponaxis": False}
    marks: list[Trace] = []
    for x, y, sign in ((across.initial, up.initial, "circle"), (across.reference, up.reference, "x")):
        marker = {"color": PAPER, "size": 9, "symbol": sign, "line": {"color": INK, "width": 1.5}}
        marks += [point := {**ends, "x": [x], "y": [y], "marker": marker}, {**point, **_SECOND}]
    ticks = {"tickvals": [-np.pi, 0, np.pi], "ticktext": ["−π", "0", "π"]} if across.periodic else {"nticks": 4}
    view = {"range": [across.low, across.high], "showgrid": False, **ticks}
    rows = {"range": [up.low, up.high], "showgrid": False}
    colors = "RdBu" if action.low < 0 < action.high else "Cividis"
    figure = new_figure(
        [*traces, *marks],
        _labelled(across),
        _labelled(up),
        height=296,
        xaxis={**view, "domain": _SIDES[0]},
        yaxis={**rows, "nticks": 5},
        yaxis2={**rows, "showticklabels": False, "fixedrange": True, "ticks": "", "anchor": "x2"},
        coloraxis=_scale("Viridis", "value", *span, _SIDES[0]),
        coloraxis2=_scale(colors, _labelled(action), action.low, action.high, _SIDES[1]),
        margin={"l": 8, "r": 14, "t": 10, "b": 40},
    )
    figure["layout"]["xaxis2"] = {**figure["layout"]["xaxis"], "domain": _SIDES[1], "anchor": "y2"}
    return figure


def _scale(colors: str, title: str, low: float, high: float, side: list[float]) -> dict[str, Any]:
    bar = {
        "title": {"text": plain(title), "side": "bottom", "font": {"size": 11}},
        "orientation": "h",
        "thickness": 9,
        "x": (side[0] + side[1]) / 2,
        "y": -0.24,
        "yanchor": "top",
        "ypad": 4,
        "len": 0.9 * (side[1] - side[0]),
        "tickvals": [0, _SHADES / 2, _SHADES],
        "ticktext": [minus(f"{value:.3g}") for value in (low, (low + high) / 2, high)],
        "outlinewidth": 0,
    }
    return {"cmin": 0, "cmax": _SHADES, "colorscale": colors, "colorbar": bar}


def _labelled(axis: ActionAxis) -> str:
    return plain(f"{axis.name} [{axis.unit}]" if axis.unit else axis.name)


MOST_PANELS: Final = 18
"""Largest number of policies on a page. A policy takes about a tenth of a megabyte."""
_CELLS: Final = 1000
"""Limit of the number of cells times the number of policies. A page of many cells has fewer policies."""


def policies_section(report: ReportData, kept: Sequence[Kept]) -> Section:
    """Return the section that shows policies during the run, without panels if the run stored no policies."""
    stored = [one for one in kept if one.policy is not None]
    title = "Policies and values"
    if not stored or report.folder is None:
        return Section("policies", title, [])
    shown = share_out(stored, max(4, min(MOST_PANELS, _CELLS // len(kept))))
    rates = report.data["frequency"].values
    panels, missing = [], []
    for plant, rate in dict.fromkeys((one.point.plant, one.point.frequency) for one in shown):
        group = [one for one in shown if (one.point.plant, one.point.frequency) == (plant, rate)]
        solution = read_solved(report.folder, group[0].fingerprint, float(rates[rate]))
        span, name = _span(group, solution), plant_name(report.plants[plant])
        if solution is None:
            missing.append(f"{name} at {rates[rate]:g} Hz")
        elif (policy := group[0].policy) is not None:
            text = f"{name}, {rates[rate]:g} Hz, dynamic programming"
            words = f"Value and policy of {text}; mean reward per step {number(solution.reward, 3)}."
            traces = moment(policy.facts, solution.value, solution.action, solution.path, span)
            figure = surface_figure(policy.facts, traces, span)
            panels.append(Panel(text, words, figure, {"plant": plant, "frequency": rate}))
        panels += [_panel(report, one, one.policy, solution, span) for one in group if one.policy]
    lead = [
        f"For each series the run of median final reward{of_first_block(report)}. Left: value of its policy as "
        "discounted mean reward per step, (1 − γ) Q(s, π(s)). Right: the greedy action π(s). Lines: an episode under "
        "this policy without noise, from the start (circle) to the reference (cross).",
        "Choose a time of the run, or play it. Colours of values mean the same in all pictures of a plant and rate.",
    ]
    notes = []
    if missing:
        notes.append(
            f"Dynamic programming is not shown for {', '.join(missing)}: the run folder does not hold it. Run the same "
            "sweep again to add it."
        )
    if left_out := len(stored) - len(shown):
        notes.append(f"The policies of {amount(left_out, 'further cell')} are not shown, to keep the page small.")
    if without := [one for one in kept if one.policy is None]:
        others = dict.fromkeys(f"{plant_name(report.plants[o.point.plant])} {o.series.label}" for o in without)
        notes.append(
            f"Not shown: {some([*others], 6)}. Surfaces need a plant with two states, equations and a grid, and a "
            "policy of the present state alone."
        )
    counted = counted_in(report.of_plants[shown[0].point.plant])
    steps = [f"{counted[:-1]} {done:,}" for done in shown[0].rounds]
    return Section("policies", title, lead, panels, steps=steps, notes=notes)


def _span(shown: Sequence[Kept], solution: Solved | None) -> tuple[float, float]:
    """Return the colour range of values, which covers the values of dynamic programming if they are known."""
    learned = np.concatenate([one.policy.value[-1].ravel() for one in shown if one.policy is not None])
    learned = learned[np.isfinite(learned)] if np.isfinite(learned).any() else np.array([0.0, 1.0])
    low, high = (float(q) for q in np.percentile(learned, (1, 99)))
    if solution is not None:
        low, high = value_range(learned, solution.value)
        low, high = min(low, float(solution.value.min())), max(high, float(solution.value.max()))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _panel(
    report: ReportData, one: Kept, policy: PolicySnapshots, solution: Solved | None, span: tuple[float, float]
) -> Panel:
    """Return the panel of a policy during the run, with a text that compares the policy with dynamic programming."""
    traces: list[Trace] = []
    for step in range(len(one.rounds)):
        traces += moment(policy.facts, policy.value[step], policy.action[step], policy.path[step], span, step)
    title = f"{report.title(one.point, one.series)} (seed {policy.facts.seed})"
    words = f"Value and policy of {title} along the run. Mean reward per step of a greedy episode without noise: "
    words += f"{number(float(policy.greedy[0]), 3)} at first, {number(float(policy.greedy[-1]), 3)} at the end"
    if solution is not None and solution.action.shape == policy.action.shape[1:]:
        center = [(axis.low + axis.high) / 2 for axis in policy.facts.actions]
        same = ((policy.action > center) == (solution.action > center)).all(axis=-1).mean(axis=(1, 2))
        words += f", {number(solution.reward, 3)} under dynamic programming. Share of the states in which its action "
        words += f"has the direction of dynamic programming's: {100 * same[0]:.0f} % at first, "
        words += f"{100 * same[-1]:.0f} % at the end"
    figure = surface_figure(policy.facts, traces, span)
    return Panel(title, f"{words}.", figure, report.places(one.series, one.point), moves=True)
