"""What enters: `Drop` and `Synth` as distributions and against a model that is known by heart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from buffers import FIELDS, chi_square, make, saved

from replaybench.replay.buffer import Replay
from replaybench.replay.storage.slots import segment
from replaybench.replay.strategies.entry import Drop, Synth
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError


class Model:
    """Doubles the state, rewards with the action, ends above 1; the policy halves its first state."""

    def possible(self, action: Any) -> Any:
        return action

    def simulate(self, observation: Any, action: Any) -> tuple[Any, Any, Any]:
        return observation * 2.0, action[:, 0] * 1.0, observation[:, 1] > 0.5

    def explore(self, observation: Any) -> tuple[Any, Any, Any]:
        extras = {"behaviour_mean": observation[:, :1] / 4}
        return observation[:, :1] / 2, np.abs(observation[:, 1]) + 20, extras

    def deviation(self, observation: Any, action: Any) -> Any:
        return np.abs(action[:, 0]) + 10


REAL = {"observation": 5.0, "action": 7.0, "reward": -3.0, "next_observation": 4.0, "terminated": 0.0, "exploration": 9}
"""A collected experience: no synthetic state or action lies outside [−1, 1]."""


def build(strategy: str, members: int, capacity: int, fields: dict[str, int] = FIELDS) -> Replay:
    return Replay(parse(strategy), fields, capacity, 0, range(members), 4, model=Model())


def offer(replay: Replay, count: int, **more: float) -> None:
    members, fields = len(replay.count), replay.columns.fields
    for _ in range(count):
        real = {**REAL, **more}
        experience = {name: np.full((members, width), real[name], np.float32) for name, width in fields.items()}
        replay.add(experience, np.ones(members, np.bool_))


def kinds(replay: Replay) -> tuple[np.ndarray, np.ndarray]:
    """Return which experiences `[M, N]` have a synthetic state, and which a synthetic action only."""
    observation, action = replay.columns.column("observation"), replay.columns.column("action")
    of_state = np.asarray((abs(observation) <= 1).all(axis=2))
    return of_state, ~of_state & (abs(action[..., 0]) <= 1)


def test_a_reservoir_counts_offers_after_the_drop() -> None:
    """Every collected experience is kept with equal chance only if the reservoir counts what reaches it."""
    members, capacity, collected = 2000, 10, 50
    replay = make("Drop(0.4)*Resv[Uniform]", members=members, capacity=capacity)
    offer(replay, collected)
    assert (replay.count == capacity).all()
    kept = np.bincount(replay.columns.serial.ravel(), minlength=collected + 1)[1:]
    chi_square(kept, np.full(collected, members * capacity / collected))


@pytest.mark.parametrize(("frequency", "probability"), [(100, 0.5), (200, 0.75), (50, 0.0), (10, 0.0)])
def test_the_drop_rate_follows_the_control_rate(frequency: float, probability: float) -> None:
    strategy = parse("Drop(rate)*FIFO[Uniform]").at(frequency)
    assert strategy.drop == Drop(probability)
    assert strategy.entry_share == 1 - probability


def test_how_an_action_was_drawn_is_told_anew_where_the_policy_drew_anew() -> None:
    """What a synthetic action replaces keeps the policy of its state, which is the measured one."""
    replay = build("Synth(state=0.3, action=0.3)*FIFO[Uniform]", 20, 40, {**FIELDS, "behaviour_mean": 1})
    offer(replay, 40, behaviour_mean=0.75)
    of_state, _ = kinds(replay)
    mean, observation = replay.columns.column("behaviour_mean"), replay.columns.column("observation")
    np.testing.assert_array_equal(mean[of_state], observation[of_state][:, :1] / 4)
    assert (mean[~of_state] == 0.75).all()


def test_synthetic_states_and_actions_are_uniform() -> None:
    replay = build("Synth(state=0.5, action=0.5)*FIFO[Uniform]", 500, 40)
    offer(replay, 40)
    of_state, of_action = kinds(replay)
    assert (of_state | of_action).all()
    for values in (replay.columns.column("observation")[of_state], replay.columns.column("action")[of_action]):
        for drawn in values.T:
            counts = np.histogram(drawn, 20, (-1, 1))[0]
            chi_square(counts, np.full(20, len(drawn) / 20))


def test_a_model_has_no_noise() -> None:
    """The state of a synthetic action is still the measured one, with the noise that was in it."""
    fields = {**FIELDS, "sensor_noise": 2, "actuator_noise": 1}
    replay = build("Synth(state=0.3, action=0.3)*FIFO[Uniform]", 20, 40, fields)
    offer(replay, 40, sensor_noise=0.5, actuator_noise=0.25)
    of_state, of_action = kinds(replay)
    sensor, actuator = replay.columns.column("sensor_noise"), replay.columns.column("actuator_noise")
    assert (sensor[of_state] == 0).all()
    assert (sensor[~of_state] == 0.5).all()
    assert (actuator[of_state | of_action] == 0).all()
    assert (actuator[~(of_state | of_action)] == 0.25).all()


@pytest.mark.parametrize("retention", ["FIFO", "Resv", "Expl(1.0)"])
def test_synthetic_slots_are_renewed_at_the_refresh_rate(retention: str) -> None:
    """Their share stays; in a lap of the ring each is renewed with probability 0.25, every other one surely."""
    replay = build(f"Synth(state=0.2, action=0.2, refresh=0.25)*{retention}[Uniform]", 400, 25)
    offer(replay, 25)
    before, serial = np.logical_or(*kinds(replay)), saved(replay)["serial"]
    offer(replay, 25)
    np.testing.assert_array_equal(np.logical_or(*kinds(replay)), before)
    renewed = replay.columns.serial != serial
    if retention == "FIFO":
        assert renewed[~before].all()
        total, fresh = before.sum(), renewed[before].sum()
        chi_square(np.array([fresh, total - fresh]), total * np.array([0.25, 0.75]))
    else:
        assert 0 < renewed[before].mean() < renewed[~before].mean()
    offer(replay, 50)
    np.testing.assert_array_equal(np.logical_or(*kinds(replay)), before)


def test_renewed_synthetic_slots_keep_the_proportion_of_kinds() -> None:
    replay = build("Synth(state=0.3, action=0.1, refresh=0.9)*FIFO[Uniform]", 400, 25)
    offer(replay, 25)
    first = saved(replay)["serial"].max()
    offer(replay, 50)
    of_state, of_action = (kind & (replay.columns.serial > first) for kind in kinds(replay))
    total = of_state.sum() + of_action.sum()
    assert total > 3000
    chi_square(np.array([of_state.sum(), of_action.sum()]), total * np.array([0.75, 0.25]))


def test_a_slot_that_stays_keeps_its_error() -> None:
    replay = build("Synth(action=0.5, refresh=0.0)*FIFO[PER]", 1, 20)
    offer(replay, 20)
    state = saved(replay)
    state["td_error"] = np.arange(20, dtype=np.float32)[None]
    replay.load_state_dict(state)
    offer(replay, 20)
    stays = state["synthetic"][0] > 0
    assert 0 < stays.sum() < 20
    np.testing.assert_array_equal(saved(replay)["td_error"][0], np.where(stays, state["td_error"][0], np.inf))


def test_synthesis_needs_a_model_and_single_steps() -> None:
    with pytest.raises(UserError, match="a plant with a model"):
        make("Synth(state=0.1)*FIFO[Uniform]")
    with pytest.raises(UserError, match="breaks the trajectory"):
        make("Synth(state=0.1)*FIFO[Uniform]", unit=segment(2))
    assert Synth(0.1).refresh == 1.0


def test_which_slots_are_synthetic_is_kept_only_where_they_are_renewed() -> None:
    plain, renewed = (build(f"Synth({text})*FIFO[Uniform]", 2, 40) for text in ("state=0.1", "state=0.1, refresh=0.9"))
    assert plain.synth is not None
    assert renewed.synth is not None
    assert plain.synth.synthetic.shape == (2, 0)
    assert renewed.synth.synthetic.shape == (2, 40)
    assert ("synthetic" in plain.state_dict(), "synthetic" in renewed.state_dict()) == (False, True)


def test_kinds_of_synthetic_experiences() -> None:
    replay = build("Synth(state=0.2, action=0.3)*FIFO[Uniform]", 500, 40)
    offer(replay, 40)
    of_state, of_action = kinds(replay)
    count = np.array([of_state.sum(), of_action.sum()])
    chi_square(np.r_[count, 20_000 - count.sum()], np.array([4_000, 6_000, 10_000]))


def test_synthetic_experiences_are_what_model_and_policy_say() -> None:
    replay = build("Synth(state=0.3, action=0.3)*FIFO[Uniform]", 20, 40)
    offer(replay, 40)
    of_state, of_action = kinds(replay)
    made, column = of_state | of_action, replay.columns.column
    s, a = column("observation"), column("action")
    np.testing.assert_array_equal(a[of_state], s[of_state][:, :1] / 2)
    np.testing.assert_array_equal(s[of_action], 5)
    np.testing.assert_array_equal(column("next_observation")[made], s[made] * 2)
    np.testing.assert_array_equal(column("reward")[made], a[made])
    np.testing.assert_array_equal(column("terminated")[made][:, 0], s[made][:, 1] > 0.5)
    np.testing.assert_array_equal(column("exploration")[of_state][:, 0], abs(s[of_state][:, 1]) + 20)
    np.testing.assert_array_equal(column("exploration")[of_action][:, 0], abs(a[of_action][:, 0]) + 10)
    assert set(column("terminated")[of_state].ravel()) == {0.0, 1.0}
    for name, value in REAL.items():
        assert (column(name)[~made] == value).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Drop(1.0)", "[0, 1)"),
        ("Drop(-0.1)", "[0, 1)"),
        ("Synth", "e.g. Synth(state=0.1)"),
        ("Synth(state=1.5)", "probability"),
        ("Synth(state=0.6, action=0.6)", "sum lies in (0, 1]"),
        ("Synth(state=0.6, refresh=2)", "refresh is a probability"),
    ],
)
def test_shares_are_probabilities(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(f"{text}*FIFO[Uniform]")
    assert words in str(caught.value)
