"""Whole strategies: naive peers, users' own, and faults of the authors' code."""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaybench.replay.buffer import Replay
from replaybench.replay.storage.slots import STEP, Unit, episode, segment
from replaybench.replay.storage.traces import episode_and_step
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import RETENTIONS, SAMPLINGS, parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.errors import UserError
from tests.helpers.buffers import FIELDS, Model, fill, make, rule_for, saved
from tests.helpers.naive import NaiveReplay
from tests.helpers.tiers import each_once, slow

ROOT, BATCH, EPISODE = 3, 5, 6
EPISODES_OF_FULL = 400

VARIANTS = {
    "FIFO": ["FIFO"],
    "FULL": ["FULL"],
    "Resv": ["Resv"],
    "TDE": ["TDE", "TDE(1.2, segments=none)", "TDE(0.0)", "TDE(4.0, segments=5)"],
    "Expl": ["Expl", "Expl(1.2, segments=none)", "Expl(0.0)", "Expl(4.0, segments=5)"],
    "Uniform": ["Uniform"],
    "PER": ["PER", "PER(0.0)", "PER(3.0)"],
    "PERprop": ["PERprop", "PERprop(0.0)", "PERprop(1.0, epsilon=0.01)"],
    "Annealed": ["Annealed", "Annealed(4.0, alpha=1.0)"],
    "AER": ["AER", "AER(4.0, alpha=1.0)", "AER(1.0)"],
    "ERE": ["ERE", "ERE(0.9995, c_min=3)", "ERE(0.999, c_min=2, phase=5)"],
    "LA3P": ["LA3P", "LA3P(1.0)", "LA3P(0.2, alpha=2.0)"],
    "ReaPER": ["ReaPER", "ReaPER(0.0)", "ReaPER(1.0, omega=2.0)", "ReaPER(omega=0.0)"],
    "ERE+PER": ["ERE+PER", "ERE(0.9998)+PER", "ERE(0.999, c_min=4, last=0.9997)+PER(0.9)"],
}
"""Each part with defaults and other parameters; a part that is registered but missing here is tested as it is."""
WEIGHTINGS = ["", "+IS", "+IS(0.4, normalise=true)", "+IS(all_networks=true)", "+FIS", "+FIS(0.5)"]
ENTRIES = ["", "Drop(0.3)*", "Synth(state=0.3, action=0.2)*", "Drop(0.2)*Synth(state=0.1, action=0.3, refresh=0.4)*"]
GRID = np.array([[0, 0], [1, 0], [0, 1], [-1, 2], [2, -4], [0.5, 0.5], [3, 3], [-1, -1]], np.float32)
"""States with equal, opposite and no direction."""


@dataclass
class Pair:
    """The buffer of a population, and an oracle for each member, which are told the same."""

    strategy: Strategy
    members: int
    capacity: int
    unit: Unit
    seed: int

    def __post_init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(self.seed))
        slots = self.capacity if self.strategy.retention.bounded else EPISODES_OF_FULL
        self.steps = slots * self.unit.steps
        model = Model()
        self.oracles = [
            NaiveReplay(self.strategy, slots, ROOT, m, BATCH, self.unit.steps, self.unit.episode, model)
            for m in range(self.members)
        ]
        self.replay = self.fresh()
        self.late: tuple[Any, Any] | None = None

    def fresh(self) -> Replay:
        numbers = range(self.members)
        rule = rule_for(self.strategy)
        return Replay(self.strategy, FIELDS, self.steps, ROOT, numbers, BATCH, self.unit, Model(), rule)

    def add(self, count: int) -> None:
        rng, members = self.rng, self.members
        for _ in range(count):
            step = {name: rng.integers(-8, 9, (members, width)).astype(np.float32) for name, width in FIELDS.items()}
            step["observation"] = GRID[rng.integers(len(GRID), size=members)]
            step["exploration"] = (rng.integers(-1, 4, (members, 1)) / 4).astype(np.float32)
            step["exploration"][step["exploration"] < 0] = np.nan
            step["far"] = (rng.random((members, 1)) < 0.4).astype(np.float32)
            active = rng.random(members) < 0.8
            long = np.array([oracle.step + 1 == EPISODE for oracle in self.oracles])
            ended = long | (rng.random(members) < 0.15)
            known = {}
            if self.unit.steps == 1 and rng.random() < 0.3:
                known["td_error"] = rng.choice([0, 0.5, 3, np.inf, np.nan], (members, 1)).astype(np.float32)
            self.replay.add({**step, **known}, active, ended)
            for m, oracle in enumerate(self.oracles):
                if active[m]:
                    given = float(known["td_error"][m, 0]) if known else None
                    oracle.add({name: array[m] for name, array in step.items()}, bool(ended[m]), given)

    def sample(self, updates: int, progress: float) -> None:
        for update in range(updates):
            attended = GRID[self.rng.integers(len(GRID), size=self.members)]
            context = Context(update, updates, progress, attended)
            batch, self.late = self.replay.sample(context), None  # the one before is overwritten
            for m, oracle in enumerate(self.oracles):
                self.compare(m, oracle, batch, context, attended[m])
            if self.rng.random() < 0.5:
                self.annotate((batch.idx.copy(), batch.serial.copy()), batch)
            else:
                self.late = (batch.idx.copy(), batch.serial.copy()), batch

    def compare(self, m: int, oracle: NaiveReplay, batch: Any, context: Context, attended: Any) -> None:
        right = oracle.sample(context, attended)
        idx = batch.idx[m].tolist()
        for slot, allowed in zip(idx, right.slots(), strict=True):
            assert slot in allowed, (idx, right.slots())
        assert batch.rate_factor[m] == np.float32(right.rate_factor)
        weight = oracle.weigh(context, idx, right.probability) * oracle.network_weights()[0]
        np.testing.assert_allclose(batch.weight[m], weight, rtol=1e-5, atol=1e-9)
        filled = oracle.network_weights()[1].astype(np.float32) * bool(oracle.slots)
        on_actor = batch.weight[m] if oracle.weighs_all_networks else filled
        np.testing.assert_array_equal(batch.actor_weight[m], on_actor)
        if not oracle.slots:
            assert not batch.reward[m].any()
            return
        np.testing.assert_allclose(batch.probability[m], right.probabilities(idx), rtol=1e-6)
        for b, slot in enumerate(idx):
            self.compare_unit(m, oracle.slots[slot], batch, b)

    def compare_unit(self, m: int, unit: Any, batch: Any, b: int) -> None:
        assert batch.serial[m, b] == unit.serial
        for name, width in FIELDS.items():
            stored = batch.columns[name][m, b].reshape(-1, width)
            own = np.array([step[name] for step in unit.steps])
            np.testing.assert_array_equal(stored[: len(own)], own)
            assert not stored[len(own) :].any()
        if batch.length is not None:
            assert batch.length[m, b] == len(unit.steps)

    def annotate(self, drawn: tuple[Any, Any], batch: Any) -> None:
        shape = (*drawn[0].shape, self.unit.steps) if self.unit.steps > 1 else drawn[0].shape
        errors = (self.rng.integers(-8, 9, shape) / 4).astype(np.float32)
        errors[self.rng.random(shape) < 0.1] = self.rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e-7, 1e4])
        far = (self.rng.random(drawn[0].shape) < 0.5).astype(np.float32)
        self.replay.annotate(batch, {"td_error": errors, "far": far})
        for m, oracle in enumerate(self.oracles):
            oracle.annotate(drawn[0][m].tolist(), drawn[1][m].tolist(), errors[m], far[m])

    def annotate_late(self) -> None:
        """Answer for the last batch, of which some may have been overwritten since."""
        if self.late is not None:
            self.annotate(*self.late)
            self.late = None

    def reload(self) -> None:
        """Save, and load into a fresh buffer; a batch under way is lost."""
        state = saved(self.replay)
        self.replay, self.late = self.fresh(), None
        self.replay.load_state_dict(state)

    def compare_stored(self) -> None:
        for m, oracle in enumerate(self.oracles):
            serial = self.replay.columns.serial[m]
            assert serial[: len(oracle.slots)].tolist() == [unit.serial for unit in oracle.slots]
            assert self.replay.count[m] == len(oracle.slots)
            assert (self.replay.collected[m], self.replay.offers[m]) == (oracle.collected, oracle.offers)
            place = episode_and_step(self.replay.episodes.starts[m], serial[: len(oracle.slots)])
            assert place[0].tolist() == [unit.episode for unit in oracle.slots]
            assert place[1].tolist() == [unit.first_step for unit in oracle.slots]


OPERATION = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 14)),
    st.tuples(st.just("sample"), st.integers(1, 3), st.sampled_from([0.0, 0.3, 1.0])),
    st.sampled_from([("annotate_late",), ("reload",)]),
)


@pytest.mark.parametrize(
    ("retention", "sampling"), slow(product(RETENTIONS, SAMPLINGS), but=each_once(RETENTIONS, SAMPLINGS))
)
@settings(deadline=None, max_examples=16, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_sequence_draws_as_the_naive_buffer(retention: str, sampling: str, data: st.DataObject) -> None:
    single = bool(RETENTIONS[retention]().traces)  # of single steps that were measured
    entry = data.draw(st.sampled_from(ENTRIES[:2] if single else ENTRIES))
    kept, drawn = (data.draw(st.sampled_from(VARIANTS.get(name, [name]))) for name in (retention, sampling))
    weighting = data.draw(st.sampled_from(WEIGHTINGS))
    units = [STEP] if single or "Synth" in entry else [STEP, STEP, segment(4), episode(EPISODE)]
    unit = data.draw(st.sampled_from(units))
    try:
        strategy = parse(f"{entry}{kept}[{drawn}{weighting}]")
    except UserError:  # refused pairs have their own test
        strategy = parse(f"{entry}{kept}[{drawn}]")
    capacity, members = (
        data.draw(st.integers(1, 24) if single else st.integers(3, 9)),
        data.draw(st.sampled_from([1, 8])),
    )
    pair = Pair(strategy, members, capacity, unit, data.draw(st.integers(0, 2**32 - 1)))
    pair.add(2)
    for name, *arguments in data.draw(st.lists(OPERATION, min_size=4, max_size=14)):
        getattr(pair, name)(*arguments)
    pair.sample(2, 0.5)
    pair.compare_stored()


OWN = """
from dataclasses import dataclass
from typing import Literal

import numpy as np

from replaybench.replay.strategies.interface import RunningRetention
from replaybench.replay.strategies.retention import FIFO
from replaybench.replay.strategies.uniform import RunningUniform, Uniform

@dataclass(frozen=True)
class Keep(FIFO):
    slot: int = 0
    meddles: bool = False

    def start(self, view):
        return _Keep(self.slot, self.meddles)

class _Keep(RunningRetention):
    def __init__(self, slot, meddles):
        self.slot, self.meddles = slot, meddles

    def slots(self, offers, capacity, slots):
        slots[slots == -2] = self.slot
        if self.meddles:
            slots[:] = self.slot

    def state_dict(self, stored):
        return {}

@dataclass(frozen=True)
class Draw(Uniform):
    slot: int = 0

    def start(self, view):
        running = _Draw(view)
        running.slot = self.slot
        return running

class _Draw(RunningUniform):
    def draw(self, context, count, offers, draws):
        draws.idx[:], draws.probability[:] = self.slot, 1

@dataclass(frozen=True)
class Listens(Uniform):
    def start(self, view):
        return _Listens(view)

class _Listens(RunningUniform):
    def annotate(self, idx, td_error):
        pass

@dataclass(frozen=True)
class Told(Listens):
    feedback = ("td_error",)

@dataclass(frozen=True)
class Misspelt(Uniform):
    feedback = ("td_errors",)

@dataclass(frozen=True)
class Keeps(Uniform):
    name_of: Literal["mine", "reward", "priority"] = "mine"
    form: Literal["array", "number"] = "array"

    def start(self, view):
        running = _Keeps(view)
        running.state = {self.name_of: np.zeros(len(view.members)) if self.form == "array" else 3}
        return running

class _Keeps(RunningUniform):
    def state_dict(self, stored):
        return self.state

@dataclass(frozen=True)
class Unmakable(FIFO):
    share: float = 0.5

    def __post_init__(self):
        raise ValueError("no share")

@dataclass(frozen=True)
class Fast(FIFO):
    mode: str = "fast"
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


@pytest.mark.parametrize("slot", [-3, 4, 10**9])
def test_a_slot_that_is_not_there_is_told_and_nothing_is_written(slot: int, own: str) -> None:
    replay = make(f"{own}:Keep({slot})[Uniform]", members=2, capacity=4)
    fill(replay, 4)
    before = replay.columns.rows.copy()
    with pytest.raises(UserError, match=rf"own.py:_Keep: slots chose {slot}, not -1 or a slot from 0 to 3"):
        fill(replay, 1, 4)
    np.testing.assert_array_equal(replay.columns.rows, before)


def test_slots_of_members_that_are_not_full_are_left_alone(own: str) -> None:
    replay = make(f"{own}:Keep(1, true)[Uniform]", members=2, capacity=4)
    fill(replay, 4)
    fill(replay, 3, 4)  # all are full: nothing is meddled with
    replay.count[1] -= 1
    with pytest.raises(UserError, match="slots changed an entry that was not -2"):
        fill(replay, 1, 7)


@pytest.mark.parametrize("slot", [-1, 3, 10**9])
def test_a_draw_of_what_is_not_stored_is_told(slot: int, own: str) -> None:
    replay = make(f"FIFO[{own}:Draw({slot})]", members=2, capacity=8)
    fill(replay, 3)
    with pytest.raises(UserError, match=rf"own.py:_Draw: draw chose slot {slot} of a member that has 0 to 2"):
        replay.sample(Context())


def test_a_promise_is_not_inherited(own: str) -> None:
    """A sampling that puts the newest in front derives from one whose batches may be drawn as one."""
    strategy = parse(f"{own}:Keep[{own}:Draw]")
    assert not strategy.sampling.independent
    assert not strategy.in_turn


def test_who_waits_for_errors_says_so(own: str) -> None:
    with pytest.raises(UserError, match=r'Listens has annotate, which is called only with feedback = \("td_error",\)'):
        make(f"FIFO[{own}:Listens]")
    make(f"FIFO[{own}:Told]")
    with pytest.raises(UserError, match="unknown metric or feedback .*did you mean td_error"):
        make(f"FIFO[{own}:Misspelt]")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("reward", "'reward' of state_dict has the name of an array of the buffer"),
        ("priority", "'priority' of state_dict is of type f8, and of f4 in buffer files"),
        ("mine, number", "'mine' of state_dict must be an array that begins with M = 2"),
    ],
)
def test_what_a_file_could_not_hold_is_told(given: str, told: str, own: str) -> None:
    replay = make(f"FIFO[{own}:Keeps({given})]", members=2)
    with pytest.raises(UserError, match=f"own.py:_Keeps: {told}"):
        replay.state_dict()


@pytest.mark.parametrize("name", ["path (1)/own.py", "a+b.py", "x[0].py", "a*b.py"])
@pytest.mark.parametrize("whole", ["{}:Mine(0.5)[Uniform]", "Drop(0.5)*{}:Mine[Uniform]", "FIFO[{}:Mine(mode=2)]"])
def test_a_path_with_signs_is_told(name: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("")
    with pytest.raises(UserError, match=f"the path {re.escape(repr(name))} contains a character .*; rename the file"):
        parse(whole.format(name))


def test_a_class_that_cannot_be_made_or_set_is_told(own: str) -> None:
    with pytest.raises(UserError, match=r"own.py:Unmakable cannot be made: ValueError: no share"):
        parse(f"{own}:Unmakable[Uniform]")
    with pytest.raises(UserError, match="mode of .*own.py:Fast .* type .*; declare a number, a bool or a Literal$"):
        parse(f"{own}:Fast(mode=slow)[Uniform]")
