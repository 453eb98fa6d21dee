"""Uniform replay at a falling learning rate: its draws are those of uniform replay, and its rates those of AER."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import fill, make

from replaybench.replay.strategies.interface import Context


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.5, 1.0])
def test_draws_are_uniform_and_the_rate_falls(progress: float) -> None:
    annealed, uniform = (make(f"FIFO[{name}]", members=3) for name in ("Annealed(4, alpha=0.5)", "Uniform"))
    for replay in (annealed, uniform):
        fill(replay, 32)
    context = Context(progress=progress)
    for _ in range(3):
        mine, plain = annealed.sample(context), uniform.sample(context)
        np.testing.assert_array_equal(mine.idx, plain.idx)
        np.testing.assert_array_equal(mine.weight, plain.weight)
        np.testing.assert_array_equal(plain.rate_factor, np.ones(3))
        np.testing.assert_allclose(mine.rate_factor, {0.0: 4.0, 0.3: 2.2}.get(progress, 1.0), rtol=1e-6)


def test_a_member_that_stores_nothing_learns_nothing() -> None:
    replay = make("FIFO[Annealed]", members=2)
    experience = {name: np.zeros((2, width), np.float32) for name, width in replay.columns.fields.items()}
    replay.add(experience, np.array([True, False]))
    np.testing.assert_allclose(replay.sample(Context()).rate_factor, [2.5, 0])
