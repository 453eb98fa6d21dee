"""What enters a buffer, with `Drop` and `Synth`, and which experience a full one overwrites."""

import numpy as np
import pytest

from replaybench.replay.buffer import Replay
from replaybench.replay.storage.slots import STEP, segment
from replaybench.replay.strategies.entry import Drop
from replaybench.replay.strategies.notation import RETENTIONS, parse
from replaybench.runtime.errors import UserError
from tests.helpers.buffers import FIELDS, Model, chi_square, fill, make, saved
from tests.helpers.naive import rank_segments


@pytest.mark.parametrize(("capacity", "parts"), [(100, 3), (1999, 3), (5000, 10)])
def test_the_authors_cut_capacity_by_500_but_at_least_in_three(capacity: int, parts: int) -> None:
    """The first part is as wide as that of so many parts, and a third (tenth) of the victims come from it."""
    replay = make("Expl(1.0)[Uniform]", members=200, capacity=capacity)
    for value in range(capacity):
        fill(replay, 1, exploration=value)
    counts = np.zeros(capacity, np.int64)
    for _ in range(100):
        slots = np.full(200, -2)
        replay.retention.slots(np.full(200, capacity), capacity, slots)
        counts += np.bincount(slots, minlength=capacity)
    by_part = [counts[ranks.start : ranks.stop].sum() for ranks in rank_segments(1.0, capacity, parts)]
    chi_square(np.array(by_part), np.full(parts, 20_000 / parts))
    first = counts[: len(rank_segments(1.0, capacity, parts)[0])]
    if len(first) > 1:
        chi_square(first, np.full(len(first), first.sum() / len(first)))


def test_every_retention_says_whether_it_is_bounded() -> None:
    assert [name for name, kind in RETENTIONS.items() if not kind().bounded] == ["FULL"]
    assert [name for name, kind in RETENTIONS.items() if kind().in_turn] == ["FIFO", "FULL"]


@pytest.mark.parametrize("victim", [[-1, 2], [3, 2], [1, 2**40]])
def test_a_victim_that_was_never_collected_is_refused(victim: list[int]) -> None:
    replay = make("FarPol[Uniform]", capacity=4)
    fill(replay, 6)
    with pytest.raises(ValueError, match="was never collected"):
        replay.load_state_dict({**saved(replay), "far_victim": np.array([victim])})


def build(strategy: str, members: int, fields: dict[str, int] = FIELDS) -> Replay:
    return Replay(parse(strategy), fields, 40, 0, range(members), 4, model=Model())


@pytest.mark.parametrize(("frequency", "probability"), [(100, 0.5), (200, 0.75), (50, 0.0), (10, 0.0)])
def test_the_drop_rate_follows_the_control_rate(frequency: float, probability: float) -> None:
    strategy = parse("Drop(rate)*FIFO[Uniform]").at(frequency)
    assert strategy.drop == Drop(probability)
    assert strategy.entry_share == 1 - probability


def test_what_was_measured_stays_where_it_was_and_a_model_has_no_noise() -> None:
    """A synthetic action keeps the state with its noise and the policy of that state; no measured one is within ±1."""
    fields = {**FIELDS, "sensor_noise": 2, "actuator_noise": 1, "behaviour_mean": 1}
    real = {"sensor_noise": 0.5, "actuator_noise": 0.25, "behaviour_mean": 0.75}
    replay = build("Synth(state=0.3, action=0.3)*FIFO[Uniform]", 20, fields)
    fill(replay, 40, start=7, **real)
    observation, action = replay.columns.column("observation"), replay.columns.column("action")
    of_state = np.asarray((abs(observation) <= 1).all(axis=2))
    made = of_state | (abs(action[..., 0]) <= 1)
    assert 0 < of_state.sum() < made.sum() < made.size
    for name, changed, to in (
        ("sensor_noise", of_state, 0.0),
        ("actuator_noise", made, 0.0),
        ("behaviour_mean", of_state, observation[of_state][:, :1] / 4),
    ):
        column = replay.columns.column(name)
        np.testing.assert_array_equal(column[changed], np.broadcast_to(to, column[changed].shape))
        assert (column[~changed] == real[name]).all()


def test_synthesis_needs_a_model_and_single_steps() -> None:
    for unit, words in ((STEP, "a plant with a model"), (segment(2), "breaks the trajectory in a unit")):
        with pytest.raises(UserError, match=words):
            make("Synth(state=0.1)*FIFO[Uniform]", unit=unit)


def test_which_slots_are_synthetic_is_kept_only_where_they_are_renewed() -> None:
    plain, renewed = (build(f"Synth({text})*FIFO[Uniform]", 2) for text in ("state=0.1", "state=0.1, refresh=0.9"))
    assert [running.synth and running.synth.synthetic.shape for running in (plain, renewed)] == [(2, 0), (2, 40)]
    assert ("synthetic" in plain.state_dict(), "synthetic" in renewed.state_dict()) == (False, True)


def test_cover_with_a_cell_for_each_experience_is_fifo() -> None:
    """Hashed cells, of which few share an entry: nearly all that is kept is the newest."""
    observations = np.random.Generator(np.random.PCG64(0)).uniform(-1, 1, (5000, 2)).astype(np.float32)
    replay = make("Cover(bins=10000)[Uniform]", 1, 256)
    for number, observation in enumerate(observations):
        fill(replay, 1, number, observation=observation)
    assert np.mean(replay.columns.serial[0] > 5000 - 256) > 0.7
