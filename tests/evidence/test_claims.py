"""Claims: cells, verdicts, evidence, and their figure."""

import json
import os
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from benchmarks.evidence import verdict_errors
from replaybench.cli.claims import show_claims
from replaybench.data.policy_file import write_policy
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.data.run_folder import claim as claim_folder
from replaybench.evidence.claim import (
    Claim,
    Claims,
    Verdict,
    Word,
    chance_to_decide,
    claim_files,
    judge,
    read_claims,
)
from replaybench.evidence.claims_evidence import (
    Evidence,
    Finding,
    find,
    judged,
    measured,
    parts,
    read_evidence,
    still_needed,
    verdict_text,
)
from replaybench.evidence.claims_plan import Part, Step, plan_seeds
from replaybench.evidence.preset import read_preset, take_over
from replaybench.experiments.dataset import add_scores
from replaybench.experiments.effects import Effect
from replaybench.experiments.results_file import write_results
from replaybench.experiments.study import Cell
from replaybench.experiments.study_record import resolved, write_toml
from replaybench.reports.figures.claims import MARKS, claims_figure
from replaybench.runtime.arrays import Floats
from replaybench.runtime.atomic import MARK
from tests.helpers.cells import small_study
from tests.helpers.commands import Capsys, Patch, call
from tests.helpers.made_results import made_results
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

PRESET = "debruin2018/fig12"
BETTER = Claim(
    id="x",
    source="Figure 12",
    statement="[One] is better.",
    preset=PRESET,
    where={"plant": "PendulumDCSC"},
    plus=({"strategy": "FULL[PER]"},),
    minus=({"strategy": "FIFO[Uniform]"},),
    expects="more",
    relevance=0.03,
)
JUDGED = replace(BETTER, relevance=0.1)
MEASURE = re.compile(r"final|best|rise|greedy|reward|whole|evaluation( \d+)?|(first|last) [1-9]\d*|(noise|metric) .+")

PRINTED = {("wang2019", "Table 1"): "whole", ("debruin2018", "Figure 25"): "last 200000"}
"""What tables and figures print, if it is not a final score: means over all steps, and over the last 200,000."""


@pytest.mark.parametrize("name", claim_files())
def test_claims_of_a_paper_are_sound(name: str) -> None:
    claims = read_claims(name).claim
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        plus, minus = claim.cells()
        assert plus
        assert not {cell.id for cell in plus} & {cell.id for cell in minus}
        assert MEASURE.fullmatch(claim.measure), claim.id
        assert claim.measure == PRINTED.get((name, claim.source.split(", ")[-1]), claim.measure), claim.id
        assert claim.relevance > 0


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"plus": ({"strategy": "FULL[TDE]"},)}, "names 0 cells"),
        ({"where": {}}, "names 2 cells"),
        ({"where": {"rate": 50}}, "axis 'rate'"),
    ],
)
def test_cells_that_a_preset_lacks_are_refused(changed: dict[str, Any], problem: str) -> None:
    refuses(problem, replace(BETTER, **changed).cells)


def verdict(mean: float, sd: float = 0.1, n: int = 50, **changed: Any) -> Verdict:
    """Judge one claim by differences of exactly this mean and standard deviation."""
    draws = np.random.default_rng(1).normal(size=n)
    differences = mean + sd * (draws - draws.mean()) / draws.std(ddof=1)
    return judge([replace(JUDGED, **changed)], [Effect(differences)])[0]


WORDS: list[tuple[str, dict[float, Word]]] = [
    ("more", {0.2: "reproduced", 0: "contradicted", -0.2: "contradicted"}),
    # Both differ significantly from zero; only the second significantly exceeds the smallest effect of interest.
    ("more", {0.09: "undecided", 0.04: "smaller than relevant"}),
    ("less", {-0.2: "reproduced", 0.01: "contradicted", 0.2: "contradicted"}),
    ("same", {0: "reproduced", 0.05: "reproduced", 0.09: "undecided", 0.2: "contradicted", -0.2: "contradicted"}),
    ("not more", {-0.2: "reproduced", 0.02: "reproduced", 0.04: "reproduced", 0.09: "undecided", 0.2: "contradicted"}),
    ("not less", {0.2: "reproduced", -0.2: "contradicted"}),
]


@pytest.mark.parametrize(("expects", "words"), WORDS)
def test_words(expects: str, words: dict[float, Word]) -> None:
    for mean, word in words.items():
        found = verdict(mean, expects=expects)
        assert found.word == word, mean
        assert {"reproduced": found.supports, "contradicted": found.refutes}.get(word, 0.0) < 0.05
        assert (found.more_seeds == 0) == (word != "undecided")


def test_few_seeds_decide_nothing_and_more_of_them_are_asked_for() -> None:
    few = verdict(0.2, sd=0.3, n=5)
    assert few.word == "undecided"
    assert few.more_seeds == 45, "the first look has 50 pairs"
    assert verdict(0.2, sd=0.3).word == "reproduced"
    [near] = judge([replace(JUDGED, relevance=few.effect.estimate + 1e-6)], [few.effect])
    assert near.more_seeds is None, "no number of seeds separates this from the bound"
    [found] = judge([JUDGED], [Effect(np.zeros(8))])
    assert (found.word, found.more_seeds, still_needed(found)) == ("undecided", None, "all differences are equal")


@pytest.mark.parametrize("measure", ["final", "rise"])
def test_the_chance_of_a_decision_is_that_of_the_rule(measure: str) -> None:
    """Of 40 drawn studies as many are decided as was foretold; in a large family, twelve seeds decide no rise time.

    The p value of an interquartile mean of twelve seeds is at least 8/4096, and that of a mean 1/4096.
    """
    pairs = np.random.default_rng(4).normal(0.07, 0.13, 32)
    claim = replace(JUDGED, measure=measure, relevance=0.03)
    [found] = judge([claim], [Effect(pairs)])
    chance = chance_to_decide(replace(found, tests=(1, 1)), 50, 1)
    rng = np.random.default_rng(5)
    drawn = [judge([claim], [Effect(rng.choice(pairs, 50))])[0].word != "undecided" for _ in range(40)]
    assert 0.3 < chance < 0.97
    assert chance == pytest.approx(np.mean(drawn), abs=0.2)
    equal = replace(found, effect=Effect(0.2 + pairs * 1e-3, found.effect.statistic), tests=(21, 21))
    few = 0.0 if measure == "rise" else 1.0
    assert [chance_to_decide(equal, n, 1) for n in (12, 50)] == [few, 1.0]


def test_the_mean_decides_and_what_carries_it_is_told() -> None:
    """Of 50 pairs, 8 differ by a collapse that only one side has: the typical run is equal, the mean is not."""
    differences = np.append(np.random.default_rng(2).normal(0.02, 0.03, 42), np.full(8, 0.9))
    [found] = judge([JUDGED], [Effect(differences)])
    assert found.word == "reproduced"
    collapses = Effect(np.append(np.zeros(42), np.full(8, -1.0)))
    told = parts(found, Finding(found.effect, collapses, 100, 0.03, 0, ("run",)))
    assert told == "mean higher, typical run equal, collapses fewer (−16 points; p 0.008)"
    assert verdict_text(found, Finding(found.effect, collapses, 100, 0.03, 0, ())) == "reproduced; at 3 % of the run"
    [rises] = judge([replace(JUDGED, measure="rise")], [Effect(differences)])
    assert rises.word == "smaller than relevant", "the mean of rise times depends on how long the runs are"


def test_a_verdict_that_hangs_on_one_run_is_none() -> None:
    """Without the largest difference, the mean is below the smallest effect of interest."""
    differences = np.append(np.random.default_rng(2).normal(0.098, 0.03, 49), 0.5)
    [found] = judge([JUDGED], [Effect(differences)])
    assert found.effect.estimate > JUDGED.relevance
    assert (found.word, found.hangs_on_one, still_needed(found)) == ("undecided", True, "hangs on one run")


def test_every_single_pair_is_left_out() -> None:
    """As in a loop over all pairs, with ties and with collapses."""

    def holds(pairs: Floats, side: bool) -> bool:
        effect = Effect(pairs)
        if side:
            return 2 * effect.chance_below(0.0) < 0.05 and effect.estimate >= JUDGED.relevance
        return 2 * effect.chance_above(JUDGED.relevance) < 0.05

    rng = np.random.default_rng(6)
    firm = []
    for _ in range(60):
        pairs = rng.normal(rng.uniform(-0.05, 0.3), 0.1, int(rng.choice([9, 16, 24])))
        pairs += 0.8 * (rng.random(len(pairs)) < rng.choice([0.0, 0.1, 0.3])) * rng.choice([-1, 1])
        pairs = np.round(pairs, int(rng.choice([1, 3])))
        [found] = judge([JUDGED], [Effect(pairs)])
        if found.word == "undecided" and not found.hangs_on_one:
            continue
        side = holds(pairs, side=True)
        kept = np.array([holds(np.delete(pairs, at), side) for at in range(len(pairs))])
        assert kept.all() != found.hangs_on_one
        firm.append(kept.all())
    assert 0.5 < np.mean(firm) < 0.95


def test_each_look_has_half_of_the_error_of_the_one_before_and_the_first_that_decides_counts() -> None:
    close = verdict(0.12, sd=0.3).effect.differences
    first, second = judge([JUDGED], [Effect(close)])[0], judge([JUDGED], [Effect(np.append(close, close))])[0]
    assert (first.look, second.look, second.effect.n) == (1, 1, 50), "what was decided stays so"
    assert first.supports == pytest.approx(2 * Effect(close).chance_below(0.0))
    open_ = verdict(0.105, sd=0.5).effect.differences
    assert judge([JUDGED], [Effect(open_)])[0].word == "undecided"
    more = np.append(open_, close)
    [later] = judge([JUDGED], [Effect(np.append(more, [0.5] * 30))])
    assert (later.look, later.effect.n) == (2, 100), "pairs between looks are not used"
    assert later.supports == pytest.approx(4 * Effect(more).chance_below(0.0))


def test_the_rule_is_rarely_wrong_in_the_stored_simulation() -> None:
    """Long tails and collapses included: at most 5 % of 400 verdicts are false in each setting."""
    stored = json.loads(verdict_errors.STORED.read_text())
    assert len(stored["settings"]) == len([*verdict_errors.settings()])
    false = {"no effect": ("reproduced",), "smallest effect": ("contradicted", "smaller than relevant")}
    wrong = [
        sum(row["verdicts"].get(word, 0) for word in false[row["effect"]])
        for row in stored["settings"]
        if row["effect"] in false
    ]
    assert stored["repetitions"] >= 400
    assert max(wrong) <= 0.05
    [row] = [row for row in stored["settings"] if [*row.values()][:5] == [8, "normal", 0.1, "one cell", "no effect"]]
    assert verdict_errors.rates(stored["repetitions"], *[*row.values()][:5]) == row["verdicts"]


def test_a_family_is_judged_together_and_what_was_not_run_counts_in_it() -> None:
    """One of forty effects of nothing would look certain by itself; none is to change when others are run."""
    ran, missing = judge([JUDGED, JUDGED], [verdict(0.2).effect, None])
    assert (ran.word, missing.word) == ("reproduced", "not run")
    close = verdict(0.12, sd=0.35)
    assert close.word == "reproduced"
    families: list[list[Any]] = [[None] * 9, [Effect(np.zeros(8))] * 9, [close.effect] * 9]
    before, after, alike = (judge([JUDGED] * 10, [close.effect, *others]) for others in families)
    for told in ("word", "supports", "refutes"):
        assert getattr(before[0], told) == getattr(after[0], told)
    assert {each.word for each in (before[0], *alike)} == {"undecided"}
    assert [before[0].supports, alike[0].supports] == pytest.approx([10 * close.supports] * 2)


ENDS = {"FIFO[Uniform]": 0.5, "FULL[PER]": 0.6}


def store(
    folder: Path, strategies: tuple[str, ...] = tuple(ENDS), seeds: int = 20, preset: str = PRESET, **changed: Any
) -> Path:
    """Leave what a finished sweep of the preset leaves, as far as claims look at it; `changed` are study keys."""
    study = replace(read_preset(preset).study("quick"), strategies=strategies, plants=("PendulumDCSC",), **changed)
    data = made_results(
        ["PendulumDCSC"], ["DDPG"], list(strategies), [0.0], [50.0], seeds=seeds, episodes=200,
        ends=lambda plant, learner, strategy, noise, rate: ENDS.get(strategies[strategy], 0.5),
    )  # fmt: skip
    folder.mkdir()
    (folder / "study.toml").write_text(write_toml(resolved(study, study.cells())), encoding="utf-8")
    write_results(folder / "results.nc", data)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return read_evidence(store(tmp_path_factory.mktemp("claims") / "run"))


def test_differences_are_of_the_same_seed(run: Evidence) -> None:
    """Seeds share their luck, so the difference is far surer than either score."""
    found: Any = find(BETTER, [run])
    assert (found.effect.n, found.episodes, found.failed, found.runs) == (20, 200, 0, ("run",))
    assert found.effect.estimate == pytest.approx(0.1, abs=0.005)
    low, high = found.effect.interval()
    assert high - low < 0.01


def test_cells_may_lie_in_two_runs_of_the_same_root_seed(tmp_path: Path) -> None:
    one = read_evidence(store(tmp_path / "one", ("FIFO[Uniform]",)))
    two = read_evidence(store(tmp_path / "two", ("FULL[PER]",), seeds=8))
    other = read_evidence(store(tmp_path / "other", ("FULL[PER]",), root_seed=7))
    assert find(BETTER, [one]) is None
    assert find(BETTER, [one, other]) is None, "no seed is shared"
    found: Any = find(BETTER, [one, other, two])
    assert found.effect.n == 8
    lone = read_evidence(store(tmp_path / "lone", seeds=1))
    (verdict,), _ = judged(Claims(paper="A paper", claim=(BETTER,)), [lone])
    assert (verdict.word, still_needed(verdict)) == ("undecided", "one seed is not enough")


def test_further_seeds_of_a_cell_may_lie_in_another_run(tmp_path: Path) -> None:
    """Paired by their numbers: here by what seeds 15 to 19 scored in both, and by seeds that only one has."""
    one = read_evidence(store(tmp_path / "one"))
    part = one.data.isel(seed=slice(15, 20)).assign_coords(seed=range(15, 20))
    later = replace(one, path=tmp_path / "later", data=part.assign_coords(seed=range(18, 23)))
    found: Any = find(BETTER, [later, one])
    whole: Any = find(BETTER, [one])
    assert (found.effect.n, found.runs) == (23, ("one", "later"))
    expected = [*whole.effect.differences, *whole.effect.differences[17:20]]
    assert found.effect.differences.tolist() == expected
    lone = replace(one, data=one.data.sel(strategy=["FIFO[Uniform]"]))
    shared: Any = find(BETTER, [lone, replace(later, data=part)])
    assert shared.effect.n == 5


def test_the_plan_completes_undecided_claims_and_computes_shared_cells_once(tmp_path: Path) -> None:
    """The cheapest decisions come first; a decided claim needs nothing, and the command is one that can be run.

    A claim that only the last look would decide gets the seeds of all looks.
    """
    run = read_evidence(store(tmp_path / "one", (*ENDS, "Resv[Uniform]", "FULL[Uniform]"), seeds=50))
    data = run.data.copy(deep=True)
    data["seconds"].loc[{"strategy": "FULL[Uniform]"}] = 3e5
    run = replace(run, data=data)
    pairs = np.random.default_rng(4).normal(0.07, 0.25, 50)
    shared, dear, done = (replace(BETTER, id=name) for name in ("shared", "dear", "done"))
    dear = replace(dear, plus=({"strategy": "FULL[Uniform]"},))
    also = replace(BETTER, id="also", plus=({"strategy": "Resv[Uniform]"},))
    effects = [Effect(pairs), Effect(pairs), Effect(pairs), Effect(pairs + 1)]
    claims = [dear, shared, also, done]
    verdicts = [judge([claim], [effect])[0] for claim, effect in zip(claims, effects, strict=True)]
    assert [each.word for each in verdicts] == ["undecided"] * 3 + ["reproduced"]
    found = [Finding(effect, Effect(np.empty(0)), 200, 1.0, 0, ("one",)) for effect in effects]
    [step] = plan_seeds(list(zip(verdicts, found, strict=True)), [run])
    assert set(step.claims) == {"dear", "shared", "also"}
    assert step.hours == pytest.approx((3e5 + 3 * 30) / 3600), "50 further seeds take as long as the first 50"
    words = shlex.split(step.command)
    assert words[:3] == ["replaybench", "sweep", str(tmp_path / "one" / "study.toml")]
    assert "first_seed=50" in words
    assert words.count("FIFO[Uniform]") == 1
    [few] = plan_seeds([(verdicts[1], found[1])], [run])
    assert set(few.points) == {("FULL[PER]", 0.0, 50.0), ("FIFO[Uniform]", 0.0, 50.0)}
    assert plan_seeds([(verdicts[3], found[3])], [run]) == []
    late = replace(judge([BETTER], [Effect(0.14 * (pairs - pairs.mean()) / pairs.std())])[0], tests=(91, 91))
    assert chance_to_decide(late, 100, 2) < 0.1 < 0.5 < chance_to_decide(late, 400, 4)
    later = replace(late, claim=replace(BETTER, id="late"))
    steps = plan_seeds([(later, found[1]), (verdicts[1], found[1])], [run])
    assert [(each.part.first, each.part.seeds, [*each.claims]) for each in steps] == [
        (50, 50, ["shared"]), (100, 100, []), (200, 200, ["late"]),
    ]  # fmt: skip


def test_a_planned_command_computes_the_named_cell_of_a_study_with_further_axes(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    study = small_study(delay=(0.0, 0.02), discount=(0.9, 0.95), replay_volume=(2.0, 4.0), episodes=1)
    (tmp_path / "study.toml").write_text(write_toml(study))
    cell = study.cells()[-1]
    assert cell.plant.endswith(":delay=0.02")
    assert cell.learner.endswith(":discount=0.95:replay_volume=4")
    part = Part("one", str(tmp_path / "study.toml"), cell.plant, cell.learner, 50, 10)
    step = Step(part, {(cell.strategy, cell.noise, cell.frequency): 1.0})
    monkeypatch.chdir(tmp_path)
    assert call(*shlex.split(step.command)[1:], "--dry-run", "--no-measure") == 0
    shown = capsys.readouterr().out
    assert "1 cell, 1 to run" in shown
    further = [replace(each, members=1) for each in replace(study, seeds=10, first_seed=50).cells()]
    [place] = [i for i, each in enumerate(further) if replace(each, first_member=0) == replace(cell, members=1)]
    assert replace(further[place], members=10).id in shown


@pytest.mark.slow
def test_seeds_of_other_root_seeds_count_too(tmp_path: Path) -> None:
    """Each is paired with its own; which of two runs is named first decides nothing."""
    one, two = (read_evidence(store(tmp_path / f"{root}", seeds=8, root_seed=root)) for root in (3, 7))
    found: Any = find(BETTER, [one, two])
    again: Any = find(BETTER, [two, one])
    assert (found.effect.n, found.runs) == (16, ("3", "7"))
    assert found.effect.differences.tolist() == again.effect.differences.tolist()


@pytest.mark.parametrize(
    "changed",
    [
        {"learner": {"DDPG": {"batch_size": 32}}},
        {"plant": {"PendulumDCSC": {"damping": 4e-6}}},
        *slow([{"capacity": 500}, {"discount": "horizon"}, {"observe": ("angle",)}]),
    ],
)
def test_cells_under_other_settings_are_no_evidence(changed: dict[str, Any], tmp_path: Path) -> None:
    assert find(BETTER, [read_evidence(store(tmp_path / "run", **changed))]) is None


@pytest.mark.parametrize(
    ("strategy", "changed", "wanted", "held"),
    [
        ("FIFO[Uniform]", {"capacity": 40_000}, {"capacity": 10**6}, True),  # 200 episodes of 200 steps never fill it
        ("FIFO[Uniform]", {"capacity": 39_999}, {"capacity": 10**6}, False),
        *slow([("FIFO[PER]", {"capacity": 40_000}, {"capacity": 10**6}, False)]),
        *slow((name, {"horizon_steps": 10**6}, {}, name == "FULL[PER]") for name in ("FULL[PER+IS]", "FULL[PER]")),
    ],
)
def test_settings_without_effect_are_no_difference(
    strategy: str, changed: dict[str, Any], wanted: dict[str, Any], held: bool, tmp_path: Path
) -> None:
    run = read_evidence(store(tmp_path / "run", (strategy,), **changed))
    study = replace(read_preset(PRESET).study("paper"), strategies=(strategy,), plants=("PendulumDCSC",), **wanted)
    assert run.holds(study.cells()[0]) == held


def test_the_replay_volume_of_an_axis_is_a_setting_of_the_learner() -> None:
    study = replace(read_preset(PRESET).study("quick"), plants=("PendulumDCSC",), replay_volume=(2.0, 4.0))
    one, other = study.cells()[0], study.cells()[-1]
    stored = tomllib.loads(write_toml(resolved(study, study.cells())))
    data = made_results(
        ["PendulumDCSC"], [one.learner], [one.strategy], [0.0], [50.0], seeds=2, episodes=one.episodes,
        ends=lambda *_: 0.5,
    )  # fmt: skip
    run = Evidence(Path("run"), data, stored)
    assert list(run.differences(one)) == []
    assert list(run.differences(replace(one, settings=other.settings))) != []


def test_measures(run: Evidence) -> None:
    plus, _ = BETTER.cells()
    data = run.data.sel(plant="PendulumDCSC", learner="DDPG", strategy="FULL[PER]", noise=0, frequency=50)
    expected = {
        "final": data["mu_final"],
        "best": data["mu_max"],
        "rise": data["rise_time"],
        "reward": data["reward"][:, -100:].mean("episode"),
        "greedy": data["reward_greedy"][:, -10:].mean("greedy_episode") + 2,
        "whole": data["reward"].mean("episode"),
        "first 1000": data["reward"][:, :5].mean("episode"),
        "last 1000": data["reward"][:, -5:].mean("episode"),
    }
    for measure, values in expected.items():
        np.testing.assert_allclose(measured(run, plus[0], measure), values, err_msg=measure)
    for missing in ("noise angle", "metric kl", "evaluation"):
        assert np.isnan(measured(run, plus[0], missing)).all()


def test_evaluations_metrics_and_noise_are_measured_in_their_units(run: Evidence) -> None:
    dims, shape = run.data["reward"].dims[:-1], run.data["reward"].shape[:-1]
    greedy = run.data.sizes["greedy_episode"]
    arrays = {
        "reward_evaluation": ((*dims, "evaluation_step"), np.broadcast_to(np.arange(8.0), (*shape, 8))),
        "metric_kl": ((*dims, "greedy_episode"), np.broadcast_to(np.arange(float(greedy)), (*shape, greedy))),
        "replayed_noise": ((*dims, "signal"), np.full((*shape, 1), 0.02 * np.sqrt(2 / np.pi) * 1.1)),
    }
    data = run.data.assign(arrays).assign_coords(noise=[0.02], evaluation_step=np.arange(1, 9) * 5000, signal=["angle"])
    noisy = replace(BETTER.cells()[0][0], noise=0.02)
    measures = {"evaluation": 3.5, "evaluation 15000": 6.0, "metric kl": 18.5, "noise angle": 1.1}
    for measure, expected in measures.items():  # 200 episodes of 200 steps
        np.testing.assert_allclose(measured(replace(run, data=data), noisy, measure), expected, err_msg=measure)


def test_orders_of_magnitude_are_compared_where_a_claim_says_so(run: Evidence) -> None:
    """Of what is negative there is no logarithm, and such a seed is left out; what is below 1e-6 counts as that."""
    best = replace(BETTER, measure="best", logarithm=True)
    [plus], [minus] = best.cells()
    values = [measured(run, cell, "best") for cell in (plus, minus)]
    found: Any = find(best, [run])
    assert found.effect.estimate == pytest.approx(np.mean(np.log10(values[0]) - np.log10(values[1])))
    assert find(replace(best, measure="reward"), [run]) is None, "rewards are negative"
    data = run.data.isel(seed=slice(3))
    data["metric_kl"] = xr.full_like(data["reward_greedy"], 1e-6)
    data["metric_kl"][:, :, 1] = np.array([8.9e-16, 0.0, 1e-3])[:, None]
    found = find(replace(best, measure="metric kl"), [replace(run, data=data)])
    np.testing.assert_allclose(found.effect.differences, [0.0, 0.0, 3.0], atol=1e-12)


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    refuses(r"has no study\.toml", read_evidence, tmp_path)
    folder = store(tmp_path / "run")
    (folder / "study.toml").write_text("learner = 3")
    refuses("no study that `sweep` wrote", read_evidence, folder)


def test_verdicts_are_printed_and_written(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    other = replace(BETTER, id="y", plus=BETTER.minus, minus=BETTER.plus)
    absent = replace(BETTER, id="z", where={"plant": "Magman"})
    monkeypatch.setattr(
        "replaybench.cli.claims.read_claims", lambda name: Claims(paper="A paper", claim=(BETTER, other, absent))
    )
    target, figure = tmp_path / "verdicts.json", tmp_path / "claims.png"
    show_claims(Console(width=160), [store(tmp_path / "run")], ["a"], target, figure)
    assert figure.read_bytes().startswith(b"\x89PNG")
    for wrong, told in ((figure, "exists already"), (tmp_path / "claims.txt", "must end in")):
        refuses(told, show_claims, Console(), [tmp_path / "run"], ["a"], None, wrong)
    refuses("name run folders", show_claims, Console(), [], ["a"], None, tmp_path / "other.png")
    refuses("verdicts.json exists already", show_claims, Console(), [], ["a"], target, None)
    told = capsys.readouterr().out
    assert "3 claims: 1 reproduced, 1 contradicted, 1 not run" in told
    assert "[One] is better." in told
    verdicts = {each["id"]: each for each in json.loads(target.read_text())}
    assert [verdicts[name]["verdict"] for name in "xyz"] == ["reproduced", "contradicted", "not run"]
    assert verdicts["x"]["interval"][0] < verdicts["x"]["effect"] < verdicts["x"]["interval"][1]
    assert "effect" not in verdicts["z"]


def test_only_sound_cells_of_own_run_folders_are_copied(tmp_path: Path, monkeypatch: Patch) -> None:
    """Not damaged, of another cell, through links, from a folder that replaybench did not make, or another user's."""
    study = read_preset(PRESET).study("quick")
    cells: list[Cell] = study.cells()

    def finish(run: Path, cell: Cell, cell_id: str) -> Path:
        folder = RunFolder(run).cell(cell.id)
        facts = {"id": cell_id}
        write_policy(folder / "policy.safetensors", {"w": np.ones((1, 2))}, facts)
        write_record(folder / "scores.h5", "scores", facts, {"reward": np.ones((1, 2))})
        (folder / "buffer.h5").write_text("large")
        return folder

    done = finish(claim_folder(tmp_path / "done"), cells[0], cells[0].id)
    finish(tmp_path / "done", cells[1], cells[0].id)
    damaged = finish(tmp_path / "done", cells[2], cells[2].id) / "scores.h5"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    foreign = finish(tmp_path / "foreign", cells[3], cells[3].id)
    (tmp_path / "done" / "cells" / cells[3].id).symlink_to(foreign)
    (tmp_path / "link").symlink_to(tmp_path / "done")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 12345)
        assert not take_over(study, tmp_path / "other")
    assert take_over(study, tmp_path / "mine") == {tmp_path / "done": 1}
    copied = {path.relative_to(tmp_path / "mine") for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    names = ("policy.safetensors", "scores.h5")
    assert copied == {Path(MARK), *(Path("cells", cells[0].id, name) for name in names)}
    assert all(
        (done / name).read_bytes() == (tmp_path / "mine" / "cells" / done.name / name).read_bytes() for name in names
    )
    assert not take_over(study, tmp_path / "mine")


@pytest.mark.slow
def test_scores_of_other_references_are_not_compared(tmp_path: Path) -> None:
    """The same runs, scored by two rules, would differ by what the references do."""
    one, other = (read_evidence(store(tmp_path / name, (name,))) for name in ENDS)
    shifted = other.data.copy(deep=True)
    shifted["reference_dp"][:] = shifted["reference_dp"] * 1.05
    add_scores(shifted)
    runs = [one, replace(other, data=shifted)]
    refuses(r"μ_r on PendulumDCSC has other references in .*; name only one of", find, BETTER, runs)
    assert find(replace(BETTER, measure="reward"), runs) is not None, "rewards have no references"


@pytest.mark.slow
def test_claims_of_failed_runs_are_undecided_and_counted(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    run = read_evidence(store(tmp_path / "run"))
    data = run.data.copy(deep=True)
    data["reward"].loc[{"strategy": "FULL[PER]"}] = np.nan
    data["episode_steps"] = xr.full_like(data["reward"], 200.0)
    add_scores(data)
    write_results(tmp_path / "run" / "results.nc", data)
    monkeypatch.setattr("replaybench.cli.claims.read_claims", lambda name: Claims(paper="A paper", claim=(BETTER,)))
    show_claims(Console(width=160), [tmp_path / "run"], ["a"], tmp_path / "verdicts.json", None)
    told = capsys.readouterr().out
    assert "1 claims: 1 undecided" in told
    assert "0 (20 failed)" in told
    (verdict,) = json.loads((tmp_path / "verdicts.json").read_text())
    assert (verdict["effect"], verdict["n"], verdict["failed"]) == (None, 0, 20)


def test_one_claim_is_shown_by_its_name(capsys: Capsys, monkeypatch: Patch) -> None:
    claims = (BETTER, replace(BETTER, id="another", statement="something else"))
    monkeypatch.setattr("replaybench.cli.claims.read_claims", lambda name: Claims(paper="A paper", claim=claims))
    show_claims(Console(width=160), [], ["a"], None, None, "another")
    told = capsys.readouterr().out
    assert "something else" in told
    assert BETTER.statement not in told
    assert "1 claims" in told
    refuses("'anothr'; did you mean another", show_claims, Console(), [], ["a"], None, None, "anothr")


MORE = replace(JUDGED, statement="A statement that is so long that it takes more than one line of the figure.")
NOISE = np.random.default_rng(0).normal(0.0, 0.01, 20)


def test_each_claim_is_where_its_effect_is() -> None:
    claims = [MORE, replace(MORE, id="less", expects="less"), replace(MORE, id="same", expects="same")]
    claims += [replace(MORE, id="not less", expects="not less"), replace(MORE, id="not run")]
    effects = [Effect(0.3 + NOISE), Effect(0.3 + NOISE), Effect(0.02 + NOISE), Effect(0.3 + NOISE), None]
    verdicts = judge(claims, effects)
    assert [each.word for each in verdicts] == ["reproduced", "contradicted", "reproduced", "reproduced", "not run"]
    papers = Claims(paper="A paper", claim=tuple(claims)), Claims(paper="B", claim=())
    figure = claims_figure(list(zip(papers, (verdicts, []), strict=True)))
    [axes] = figure.axes
    assert "3 reproduced, 1 contradicted" in figure.texts[0].get_text()
    dots = [line for line in axes.get_lines() if line.get_marker() in ("o", "X", "d")]
    ends = np.array([3, -3, 0.2, -3]) + np.array([1, -1, 1, -1]) * NOISE.mean() / 0.1
    assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == pytest.approx(ends)
    assert [dot.get_color() for dot in dots] == [MARKS[each.word][1] for each in verdicts[:4]]
    assert [float(np.asarray(dot.get_ydata())[0]) for dot in dots] == list(axes.get_yticks())
    assert {label.get_text().replace("\n", " ") for label in axes.get_yticklabels()} == {MORE.statement}
    bands = [band.get_datalim(axes.transData).intervalx for band in axes.collections]
    low = axes.get_xlim()[0]
    assert [list(ends) for ends in bands] == [[-1, 1], [low, 1]], "where no difference, or no more, was claimed"
    assert [text.get_text() for text in axes.texts] == [f"{each.word}, n = 20" for each in verdicts[:4]]
    refuses("no claim", claims_figure, [(Claims(paper="A paper", claim=(MORE,)), judge([MORE], [None]))])
