"""Advice: the 90 % rule by hand, traits of plants that are known, rules that hold or do not, and a whole run of it."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.evidence.advice_evidence import evidence
from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.registry import make_plant
from replaybench.evidence.advice import advise as procedure
from replaybench.evidence.advice import probes, proposal, rules
from replaybench.evidence.advice.advise import advise_from, as_record
from replaybench.evidence.advice.probes import Budget, Question
from replaybench.evidence.advice.proposal import Capacity, Probe, changes_of, choose
from replaybench.evidence.advice.rules import Candidate, Traits, candidates
from replaybench.evidence.advice.text import advice_parts
from replaybench.evidence.claim import read_claims
from replaybench.experiments.calibration import Estimate
from replaybench.experiments.comparison import NONE_BEATS_RANDOM
from replaybench.experiments.dataset import add_scores
from replaybench.experiments.results_file import write_results
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import parse
from tests.helpers.cells import run_here
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.made_results import made_results
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

QUIET = Traits(noise=0.0, authority=0.2, decay=1.0, symmetry=1.0, memory=np.inf)


def curves(rise: float = 0.0) -> np.ndarray:
    """Six seeds that learn until episode 100 of 200, and then rise on by so much."""
    along = np.clip(np.arange(200) / 100, 0, 1)
    late = rise * np.clip(np.arange(200) / 100 - 1, 0, 1)
    noise = np.random.Generator(np.random.PCG64(1)).normal(0, 0.01, (6, 200))
    return -10.0 + 8.0 * along + late + noise


STEPS = np.full((6, 200), 50.0)


def capacity_of(rewards: np.ndarray) -> Capacity:
    found = proposal.ninety_percent(rewards, STEPS, start=-10.0)
    assert found is not None
    return found


def test_the_ninety_percent_rule_by_hand() -> None:
    found = capacity_of(curves())
    # Nine tenths of the way are reached at episode 90; the mean of ten episodes is there five later.
    assert found.steps == pytest.approx(50 * 95, abs=150)
    assert found.stored == 10_000
    assert found.converged
    assert found.final == pytest.approx(-2.0, abs=0.01)
    rising = capacity_of(curves(4.0))
    assert not rising.converged
    assert rising.steps > found.steps
    assert (found.state, rising.state) == ("no longer rising", "still rising")


def test_a_curve_of_which_seeds_cannot_tell_whether_it_rises_is_not_said_to() -> None:
    unsure = curves()
    unsure[:, 180:] += np.array([-4.0, 1.0, -2.0, 1.0, -3.0, 1.0])[:, None]
    found = capacity_of(unsure)
    assert found.rise < 0
    best = probe("FIFO", 0.9, 0)
    last = changes_of(QUIET, [best], [best], best, found)[-1]
    assert re.search(r"is not known to have converged \(-\d+\.\d% over .* may ask for another capacity", last)


def test_failed_seeds_are_left_out_and_no_capacity_is_given_without_learning() -> None:
    broken = curves()
    broken[0, 150:] = np.nan
    assert capacity_of(broken).final == pytest.approx(-2.0, abs=0.01)
    assert proposal.ninety_percent(curves(), STEPS, start=0.0) is None
    assert proposal.ninety_percent(curves()[:, ::12], STEPS[:, ::12], start=-10.0) is None
    for episodes, told in ((17, "17 episodes are too few for the 90 % rule"), (20, "FULL[Uniform] learned nothing")):
        assert next(proposal.cautions_of(None, probe("FULL", 0.9, 0), 10, episodes, QUIET)).startswith(told)


def test_moving_means_and_rounding_by_hand() -> None:
    assert proposal.moving_mean(np.array([2.0, 4.0, 6.0, 8.0]), 2) == pytest.approx([2, 3, 5, 7])
    assert proposal.moving_mean(np.array([-1e18, -1.0, -3.0, -5.0]), 2)[2:] == pytest.approx([-2.0, -4.0])
    assert [proposal.rounded(n) for n in (7, 84, 841, 12_345)] == [7, 84, 850, 13_000]


def test_authority_is_the_share_of_a_known_linear_plant() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    states, actions = rng.normal(0, 2, (5000, 2)), rng.uniform(-1, 1, (5000, 1))
    changes = states @ np.array([[-0.1, 0.3], [0.0, -0.2]]) + actions @ np.array([[0.0, 0.5]])
    assert rules.authority(states, actions, changes) == pytest.approx(0.5 / np.sqrt(3), rel=0.05)


def known(symmetry: float | None) -> float:
    assert symmetry is not None
    return symmetry


def test_actions_move_plants_less_at_higher_rates_and_mirror_images_are_found() -> None:
    plant = PendulumDCSC()
    assert rules.authority_of(plant, 200.0) < 0.6 * rules.authority_of(plant, 50.0)
    assert known(rules.symmetry_of(plant, 50.0)) < 1e-6 < known(rules.symmetry_of(Magman(), 50.0))


@dataclass(frozen=True, kw_only=True)
class Turns(PendulumDCSC):
    """A pendulum that hangs where its angle jumps by a turn."""

    name = "Turns"
    initial_state = (-math.pi, 0.0)
    reference_state = (0.0, 0.0)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        return x[1], 2.0 * math.sin(x[0]) - 0.05 * x[1] + 0.3 * u[0]

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -float(abs(x_next[0]) + 0.1 * abs(x_next[1]))


@dataclass(frozen=True, kw_only=True)
class InRadians(Turns):
    """The same, with an angle that is not divided by π."""

    name = "InRadians"
    state_scale = (1.0, 30.0)
    observation_limit = (5.0, 3.0)


def test_a_turn_is_as_long_as_the_plant_says() -> None:
    for plant in (Turns(), InRadians()):
        assert known(rules.symmetry_of(plant, 50.0)) < 1e-6
    assert rules.authority_of(InRadians(), 50.0) == pytest.approx(rules.authority_of(Turns(), 50.0))


def test_decay_is_read_from_settings() -> None:
    exploration = {"first_amplitude": 1.0, "last_amplitude": 0.1, "decay_episodes": 500}
    assert rules.decay_of({"exploration": exploration}, 1000) == pytest.approx(10)
    assert rules.decay_of({"exploration": exploration}, 250) == pytest.approx(1 / 0.55)
    assert rules.decay_of({}, 100) == 1


def test_rules_vote_as_the_paper_says() -> None:
    quiet, noisy, fast, tight = (
        {candidate.strategy(): candidate.votes for candidate in candidates(replace(QUIET, **traits))}
        for traits in ({}, {"noise": 0.02}, {"authority": 0.01, "decay": 10.0}, {"memory": 0.5})
    )
    assert quiet["FULL[PER]"] > quiet["FULL[Uniform]"] > noisy["FULL[PER]"]
    assert noisy["FULL[Uniform]"] > noisy["FULL[PER]"]
    assert noisy["TDE[PER]"] == min(noisy.values())
    assert fast["Expl[PER]"] > fast["FIFO[PER]"]
    assert quiet["FIFO[PER]"] > fast["FIFO[PER]"]
    assert tight["FIFO[PER]"] > tight["Resv[PER]"]
    unknown = replace(QUIET, authority=None, symmetry=None)
    assert not any(rule.trait in ("authority", "symmetry") for rule in rules.rules() if rule.holds(unknown))
    kept = [Candidate(name, "PER", (), ()).strategy(500) for name in ("FULL", "Resv", "TDE", "FIFO")]
    assert kept == ["FULL[PER]", "Resv(500)[PER]", "TDE(capacity=500)[PER]", "FIFO(500)[PER]"]


def test_prioritised_replay_needs_the_commands_under_way() -> None:
    def votes(channel: Channel) -> int:
        traits = rules.traits_of(PendulumDCSC().through(channel), 50.0, 0.0, 1.0, 0, None)
        assert traits.late == max(0.0, (channel.delay + channel.sensor_delay) * 50.0 - channel.history)
        return next(each.votes for each in candidates(traits) if (each.retention, each.sampling) == ("FULL", "PER"))

    assert votes(Channel()) == votes(Channel(delay=0.01)) == votes(Channel(delay=0.02, history=1)) == 2
    assert votes(Channel(delay=0.02)) == votes(Channel(delay=0.02, sensor_delay=0.02, history=1)) == 1


def test_rules_name_traits_parts_claims_and_evidence_that_exist() -> None:
    known = {claim.id for claim in read_claims("debruin2018").claim}
    for rule in rules.rules():
        assert rule.trait in Traits.__dataclass_fields__
        assert {*rule.for_, *rule.against} <= {*rules.RETENTIONS, *rules.SAMPLINGS}
        assert {*rule.claims} <= known
        assert {*rule.evidence} <= rules.stored_evidence().keys()


@pytest.mark.slow
def test_evidence_is_what_stored_results_say() -> None:
    assert evidence() == rules.stored_evidence(), "run python -m benchmarks.evidence.advice_evidence"


def probe(retention: str, mean: float, votes_for: int) -> Probe:
    rules_for = tuple(rules.rules()[:votes_for])
    candidate = Candidate(retention, "Uniform", rules_for, ())
    scores = mean + np.linspace(-0.01, 0.01, 9)
    return Probe(candidate, candidate.strategy(100), 100, scores, None, 1.0)


def test_the_best_is_chosen_and_among_equals_what_rules_speak_for() -> None:
    best, equal, worse = probe("FIFO", 0.9, 0), probe("Resv", 0.895, 2), probe("Expl", 0.8, 3)
    assert choose([best, equal, worse]) is equal
    assert choose([best, worse]) is best
    changes = changes_of(QUIET, [best, worse], [best, worse], best, None)
    assert changes[0].startswith("Expl(capacity=100)[Uniform] is next: FIFO(100)[Uniform] − Expl(capacity=100)[")
    assert said(changes, "authority is 0.2: rule nothing-special speaks for FIFO")


SURE = "over 9 seeds;"


@pytest.mark.parametrize(
    ("mine", "votes_mine", "its", "votes_its", "change"),
    [
        (0.895, 2, 0.9, 0, f"= -0.005 {SURE} .* for FIFO.*(+2 to +0): .* be better by more than 0.01"),
        (0.8999, 1, 0.9, 0, "= +0.000 over"),
        (0.9, 1, 0.8, 1, f"= +0.100 {SURE} as many rules .*: to be proposed it would have to be better"),
        (0.9, 0, 0.8, 3, "more speak for Resv(100)[Uniform] (+3 to +0): .* have to come within 0.01"),
    ],
)
def test_what_would_turn_the_proposal(mine: float, votes_mine: int, its: float, votes_its: int, change: str) -> None:
    chosen, rival = probe("FIFO", mine, votes_mine), probe("Resv", its, votes_its)
    ranked = sorted((chosen, rival), key=lambda each: -each.mean)
    assert choose(ranked) is chosen
    assert re.search(re.escape(change).replace(r"\.\*", ".*"), changes_of(QUIET, ranked, ranked, chosen, None)[0])


def test_what_does_not_fit_is_neither_next_nor_proposed_by_a_larger_budget() -> None:
    full, fifo = probe("FULL", 0.9, 0), probe("FIFO", 0.8, 0)
    changes = changes_of(QUIET, [full, fifo], [fifo], fifo, None)
    assert changes[0] == "FULL[Uniform] has the best score, but does not fit into the memory"
    assert "FULL[PER]" in "".join(changes_of(QUIET, [full, fifo], [full, fifo], fifo, None))
    assert not any("FULL" in each for each in changes[1:])


def test_a_failed_run_counts_as_nothing_learned() -> None:
    failed = probe("FIFO", 0.9, 0)
    failed.scores[:3] = np.nan
    assert failed.mean == pytest.approx(0.6, abs=0.01)


@pytest.mark.slow
def test_advice_from_the_command_line_and_from_what_it_left(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("replaybench.experiments.sweep.run_locally", run_here)
    words = "advise --plant PendulumDCSC --seeds 2 --episodes 20 --budget-minutes 9 --probes 1 --workers 1"
    asked = (*words.split(), "--set", "replays_per_experience=0.5", "--output", tmp_path / "advice")
    assert call(*asked, "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    tried = {each["strategy"] for each in told["tried"]}
    assert "FULL[Uniform]" in tried
    assert told["strategy"] in tried
    assert len(tried) == 2
    assert told["traits"]["symmetry"] < 1e-6
    assert {reason["rule"] for reason in told["reasons"]} <= {rule.id for rule in rules.rules()}
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "advice").glob("*/cells/*/scores.h5")}

    assert call(*asked) == 0
    text = capsys.readouterr().out
    assert f"use {told['strategy']}" in text
    assert "what would change it" in text
    assert {path: path.stat().st_mtime_ns for path in made} == made, "finished cells were run again"

    assert call("advise", tmp_path / "advice" / "2-probes", "--format", "json") == 0
    (stored,) = json.loads(capsys.readouterr().out)
    assert stored["traits"] == told["traits"]
    assert {each["strategy"] for each in stored["tried"]} <= tried

    for command in ("report", "table", "figures", "watch", "inspect"):
        told = f"holds runs and is none itself; name one of them: {tmp_path}/advice/1-full, {tmp_path}/advice/2-probes"
        assert told in refused(capsys, command, tmp_path / "advice")
    assert "another question; choose another --output" in refused(capsys, *asked, "--noise", 0.02)


THREE = ("FULL[Uniform]", "FIFO[Uniform]", "FULL[PER]")


def made(folder: Path, learner: str = "DDPG", strategies: Sequence[str] = THREE) -> Any:
    """Six seeds of some strategies, of which FULL[PER] is best."""
    data = made_results(
        ["PendulumDCSC"], [learner], list(strategies), [0.0], [50.0], seeds=6, episodes=60,
        ends=lambda *place: {"FULL[Uniform]": 0.5, "FULL[PER]": 0.9}.get(strategies[place[2]], 0.4), exact=False,
    )  # fmt: skip
    data["episode_steps"] = data["reward"].dims, np.full(data["reward"].shape, 200.0)
    write_results(folder / "results.nc", data)
    return data


def advised(folder: Path, data: Any = None, memory: int = 0, study: str | None = None) -> Any:
    """Return the advice on a run of one condition, whose results and study are replaced if given."""
    if data is not None:
        write_results(folder / "results.nc", data)
    if study is not None:
        (folder / "study.toml").write_text(study)
    (advice,) = advise_from(folder, None, memory, None, None)
    return advice


def said(sentences: Sequence[str], *parts: str) -> bool:
    """Return whether a sentence holds all of the parts."""
    return any(all(part in each for part in parts) for each in sentences)


def question(**changes: Any) -> Question:
    asked = {"plant": "PendulumDCSC", "learner": "DDPG", "frequency": 50.0, "noise": 0.0, "seeds": 6, "root_seed": 0}
    return Question(**{**asked, "minutes": 1.0, **changes})


def asked(
    folder: Path, monkeypatch: Patch, capacity: Capacity | None, episodes: int, probes: int, **changes: Any
) -> tuple[Any, set[int | None]]:
    """Advise by made runs, with an answer of the 90 % rule; return the capacities of all that was run, too."""
    tried: list[str] = []

    def run(study: Study, folder: Path, *_: Any) -> Any:
        tried.extend(study.strategies)
        data = made(folder, learner=study.learners[0], strategies=study.strategies)
        return data.isel(episode=slice(episodes), greedy_episode=slice(episodes // 10))

    monkeypatch.setattr(procedure, "run", run)
    monkeypatch.setattr(procedure, "planned", lambda *_: Budget(episodes=episodes, probes=probes))
    monkeypatch.setattr(proposal, "ninety_percent", lambda *_: capacity)
    advice = procedure.advise(question(**changes), folder, 1, Console(quiet=True))
    return advice, {parse(name).retention.capacity for name in tried}


def test_capacities_hold_a_batch_and_what_is_proposed_fits(tmp_path: Path, monkeypatch: Patch) -> None:
    """A batch has 4 segments of 50 steps, and the 90 % rule asks for fewer experiences."""
    few = Capacity(steps=120, stored=12_000, start=0.0, final=1.0, rise=0.0, rising=False, converged=True)
    for memory in (0, 250):
        advice, capacities = asked(tmp_path, monkeypatch, few, 60, 2, learner="ACER", memory=memory)
        assert capacities <= {None, 200}
        assert advice.chosen.capacity == (200 if memory else None)
        assert said(advice.changes, "has the best score, but does not fit") == bool(memory)


@pytest.mark.parametrize(
    ("asked", "batch", "memory", "room"),
    [(500, 16, 0, 500), (2000, 16, 0, 1000), (9000, 16, 0, 1000), (9000, 16, 400, 400), (500, 800, 0, 800)],
)
def test_a_capacity_overwrites_and_fits_into_the_memory(asked: int, batch: int, memory: int, room: int) -> None:
    assert procedure.room_of(asked, 2000, batch, memory) == room


@pytest.mark.slow
def test_without_an_answer_of_the_rule_half_of_the_run_is_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    """With 10,000 slots all probes of 8,000 steps would be the same run."""
    advice, capacities = asked(tmp_path, monkeypatch, None, 40, 8)
    assert capacities == {None, 4000, 2000}
    assert said(advice.cautions, "tried with 4000 experiences; the 90 % rule gives none")


@pytest.mark.parametrize(("capacity", "judged"), [(12_000, False), (11_999, True)])
def test_runs_that_overwrote_nothing_are_not_judged(capacity: int, judged: bool, tmp_path: Path) -> None:
    """12,000 experiences were collected: a buffer that holds them all is a FULL one."""
    advice = advised(tmp_path, made(tmp_path), study=f"capacity = {capacity}")
    assert ("FIFO[Uniform]" in {each.name for each in advice.probes}) == judged
    assert said(advice.cautions, "not judged", "FIFO[Uniform]") != judged


@pytest.mark.parametrize("solved", [True, *slow([False])], ids=["with μ_r", "without"])
def test_where_nothing_beats_random_control_nothing_is_proposed(solved: bool, tmp_path: Path, capsys: Capsys) -> None:
    data = made(tmp_path)
    data["reward"] -= 3.0
    data["reference_zero"] = data["reference_random"] - 0.5
    data["discount"][:], data["episode_steps"][:] = 0.95, 200
    if not solved:
        data["reference_dp"][:] = np.nan
    add_scores(data)
    write_results(tmp_path / "results.nc", data)
    assert call("advise", tmp_path) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{NONE_BEATS_RANDOM}, so no strategy is proposed likely causes, in order 1. the discount" in out
    assert "best single run" not in out
    assert "doing nothing -0.500" in out
    assert call("advise", tmp_path, "--format", "json") == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["strategy"], record["capacity"], record["headline"]) == (None, None, NONE_BEATS_RANDOM)
    assert record["references"]["random control"] == 0
    assert all(each["score"] < -1 for each in record["tried"])


def test_a_proposal_from_a_run_fits_into_the_memory(tmp_path: Path) -> None:
    assert advised(tmp_path, made(tmp_path), 500, "capacity = 500").chosen.name == "FIFO[Uniform]"
    refuses("fits into --memory 499, the smallest needs 500; raise it", advised, tmp_path, memory=499)


def test_advice_from_a_run_uses_the_channel_of_its_study(tmp_path: Path) -> None:
    data = made(tmp_path).assign_coords(plant=["PendulumDCSC:delay=0.04"])
    advice = advised(tmp_path, data, study="[channel]\nhistory = 1\n")
    assert advice.traits.late == pytest.approx(1.0)
    assert said(advice.cautions, "set history in [channel]")
    advice = advised(tmp_path, study="[plant.PendulumDCSC.channel]\nhistory = 2\n")
    assert (advice.traits.late, said(advice.cautions, "set history")) == (0.0, False)


def test_a_folder_that_advise_wrote_names_its_run(tmp_path: Path) -> None:
    for name in ("1-full", "2-probes"):
        (tmp_path / name).mkdir()
        made(tmp_path / name)
    refuses(f"holds no results.nc; name {tmp_path}/2-probes$", advised, tmp_path)


@pytest.mark.slow
def test_strategies_of_a_stopped_sweep_are_compared_on_seeds_that_both_ran(tmp_path: Path) -> None:
    data = made(tmp_path)
    for place, gone in ((1, slice(4, 6)), (2, slice(0, 2))):
        for name in ("reward", "reward_greedy", "episode_steps", "mu_final"):
            data[name].values[:, :, place, :, :, gone] = np.nan
    probes = {probe.name: probe for probe in advised(tmp_path, data).probes}
    score = data["mu_final"].values[0, 0, :, 0, 0]
    for name, place, seeds in (("FIFO[Uniform]", 1, slice(0, 4)), ("FULL[PER]", 2, slice(2, 6))):
        beyond = probes[name].beyond
        np.testing.assert_allclose(beyond.differences, score[place, seeds] - score[0, seeds])
        assert probes[name].mean == pytest.approx(score[place, seeds].mean())


def test_strategies_that_are_not_known_here_are_passed_over(tmp_path: Path) -> None:
    names = ["FULL[Uniform]", "FIFO[Elsewhere]", "FULL[evil.py:Foo]"]
    advice = advised(tmp_path, made(tmp_path).assign_coords(strategy=names))
    assert [probe.name for probe in advice.probes] == names[:1]


def test_strategies_that_no_rule_names_are_compared_and_stored_results_are_those_of_the_volume(tmp_path: Path) -> None:
    names = ["FULL[Uniform]", "FIFO[LAP]", "FULL[PER+Newest]"]
    advice = advised(tmp_path, made(tmp_path, "DDPG:replay_volume=20", names))
    assert {probe.name for probe in advice.probes} == {*names}
    assert as_record(advice)["by_volume"]["stored_volume"] == 32
    advice = advised(tmp_path, made(tmp_path), study="[learner.DDPG]\nreplays_per_experience = 3\n")
    assert "3 replays for each experience; the nearest stored volume is 4 (with DDPG; " in by_volume(advice)
    assert "with DDPG, because there are none with TD3" in by_volume(replace(advice, learner="TD3:mine"))


def by_volume(advice: proposal.Advice) -> str:
    (line,) = (str(part) for part in advice_parts(advice) if "nearest stored volume" in str(part))
    return line


@pytest.mark.parametrize(
    ("study", "decay"),
    [
        (None, None),
        *slow((wrong, None) for wrong in ("plant = 3", "[plant]\nPendulumDCSC = 5", "learner = 3")),
        *slow([("[learner.DDPG]\ntau = 0.01\n", 1.0)]),
        ("[learner.DDPG.exploration]\nlast_amplitude = 0.1", 1.0),
        ('[learner.DDPG.exploration]\nfirst_amplitude = "a"\nlast_amplitude = 0.1', 1.0),
    ],
)
def test_decay_is_that_of_the_study_or_not_known(study: str | None, decay: float | None, tmp_path: Path) -> None:
    for learner in ("DDPG", "DDPG:discount=0.9:replay_volume=2"):  # an axis is no part of the name of a table
        advice = advised(tmp_path, made(tmp_path, learner), study=study)
        assert advice.traits.decay == decay
        assert said(advice.cautions, "whether exploration decayed is not known") == (decay is None)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "name a plant"),
        (("--plant", "Pendulun"), "did you mean"),
        (("runs/none",), "no such file: runs/none"),
        ((".",), "holds no results.nc"),
        (("--plant", "PendulumDCSC", "--budget-minutes", "0.001"), "are too few"),
        (("--plant", "PendulumDCSC", "--learner", "ACER", "--memory", "199"), "than a batch of 200; ask for 200"),
    ],
)
def test_one_line_errors(words: tuple[str, ...], part: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in refused(capsys, "advise", *words)


def test_the_budget_pays_for_references_and_for_cells_that_wait_for_a_core(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(probes, "cores", lambda: 4)
    budgets = []
    for seconds, workers in ((0.0, 1), (60.0, 1), (0.0, 4)):
        found = Estimate(5.0 + seconds, {"cells": 5.0, "references": seconds}, 0)
        monkeypatch.setattr(probes, "estimate", lambda *_, found=found, **__: found)
        planned = probes.planned(question(minutes=2.0), tmp_path / f"{seconds} {workers}", workers)
        budgets.append((planned.episodes, planned.probes))
    assert budgets == [(480, 3), (240, 3), (799, 4)]


@pytest.mark.slow
def test_the_steps_of_an_iteration_are_known_by_the_plant(tmp_path: Path) -> None:
    """Only the mean length of the episodes that ended in it is stored."""
    data = made(tmp_path)
    data["episode_steps"].values[:] = 20.0
    data.coords["update_every"] = "plant", [100]
    advice = advised(tmp_path, data)
    assert advice.capacity.stored == 60 * make_plant("PendulumDCSC").steps_per_episode(50.0) == 12_000
    assert advised(tmp_path, memory=12_000).chosen.name == "FULL[PER]"
    assert advised(tmp_path, memory=11_999, study="capacity = 500").chosen.name == "FIFO[Uniform]"
    data["plant"] = ["own.py:Mine"]
    advice = advised(tmp_path, data)
    assert advice.capacity is None
    assert said(advice.cautions, "gives the number of experiences of an iteration")
    assert not said(advice.cautions, "learned nothing")


def test_a_run_that_failed_at_once_is_a_failed_run(tmp_path: Path) -> None:
    data = made(tmp_path)
    for name in ("reward", "reward_greedy", "mu_final"):
        data[name].values[:, :, 2, :, :, 4:] = np.nan
    (probe,) = (probe for probe in advised(tmp_path, data).probes if probe.name == "FULL[PER]")
    assert (probe.missing, probe.failed) == (0, 2)


def test_runs_without_references_are_ranked_and_none_has_failed(tmp_path: Path) -> None:
    """A stopped sweep has no references yet; nor has a plant on which random control diverges."""
    data = made(tmp_path)
    data["reference_random"][:] = data["reference_dp"][:] = np.nan
    add_scores(data)
    advice = advised(tmp_path, data)
    assert advice.unit == "0 = worst single run, 1 = best single run"
    assert (advice.probes[0].name, [each.failed for each in advice.probes]) == ("FULL[PER]", [0, 0, 0])
    assert all(0 <= each.mean <= 1 for each in advice.probes)


@pytest.mark.slow
def test_collapsed_runs_have_no_capacity(tmp_path: Path) -> None:
    """Doing nothing is a little better than random control, of which nine tenths are no performance."""
    data = made(tmp_path)
    random, best = (float(data[name].values.item()) for name in ("reference_random", "reference_dp"))
    data["reward"][:] = random + (0.05 + 0.01 * data["reward"] / abs(data["reward"]).max()) * (best - random)
    for known in (True, False):  # with μ_r, and by whether the curves improve
        if not known:
            data["reference_dp"][:] = np.nan
            data["reward"][:] = data["reward"][..., ::-1].values
        add_scores(data)
        advice = advised(tmp_path, data)
        assert advice.capacity is None
        assert said(advice.cautions, "learned nothing here, or next to nothing")
