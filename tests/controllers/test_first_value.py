"""First values against discounted sums along episodes."""

from __future__ import annotations

import numpy as np
import pytest

from replaybench.controllers.first_value import FirstValue

DISCOUNT = 0.9
ALL = np.ones(1, np.bool_)


def told(rewards: list[float], terminated: bool, ended: bool = True, first: FirstValue | None = None) -> FirstValue:
    """Return what a member has collected after another episode."""
    first = first or FirstValue(1, DISCOUNT)
    for step, reward in enumerate(rewards):
        last = step == len(rewards) - 1
        first.update(np.array([reward]), ALL & (terminated and last), ALL & (ended and last), ALL)
    return first


def returns(rewards: list[float], beyond: float = 0.0) -> list[float]:
    """Return the discounted return from each step."""
    found: list[float] = []
    for reward in reversed(rewards):
        beyond = reward + DISCOUNT * beyond
        found.append(beyond)
    return found


def test_of_terminal_episodes_it_is_the_mean_return_of_all_their_steps() -> None:
    one, other = [1.0, -2.0, 5.0], [4.0, 4.0, 0.0, -1.0, 3.0]
    first = told(other, True, first=told(one, True))
    assert first.take()[0] == pytest.approx(np.mean([*returns(one), *returns(other)]), rel=1e-12)


@pytest.mark.parametrize("ended", [True, False])
def test_of_an_episode_that_is_cut_off_or_goes_on_the_rest_is_worth_as_much(ended: bool) -> None:
    one, other = [1.0, -2.0, 5.0], [4.0, 4.0, 0.0, -1.0, 3.0]
    value = told(other, False, ended, told(one, True)).take()[0]
    assert value == pytest.approx(np.mean([*returns(one), *returns(other, beyond=value)]), rel=1e-12)
    assert told([2.0, 2.0], False, ended).take()[0] == pytest.approx(2 / (1 - DISCOUNT), rel=1e-12)


def test_members_that_do_nothing_are_left_alone_and_nothing_is_collected_later() -> None:
    first = FirstValue(3, DISCOUNT)
    ends, active = np.ones(3, np.bool_), np.array([True, True, False])
    first.update(np.array([1.0, 3.0, 7.0]), ends, ends, active)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
    first.update(np.full(3, 100.0), ends, ends, ends)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
