"""Temporal differences with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numba import typeof

from replaybench.controllers.losses.temporal_difference import Experiences, bootstrap, outcome, targets, td_error


def experiences() -> Experiences:
    """Return two samples of each of two members, r = 4 and 6 scaled by ½ and 2; the second samples are the last."""
    reward = np.array([[[4.0], [6.0]], [[4.0], [6.0]]], np.float32)
    terminated = np.array([[[0.0], [1.0]], [[0.0], [1.0]]], np.float32)
    one, nothing = np.ones((2, 2), np.float32), np.empty((2, 2, 0), np.float32)
    return Experiences(
        observation=nothing, action=nothing, reward=reward, next_observation=nothing, terminated=terminated, weight=one,
        actor_weight=one, rate_factor=one[0], mu_mean=nothing, mu_log_sigma=nothing,
        reward_factor=np.array([0.5, 2.0]), discount=0.75,
    )  # fmt: skip


def test_a_step_that_goes_on_bootstraps_and_a_last_one_does_not() -> None:
    """2 + ¾ · 8 = 8, less 5 is 3; at the end 2 − 5 = −3."""
    assert bootstrap(2.0, 0.75, 8.0) == 8.0
    assert td_error(5.0, 2.0, 0.75, 8.0) == 3.0
    assert td_error(5.0, 2.0, 0.0, 8.0) == -3.0


@pytest.mark.parametrize(("member", "first", "second"), [(0, (2.0, 0.75), (3.0, 0.0)), (1, (8.0, 0.75), (12.0, 0.0))])
def test_rewards_are_scaled_by_the_members_own_factor(
    member: int, first: tuple[float, float], second: tuple[float, float]
) -> None:
    x = experiences()
    assert outcome(x, member, 0, np.float32) == first
    assert outcome(x, member, 1, np.float32) == second


def test_targets_are_those_of_all_samples() -> None:
    """½ · 4 + ¾ · 8 = 8, ½ · 6 = 3; 2 · 4 + ¾ · 8 = 14, 2 · 6 = 12."""
    v_t, y = np.full((2, 1), 8.0, np.float32), np.empty((2, 1), np.float32)
    found = []
    for m in range(2):
        targets(experiences(), m, v_t, y)
        found.append(y[:, 0].tolist())
    assert found == [[8.0, 3.0], [14.0, 12.0]]


def test_kernels_are_the_same_for_columns_of_rows_and_for_copies() -> None:
    """Columns are what a batch holds, copies what normalisation makes of some; no mixture costs a compilation."""
    copies = experiences()
    columns = copies._replace(
        reward=np.repeat(copies.reward, 2, axis=2)[:, :, :1],
        terminated=np.repeat(copies.terminated, 3, axis=2)[:, :, 1:2],
    )
    assert not columns.reward.flags.c_contiguous
    assert typeof(columns) == typeof(copies) == typeof(copies._replace(reward=columns.reward))
    assert [outcome(columns, m, b, np.float32) for m in range(2) for b in range(2)] == [
        outcome(copies, m, b, np.float32) for m in range(2) for b in range(2)
    ]
