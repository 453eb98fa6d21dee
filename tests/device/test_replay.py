"""A member's buffer on the device, run on the host: ranks, and the laws of the strategies."""

import ctypes
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from replaybench.device.buffers import STATE, DeviceBuffers, ReplaySettings
from replaybench.device.build import host_library
from replaybench.replay.strategies.interface import Usage
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.weighting import binomial_tails
from replaybench.runtime.errors import UserError
from tests.helpers.naive import rank_segments

pytestmark = pytest.mark.slow  # each test compiles C++
PARTS = (Path(__file__).parent / "parts.cpp").read_text()
FIELDS = {"observation": 1, "action": 1, "exploration": 1}
B = 16


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@functools.cache
def library(rules: str, by_age: bool = False, threads: int = 256) -> ctypes.CDLL:
    defines = f"#define AGED {'true' if by_age else 'false'}\n#define BATCH_SIZE {B}\n"
    return host_library(defines + rules + PARTS, threads)


class Member:
    def __init__(self, strategy: str, capacity: int = 1000, member: int = 3, threads: int = 256) -> None:
        self.buffers = DeviceBuffers(parse(strategy), FIELDS, capacity, B)
        self.memory = np.zeros((1, self.buffers.bytes), np.uint8)
        self.buffers.start(self.memory)
        self.settings, self.member = self.buffers.settings, member
        self.library = library(self.buffers.source, threads=threads)
        for name, table in self.buffers.tables.items():
            setattr(self.settings, name, table.ctypes.data)
        self._call("replay_begin")

    def _call(self, name: str, *further: Any) -> None:
        getattr(self.library, name)(ctypes.byref(self.settings), pointer(self.memory), self.member, *further)

    def store(self, rows: NDArray[Any]) -> None:
        rows = np.ascontiguousarray(rows, np.float32)
        self._call("replay_store", len(rows), pointer(rows))

    def draw(self, progress: float = 0.0, end: int = 1) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        idx, probability, weight = np.zeros(B, np.uint32), np.zeros(B), np.zeros(B, np.float32)
        self._call(
            "replay_draw", ctypes.c_float(progress), end, *(pointer(array) for array in (idx, probability, weight))
        )
        return idx, probability, weight

    def annotate(self, td_error: NDArray[Any]) -> None:
        self._call("replay_annotate", pointer(np.ascontiguousarray(td_error, np.float32)))

    @property
    def state(self) -> Any:
        return self.buffers.state(self.memory)[0]

    def view(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self.buffers.view(self.memory, name)[0]
        return found

    def numbered(self, first: int, count: int) -> None:
        """Store experiences whose observation is their number."""
        numbers = np.arange(first, first + count)
        self.store(np.stack([numbers, np.zeros(count), numbers % 7], axis=1))


def test_the_settings_have_the_size_that_the_source_expects() -> None:
    member = Member("FIFO[Uniform]")
    assert member.library.settings_bytes() == ctypes.sizeof(ReplaySettings)
    assert STATE.itemsize == 48


def test_philox_has_the_known_answers() -> None:
    known = [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]  # fmt: skip
    for counter, key, answer in known:
        given, out = np.array(counter, np.uint32), np.zeros(4, np.uint32)
        Member("FIFO[Uniform]").library.bits(pointer(given), *key, pointer(out))
        assert " ".join(f"{word:08x}" for word in out) == answer


def test_normals_are_normal() -> None:
    drawn = np.zeros(20000, np.float32)
    Member("FIFO[Uniform]").library.normals(5, drawn.size, pointer(drawn))
    assert stats.kstest(drawn, "norm").pvalue > 1e-3


class _OrderMemory(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p * 2) for name in ("run", "run_slots")),
        *((name, ctypes.c_void_p) for name in ("bits", "serial", "head")),
    )


@pytest.mark.parametrize(("by_age", "capacity"), [(False, 700), (True, 700), (True, 20_000)])
def test_ranks_are_those_of_a_sorted_list(by_age: bool, capacity: int) -> None:
    """10⁵ random operations: arrivals, replacements, changes of keys with many ties, and removals."""
    rng = np.random.default_rng(1)
    own = library(Member("FIFO[Uniform]").buffers.source, by_age)
    runs = np.zeros((2, capacity), np.uint64)
    slots, head = np.zeros((2, capacity), np.uint32), np.zeros(2, np.int32)
    bits, serial = np.full(capacity, 0xFFFFFFFF, np.uint32), np.zeros(capacity, np.uint32)
    pairs = ((ctypes.c_void_p * 2)(*(row.ctypes.data for row in two)) for two in (runs, slots))
    memory = ctypes.byref(_OrderMemory(*pairs, *map(pointer, (bits, serial, head))))
    operations, newest = 0, 0
    own.order_begin(memory)
    while operations < 100_000:
        count = int(rng.choice([1, 3, B]))
        chosen = rng.choice(capacity, count, replace=False).astype(np.uint32)
        keys = rng.choice([0.0, 0.5, 1.0, np.inf, *rng.random(20)], count).astype(np.float32).view(np.uint32)
        keys[rng.random(count) < 0.1] = 0xFFFFFFFF
        numbers = serial[chosen].copy()
        fresh = (numbers == 0) | (rng.random(count) < 0.3)
        numbers[fresh] = newest + 1 + np.arange(fresh.sum())
        newest += int(fresh.sum())
        own.order_change(memory, count, *map(pointer, (chosen, keys, numbers)))
        serial[chosen] = numbers
        operations += count
        if rng.random() < 35 / capacity:
            present = np.flatnonzero(bits != 0xFFFFFFFF)
            tie = -serial[present].astype(np.int64) if by_age else present
            expected = present[np.lexsort((tie, -bits[present].astype(np.int64)))]
            assert own.order_size(memory) == len(present)
            ranks, found = np.arange(len(present), dtype=np.int32), np.zeros(len(present), np.uint32)
            own.order_select(memory, len(present), pointer(ranks), pointer(found))
            np.testing.assert_array_equal(found, expected)


def test_fifo_overwrites_the_oldest_and_full_keeps_everything() -> None:
    for strategy, capacity in (("FIFO[Uniform]", 50), ("FULL[Uniform]", 120)):
        member = Member(strategy, capacity)
        for first, end in ((0, 75), (75, 120)):
            member.numbered(first, end - first)
            kept = min(capacity, end)
            assert sorted(member.view("rows")[:kept, 0]) == list(range(end - kept, end))
            np.testing.assert_array_equal(member.view("serial")[:kept], member.view("rows")[:kept, 0] + 1)
            assert [member.state[name] for name in ("count", "offers", "collected")] == [kept, end, end]


def test_drop_discards_its_share() -> None:
    member = Member("Drop(0.75)*FIFO[Uniform]", capacity=10)
    member.numbered(0, 4000)
    assert stats.binomtest(int(member.state["offers"]), 4000, 0.25).pvalue > 1e-3


@pytest.mark.parametrize(("capacity", "offered", "parts", "members"), [(50, 500, 10, 60), (1, 4, 4, 400)])
def test_a_reservoir_holds_each_with_the_same_probability(
    capacity: int, offered: int, parts: int, members: int
) -> None:
    held = np.zeros(parts)
    for number in range(members):
        member = Member("Resv[Uniform]", capacity, number)
        member.numbered(0, offered)
        held += np.bincount(member.view("rows")[:, 0].astype(int) * parts // offered, minlength=parts)
    assert stats.chisquare(held).pvalue > 1e-3


def test_uniform_draws_are_uniform() -> None:
    member = Member("FIFO[Uniform]", capacity=40)
    member.numbered(0, 90)
    drawn = np.concatenate([member.draw()[0] for _ in range(2000)])
    assert stats.chisquare(np.bincount(drawn, minlength=40)).pvalue > 1e-3


@pytest.mark.parametrize("count", [10, 60, 1000])
def test_per_draws_by_rank(count: int) -> None:
    """Each sample comes from its own segment of the ranks, or its own part of the probability."""
    member = Member("FULL[PER]", capacity=1000)
    member.numbered(0, count)
    keys = np.random.default_rng(2).random(1000).astype(np.float32)
    replayed = np.zeros(1000, np.bool_)
    while not replayed[:count].all():
        idx, _, _ = member.draw()
        member.annotate(keys[idx])
        replayed[idx] = True
    ranked = np.argsort(-keys[:count], kind="stable")
    expected = np.zeros(count)
    expected[ranked] = np.arange(1, count + 1) ** -0.7 / np.sum(np.arange(1, count + 1) ** -0.7)
    if count >= B:
        for ranks in rank_segments(0.7, count, B):
            expected[ranked[ranks]] = 1 / (B * len(ranks))
    drawn = [member.draw() for _ in range(2000)]
    counts = np.bincount(np.concatenate([idx for idx, _, _ in drawn]), minlength=count)
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-3
    for idx, probability, _ in drawn[:20]:
        np.testing.assert_allclose(probability, expected[idx], rtol=1e-12)


def test_per_finds_ranks_across_merges() -> None:
    rng, member = np.random.default_rng(3), Member("FIFO[PER]", capacity=2000)
    for _ in range(40):
        member.numbered(0, 100)
        for _ in range(30):
            member.draw()
            member.annotate(rng.random(B))
    member._call("replay_end")
    bits = member.view("td_bits").astype(np.int64)
    which, length = member.state["td_head"]
    assert length == 2000
    slots = (member.view(f"td_run{which}") & np.uint64(0xFFFFFFFF)).astype(np.int64)
    np.testing.assert_array_equal(slots, np.lexsort((np.arange(2000), -bits)))


def test_per_with_fewer_slots_than_new_experiences() -> None:
    member = Member("FIFO[PER]", capacity=5)
    member.numbered(0, 12)
    drawn = np.concatenate([member.draw()[0] for _ in range(20)])
    assert set(drawn) == set(range(5))
    member.annotate(np.full(B, np.nan))  # counts as infinite
    assert (member.view("td_bits").view(np.float32) == np.inf).all()
    member._call("replay_end")
    which, length = member.state["td_head"]
    assert (member.view(f"td_run{which}")[:length] & np.uint64(0xFFFFFFFF)).tolist() == [*range(5)]


def test_perprop_draws_in_proportion_to_priorities() -> None:
    member = Member("FIFO[PERprop]", capacity=1500)
    member.numbered(0, 1500)
    errors = np.random.default_rng(4).exponential(size=1500)
    for _ in range(3000):
        idx, _, _ = member.draw()
        member.annotate(errors[idx])
    priority = member.view("priority").astype(float)
    seen = priority != member.state["largest"]
    np.testing.assert_allclose(priority[seen], (errors[seen] + 1e-6) ** 0.6, rtol=1e-6)
    drawn = [member.draw() for _ in range(4000)]
    counts = np.bincount(np.concatenate([idx for idx, _, _ in drawn]), minlength=1500)
    share = priority / priority.sum()
    assert stats.chisquare(counts, share * counts.sum()).pvalue > 1e-3
    np.testing.assert_allclose(drawn[0][1], share[drawn[0][0]], rtol=1e-6)
    member.numbered(1500, 3)
    assert (member.view("priority")[:3] == member.state["largest"]).all()
    assert member.state["largest"] > 2


def test_priorities_of_errors_that_are_no_numbers_or_zero_are_possible() -> None:
    member = Member("FIFO[PERprop(2, epsilon=1e-30)]", capacity=1)
    member.numbered(0, 1)
    for error, expected in ((3.0, 9.0), (np.nan, 9.0), (np.inf, 9.0), (0.0, 2.0**-126)):
        member.draw()
        member.annotate(np.full(B, error))
        assert member.view("priority")[0] == np.float32(expected)


@pytest.mark.parametrize("metric", ["TDE", "Expl"])
def test_ranked_retention_overwrites_by_rank(metric: str) -> None:
    """The experience with the r-th smallest metric is overwritten with P ∝ r^−α."""
    capacity, victims = 40, np.zeros(40)
    for number in range(400):
        member = Member(f"{metric}(segments=none)[Uniform]", capacity, member=number)
        exploration = (np.arange(capacity) * 17) % capacity  # all distinct
        member.store(np.stack([np.arange(capacity), np.zeros(capacity), exploration], axis=1))
        key = exploration.astype(float)
        if metric == "TDE":
            while np.isinf(member.view("td_bits").view(np.float32)).any():
                idx, _, _ = member.draw()
                member.annotate(key[idx])
        before = member.view("serial").copy()
        member.numbered(100, 1)
        (slot,) = np.flatnonzero(member.view("serial") != before)
        victims[int(key[slot])] += 1
    expected = np.arange(1, capacity + 1) ** -1.0 / np.sum(np.arange(1, capacity + 1) ** -1.0)
    some, law = (np.add.reduceat(each, [0, 1, 4, 12]) for each in (victims, expected))
    assert stats.chisquare(some, law * some.sum()).pvalue > 1e-3


@pytest.mark.parametrize("normalise", [False, True])
def test_importance_weights_correct_for_the_draws(normalise: bool) -> None:
    member = Member(f"FULL[PER+IS(0.5, 1, normalise={str(normalise).lower()})]", capacity=500)
    member.numbered(0, 300)
    for progress, beta in ((0.0, 0.5), (1.0, 1.0)):
        _, probability, weight = member.draw(progress)
        expected = (300 * probability) ** -beta
        np.testing.assert_allclose(weight, expected / expected.max() if normalise else expected, rtol=1e-6)


def test_a_batch_may_have_as_many_samples_as_a_block_has_threads() -> None:
    member = Member("FULL[PER]", capacity=500, threads=B)
    member.numbered(0, 300)
    few, many = member.draw(), Member("FULL[PER]", capacity=500)
    many.numbered(0, 300)
    for one, other in zip(few, many.draw(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_normalised_weights_of_a_dominant_experience_are_1() -> None:
    member = Member("FULL[PERprop+IS(1, 1, normalise=true)]", capacity=2)
    member.numbered(0, 2)
    member.annotate(np.where(member.draw()[0] == 0, 1e9, 0.0))
    idx, _, weight = member.draw()
    assert (idx == 0).all()
    assert (weight == 1).all()


def test_binomial_tails_are_those_of_the_cpu() -> None:
    own, out = Member("FIFO[Uniform]").library, np.zeros(60)
    for n, p in ((5, 0.3), (40, 1.0), (1000, 0.008), (100_000, 0.00016), (3000, 0.2)):
        own.tails(n, ctypes.c_double(p), 50, pointer(out))
        np.testing.assert_allclose(out[:51], binomial_tails(n, p, 50), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(("strategy", "bounded"), [("FULL[Uniform+FIS]", False), ("FIFO[Uniform+FIS(0.7)]", True)])
def test_full_importance_weights_are_those_of_the_cpu(strategy: str, bounded: bool) -> None:
    """The same samples get the same weights, before a buffer is full, when it becomes full, and later."""
    member, weighting = Member(strategy, capacity=500), parse(strategy).weights
    assert weighting is not None
    cpu: Any = weighting.start(SimpleNamespace(members=[0], capacity=500, bounded=bounded))  # type: ignore[arg-type]
    updates = 0
    for phase in range(40 if bounded else 9):
        before = member.view("serial").copy()
        member.numbered(0, 50)
        cpu.replays[0, member.view("serial") != before] = 0  # overwritten
        for _ in range(20):
            updates += 1
            idx, _, weight = member.draw(end=20 * (phase + 1))
            expected, offers = np.zeros((1, B), np.float32), np.array([50 * (phase + 1)])
            usage = Usage(updates, 20 * (phase + 1), offers, np.minimum(offers, 500))
            cpu.weigh(None, usage, SimpleNamespace(idx=idx[None].astype(np.int64)), expected)
            np.testing.assert_allclose(weight, expected[0], rtol=1e-5)


@pytest.mark.parametrize(
    "strategy", ["FIFO[AER]", "Synth(state=0.1)*FIFO[Uniform]", "Mix(a.h5)*FIFO[Uniform]", "FIFO[Uniform+ReFER]"]
)
def test_other_strategies_are_refused_with_those_that_are_possible(strategy: str) -> None:
    with pytest.raises(UserError, match="TDE and Expl with Uniform, PER or PERprop"):
        DeviceBuffers(parse(strategy), FIELDS, 100, B)
