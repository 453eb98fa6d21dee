"""Cards of strategies: scores, ranks and stored strategies."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from replaybench.evidence import card as cards
from replaybench.evidence.card import (
    BASELINE,
    COLLAPSED,
    FINAL,
    LEARNER,
    NOISE,
    Card,
    Condition,
    Standing,
    above_baseline,
    make_card,
    protocol,
    protocol_standings,
    stored_learners,
    stored_standings,
)
from replaybench.experiments.statistics import drawn, interval
from replaybench.replay.strategies.notation import parse
from replaybench.reports.page.card import card_page
from tests.helpers.commands import call
from tests.helpers.made_results import made_results

EXAMPLES = Path(cards.__file__).parents[1] / "examples"

CONDITIONS = [Condition("Pendulum", volume, noise) for volume in (4.0, 32.0) for noise in (0.0, 0.02)]


def standings(names: list[str], seeds: int = 5, conditions: Sequence[Condition] = CONDITIONS) -> dict[str, Standing]:
    rng = np.random.default_rng(1)
    return {name: Standing(*np.round(rng.normal(0.4, 0.2, (2, len(conditions), seeds)), 1)) for name in names}


def with_high_volume_on(plants: list[str]) -> list[Condition]:
    return [*CONDITIONS[:2], *(Condition(plant, 32.0, noise) for plant in plants for noise in (0.0, 0.02))]


@pytest.mark.parametrize("measure", [FINAL, "mean score of the whole run", COLLAPSED, NOISE])
def test_ranks_are_those_of_means_with_ties_shared(measure: str) -> None:
    conditions = [*with_high_volume_on(["Pendulum", "Magman", "Servo"]), Condition("CartPole", 32.0, 0.0)]
    known = standings(["A", "B", "C"], conditions=conditions)
    to_rank = {  # by strategy, the scores in each condition (or on each plant); the highest has rank 1
        name: {
            FINAL: [*each.final[2:]],
            "mean score of the whole run": [*each.whole[2:]],
            COLLAPSED: [[-float(score < 0.2) for score in scores] for scores in each.final[2:]],
            NOISE: [each.final[noisy] - each.final[noisy - 1] for noisy in (3, 5, 7)],
        }[measure]
        for name, each in known.items()
    }
    ranks = Card("A", conditions, known, "").ranks(32.0, measure)
    resampled: dict[str, list[float]] = {name: [] for name in known}
    for counts in (np.ones(5), *drawn(5)):
        places = []
        for parts in zip(*to_rank.values(), strict=True):
            totals = [float(counts @ part) for part in parts]
            above = [sum(other > total + 1e-9 for other in totals) for total in totals]
            equal = [sum(abs(other - total) < 1e-9 for other in totals) for total in totals]
            places.append([more + (same + 1) / 2 for more, same in zip(above, equal, strict=True)])
        for name, mean in zip(known, np.mean(places, axis=0), strict=True):
            resampled[name].append(float(mean))
    for name, rank in ranks.items():
        assert abs(rank.mean - resampled[name][0]) < 1e-12
        low, high = np.quantile(resampled[name][1:], [0.025, 0.975])
        assert abs(rank.low - low) < 1e-12
        assert abs(rank.high - high) < 1e-12


def test_strategies_above_the_baseline_are_those_of_the_learner_and_the_nearest_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = np.tile(np.linspace(0.3, 0.5, 10), (4, 1))
    low, high = np.array([[0.2], [0.2], [0], [0]]), np.array([[-0.1], [-0.1], [0.1], [0.1]])
    finals = {BASELINE: base, "A": base + low, "B": base + 2 * low, "C": base + high}
    of = {
        "DDPG": {name: Standing(final, final) for name, final in finals.items()},
        "SAC": {name: Standing(finals[BASELINE], finals[BASELINE]) for name in finals},
    }
    monkeypatch.setattr(cards, "stored_learners", lambda: [*of])
    monkeypatch.setattr(cards, "stored_standings", lambda learner: (CONDITIONS, of[learner]))
    for volume, nearest, names in ((1, 4, ["B", "A"]), (11, 4, ["B", "A"]), (12, 32, ["C"]), (256, 32, ["C"])):
        for learner in ("DDPG", "DDPG:slow", "TD3"):
            stored, volume_there, above = above_baseline(volume, learner)
            assert (stored, volume_there, list(above)) == ("DDPG", nearest, names)
        assert above_baseline(volume, "SAC:sb3") == ("SAC", nearest, {})
    effect, p = above["C"]
    assert effect.estimate == pytest.approx(0.1)
    assert p == pytest.approx(3 * 2 / 2**10)


def test_a_card_has_the_scores_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learners = ["DDPG:replay_volume=4", "DDPG:replay_volume=32"]
    made = [[0.1, 0.5], [0.7, 0.8]]  # at which curves end, by volume and noise
    data = made_results(
        ["Pendulum"], learners, ["FULL[PER]"], [0.0, 0.02], [50.0], seeds=5, episodes=40,
        ends=lambda plant, learner, strategy, noise, rate: made[learner][noise], exact=False,
    )  # fmt: skip
    data["reward"].loc[{"learner": learners[0], "noise": 0.02, "seed": 3}] = np.nan
    data["mu_final"].loc[{"learner": learners[0], "noise": 0.02, "seed": 3}] = np.nan
    monkeypatch.setattr(
        cards, "protocol_standings", lambda: (CONDITIONS, standings([BASELINE, "FULL[PER]", "FIFO[PER]"]))
    )
    monkeypatch.setattr(cards, "_time", lambda *_: "Time: 2 times.")
    card = make_card("FULL[PER]", data, protocol(["FULL[PER]"]))
    own = card.standings["FULL[PER]"]
    assert own.final.shape == own.whole.shape == (4, 5)
    np.testing.assert_allclose(own.final[2], data["mu_final"].sel(learner=learners[1], noise=0.0).values.ravel())
    np.testing.assert_allclose(
        own.whole[3], data["reward"].sel(learner=learners[1], noise=0.02).mean("episode").values.ravel() + 2
    )
    assert own.final[1, 3] == own.whole[1, 3] == 0.0  # a failed run has the score of random control
    measures, _ = card.tables()
    rows = {(str(row[0]), str(row[1])): (str(row[2]), str(row[3])) for row in measures.rows}
    collapsed = (own.final[:2] < 0.2).mean(axis=0)
    assert rows[COLLAPSED, "4"][0] == interval(collapsed).text(2)
    assert rows[COLLAPSED, "32"][0] == "0.00 (no spread)"
    for volume, part in (("4", [0, 1]), ("32", [2, 3])):
        assert rows[FINAL, volume][0] == interval(own.final[part].mean(axis=0)).text(2)
        assert rows["mean score of the whole run", volume][0] == interval(own.whole[part].mean(axis=0)).text(2)
        change = interval(own.final[part[1]] - own.final[part[0]])
        assert rows[NOISE, volume][0] == f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
        for measure in (FINAL, "mean score of the whole run", COLLAPSED, NOISE):
            assert rows[measure, volume][1] == card.ranks(float(volume), measure)["FULL[PER]"].text(1)
    assert rows["memory (bytes per experience)", "all"] == ("24", "2.5")
    assert measures.caption.endswith("Time: 2 times.")
    assert measures.lines_a_row(100) == 1
    page = card_page(card)
    for shown in ("FULL[PER]", "Time: 2 times.", rows[NOISE, "4"][0], "rank of 3 [95 %]"):
        assert shown in page


def test_a_part_of_a_strategy_is_run_with_full_or_uniform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "newest_first.py", tmp_path / "own.py")
    asked = Mock(return_value=(None, None, 130))
    monkeypatch.setattr("replaybench.experiments.sweep.run_sweep", asked)
    for name, whole, folder in (
        ("LAP", "FULL[LAP]", "card-FULL_LAP_"),
        ("Cover(4)", "Cover(4)[Uniform]", "card-Cover_4_Uniform_"),
        ("IS", "FULL[PER+IS]", "card-FULL_PER_IS_"),
        ("FIFO[PER]", "FIFO[PER]", "card-FIFO_PER_"),
        ("own.py:NewestFirst(0.5)", "FULL[own.py:NewestFirst(0.5)]", "card-FULL_NewestFirst_0.5_"),
    ):
        assert call("card", name) == 130
        study, run = asked.call_args.args[:2]
        assert (study.strategies, run) == ((whole,), Path("runs") / folder)


def test_stored_scores_are_those_of_the_present_protocol() -> None:
    conditions, stored = protocol_standings()
    cells = protocol([BASELINE]).cells()
    assert json.loads(cards._STORED.read_text())["cells"] == sorted(cell.id for cell in cells)
    assert {(cell.plant, cell.noise) for cell in cells} == {(each.plant, each.noise) for each in conditions}
    assert len(conditions) == len(cells)
    assert len(stored) > 10
    for name, standing in stored.items():
        assert str(parse(name)) == name
        assert standing.final.shape == standing.whole.shape == (len(conditions), cells[0].members)


def test_stored_scores_of_all_learners_are_complete() -> None:
    assert stored_learners()[0] == LEARNER
    names = stored_standings(LEARNER)[1].keys()
    for learner in stored_learners():
        conditions, stored = stored_standings(learner)
        assert len(set(conditions)) == len(conditions)
        assert stored.keys() == names
        for standing in stored.values():
            assert standing.final.shape == standing.whole.shape == (len(conditions), 24)
            assert np.isfinite(standing.final).all()
