from __future__ import annotations

import pytest

from replaybench.runtime.quantities import decimals, duration, fixed


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (599.4, "9 min 59 s"),
        (599.6, "10 min"),
        (3599, "1 h"),
        (2.75 * 3600, "2 h 45 min"),
        (86_369, "23 h 59 min"),
        (86_371, "1 day"),
        (49 * 3600, "2 days 1 h"),
        (3936 * 60, "2 days 18 h"),
    ],
)
def test_time_is_told_in_its_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_small_rewards_are_not_all_zero() -> None:
    assert [decimals(values) for values in ([0.0], [5.0, 0.001], [0.1], [0.021, -0.0003], [-0.0046])] == [2, 3, 2, 4, 5]
    assert (decimals([float("nan"), 1e-30]), decimals([0.02], least=3), decimals([])) == (9, 4, 2)
    assert [fixed(value, 2) for value in (0.0, -0.004, -0.5)] == ["0.00", "-4.0e-03", "-0.50"]
    assert fixed(1e-9, 3, "+") == "+1.0e-09"
