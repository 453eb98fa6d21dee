"""Policies and values over the state space during learning, next to dynamic programming.

As in Figure 4 of de Bruin et al. (2018): value, policy and the trajectory of plants with two states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.figures.surfaces import value_range
from replaybench.experiments.report.look import Panel, Section, Trace, number
from replaybench.experiments.report.material import Material
from replaybench.experiments.report.policy_pictures import moment, surface_figure
from replaybench.experiments.report.snapshots import Kept, PolicySnapshots, of_first_block, share_out
from replaybench.experiments.report.summary import amount, some
from replaybench.experiments.results.dataset import counted_in
from replaybench.experiments.snapshots.solved import Solved, read_solved

MOST_PANELS: Final = 18
"""Policies on a page; each takes about a tenth of a megabyte."""
_CELLS: Final = 1000
"""Cells times policies: a page of many cells has fewer policies."""


def policies_section(material: Material, kept: Sequence[Kept]) -> Section:
    """Draw policies along the run; without panels if none were kept."""
    there = [one for one in kept if one.policy is not None]
    title = "Policies and values"
    if not there or material.folder is None:
        return Section("policies", title, [])
    shown = share_out(there, max(4, min(MOST_PANELS, _CELLS // len(kept))))
    rates = material.data["frequency"].values
    panels, missing = [], []
    for plant, rate in dict.fromkeys((one.point.plant, one.point.frequency) for one in shown):
        mine = [one for one in shown if (one.point.plant, one.point.frequency) == (plant, rate)]
        solution = read_solved(material.folder, mine[0].fingerprint, float(rates[rate]))
        span, name = _span(mine, solution), plant_name(material.plants[plant])
        if solution is None:
            missing.append(f"{name} at {rates[rate]:g} Hz")
        elif (policy := mine[0].policy) is not None:
            text = f"{name}, {rates[rate]:g} Hz, dynamic programming"
            words = f"Value and policy of {text}; mean reward per step {number(solution.reward, 3)}."
            traces = moment(policy.facts, solution.value, solution.action, solution.path, span, None)
            figure = surface_figure(policy.facts, traces, span)
            panels.append(Panel(text, words, figure, {"plant": plant, "frequency": rate}))
        panels += [_panel(material, one, one.policy, solution, span) for one in mine if one.policy]
    lead = [
        f"For each series the run of median final reward{of_first_block(material)}. Left: value of its policy as "
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
    if left_out := len(there) - len(shown):
        notes.append(f"The policies of {amount(left_out, 'further cell')} are not shown, to keep the page small.")
    if without := [one for one in kept if one.policy is None]:
        others = dict.fromkeys(f"{plant_name(material.plants[o.point.plant])} {o.series.label}" for o in without)
        notes.append(
            f"Not shown: {some([*others], 6)}. Surfaces need a plant with two states, equations and a grid, and a "
            "policy of the present state alone."
        )
    counted = counted_in(material.of_plants[shown[0].point.plant])
    steps = [f"{counted[:-1]} {done:,}" for done in shown[0].rounds]
    return Section("policies", title, lead, panels, steps=steps, notes=notes)


def _span(shown: Sequence[Kept], solution: Solved | None) -> tuple[float, float]:
    """Return the range of colours of values: that of dynamic programming and little more, or that of the policies."""
    learned = np.concatenate([one.policy.value[-1].ravel() for one in shown if one.policy is not None])
    learned = learned[np.isfinite(learned)] if np.isfinite(learned).any() else np.array([0.0, 1.0])
    low, high = (float(q) for q in np.percentile(learned, (1, 99)))
    if solution is not None:
        low, high = value_range(learned, solution.value)
        low, high = min(low, float(solution.value.min())), max(high, float(solution.value.max()))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _panel(
    material: Material, one: Kept, policy: PolicySnapshots, solution: Solved | None, span: tuple[float, float]
) -> Panel:
    traces: list[Trace] = []
    for step in range(len(one.rounds)):
        traces += moment(policy.facts, policy.value[step], policy.action[step], policy.path[step], span, step)
    title = f"{material.title(one.point, one.series)} (seed {policy.facts.seed})"
    figure = surface_figure(policy.facts, traces, span)
    words = _words(title, policy, solution)
    return Panel(title, words, figure, material.places(one.series, one.point), moves=True)


def _words(title: str, policy: PolicySnapshots, solution: Solved | None) -> str:
    """Describe a policy, and its agreement with dynamic programming at the beginning and the end of the run."""
    text = f"Value and policy of {title} along the run. Mean reward per step of a greedy episode without noise: "
    text += f"{number(float(policy.greedy[0]), 3)} at first, {number(float(policy.greedy[-1]), 3)} at the end"
    if solution is None or solution.action.shape != policy.action.shape[1:]:
        return f"{text}."
    center = [(axis.low + axis.high) / 2 for axis in policy.facts.actions]
    same = ((policy.action > center) == (solution.action > center)).all(axis=-1).mean(axis=(1, 2))
    return (
        f"{text}, {number(solution.reward, 3)} under dynamic programming. Share of the states in which its action has "
        f"the direction of dynamic programming's: {100 * same[0]:.0f} % at first, {100 * same[-1]:.0f} % at the end."
    )
