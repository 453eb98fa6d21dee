"""Policies and values over the state space while they are learned, beside dynamic programming.

As Figure 4 of de Bruin et al. (2018): value, policy and the trajectory that follows from it, for plants of two states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.report.look import Panel, Section, number
from replaybench.experiments.report.material import Material
from replaybench.experiments.report.policy_pictures import moment, surface_figure
from replaybench.experiments.report.snapshots import Kept, PolicySnapshots, of_first_block, share_out
from replaybench.experiments.report.summary import amount
from replaybench.experiments.results.dataset import counted_in
from replaybench.experiments.snapshots.solved import Solved, read_solved

MOST_PANELS: Final = 18
"""Policies on a page, of which each takes about a tenth of a megabyte."""
_CELLS: Final = 1000
"""Cells times policies: a page of many cells has fewer."""


def policies_section(material: Material, kept: Sequence[Kept]) -> Section:
    """Draw policies along the run; without panels where none were kept."""
    shown = [one for one in kept if one.policy is not None]
    title = "Policies and values"
    if not shown:
        return Section("policies", title, [])
    there = len(shown)
    shown = share_out(shown, max(4, min(MOST_PANELS, _CELLS // len(kept))))
    left_out = there - len(shown)
    solved: dict[tuple[int, int], Solved | None] = {}
    for one in shown:
        key = one.point.plant, one.point.frequency
        if key not in solved:
            solved[key] = _solved(material, one)
    panels = []
    for (plant, frequency), solution in solved.items():
        mine = [one for one in shown if (one.point.plant, one.point.frequency) == (plant, frequency)]
        span = _span(mine, solution)
        if solution is not None:
            panels.append(_solved_panel(material, mine[0], solution, span))
        panels += [_panel(material, one, solution, span) for one in mine]
    counted = counted_in(material.data.isel(plant=shown[0].point.plant))
    lead = [
        f"For each series the run of median final reward{of_first_block(material)}. Left: value of its policy as "
        "discounted mean reward per step, (1 − γ) Q(s, π(s)). Right: the greedy action π(s). Lines: an episode under "
        "this policy without noise, from the start (circle) to the reference (cross).",
        "Choose a time of the run, or play it. Colours of values mean the same in all pictures of a plant and rate.",
    ]
    notes = []
    if missing := [place for place, solution in solved.items() if solution is None]:
        names = ", ".join(f"{plant_name(material.plants[p])} at {_rate(material, f)}" for p, f in missing)
        notes.append(
            f"Dynamic programming is not shown of {names}: the run holds none of it; the same sweep again adds it."
        )
    if left_out:
        notes.append(f"Of {amount(left_out, 'further cell')} the policies are not shown, so that the page stays small.")
    if without := [one for one in kept if one.policy is None]:
        others = list(dict.fromkeys(f"{plant_name(material.plants[o.point.plant])} {o.series.label}" for o in without))
        some = ", ".join(others[:6]) + (f" and {len(others) - 6} others" if len(others) > 6 else "")
        notes.append(
            f"Not shown: {some}. Surfaces need a plant of two states with equations and a grid, and a policy of the "
            "present state alone."
        )
    steps = [f"{counted[:-1]} {done:,}" for done in shown[0].rounds]
    return Section("policies", title, lead, panels, steps=steps, step_name="After", wide=True, notes=notes)


def _solved(material: Material, one: Kept) -> Solved | None:
    assert material.folder is not None  # snapshots come from it
    frequency = float(material.data["frequency"].values[one.point.frequency])
    return read_solved(material.folder, one.cell.fingerprint, frequency)


def _rate(material: Material, frequency: int) -> str:
    return f"{material.data['frequency'].values[frequency]:g} Hz"


def _span(shown: Sequence[Kept], solution: Solved | None) -> tuple[float, float]:
    """Return the range of colours of values: that of dynamic programming and little more, else of what was learned."""
    learned = np.concatenate([one.policy.value[-1].ravel() for one in shown if one.policy is not None])
    learned = learned[np.isfinite(learned)]
    low, high = (float(q) for q in np.percentile(learned, (1, 99))) if learned.size else (0.0, 1.0)
    if solution is not None:
        least, most = float(solution.value.min()), float(solution.value.max())
        low, high = max(low, least - 0.5 * (most - least)), min(high, most + 0.25 * (most - least))
        low, high = min(low, least), max(high, most)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _panel(material: Material, one: Kept, solution: Solved | None, span: tuple[float, float]) -> Panel:
    policy = one.policy
    assert policy is not None
    traces: list[Any] = []
    for step in range(len(one.rounds)):
        traces += moment(policy.facts, policy.value[step], policy.action[step], policy.path[step], span, step)
    title = f"{plant_name(material.plants[one.point.plant])}, {material.condition(one.point)}, {one.series.label}"
    title += f" (seed {policy.facts.seed})"
    learner, strategy = material.place(one.series)
    places = {**one.point._asdict(), "learner": learner, "strategy": strategy}
    return Panel(title, _told(title, policy, solution), surface_figure(policy.facts, traces, span), places, moves=True)


def _solved_panel(material: Material, one: Kept, solution: Solved, span: tuple[float, float]) -> Panel:
    assert one.policy is not None
    facts = one.policy.facts
    traces = moment(facts, solution.value, solution.action, solution.path, span, None)
    rate = _rate(material, one.point.frequency)
    title = f"{plant_name(material.plants[one.point.plant])}, {rate}, dynamic programming"
    words = f"Value and policy of {title}; mean reward per step {number(solution.reward, 3)}."
    places = {"plant": one.point.plant, "frequency": one.point.frequency}
    return Panel(title, words, surface_figure(facts, traces, span), places)


def _told(title: str, policy: PolicySnapshots, solution: Solved | None) -> str:
    """Say what a policy came to, and how like dynamic programming it was at first and at last."""
    text = f"Value and policy of {title} along the run. Mean reward per step of a greedy episode without noise: "
    text += f"{number(float(policy.greedy[0]), 3)} at first, {number(float(policy.greedy[-1]), 3)} at last"
    if solution is None or solution.action.shape != policy.action.shape[1:]:
        return f"{text}."
    center = [(axis.low + axis.high) / 2 for axis in policy.facts.actions]
    same = ((policy.action > center) == (solution.action > center)).all(axis=-1).mean(axis=(1, 2))
    return (
        f"{text}, {number(solution.reward, 3)} under dynamic programming. In {100 * same[0]:.0f} % of the states its "
        f"action had the direction of dynamic programming's at first, in {100 * same[-1]:.0f} % at last."
    )
