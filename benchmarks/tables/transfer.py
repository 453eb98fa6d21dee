"""From the tabulated wakes into the flow itself: where they differ, and what policies of the wakes are worth there."""

from typing import Any, Final

import numpy as np

from benchmarks.tables.drafting import STATION
from benchmarks.tables.stored import facts
from benchmarks.tables.text import captioned, number, table
from replaybench.envs.flow.wake import FREE, HELD

_FIDELITIES: Final = {"wake": "wake", "free-wake": "free wake", "navier-stokes": "the flow"}
_PLANTS: Final = {
    "Held": "the wake",
    "Free": "the free wake",
    "Varied": "the free wake, disturbed",
    "Rough": "the free wake, disturbed twice as much",
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


_LAWS: Final = {
    "inertia_along": "inertia along the chord, ρD²",
    "inertia_across": "across it, ρD²",
    "inertia_turning": "of turning, ρD⁴",
    "cross_drag": "drag by slip across the chord, ρUD",
    "skin_friction": "skin friction along it",
    "munk_bluff": "share of the potential-flow moment",
    "turning_drag": "drag of turning",
    "carried": "share of the water's acceleration",
    "period": "period of shedding, T",
    "ends_along": "sensors at the ends: share of the slip along the chord",
    "ends_across": "across it",
    "sides_along": "sensors at the sides: along",
    "sides_across": "across",
}


def _laws(found: dict[str, float]) -> dict[str, str]:
    rows = [
        [words, *(f"{value:.3g}" for value in (getattr(HELD, name), getattr(FREE, name), found[name]))]
        for name, words in _LAWS.items()
    ]
    caption = (
        f"What an ellipse feels. The last column is fitted to {found['actions']:,} actions of episodes that the free "
        "wake's numbers were not fitted to. Besides, the wake has a drag across the chord that goes with the square of "
        "the slip, and it weakens where the ellipse is near."
    )
    return {"transfer.laws": captioned(caption, table(("law", "wake", "free wake", "fitted again"), rows))}


def _differences(found: dict[str, Any]) -> dict[str, str]:
    quantities = [name for name in found["wake"] if name != "offset of the phase"]
    rows = [[name, *(number(found[wake][name], 2) for wake in ("wake", "free-wake"))] for name in quantities]
    caption = (
        f"{found['actions']:,} actions in the flow, from starts on. Share of the variance of a change over one action, "
        "and of what sensors read, that the wakes leave unexplained from the same place by the same action; above 1 is "
        "worse than knowing nothing but the mean."
    )
    return {"transfer.differences": captioned(caption, table(("quantity", "wake", "free wake"), rows))}


def _evolved(found: dict[str, Any]) -> dict[str, str]:
    rows = []
    for policy, outcomes in found.items():
        rows.append([policy, *(_outcome(outcomes[name]) for name in _FIDELITIES)])
    episodes = found["no action"]["navier-stokes"]["episodes"]
    caption = (
        f"{episodes} episodes of 400 actions each, starts of their own: actions survived on average; share of whole "
        "episodes, and their cost per action."
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
        f"V-RACER, {seeds} seeds × 500,000 actions in episodes of 50; greedily, "
        f"{episodes} episodes of 400 actions a seed. Actions survived: median over seeds, lowest to highest; whole "
        "episodes of all seeds; their cost per action, median over seeds."
    )
    headings = ("learned in", "there", "in the flow")
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
    "before": "learned in the free wake, as in the last row above",
    "drafting-tuned-coarse V-RACER": "learned in the coarse flow alone",
    "drafting-tuned-coarse V-RACER:tuned": "learned in the free wake, tuned in the coarse flow",
    "drafting-tuned V-RACER": "and then in the flow",
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
        f"V-RACER; greedily, {flow[0]['episodes']} episodes of 400 actions a seed, as "
        "above. Coarse: 8 instead of 16 cells to a diameter."
    )
    cost = float(np.median([one["cost"] for one in flow if one["whole"]]))
    whole = sum(round(one["whole"] * one["episodes"]) for one in flow)
    headings = ("policy", "actions there", "seeds", "in the coarse flow", "in the flow")
    return {
        "transfer.tuned": captioned(caption, table(headings, rows)),
        "transfer.tuned-cost": number(cost, 3),
        "transfer.tuned-share": f"{number(100 * cost / STATION, 0)} %",
        "transfer.tuned-whole": f"{whole} of {sum(one['episodes'] for one in flow)}",
    }
