"""Golden runs of learners: each that is registered as it is by default, and with every option that it has.

Short cells, so that acting, replay and updates are all in them: three episodes of 80 steps with their updates, on a
pendulum with noise. What is measured is what was earned, what the learner says of itself, how far each of its weight
arrays has moved, and its policy and values at fixed states.
"""

import dataclasses
import types
import typing
from typing import Any

import numpy as np

from replaybench.controllers.interface.exploration import ExplorationConfig
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import REFER
from tests.golden.golden_store import Measured

MEMBERS, UPDATING = 2, 3
MEMORY = {"layers": 1, "units": 8, "window": 4, "burn_in": 2}
NORMALISE = {"observations": True, "clip": 5.0, "rewards": True}
NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("SAC", "version=first"): {"temperature": 0.2},
    ("ACER", "truncation=false"): {"truncate_at": 0.5},
    ("ACER-discrete", "truncation=false"): {"truncate_at": 0.5},
    ("DDPG", "l2_form=decoupled"): {"l2": 1e-2},
    ("DDPG", "l2_form=weights"): {"l2": 1e-2},
}
"""What an option asks for beside itself."""
FURTHER: dict[str, tuple[str, dict[str, Any]]] = {
    "ACER truncates": ("ACER", {"truncate_at": 0.5}),
    "ACER-discrete truncates": ("ACER-discrete", {"truncate_at": 0.5}),
    "DDPG l2 and clip": ("DDPG", {"l2": 1e-2, "clip": 0.1}),
    "DDPG output_bound": ("DDPG", {"layer_norm": True, "output_bound": 3e-3}),
    "DDPG exploration per second": ("DDPG", {"exploration": {"form": "process", "per_second": True}}),
    "DDPG adapts parameter noise": ("DDPG", {"exploration": {"form": "parameter", "adaptations": 3, "recent": 8}}),
    "DQN huber": ("DQN", {"huber": 0.1, "copy_every": 10}),
    "SAC fixed temperature": ("SAC", {"temperature": 0.1}),
    "V-RACER memory and network": ("V-RACER", {"memory": {**MEMORY, "start": "zero"}, "sigma": "network"}),
}
"""Options whose values are numbers, and those of pairs that meet in one place."""
GAUSSIAN = {"exploration": {"form": "gaussian", "truncate": 3.0}}


def options(learner: str) -> dict[str, dict[str, Any]]:
    """Return a learner's settings away from its defaults, one by one, as `option=value`."""
    _, config = load_learner(learner)
    hints, found = typing.get_type_hints(config), {}
    for field in dataclasses.fields(config):
        kind, default = hints[field.name], getattr(config(), field.name)
        values: dict[str, Any] = {}
        if kind is bool:
            values = {str(not default).lower(): not default}
        elif typing.get_origin(kind) is typing.Literal:
            values = {value: value for value in typing.get_args(kind) if value != default}
        elif kind == ExplorationConfig:
            forms = [form().form for form in typing.get_args(kind)]
            values = {form: {"form": form} for form in forms if form != default.form}
        elif kind == MemoryConfig | types.NoneType:
            starts = typing.get_args(typing.get_type_hints(MemoryConfig)["start"])
            values = {start: {**MEMORY, "start": start} for start in starts}
        elif field.name == "normalise":
            values = {"all": NORMALISE}
        for name, value in values.items():
            option = f"{field.name}={name}"
            found[option] = {field.name: value, **NEEDED.get((learner, option), {})}
    return found


CASES: dict[str, tuple[str, dict[str, Any], str]] = {}
"""Learner, its settings, and the end of the strategy, by case."""
for _learner in LEARNERS.own:
    CASES[_learner] = (_learner, {}, "")
    CASES |= {f"{_learner} {option}": (_learner, settings, "") for option, settings in options(_learner).items()}
CASES |= {case: (*chosen, "") for case, chosen in FURTHER.items()}
for _rule in REFER:
    _term = f"+{_rule}(c=0.05)"
    CASES |= {f"{name}{_term}": (name, GAUSSIAN, _term) for name in ("DDPG", "NAF")}
    CASES[f"V-RACER{_term}"] = ("V-RACER", {}, _term)


def measure(case: str) -> Measured:
    """Run a case."""
    learner, settings, refer = CASES[case]
    _, config = load_learner(learner)
    if hasattr(config, "warmup_episodes"):
        settings = {"warmup_episodes": 1, **settings}
    study = Study(
        name="golden", plants=("PendulumDCSC",), learners=(learner,), strategies=(f"FULL[PER+IS{refer}]",),
        noise=(0.02,), frequency=(20.0,), seeds=MEMBERS, episodes=UPDATING + 1, greedy_every=UPDATING + 1,
        learner={learner: settings},
    )  # fmt: skip
    run = CellRun(study.cells()[0])
    first = {name: array.astype(np.float64) for name, array in run.agent.weights().items()}
    while run.episode < UPDATING + 1:
        run.advance()
    assert run.replay.updates >= UPDATING * 6
    states = np.random.Generator(np.random.PCG64(0)).uniform(-1, 1, (MEMBERS, 3, run.agent.task.observation_size))
    states = states.astype(np.float32)
    last = {name: array.astype(np.float64) for name, array in run.agent.weights().items() if array.size}
    last = {name: array for name, array in last.items() if not np.isinf(array).any()}  # bounds that bound nothing
    return {
        "reward": run.reward,
        "greedy": run.reward_greedy,
        "policy": run.agent.policy(states),
        "value": run.agent.value(states),
        **run.metrics,
        **{f"moved {name}": [np.sqrt(np.mean((array - first[name]) ** 2))] for name, array in last.items()},
    }
