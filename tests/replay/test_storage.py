"""Windows, traces and units of stored experiences."""

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaybench.data.batch import ReplayBatch, TraceRule
from replaybench.data.record import read_record, write_record
from replaybench.evidence.contracts import difference
from replaybench.replay.buffer import Replay, newest_batch, step_fields
from replaybench.replay.buffer_file import load_replay, replay_arrays, replay_facts
from replaybench.replay.storage.replayed import ReplayTally
from replaybench.replay.storage.slots import STEP, Unit, episode, segment
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import RETENTIONS, parse
from replaybench.runtime.errors import UserError
from tests.helpers.buffers import FIELDS, FarRule, fill, make, saved

MEMBERS, BATCH, DISCOUNT = 3, 4, np.float32(0.5)
FORMS = [*RETENTIONS, "Drop(0.3)*FIFO", "Drop(0.3)*Resv", "Drop(0.3)*FarPol"]


def write(path: Path, replay: Replay, **changes: Any) -> Path:
    write_record(path, "buffer", replay_facts(replay), {**replay_arrays(replay), **changes})
    return path


class ReturnRule(TraceRule):
    """`tail` is the value of what follows a step as far as that is not stored, `goal` its discounted return."""

    names = ("reward", "tail", "goal", "far")

    def followed(self, values: Any, last: Any, experience: Any) -> None:
        self.last = last
        for m in np.flatnonzero(last >= 0):
            values[m, last[m], 1] = experience["value"][m, 0]

    def evicting(self, values: Any, previous: Any, next: Any, slots: Any) -> None:
        for m in np.flatnonzero(slots >= 0):
            if previous[m, slots[m]] >= 0:
                values[m, previous[m, slots[m]], 1] = values[m, slots[m], 2]

    def stored(self, values: Any, previous: Any, next: Any, slots: Any, ended: Any) -> None:
        for m in range(len(slots)):
            if slots[m] < 0:
                self.sweep(values, previous, next, m, self.last[m])
            elif ended[m]:
                self.sweep(values, previous, next, m, slots[m])

    def annotated(self, values: Any, previous: Any, next: Any, idx: Any, annotations: Any) -> None:
        for m, b in np.argwhere(idx >= 0):
            values[m, idx[m, b], 0] = annotations["reward"][m, b]
            self.sweep(values, previous, next, m, idx[m, b])

    def sweep(self, values: Any, previous: Any, next: Any, m: int, slot: int) -> None:
        while slot >= 0:
            after = next[m, slot]
            ahead = values[m, after, 2] if after >= 0 else values[m, slot, 1]
            values[m, slot, 2] = values[m, slot, 0] + DISCOUNT * ahead
            slot = previous[m, slot]


@dataclass
class Step:
    episode: int
    reward: Any
    far: float
    tail: Any = 0
    goal: Any = 0


class Account:
    """One member's stored steps by serial number; neighbours are those whose numbers and episodes say so."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.episode = 0

    def beside(self, serial: int, by: int) -> Step | None:
        """Return the stored neighbour of a step that is stored, or has just been collected."""
        own = self.steps[serial].episode if serial in self.steps else self.episode
        there = self.steps.get(serial + by)
        return there if there is not None and there.episode == own else None

    def add(self, serial: int, held: set[int], step: Step, value: np.float32, ended: bool) -> None:
        before = self.beside(serial, -1)
        if before is not None:
            before.tail = value
        for gone in set(self.steps) - held:
            predecessor = self.beside(gone, -1)
            if predecessor is not None:
                predecessor.tail = self.steps[gone].goal
            del self.steps[gone]
        if serial in held:
            self.steps[serial] = step
            if ended:
                self.sweep(serial)
        elif before is not None:
            self.sweep(serial - 1)
        self.episode += ended

    def sweep(self, serial: int) -> None:
        while True:
            step, after = self.steps[serial], self.beside(serial, 1)
            step.goal = step.reward + DISCOUNT * (after.goal if after else step.tail)
            if self.beside(serial, -1) is None:
                return
            serial -= 1


class Pair:
    def __init__(self, form: str, capacity: int, seed: int) -> None:
        self.strategy = parse(f"{form}[PER]")
        capacity = capacity if self.strategy.retention.bounded else 2000
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.accounts = [Account() for _ in range(MEMBERS)]
        self.replay = Replay(self.strategy, FIELDS, capacity, 0, range(MEMBERS), BATCH, traces=ReturnRule())
        self.late: list[tuple[Any, np.ndarray]] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            step = {name: self.rng.normal(size=(MEMBERS, w)).astype(np.float32) for name, w in FIELDS.items()}
            step["value"] = self.rng.normal(size=(MEMBERS, 1)).astype(np.float32)
            step["far"] = (self.rng.random((MEMBERS, 1)) < 0.5).astype(np.float32)
            active, ended = self.rng.random(MEMBERS) < 0.9, self.rng.random(MEMBERS) < [0.1, 0.2, 0.4]
            self.replay.add(step, active, ended)
            for m in np.flatnonzero(active):
                held = set(self.replay.columns.serial[m, : self.replay.count[m]].tolist())
                new = Step(self.accounts[m].episode, step["reward"][m, 0], float(step["far"][m, 0]))
                serial = int(self.replay.collected[m])
                self.accounts[m].add(serial, held, new, step["value"][m, 0], bool(ended[m]))

    def draw(self) -> None:
        batch = self.replay.sample()
        kept = dataclasses.replace(batch, idx=batch.idx.copy(), serial=batch.serial.copy())
        self.late.append((kept, self.rng.normal(size=batch.idx.shape).astype(np.float32)))

    def annotate(self) -> None:
        for batch, reward in self.late:
            self.replay.annotate(batch, {"td_error": reward, "reward": reward})
            for m, account in enumerate(self.accounts):
                for serial, number in zip(batch.serial[m].tolist(), reward[m], strict=True):
                    if serial in account.steps:
                        account.steps[serial].reward = number
                        account.sweep(serial)
        self.late = []

    def reload(self) -> None:
        """Save in a file, and load."""
        state = saved(self.replay)
        with tempfile.TemporaryDirectory() as folder:
            self.replay = load_replay(write(Path(folder) / "buffer.h5", self.replay), traces=ReturnRule())
        assert not difference(saved(self.replay), state)

    def compare(self) -> None:
        traces: Any = self.replay.traces
        for m, account in enumerate(self.accounts):
            serial = self.replay.columns.serial[m, : self.replay.count[m]].tolist()
            slot_of = {number: slot for slot, number in enumerate(serial)}
            assert set(serial) == set(account.steps)
            for slot, number in enumerate(serial):
                step = account.steps[number]
                for links, by in ((traces.previous, -1), (traces.next, 1)):
                    assert links[m, slot] == (slot_of[number + by] if account.beside(number, by) else -1)
                assert traces.values[m, slot].tolist() == [step.reward, step.tail, step.goal, step.far]
            latest = account.steps.get(int(self.replay.collected[m]))
            goes_on = latest is not None and latest.episode == account.episode
            assert traces.last[m] == (slot_of[int(self.replay.collected[m])] if goes_on else -1)
        assert (traces.next[self.replay.columns.serial == 0] == -1).all()


OPERATION = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 25)), st.sampled_from([("draw",), ("annotate",), ("reload",)])
)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 30), st.integers(0, 2**32), st.lists(OPERATION, min_size=3, max_size=12))
def test_links_and_numbers_are_kept(form: str, capacity: int, seed: int, operations: list[tuple[Any, ...]]) -> None:
    pair = Pair(form, capacity, seed)
    pair.add(5)
    pair.draw()
    for name, *arguments in operations:
        getattr(pair, name)(*arguments)
        pair.compare()
    pair.add(40)
    pair.annotate()
    pair.compare()


def filled(form: str) -> Pair:
    pair = Pair(form, 20, seed=1)
    for _ in range(5):
        pair.add(12)
        pair.draw()
        pair.annotate()
    return pair


def test_a_file_with_traces_needs_their_rule(tmp_path: Path) -> None:
    replay: Any = filled("Resv").replay
    path = write(tmp_path / "buffer.h5", replay)
    alone: Any = load_replay(path, members=[1], traces=ReturnRule())
    np.testing.assert_array_equal(alone.traces.values, replay.traces.values[1:2])
    with pytest.raises(UserError, match=r"buffer.h5 holds the traces reward, tail, goal, far, not none: give .* rule"):
        load_replay(path)
    plain = write(tmp_path / "plain.h5", make("FIFO[Uniform]"))
    with pytest.raises(UserError, match=r"plain.h5 holds no traces, not reward, tail, goal, far: give .* no rule"):
        load_replay(plain, traces=ReturnRule())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("trace_next", 20, "to a slot that holds none"),
        ("trace_previous", -2, "to a slot that holds none"),
        ("trace_next", "itself", "from step to step"),
        ("trace_previous", "another", "from step to step"),
        ("trace_last", 99, "latest step"),
        ("trace_last", "older", "latest step"),
    ],
)
def test_links_that_lead_kernels_astray_are_refused(tmp_path: Path, name: str, change: int | str, words: str) -> None:
    replay = filled("FIFO").replay
    state = saved(replay)
    if change == "itself":
        state[name][1, 3] = 3
    elif change == "another":
        state[name][1, state["trace_previous"][1].argmax()] = -1
    elif change == "older":
        state[name][1] = state["serial"][1].argmin()
    else:
        state[name][1, ...] = change
    with pytest.raises(ValueError, match=words):
        replay.load_state_dict(state)
    path = write(tmp_path / "buffer.h5", replay, **state)
    with pytest.raises(UserError, match="does not say how to continue its buffer"):
        load_replay(path, traces=ReturnRule())
    assert read_record(path, "buffer")[0].facts["traces"] == list(ReturnRule.names)


@pytest.mark.parametrize(
    ("form", "unit", "words"),
    [
        ("FIFO[Uniform]", episode(9), "traces follow single steps: replay steps, not units of 9"),
        ("Synth(state=0.1)*FIFO[Uniform]", STEP, "Synth alters single experiences, which breaks the trajectories"),
    ],
)
@pytest.mark.parametrize("needing", [{"traces": ReturnRule()}, {"window": 2}])
def test_what_has_no_trajectories_is_refused(form: str, unit: Unit, words: str, needing: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=words):
        Replay(parse(form), FIELDS, 90, 0, range(1), 2, unit, **needing)


def test_an_experience_that_always_stays_must_not_stop_the_buffer() -> None:
    with pytest.raises(UserError, match="the buffer would no longer change"):
        make("Synth(state=0.2, action=0.2, refresh=0)*Cover[Uniform]", 1, 20, 4)


@pytest.mark.parametrize("names", [("value", "value"), ("value", "next")])
def test_names_must_be_their_own(names: tuple[str, ...]) -> None:
    rule = ReturnRule()
    rule.names = names  # type: ignore[assignment]
    with pytest.raises(ValueError, match="unique names"):
        Replay(parse("FIFO[Uniform]"), FIELDS, 90, 0, range(1), 2, traces=rule)


def offer(replay: Replay, lengths: list[int]) -> None:
    for length in lengths:
        for step in range(length):
            experience = {name: np.full((1, width), step, np.float32) for name, width in FIELDS.items()}
            replay.add(experience, np.ones(1, np.bool_), np.array([step == length - 1]))


def test_the_newest_units_and_nothing_in_place_of_those_that_there_are_not() -> None:
    """Four slots for a batch of eight, three of them in use: what fills up has neither weight nor steps."""
    replay = make("FIFO[Uniform]", capacity=16, unit=segment(4))
    offer(replay, [6, 3])
    batch: Any = newest_batch(replay)
    assert batch.serial[0, :3].tolist() == [7, 5, 1]
    assert batch.weight[0].tolist() == batch.actor_weight[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert batch.length[0].tolist() == [3, 2, 4, 0, 0, 0, 0, 0]


def test_an_episode_that_is_too_long_is_refused() -> None:
    replay = make("FIFO[Uniform]", capacity=20, unit=episode(6))
    with pytest.raises(OverflowError, match="longer than the 6 steps"):
        offer(replay, [7])


def test_full_has_room_for_whole_segments_also_for_short_ones() -> None:
    """30 episodes of 20 steps are 600 steps and, with their short last ones, 90 segments with the room of 7 each."""
    replay = make("FULL[Uniform]", capacity=630, unit=segment(7))
    offer(replay, [20] * 30)
    assert replay.count.tolist() == [90]
    with pytest.raises(OverflowError, match="more experiences or units than it has room for"):
        offer(replay, [20])


def test_a_unit_has_steps_and_a_buffer_room_for_them() -> None:
    assert STEP.steps == 1
    for steps in (0, -1, 65536):
        with pytest.raises(UserError, match=f"not {steps}"):
            Unit(steps)
    with pytest.raises(UserError, match="at least 50, the steps of its unit, not 49"):
        Replay(parse("FIFO[Uniform]"), FIELDS, 49, 0, range(1), 4, segment(50))


M, B, W, H = 3, 40, 4, 2
WITH_MEMORY = {**step_fields(2, 1), "memory": H}
WINDOW_FORMS = ("FIFO[Uniform]", "Resv[Uniform]", "FULL[PER]", "Drop(0.3)*FIFO[Uniform]", "Resv[PER]")


class WindowAccount:
    """Every step that was collected, by its serial number: its episode, its observation and its memory."""

    def __init__(self, replay: Replay) -> None:
        self.replay, self.rng = replay, np.random.Generator(np.random.PCG64(1))
        self.steps: list[dict[int, tuple[int, np.ndarray, np.ndarray]]] = [{} for _ in range(M)]
        self.episode = np.zeros(M, np.int64)

    def add(self, count: int) -> None:
        for _ in range(count):
            row = {name: self.rng.normal(size=(M, width)).astype(np.float32) for name, width in WITH_MEMORY.items()}
            active, ended = self.rng.random(M) < 0.9, self.rng.random(M) < [0.02, 0.2, 0.5]
            self.replay.add(row, active, ended)
            for m in np.flatnonzero(active):
                step = (int(self.episode[m]), row["observation"][m], row["memory"][m])
                self.steps[m][int(self.replay.collected[m])] = step
            self.episode += active & ended

    def compare(self, batch: ReplayBatch) -> None:
        window: Any = batch.window
        for m, b in np.ndindex(M, B):
            held = set(self.replay.columns.serial[m, : self.replay.count[m]].tolist())
            own = int(batch.serial[m, b])
            steps = [own]
            while len(steps) < W and steps[0] - 1 in held and self.steps[m][steps[0] - 1][0] == self.steps[m][own][0]:
                steps.insert(0, steps[0] - 1)
            assert window.length[m, b] == len(steps)
            expected = np.zeros((W, 2), np.float32)
            expected[: len(steps)] = [self.steps[m][serial][1] for serial in steps]
            np.testing.assert_array_equal(window.observation[m, b], expected)
            np.testing.assert_array_equal(window.memory[m, b], self.steps[m][steps[0]][2])


@pytest.mark.parametrize("form", WINDOW_FORMS)
@pytest.mark.parametrize("traced", [False, True])
def test_windows_are_the_steps_that_led_to_a_sample(form: str, traced: bool, tmp_path: Path) -> None:
    """Through wrap-around, eviction at random, steps never kept, starts of episodes; and once more from a file."""
    strategy = parse(form)
    capacity = 30 if strategy.retention.bounded else 200
    rule = FarRule() if traced else None
    account = WindowAccount(Replay(strategy, WITH_MEMORY, capacity, 0, range(M), B, traces=rule, window=W))
    lengths = set()
    for count in (20, 30, 60):
        account.add(count)
        batch: Any = account.replay.sample()
        account.compare(batch)
        assert (batch.traces is not None) == traced
        lengths |= set(batch.window.length.ravel().tolist())
        account.replay.annotate(batch, {"td_error": np.ones((M, B), np.float32)})
    assert lengths == set(range(1, W + 1))
    path = write(tmp_path / "buffer.h5", account.replay)
    before: Any = account.replay.sample().window
    account.replay = load_replay(path, traces=rule)
    batch = account.replay.sample()
    account.compare(batch)
    for one, other in zip(before, batch.window, strict=True):
        np.testing.assert_array_equal(one, other)
    account.add(20)
    account.compare(account.replay.sample())


def test_without_experiences_or_memory_a_window_holds_nothing() -> None:
    for fields, width in ((WITH_MEMORY, H), (step_fields(2, 1), 0)):
        window: Any = Replay(parse("FIFO[Uniform]"), fields, 5, 0, range(M), B, window=W).sample().window
        assert (window.length == 1).all()
        assert not window.observation.any()
        assert window.memory.shape == (M, B, width)
        assert not window.memory.any()
    plain = Replay(parse("FIFO[Uniform]"), WITH_MEMORY, 5, 0, range(M), B)
    assert plain.traces is None
    assert plain.sample().window is None


@pytest.mark.parametrize("retention", ["FIFO", "Resv", "TDE", "FULL"])
def test_sums_over_steps_end_with_the_episode_and_at_missing_steps(retention: str) -> None:
    """Equal to a loop over serial numbers; saved and loaded buffers continue with equal sums."""
    rng, members, capacity = np.random.Generator(np.random.PCG64(0)), 3, 40
    options: dict[str, Any] = {"n_step": 3, "discount": 0.9}
    size = 200 if retention == "FULL" else capacity
    replay, again = (
        Replay(parse(f"{retention}[Uniform]"), step_fields(2, 1), size, 0, range(members), 16, **options) for _ in "12"
    )
    rewards, ends = rng.normal(size=(members, 121)).astype(np.float32), rng.random((members, 121)) < 0.15
    terminal = ends & (rng.random((members, 121)) < 0.5)
    for t in range(1, 121):
        state = np.full((members, 2), t, np.float32)
        step = {"observation": state, "action": state[:, :1], "reward": rewards[:, t, None]}
        step |= {"next_observation": state + 0.5, "terminated": terminal[:, t, None].astype(np.float32)}
        replay.add(step, np.ones(members, np.bool_), ends[:, t])
    again.load_state_dict({name: np.array(array) for name, array in replay.state_dict().items()})
    lengths = set()
    for _ in range(10):
        batch, other = replay.sample(), again.sample()
        assert batch.steps is not None
        for m, b in np.ndindex(batch.idx.shape):
            first, stored = int(batch.serial[m, b]), set(replay.columns.serial[m].tolist())
            last = first
            while last < first + 2 and not ends[m, last] and last + 1 in stored:
                last += 1
            expected = sum(0.9**i * float(rewards[m, first + i]) for i in range(last - first + 1))
            assert batch.reward[m, b, 0] == pytest.approx(expected, rel=1e-6)
            assert batch.steps[m, b] == last - first + 1
            assert batch.terminated[m, b, 0] == terminal[m, last]
            assert batch.next_observation[m, b, 0] == last + 0.5
            lengths.add(last - first + 1)
        np.testing.assert_array_equal(batch.reward, other.reward)
    assert lengths == {1, 2, 3}


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "Resv[TruncGeo(0.1)]", "FULL[TruncGeo(0.3)]", "Resv[AER(1.0)]"])
def test_recency_and_entropy_of_draws_are_those_of_the_law(strategy: str) -> None:
    """Uniform replay has 1/2 − 1/(2N) and 1, TruncGeo closed forms. AER(1) draws uniformly, without probabilities."""
    members, size = 50, 100
    replay = make(strategy, members, size, 40)
    fill(replay, size if strategy.startswith("FULL") else 330)
    replay.tally = ReplayTally()
    for _ in range(50):
        replay.sample(Context(state=np.ones((members, 2), np.float32)))
    measured = replay.tally.measure(replay.columns.serial, replay.collected, replay.count)
    decay, k = getattr(replay.strategy.sampling, "decay", 0.0), np.arange(size)
    law = np.exp(-decay * k / size) / np.exp(-decay * k / size).sum()
    spread = np.sqrt((law * (k / size) ** 2).sum() - (law * k / size).sum() ** 2)
    assert measured["recency"].mean() == pytest.approx((law * k).sum() / size, abs=5 * spread / np.sqrt(50 * 2000))
    exact = 1e-9 if "[Uniform" in strategy else 0.01
    assert measured["entropy"].mean() == pytest.approx(-(law * np.log(law)).sum() / np.log(size), abs=exact)
    if "[Uniform" in strategy:
        np.testing.assert_allclose(measured["entropy"], 1)


def test_nothing_replayed_has_no_recency_and_one_experience_has_entropy_1() -> None:
    replay = make("FIFO[Uniform]", 2, 8, 4)
    replay.tally = ReplayTally()
    assert np.isnan(replay.tally.measure(replay.columns.serial, replay.collected, replay.count)["entropy"]).all()
    fields = {name: np.zeros((2, width), np.float32) for name, width in replay.columns.fields.items()}
    replay.add(fields, np.array([True, False]))
    replay.sample()
    measured = replay.tally.measure(replay.columns.serial, replay.collected, replay.count)
    np.testing.assert_array_equal(measured["recency"], [0, np.nan])
    np.testing.assert_array_equal(measured["entropy"], [1, np.nan])
