"""Claims: each compares cells that its preset has, by a measure that exists."""

from __future__ import annotations

import re

import pytest

from replaybench.evidence.claim import Claim, claim_files, read_claims
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError

CLAIM = {
    "id": "x",
    "source": "Figure 12",
    "statement": "…",
    "preset": "debruin2018/fig12",
    "where": {"plant": "Magman"},
    "plus": [{"strategy": "FULL[PER]"}],
    "expects": "more",
    "relevance": 0.1,
}
MEASURE = re.compile(r"final|best|rise|greedy|reward|whole|evaluation( \d+)?|(first|last) [1-9]\d*|(noise|metric) .+")


@pytest.mark.parametrize("name", claim_files())
def test_claims_of_a_paper_are_sound(name: str) -> None:
    claims = read_claims(name).claim
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        plus, minus = claim.cells()
        assert plus
        assert not {cell.id for cell in plus} & {cell.id for cell in minus}
        assert MEASURE.fullmatch(claim.measure), claim.id
        assert claim.relevance > 0


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"plus": [{"strategy": "FULL[TDE]"}]}, "names 0 cells"),
        ({"where": {}}, "names 2 cells"),
        ({"where": {"rate": 50}}, "axis 'rate'"),
    ],
)
def test_cells_that_a_preset_lacks_are_refused(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        build(Claim, {**CLAIM, **changed}, "claim").cells()
