"""Claims: each compares cells that its preset has."""

from __future__ import annotations

import pytest

from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.experiments.claims.claim import Claim, Claims, claim_files, read_claims

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


@pytest.mark.parametrize("name", claim_files())
def test_cells_are_those_of_the_preset(name: str) -> None:
    for claim in read_claims(name).claim:
        plus, minus = claim.cells()
        assert plus
        assert not {cell.id for cell in plus} & {cell.id for cell in minus}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"plus": [{"strategy": "FULL[TDE]"}]}, "names 0 cells"),
        ({"where": {}}, "names 2 cells"),
        ({"where": {"rate": 50}}, "axis 'rate'"),
        ({"measure": "finale"}, "final"),
        ({"relevance": 0}, "more than 0"),
        ({"plus": []}, "plus is empty"),
    ],
)
def test_what_cannot_be_decided_is_refused(changed: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(Claim, {**CLAIM, **changed}, "claim").cells()


def test_an_id_names_one_claim() -> None:
    with pytest.raises(UserError, match="same id: x"):
        build(Claims, {"paper": "p", "claim": [CLAIM, CLAIM]}, "claims")
