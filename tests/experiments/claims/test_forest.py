"""The picture of claims: every claim that was run on its line, to the right as it was claimed, in its own units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replaybench.evidence.claim import Claim, Claims, judge
from replaybench.experiments.effects import Effect
from replaybench.reports.figures.claims import LOOKS, claims_figure
from replaybench.runtime.errors import UserError

MORE = Claim(
    id="more", source="1", statement="A statement that is so long that it takes more than one line of the figure.",
    preset="debruin2018/fig12", plus=({},), expects="more", relevance=0.1,
)  # fmt: skip
NOISE = np.random.default_rng(0).normal(0.0, 0.01, 20)


def test_each_claim_is_where_its_effect_is() -> None:
    claims = [MORE, replace(MORE, id="less", expects="less"), replace(MORE, id="same", expects="same")]
    claims += [replace(MORE, id="not less", expects="not less"), replace(MORE, id="not run")]
    effects = [Effect(0.3 + NOISE), Effect(0.3 + NOISE), Effect(0.02 + NOISE), Effect(0.3 + NOISE), None]
    verdicts = judge(claims, effects)
    assert [each.word for each in verdicts] == ["reproduced", "contradicted", "reproduced", "reproduced", "not run"]
    figure = claims_figure(
        [(Claims(paper="A paper", claim=tuple(claims)), verdicts), (Claims(paper="B", claim=()), [])]
    )
    [axes] = figure.axes
    assert "3 reproduced, 1 contradicted" in figure.texts[0].get_text()
    dots = [line for line in axes.get_lines() if line.get_marker() in ("o", "X", "d")]
    mean = NOISE.mean() / 0.1
    assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == pytest.approx(
        [3 + mean, -3 - mean, 0.2 + mean, -3 - mean]
    )
    assert [dot.get_color() for dot in dots] == [LOOKS[each.word][1] for each in verdicts[:4]]
    assert [float(np.asarray(dot.get_ydata())[0]) for dot in dots] == list(axes.get_yticks())
    assert {label.get_text().replace("\n", " ") for label in axes.get_yticklabels()} == {MORE.statement}
    bands = [band.get_datalim(axes.transData).intervalx for band in axes.collections]
    assert [list(ends) for ends in bands] == [[-1, 1], [axes.get_xlim()[0], 1]], (
        "where no difference, or no more, was claimed"
    )
    told = [text.get_text() for text in axes.texts]
    assert told == ["reproduced, n = 20", "contradicted, n = 20", "reproduced, n = 20", "reproduced, n = 20"]


def test_runs_without_claims_are_not_drawn() -> None:
    with pytest.raises(UserError, match="no claim"):
        claims_figure([(Claims(paper="A paper", claim=(MORE,)), judge([MORE], [None]))])
