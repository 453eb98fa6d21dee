"""The table of discretised actions."""

from __future__ import annotations

import numpy as np
import pytest

from replaybench.controllers.learner import MOST, ActionLevels
from replaybench.runtime.errors import UserError


def test_one_dimension_spans_both_ends() -> None:
    np.testing.assert_allclose(ActionLevels(5, 1).table, [[-1.0], [-0.5], [0.0], [0.5], [1.0]])


def test_all_combinations_appear_once() -> None:
    table = ActionLevels(3, 4).table
    assert table.shape == (81, 4)
    assert table.dtype == np.float32
    assert len(np.unique(table, axis=0)) == 81
    assert set(np.unique(table)) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(("levels", "actions", "fits"), [(10, 3, True), (11, 3, False), (2, 9, True), (2, 10, False)])
def test_too_many_combinations_are_refused_naming_levels(levels: int, actions: int, fits: bool) -> None:
    if fits:
        assert len(ActionLevels(levels, actions).table) == levels**actions <= MOST
    else:
        with pytest.raises(UserError, match="levels"):
            ActionLevels(levels, actions)
