"""Sums in compiled code have the bits of NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from replaybench.data.kernels.total import total


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 15, 16, 17, 40, 128])
def test_a_sum_is_numpys(count: int) -> None:
    """Along the last axis of an array, as learners sum over actions."""
    values = np.abs(np.random.default_rng(count).normal(size=(50, count))).astype(np.float32)
    np.testing.assert_array_equal([total(row) for row in values], values.sum(axis=1))
    if count > 8:
        one_by_one = np.add.accumulate(values, axis=1)[:, -1]
        assert (one_by_one != values.sum(axis=1)).any(), "the order counts"
