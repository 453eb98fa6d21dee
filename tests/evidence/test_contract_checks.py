"""`replaybench check` reports what is broken on purpose: each promise at least once, and nothing of what is sound."""

import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from replaybench.controllers.registry import load_learner
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.evidence import contracts as plant_contract
from replaybench.evidence.contract_checks import LEARNER, learner_cell
from replaybench.evidence.contracts import PLANT, STRATEGY, TOO_WEAK, Case, checked
from replaybench.replay.strategies.notation import RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.errors import UserError
from tests.helpers.commands import Capsys, Patch, call
from tests.helpers.tiers import slow

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"

SAMPLING = """
from dataclasses import dataclass
import numpy as np
from replaybench.replay.strategies.interface import RunningSampling, Sampling

@dataclass(frozen=True)
class Mine(Sampling):
    share: float = 1.0
    def start(self, view):
        return Running(view)
    {description}

class Running(RunningSampling):
    def draw(self, context, count, offers, draws):
        members, batch = draws.idx.shape
        uniform = self.stream.uniform(batch)
        draws.idx[:] = uniform * count[:, None]
        draws.probability[:] = 1 / count[:, None]
        {draw}
"""
BROKEN_SAMPLINGS = {
    "its notation is read as the same strategy": ("def in_brackets(self): return ''", "pass"),
    "only stored experiences are drawn, and drawing changes nothing": ("", "draws.idx[:] = uniform * 64"),
    "draws have the probabilities that are returned": ("", "draws.idx[:] = uniform**2 * count[:, None]"),
    "a member is the same bit for bit in any population": ("", "draws.idx[:] = (draws.idx + members) % count[:, None]"),
    "a saved buffer continues with identical draws": (
        "", "self.n = vars(self).get('n', 0) + 1; draws.idx[:] = (draws.idx + self.n) % count[:, None]"
    ),
}  # fmt: skip

LEARNER_SOURCE = """
import numpy as np
from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig

class MineConfig(DDPGConfig):
    pass

class Mine(DDPG):
    _calls = 0
    {body}
"""
BROKEN_LEARNERS = {
    "weights change, and stay finite": "def update(self, b): return {'td_error': np.zeros_like(b.weight)}",
    "greedy actions lie in [−1, 1]": "def policy(self, s): return 2 + self.mean(s)",
    "updates return a TD error of each sample": "def update(self, b): return {'td_error': np.nan * b.weight}",
    "exploration can be recomputed": """def perturb(self, s):
        self._calls += 1
        return super().perturb(s * self._calls)""",
    "inactive members draw no random numbers": """def explore(self, s, active):
        return super().explore(s, np.ones_like(active))""",
    "a member is the same bit for bit in any population": "def mean(self, s, m=None): return super().mean(s) / len(s)",
    "a resumed run equals an uninterrupted one": """def perturb(self, s):
        self._calls += 1
        return super().perturb(s * (1 + self._calls / 100))""",
    "a failed member fails alone and visibly": "def mean(self, s, m=None): return np.nan_to_num(super().mean(s))",
    "a policy file acts as the learner did": """def policy(self, s):
        return super().mean(s) / (1 + self.setting.members[0])""",
}

PLANT_SOURCE = """
from dataclasses import dataclass
import numpy as np
from replaybench.envs.foreign.python_plant import PythonPlant

calls = 0

@dataclass(frozen=True, kw_only=True)
class Mine(PythonPlant):
    name = "Mine"
    state_names, state_units, state_center, state_scale = ("x",), ("m",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("u",), ("m/s",), (-1.0,), (1.0,)
    initial_state = (0.0,)
    periodic = ({periodic},)

    def start(self, uniform):
        return uniform - 0.5

    def step(self, x, u, dt):
        global calls
        calls += 1
        after = x + u * dt
        {step}
        return after, -float(abs(after[0])), False
"""
HIDDEN = "after = after + calls % 7 / 1e4"
BROKEN_PLANTS = {
    "Gymnasium's checker finds nothing": "after = after + calls % 7 / 10",
    "a member is the same bit for bit in any population": HIDDEN,
    "members do not influence each other": "calls += int(u[0] > 0); " + HIDDEN,
    "observations stay inside their space, rewards finite": "after[0] = np.nan if calls > 3 else after[0]",
    "periodic states stay in [−π, π)": "after = after + 0.1",
    "a masked reset touches only the masked": HIDDEN,
    "a saved state continues bit for bit": HIDDEN,
    "a held action leads to the same place at another rate": "after = x + u * 0.05",
}


def broken(results: Any) -> list[str]:
    return [promise for promise, problem in results if problem]


def own(folder: Path, source: str) -> str:
    """Write a file that defines `Mine`; return the name of the class."""
    (folder / "own.py").write_text(source)
    return f"{folder / 'own.py'}:Mine"


def test_settings_of_a_learner_declare_when_it_is_updated(tmp_path: Path) -> None:
    source = LEARNER_SOURCE.replace("import DDPG, DDPGConfig", "import DDPG").replace("(DDPGConfig)", "")
    with pytest.raises(UserError, match="a frozen dataclass MineConfig that derives from LearnerConfig"):
        load_learner(own(tmp_path, source.format(body="pass")))


@pytest.mark.parametrize("promise", BROKEN_SAMPLINGS)
def test_a_broken_sampling_is_reported(promise: str, tmp_path: Path) -> None:
    description, draw = BROKEN_SAMPLINGS[promise]
    name = own(tmp_path, SAMPLING.format(description=description, draw=draw))
    assert promise in broken(checked(STRATEGY, Case(parse(f"FIFO[{name}(0.5)]"))))


GEOMETRIC = """
q = 1 - self.p
total = 1 - q ** count[:, None].astype(float)
age = np.clip(np.floor(np.log1p(-uniform * total) / np.log(q)).astype(np.int64), 0, count[:, None] - 1)
draws.idx[:] = np.take_along_axis(np.argsort(-self.serial.astype(np.int64), axis=1), age, axis=1)
draws.probability[:] = """


@pytest.mark.parametrize(
    ("p", "probability", "told"),
    [
        (0.0005, "self.p * q ** age / total", ""),
        (0.0005, "1 / count[:, None]", "counts do not fit the probabilities"),
        (0.000001, "self.p * q ** age / total", TOO_WEAK),
    ],
)
def test_probabilities_that_depend_on_age_are_tested(p: float, probability: str, told: str, tmp_path: Path) -> None:
    source = SAMPLING.format(description="", draw=(GEOMETRIC + probability).replace("\n", "\n        "))
    source = source.replace(
        "Running(RunningSampling):",
        f"""Running(RunningSampling):
    def __init__(self, view):
        super().__init__(view)
        self.serial, self.p = view.columns.serial, {p}
""",
    )
    promise = "draws have the probabilities that are returned"
    name = own(tmp_path, source)
    ((_, problem),) = checked({promise: STRATEGY[promise]}, Case(parse(f"FIFO[{name}]")))
    assert problem.startswith(told)
    assert bool(problem) == bool(told)


RETENTION = """
from dataclasses import dataclass
from replaybench.replay.strategies.interface import Retention, RunningRetention

@dataclass(frozen=True)
class Mine(Retention):
    {declared}
    def start(self, view):
        running = Running()
        running.serial = view.columns.serial
        return running

class Running(RunningRetention):
    def slots(self, offers, capacity, slots):
        for m, slot in enumerate(slots):
            if slot == -2:
                slots[m] = {slot}
"""


@pytest.mark.parametrize(
    ("slot", "declared", "told"),
    [
        ("self.serial[m].argmin()", "", ""),
        ("self.serial[m].argmax()", "", "new experiences in a full buffer, only 0 are still stored 16 steps later"),
        ("self.serial[m].argmax()", "least_kept = 0.0", ""),
        ("-1", "", "a full buffer takes no new experience; lower least_kept"),
        ("self.serial[m].argmin() if offers[m] == 70 else -1", "", TOO_WEAK),
    ],
)
def test_what_a_retention_keeps_is_tested(slot: str, declared: str, told: str, tmp_path: Path) -> None:
    promise = "a full buffer takes new experiences and keeps them for a while"
    name = own(tmp_path, RETENTION.format(slot=slot, declared=declared))
    ((_, problem),) = checked({promise: STRATEGY[promise]}, Case(parse(f"{name}[Uniform]")))
    assert told in problem
    assert bool(problem) == bool(told)


@pytest.mark.slow
def test_sound_strategies_keep_every_promise() -> None:
    """Each retention, sampling and weighting at least once; `tests/contracts` has all their combinations."""
    pairs = zip(cycle(RETENTIONS), cycle(SAMPLINGS), range(max(len(RETENTIONS), len(SAMPLINGS))), strict=False)
    names = [f"{retention}[{sampling}]" for retention, sampling, _ in pairs]
    names += [f"FIFO[PER+{name}]" for name in WEIGHTINGS]
    for text in (*names, "Drop(0.3)*Synth(action=0.2)*Resv[PER]", "FIFO(40)[Uniform]", "FIFO[ERE(phase=7)]"):
        assert not broken(checked(STRATEGY, Case(parse(text)))), text


@pytest.mark.parametrize("promise", LEARNER)
def test_a_broken_learner_is_reported(promise: str, tmp_path: Path) -> None:
    name = own(tmp_path, LEARNER_SOURCE.format(body=BROKEN_LEARNERS[promise]))
    assert broken(checked({promise: LEARNER[promise]}, learner_cell(name))) == [promise]


@pytest.mark.parametrize("promise", BROKEN_PLANTS)
def test_a_broken_plant_is_reported(promise: str, tmp_path: Path) -> None:
    name = own(tmp_path, PLANT_SOURCE.format(step=BROKEN_PLANTS[promise], periodic="periodic" in promise))
    assert promise in broken(checked(PLANT, make_plant(name)))


@pytest.mark.filterwarnings("ignore:careful")
@pytest.mark.parametrize(
    ("step", "told"), [("import warnings; warnings.warn('careful')", ""), ("raise SystemExit(0)", "SystemExit: 0")]
)
def test_a_plants_own_warning_is_no_fault_and_leaving_is_one(step: str, told: str, tmp_path: Path) -> None:
    promise = "Gymnasium's checker finds nothing"
    plant = make_plant(own(tmp_path, PLANT_SOURCE.format(step=f"if calls > 3: {step}", periodic=False)))
    ((_, problem),) = checked({promise: PLANT[promise]}, plant)
    assert told in problem
    assert bool(problem) == bool(told)


def test_a_state_that_gets_further_than_declared_is_named(tmp_path: Path) -> None:
    name = own(tmp_path, PLANT_SOURCE.format(step="after = after + 0.5", periodic=False))
    results = dict(checked(PLANT, make_plant(name)))
    told = r"x is [\d.]+ times its scale away from its center, beyond its observation_limit of 10; let an end stop"
    assert re.match(told, results["observations stay inside their space, rewards finite"])


ANGLE = """
from dataclasses import dataclass
import math
from replaybench.envs.ode.plant import OdePlant, wrap_angle

@dataclass(frozen=True, kw_only=True)
class Mine(OdePlant):
    name = "Slow"
    state_names, state_units, state_center, state_scale, periodic = ("x",), ("rad",), (0.0,), (math.pi,), (True,)
    action_names, action_units, action_low, action_high = ("u",), ("rad/s",), (-1e-3,), (1e-3,)
    initial_state = reference_state = (0.0,)
    def rhs(x, u, p): return (u[0],)
    def reward(x, u, x_next, event, p): return 0.0
"""


@pytest.mark.parametrize("wraps", [False, *slow([True])])
def test_an_angle_that_nothing_wraps_is_found_however_slow_it_is(wraps: bool, tmp_path: Path) -> None:
    project = "    def project(x, p):\n        x[0] = wrap_angle(x[0])\n        return 0\n"
    promise = "periodic states stay in [−π, π)"
    ((_, problem),) = checked({promise: PLANT[promise]}, make_plant(own(tmp_path, ANGLE + project * wraps)))
    assert ("x gets to 3.24 rad" in problem) is not wraps


def test_a_plant_may_depend_on_the_control_rate(tmp_path: Path) -> None:
    promise = "a held action leads to the same place at another rate"
    source = PLANT_SOURCE.format(step="after = x + u * 0.05", periodic=False)
    for declared, told in (("", "declare depends_on_rate = True if the plant"), ("    depends_on_rate = True\n", "")):
        text = source.replace("    initial_state", f"{declared}    initial_state")
        ((_, problem),) = checked({promise: PLANT[promise]}, make_plant(own(tmp_path, text)))
        assert told in problem
        assert bool(problem) == bool(told)


def test_a_sound_plant_keeps_every_promise_and_wrong_noise_is_reported(tmp_path: Path, monkeypatch: Patch) -> None:
    plant = make_plant(own(tmp_path, PLANT_SOURCE.format(step="pass", periodic=False)))
    assert not broken(checked(PLANT, plant))

    def louder(*args: Any, sensor_noise: float = 0.0, **settings: Any) -> PopulationEnv:
        return PopulationEnv(*args, sensor_noise=1.5 * sensor_noise, **settings)

    monkeypatch.setattr(plant_contract, "PopulationEnv", louder)
    assert broken(checked(PLANT, plant)) == ["noise has the stated spread"]
    assert {*BROKEN_PLANTS, "noise has the stated spread"} == set(PLANT)


def test_the_command_tells_each_promise_and_its_exit_status(tmp_path: Path, capsys: Capsys) -> None:
    def run(name: str) -> tuple[int, str, str]:
        return call("check", name), *capsys.readouterr()

    status, told, _ = run(f"{EXAMPLES / 'newest_first.py'}:NewestFirst")
    assert not status
    assert told.startswith("strategy ")
    assert told.count("  ok      ") == len(STRATEGY) == len(told.splitlines()) - 1
    status, told, _ = run(own(tmp_path, SAMPLING.format(description="", draw="draws.idx[:] = 99")))
    assert status == 1
    assert "  broken  only stored experiences are drawn, and drawing changes nothing: " in told
    status, told, _ = run(own(tmp_path, SAMPLING.format(description="", draw="draws.idx[:] = unknown")))
    line = 1 + SAMPLING[: SAMPLING.index("{draw}")].count("\n")
    assert f"NameError: name 'unknown' is not defined ({tmp_path / 'own.py'}, line {line})" in told
    text = SAMPLING.replace("share: float = 1.0", "a: int")
    (tmp_path / "open.py").write_text(text.format(description="", draw="pass"))
    (tmp_path / "plain.py").write_text("def helper() -> None:\n    pass\n")
    for name, wrong in {
        f"{tmp_path / 'plain.py'}:Mine": "plain.py defines no class; it must define Mine$",
        f"{tmp_path / 'open.py'}:Mine": "Mine: a needs a default; write one behind it in the class",
        "Pendulm": "unknown plant, strategy or learner 'Pendulm'; did you mean Pendulum",
        f"{tmp_path / 'own.py'}:Min": "did you mean Mine",
        f"{tmp_path / 'own.py'}:Running": "is no plant, no learner, and no retention, sampling or weighting",
        f"{tmp_path / 'own.py'}:zq": "unknown class in .*own.py 'zq'; valid: Mine, Running$",
        f"{tmp_path / 'none.py'}:Mine": "no Python file '.*none.py'",
        f"{tmp_path / 'none.py'}": "names no class in the file; write .*none.py:ClassName$",
        f"{tmp_path / 'own.py'}": "names no class in the file; write .*own.py:Mine or .*own.py:Running$",
    }.items():
        status, told, said = run(name)
        assert (status, told, said.count("\n")) == (2, "", 1)
        assert re.search(wrong, said), said
