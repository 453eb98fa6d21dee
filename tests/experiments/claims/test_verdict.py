"""Verdicts: what would have to be seen for each, and that many claims together are judged more carefully."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replaybench.evidence.claim import Claim, Verdict, Word, judge
from replaybench.evidence.claims_evidence import STATISTIC
from replaybench.experiments.effects import Effect
from replaybench.reports.figures.claims import still_needed

CLAIM = Claim(id="x", source="", statement="", preset="debruin2018/fig12", plus=({},), expects="more", relevance=0.1)


def verdict(mean: float, sd: float = 0.1, n: int = 50, **changed: Any) -> Verdict:
    """Judge one claim by differences of exactly this mean and standard deviation."""
    draws = np.random.default_rng(1).normal(size=n)
    differences = mean + sd * (draws - draws.mean()) / draws.std(ddof=1)
    return judge([replace(CLAIM, **changed)], [effect(differences)])[0]


def effect(differences: np.ndarray) -> Effect:
    return Effect(differences, STATISTIC)


@pytest.mark.parametrize(
    ("mean", "expects", "word"),
    [
        (0.2, "more", "reproduced"),
        (0.09, "more", "undecided"),  # surely more than nothing, perhaps less than matters
        (0.04, "more", "smaller than relevant"),  # significantly more than nothing, and less than a relevant amount
        (0.0, "more", "contradicted"),
        (-0.2, "more", "contradicted"),
        (0.01, "less", "contradicted"),
        (-0.2, "less", "reproduced"),
        (0.2, "less", "contradicted"),
        (0.0, "same", "reproduced"),
        (0.05, "same", "reproduced"),
        (0.09, "same", "undecided"),
        (0.2, "same", "contradicted"),
        (-0.2, "same", "contradicted"),
        (0.2, "not more", "contradicted"),
        (0.09, "not more", "undecided"),
        (0.02, "not more", "reproduced"),
        (-0.2, "not more", "reproduced"),  # worse is not more
        (-0.2, "not less", "contradicted"),
        (0.2, "not less", "reproduced"),
        (0.04, "not more", "reproduced"),
    ],
)
def test_words(mean: float, expects: str, word: Word) -> None:
    found = verdict(mean, expects=expects)
    assert found.word == word
    assert {"reproduced": found.supports, "contradicted": found.refutes}.get(word, 0.0) < 0.05
    assert (found.more_seeds == 0) == (word != "undecided")


def test_few_seeds_decide_nothing_and_more_of_them_are_asked_for() -> None:
    few = verdict(0.2, sd=0.3, n=5)
    assert few.word == "undecided"
    assert few.more_seeds
    assert verdict(0.2, sd=0.3, n=5 + few.more_seeds).word == "reproduced"
    [near] = judge([replace(CLAIM, relevance=few.effect.estimate + 1e-6)], [few.effect])
    assert near.more_seeds is None, "no number of seeds separates this from the bound"


def test_seeds_are_told_for_the_whole_family() -> None:
    """Of twenty claims one needs more seeds than alone: of six that agree the test says no less than p = 1/64."""
    alike = effect(np.full(5, 0.2) + np.arange(5) * 1e-3)
    [*_, found] = judge([CLAIM] * 20, [effect(np.zeros(5))] * 19 + [alike])
    assert found.word == "undecided"
    assert found.more_seeds is not None
    assert 2.0 ** -(5 + found.more_seeds) * 20 < 0.05


def test_no_number_of_seeds_is_asked_for_where_runs_are_alike() -> None:
    [found] = judge([CLAIM], [effect(np.zeros(8))])
    assert (found.word, found.more_seeds, still_needed(found)) == ("undecided", None, "all differences are equal")


@pytest.mark.parametrize("collapsed", [0, 1, 2])
@pytest.mark.parametrize("side", [-1, 1])
def test_one_further_collapsed_seed_does_not_change_a_verdict(collapsed: int, side: int) -> None:
    """By means it did: 50 seeds of which none had collapsed decided what 51 left open."""
    typical = np.random.default_rng(2).normal(0.0, 0.03, 50)
    for shift, word in ((0.0, "contradicted"), (0.15, "reproduced")):
        differences = np.append(typical + shift, np.full(collapsed, side * 0.9))
        [found] = judge([CLAIM], [effect(differences)])
        assert found.word == word


def test_where_few_runs_make_the_mean_nothing_is_decided() -> None:
    """Five of fifty collapse under what is compared: on average that matters, to most seeds it does not."""
    differences = np.append(np.random.default_rng(2).normal(0.02, 0.03, 43), np.full(7, 0.9))
    [found] = judge([CLAIM], [effect(differences)])
    assert found.effect.estimate < CLAIM.relevance < differences.mean()
    assert found.refutes < 0.05
    assert (found.word, found.split) == ("undecided", True)
    assert "mean" in still_needed(found)
    [rises] = judge([replace(CLAIM, measure="rise")], [effect(differences)])
    assert rises.word == "smaller than relevant", "the mean of rise times depends on how long the runs are"


def test_what_was_not_run_has_no_verdict_and_counts_in_its_family() -> None:
    """Else a claim that is reproduced could become undecided when others are run."""
    sure, close = verdict(0.2).effect, verdict(0.12, sd=0.45).effect
    ran, missing = judge([CLAIM, CLAIM], [sure, None])
    assert (ran.word, missing.word) == ("reproduced", "not run")
    before = judge([CLAIM] * 10, [close, *[None] * 9])[0]
    after = judge([CLAIM] * 10, [close, *[effect(np.zeros(8))] * 9])[0]
    assert (before.word, before.supports, before.refutes) == (after.word, after.supports, after.refutes)
    assert before.word == "undecided"
    assert before.supports == pytest.approx(10 * judge([CLAIM], [close])[0].supports)


def test_a_family_is_judged_together() -> None:
    """One of forty effects of nothing would look certain by itself more often than not."""
    close = verdict(0.12, sd=0.45)
    assert close.word == "reproduced"
    among_others = judge([CLAIM] * 10, [close.effect] * 10)
    assert {each.word for each in among_others} == {"undecided"}
    assert among_others[0].supports == pytest.approx(10 * close.supports)
