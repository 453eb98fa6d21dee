"""Intervals of few runs hold what is said of them: a part of benchmarks/evidence/interval_coverage.py."""

from __future__ import annotations

import pytest

from benchmarks.evidence.interval_coverage import CONTRASTS, SCORES, simulate, verdicts


@pytest.mark.parametrize(("scores", "least"), [("normal", 0.90), ("skewed", 0.80), ("dead seeds", 0.83)])
def test_intervals_of_25_runs_hold_the_truth_about_as_often_as_they_say(scores: str, least: float) -> None:
    found = simulate(SCORES[scores], 25, 500, seed=3)
    for name in ("mean", "interquartile mean", "paired difference"):
        assert least <= found[name] <= 0.985, name
    assert 0.93 <= found["worst run"] <= 0.975
    assert 0.03 <= found["flipped signs, wrongly"] <= 0.07
    assert found["apart, wrongly"] < 0.04  # two intervals apart are a far stricter test than it seems
    assert found["apart, rightly"] < found["flipped signs, rightly"] - 0.2


def test_verdicts_by_interquartile_means_are_seldom_wrong_where_runs_rarely_collapse() -> None:
    """A learner that collapses in 2 % of its runs was called better than it is, by means, in a third of studies."""
    found = verdicts(*CONTRASTS["2 % collapse − none"], 16, 300)
    wrong = {
        way: max(found[f"{way}: {side}, wrongly"] for side in ("more", "less"))
        for way in ("mean", "interquartile mean")
    }
    assert wrong["interquartile mean"] < 0.06
    assert wrong["mean"] > 0.2
    assert found["interquartile mean: decided"] > 0.6


def test_five_runs_with_dead_seeds_are_too_few() -> None:
    found = simulate(SCORES["dead seeds"], 5, 250, seed=3)
    assert found["mean"] < 0.7
    assert "90 % reach" not in found
