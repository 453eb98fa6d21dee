"""From the tabulated wakes into the flow itself: where they differ, and what policies of the wakes are worth there."""

from typing import Any, Final

import numpy as np

from benchmarks.tables.drafting import STATION
from benchmarks.tables.stored import facts
from benchmarks.tables.text import captioned, number, table
from replaybench.envs.flow.wake import FREE, HELD

_FIDELITIES: Final = {"wake": "wake model", "free-wake": "free-wake model", "navier-stokes": "flow solver"}
_POLICIES: Final = {
    "evolved in the wake": "evolved in the wake model",
    "evolved in the free wake": "evolved in the disturbed free-wake model",
    "no action": "no action",
}
_PLANTS: Final = {
    "Held": "wake model",
    "Free": "free-wake model",
    "Varied": "free-wake model, disturbed",
    "Rough": "free-wake model, disturbed twice as much",
}
"""Plants of drafting-transfer.toml in words."""


def texts() -> dict[str, str]:
    stored = facts("flow/transfer.json")
    return {
        **_laws(stored["fit"]),
        **_differences(stored["differences"]),
        **_evolved(stored["evolved"]),
        **_learned(stored["learned"]),
        **_tuned(stored["tuned"]),
    }


_WAKES: Final = {fidelity: _FIDELITIES[fidelity] for fidelity in ("wake", "free-wake")}
_LAWS: Final = {
    "inertia_along": "inertia along the chord, ρD²",
    "inertia_across": "inertia across the chord, ρD²",
    "inertia_turning": "moment of inertia, ρD⁴",
    "cross_drag": "drag across the chord, per slip, ρUD",
    "skin_friction": "skin friction along the chord",
    "munk_bluff": "share of the moment in potential flow",
    "turning_drag": "drag of rotation",
    "carried": "share of the water's acceleration that acts on the ellipse",
    "period": "period of vortex shedding, T",
    "ends_along": "sensors at the ends: gain along the chord",
    "ends_across": "sensors at the ends: gain across the chord",
    "sides_along": "sensors at the sides: gain along the chord",
    "sides_across": "sensors at the sides: gain across the chord",
}


def _laws(found: dict[str, float]) -> dict[str, str]:
    rows = [
        [words, *(f"{value:.3g}" for value in (getattr(HELD, name), getattr(FREE, name), found[name]))]
        for name, words in _LAWS.items()
    ]
    caption = (
        "Constants of the equations of motion and of the sensors. *Slip* is the velocity of the water relative to the "
        "ellipse. A sensor reads the slip times a gain. The last column was fitted to "
        f"{found['actions']:,} actions in the flow solver that were not used to fit the free-wake model. Two effects "
        "of the wake model have no row: its drag across the chord grows with the square of the slip, and the ellipse "
        "weakens its vortices."
    )
    return {"transfer.laws": captioned(caption, table(("constant", *_WAKES.values(), "fitted again"), rows))}


def _differences(found: dict[str, Any]) -> dict[str, str]:
    quantities = [name for name in found["wake"] if name != "offset of the phase"]
    rows = [[name, *(number(found[wake][name], 2) for wake in _WAKES)] for name in quantities]
    caption = (
        f"Share of the variance in the flow solver that a model does not explain, over {found['actions']:,} actions "
        "from the first steps of episodes. Both models get the same state and action as the flow solver. For "
        "positions and velocities, the variance is that of the change over one action; for sensors, that of the "
        "reading. A value of 0 is a perfect prediction. A model with a value above 1 is worse than "
        "the mean as a prediction."
    )
    return {"transfer.differences": captioned(caption, table(("quantity", *_WAKES.values()), rows))}


def _evolved(found: dict[str, Any]) -> dict[str, str]:
    rows = []
    for policy, outcomes in found.items():
        rows.append([_POLICIES[policy], *(_outcome(outcomes[name]) for name in _FIDELITIES)])
    episodes = found["no action"]["navier-stokes"]["episodes"]
    caption = (
        f"{episodes} episodes of 400 actions for each policy and model, from random starts. Each entry holds "
        "the mean number of actions survived, the share of complete episodes, and the cost per action in these."
    )
    flow = found["evolved in the free wake"]["navier-stokes"]
    return {
        "transfer.evolved": captioned(caption, table(("policy", *_FIDELITIES.values()), rows)),
        "transfer.survived": number(flow["survived"], 0),
        "transfer.whole": f"{round(flow['whole'] * flow['episodes'])} of {flow['episodes']}",
        "transfer.cost": number(flow["cost"], 3),
        "transfer.share": f"{number(100 * flow['cost'] / STATION, 0)} %",
        "transfer.before": number(found["evolved in the wake"]["navier-stokes"]["survived"], 0),
    }


def _outcome(one: dict[str, float]) -> str:
    whole = f"{number(100 * one['whole'], 0)} %" + (f" at {number(one['cost'], 3)}" if one["whole"] else "")
    return f"{number(one['survived'], 0)}; {whole}"


def _learned(found: dict[str, Any]) -> dict[str, str]:
    rows = []
    for plant, by_fidelity in found.items():
        own, flow = by_fidelity.values()
        rows.append([_words(plant), *(_seeds(each) for each in (own, flow))])
    episodes, seeds = flow[0]["episodes"], len(flow)
    caption = (
        f"V-RACER was trained with {seeds} seeds × 500,000 actions, in episodes of 50 actions. Each seed's greedy "
        f"policy was tested in {episodes} episodes of 400 actions, in the model of its training without disturbances "
        "and in the flow solver. Each entry holds three numbers. The first is the median over seeds of the actions "
        "survived, with the lowest and the highest seed. The second is the share of complete episodes over all seeds. "
        "The third is the cost per action in complete episodes, as a median over seeds."
    )
    headings = ("trained in", "tested in the same model", "tested in the flow solver")
    return {"transfer.learned": captioned(caption, table(headings, rows))}


def _words(plant: str) -> str:
    name, *without = plant.split(", ")
    return ", ".join([_PLANTS[name], *without])


def _seeds(outcomes: list[dict[str, float]]) -> str:
    lived = [one["survived"] for one in outcomes]
    whole = float(np.mean([one["whole"] for one in outcomes]))
    costs = [one["cost"] for one in outcomes if one["whole"]]
    cost = f" at {number(float(np.median(costs)), 3)}" if costs else ""
    middle = f"{number(float(np.median(lived)), 0)} ({number(min(lived), 0)} to {number(max(lived), 0)})"
    return f"{middle}; {number(100 * whole, 0)} %{cost}"


_TUNED: Final = {
    "before": "trained in the free-wake model (last row of the table above)",
    "drafting-tuned-coarse V-RACER": "trained in the coarse flow solver only",
    "drafting-tuned-coarse V-RACER:tuned": "trained in the free-wake model, then in the coarse flow solver",
    "drafting-tuned V-RACER": "the same, then trained in the flow solver",
}
"""Policies in words."""


def _tuned(found: dict[str, Any]) -> dict[str, str]:
    spent = {name: found[name]["actions"] for name in _TUNED}
    coarse = spent["drafting-tuned-coarse V-RACER:tuned"]
    rows = [
        [
            words,
            f"{spent[name]:,}",
            f"{len(found[name]['flow'])}",
            *(_seeds(found[name][grid]) for grid in ("coarse", "flow")),
        ]
        for name, words in _TUNED.items()
    ]
    rows[-1][1] = f"{coarse:,} + {spent['drafting-tuned V-RACER']:,}"
    flow = found["drafting-tuned V-RACER"]["flow"]
    caption = (
        f"V-RACER. Each seed's greedy policy was tested in {flow[0]['episodes']} episodes of 400 actions. Each entry "
        "gives the actions survived, the share of complete episodes, and the cost per action. The coarse flow solver "
        "has 8 instead of 16 grid cells per cylinder diameter."
    )
    cost = float(np.median([one["cost"] for one in flow if one["whole"]]))
    whole = sum(round(one["whole"] * one["episodes"]) for one in flow)
    headings = (
        "policy",
        "actions in the flow solver",
        "seeds",
        "tested in the coarse flow solver",
        "tested in the flow solver",
    )
    return {
        "transfer.tuned": captioned(caption, table(headings, rows)),
        "transfer.tuned-cost": number(cost, 3),
        "transfer.tuned-share": f"{number(100 * cost / STATION, 0)} %",
        "transfer.tuned-whole": f"{whole} of {sum(one['episodes'] for one in flow)}",
    }
