"""Studies: defaults, grids, identity of cells, start policies, and one-line errors."""

import contextlib
import dataclasses
import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console

from replaybench.baselines.fuzzy_q_iteration import reference_discount
from replaybench.baselines.references import kept_at
from replaybench.cli.options import EXAMPLES, setting_values
from replaybench.cli.plan import show_plan
from replaybench.controllers.algorithms.ddpg import DDPGConfig
from replaybench.controllers.learner import Learner
from replaybench.controllers.registry import SB3
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.envs.interface.channel import Channel
from replaybench.evidence.claims_evidence import Evidence
from replaybench.experiments.cell import CellRun, make_agent, run_cell
from replaybench.experiments.plan import plan_warnings
from replaybench.experiments.study import Cell, Study, last_episodes, read_study, reference_cells
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from tests.helpers.cells import advanced, assert_reads_back, small_cell, small_study, updates_of
from tests.helpers.refusals import refuses

BASE = 'name = "x"\nplants = ["Pendulum"]\nstrategies = ["FIFO[Uniform]"]\nseeds = 4\nepisodes = 10\n'
HUGE = f"0x{'f' * 5000}"  # not a digit too many for a parser, but for whoever writes it out


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_grid_is_a_product_and_grids_are_united(tmp_path: Path) -> None:
    text = BASE + (
        "[[grid]]\nnoise = [0.0, 0.02]\nfrequency = [50, 100]\n"
        '[[grid]]\nplants = ["Magman"]\nstrategies = ["fifo[uniform]", "FULL DB[PER_0.7]"]\n[[grid]]\nnoise=[0]\n'
    )
    cells = read_study(write(tmp_path, text)).cells()
    found = [(c.plant, c.strategy, c.noise, c.frequency) for c in cells]
    product = [("Pendulum", "FIFO[Uniform]", noise, frequency) for noise in (0.0, 0.02) for frequency in (50.0, 100.0)]
    assert found == [*product, ("Magman", "FIFO[Uniform]", 0.0, 50.0), ("Magman", "FULL[PER]", 0.0, 50.0)]
    assert len({cell.id for cell in cells}) == 6


def test_the_case_of_names_does_not_matter(tmp_path: Path) -> None:
    """Cells, and with them files and cached references, are those of the registered spelling."""
    tables = '[learner."{}"]\ntau = 0.02\n[plant.{}]\ninertia = 2e-4\n'
    text = 'name = "x"\nplants = ["{}"]\nlearners = ["{}"]\nstrategies = ["{}"]\n'
    ours = text.format("PendulumDCSC", "DDPG:slow", "FULL[PER]") + tables.format("DDPG:slow", "PendulumDCSC")
    theirs = text.format("pendulumdcsc", "ddpg:slow", "full[per]") + tables.format("Ddpg:slow", "PENDULUMDCSC")
    first, second = (read_study(write(tmp_path, each)).cells() for each in (ours, theirs))
    assert first == second
    grids = '[[grid]]\nplants = ["magman"]\nlearners = ["td3"]\n'
    (cell,) = read_study(write(tmp_path, BASE + grids)).cells()
    assert (cell.plant, cell.learner) == ("Magman", "TD3")


@pytest.mark.parametrize(
    "table",
    [
        "l2 = 0.005\nexploration = { friction = 0.2 }\n[plant.Pendulum]\ninertia = 1.91e-4\n",
        'exploration = { form = "gaussian", truncate = 3, sigma = 0.3 }\n',
        'normalise = { observations = true, clip = 5 }\n[learner.DDPG.exploration]\nform = "parameter"\ntarget = 0.1\n',
        '[channel]\nhistory = 2\nresolution={"angular velocity"=0.1}\n[plant.Pendulum.channel]\ndead_zone = 0.1\n',
        "[plant.Pendulum.spread]\nmass = 0.2\ndamping = 0.5\n",
    ],
)
def test_resolved_studies_and_settings_of_cells_read_back(tmp_path: Path, table: str) -> None:
    text = BASE + 'reference = "paper"\ndelay = [0, 0.01]\n[[grid]]\nnoise = [0.02]\n[learner.DDPG]\n' + table
    study = read_study(write(tmp_path, text))
    again = assert_reads_back(study, tmp_path)
    assert (again.learner["DDPG"]["tau"], again.plant["Pendulum"]["mass"], again.reference) == (0.01, 5.5e-2, "paper")
    settings = study.cells()[0].settings
    read = dataclasses.asdict(build(DDPGConfig, json.loads(json.dumps(settings)), "cell"))
    assert read == {**settings, "n_step": 1}


@pytest.mark.parametrize("variant", ['DDPG:a"b', "DDPG:a\\b"])
def test_whatever_a_variant_is_called_it_reads_back(tmp_path: Path, variant: str) -> None:
    name = json.dumps(variant)
    text = f"{BASE}learners = [{name}]\n[learner.{name}]\nexploration = {{ decay_episodes = 500 }}\n"
    study = read_study(write(tmp_path, text))
    assert_reads_back(study, tmp_path)
    [warning] = plan_warnings(study.cells())
    [table] = re.findall(r"in (\[.*\]) to", warning)
    assert tomllib.loads(table) == {"learner": {variant: {"exploration": {}}}}


def id_of(**changes: Any) -> str:
    return small_cell(**{"plants": ("Pendulum",), "seeds": 2, "episodes": 10} | changes).id


def test_whatever_changes_numbers_changes_the_identity() -> None:
    changes: list[dict[str, Any]] = [
        {"root_seed": 1}, {"episodes": 11}, {"capacity": 99}, {"discount": "horizon"}, {"noise": (0.1,)},
        {"frequency": (25.0,)}, {"strategies": ("FULL[PER]",)}, {"plant": {"Pendulum": {"inertia": 1e-3}}},
        {"plant": {"Pendulum": {"spread": {"mass": 0.2}}}},
        {"learner": {"DDPG": {"tau": 0.02}}}, {"learner": {"DDPG": {"exploration": {"friction": 0.1}}}},
        {"seeds": 1}, {"greedy_every": 5}, {"learner": {"DDPG": {"discount": 0.96}}},
        {"learner": {"DDPG": {"n_step": 3}}},
    ]  # fmt: skip
    assert len({id_of(), *(id_of(**change) for change in changes)}) == 1 + len(changes)
    same: list[dict[str, Any]] = [
        {"name": "b"},
        {"horizon_steps": 10**6},  # nothing is annealed here
        {"buffers": "none"},
        {"reference": "paper"},
        {"learner": {"DDPG": {"discount": 0.95}}},  # the plant's own
        {"learner": {"DDPG": {"tau": 0.01}}},
        {"learner": {"DDPG": {"n_step": 1}}},
        {"learner": {"DDPG": {"exploration": {"form": "process"}}}},
        {"strategies": ("fifo[uniform]",)},
    ]
    assert {id_of(**change) for change in same} == {id_of()}


@pytest.mark.parametrize("strategy", ["FIFO[AER]", "FIFO[ERE]", "FIFO[PERprop+IS(0.4, 1)]", "FIFO[Annealed]"])
def test_over_how_many_steps_schedules_run_is_part_of_a_cell_that_has_one(strategy: str) -> None:
    changes = {"learners": ("SAC",), "strategies": (strategy,)}
    assert id_of(**changes) != id_of(**changes, horizon_steps=10**6)


def test_the_file_of_a_plant_has_its_place_beside_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder, however its path is written, and from the study in the run folder."""
    home, away, run = tmp_path / "home", tmp_path / "away", tmp_path / "runs" / "one"
    for folder in (home, away, run):
        folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / "two_tank.py", home / "tank.py")
    monkeypatch.chdir(away)
    ids = set()
    for path in ("tank.py", "./tank.py", "../home/tank.py", str(home / "tank.py")):
        text = BASE.replace("Pendulum", f"{path}:TwoTank") + f'[plant."{path}:TwoTank"]\ndiscount = 0.5\n'
        study = read_study(write(home, text))
        [cell] = study.cells()
        assert cell.parameters["discount"] == 0.5
        if not path.startswith(".."):
            assert cell.plant == "tank.py:TwoTank"
            ids.add(cell.id)
        assert_reads_back(study, run, run)
    monkeypatch.chdir(home)
    made = Study(name="made", plants=(f"{home / 'tank.py'}:TwoTank",), strategies=("FIFO[Uniform]",))  # without a file
    assert_reads_back(made, run, run)
    assert len(ids) == 1
    (home / "tank.py").unlink()
    with pytest.raises(UserError, match=re.escape(str(home))):
        read_study(home / "study.toml").cells()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('plant = ["Pendulum"]\n', r"plant must be a table, not \['Pendulum'\]; did you mean plants\?$"),
        (BASE + "discount = [0.9]\n[plant.Pendulum]\ndiscount = 0.9\n", "leave one out"),
        (BASE + "discount = [0.9]\n[learner.DDPG]\ndiscount = 0.9\n", "leave one out"),
        (BASE + "[learner.DDPG]\ndiscount = 1.5\n", "from 0 to 1"),
        (BASE + "discount = 1.5\n", "at most 1"),
        (BASE + 'learners = ["SAC:replay_volume=8"]\n', r"axis; write SAC and the key replay_volume = \[8\]"),
        (BASE + 'learner = "SAC"\n', r"learner must be a table, not 'SAC'; did you mean learners\?$"),
        (BASE + "episods = 3\n", "unknown key in .*'episods'; did you mean episodes"),
        (BASE.replace("Pendulum", "Pendulm"), "unknown plant 'Pendulm'; did you mean Pendulum"),
        (BASE + 'learners = ["DDPGG"]\n', "unknown learner 'DDPGG'; did you mean DDPG"),
        (BASE + "noise = [nan]\n", "noise must be at least 0 and at most 10 normalised units, not nan"),
        (BASE + "noise = []\n", "noise is empty"),
        (BASE + "[plant.Pendulm]\ninertia = 1.0\n", "'Pendulm'; did you mean Pendulum"),
        (BASE + "[learner]\nDDPG = 3\n", "must be a table"),
        (BASE.replace('"x"', '"../x"'), "usable as a folder name"),
        (BASE + "frequency = [33.3]\n", "33.3 Hz .*use 33.25 or 33.5 Hz"),
        (BASE.replace("episodes = 10", "episodes = 2.5"), "episodes must be a whole number"),
        (BASE + "update_every = -1\n", "update_every must be at least 0 and at most 1000000000, not -1"),
        (BASE + "update_every = true\n", "update_every must be a whole number, not True"),
        (BASE + 'buffers = "all"\n', "buffers must be one of 'final', 'compressed', 'none'"),
        (BASE + 'reference = "finest"\n', "reference must be one of 'converged', 'paper'"),
        (BASE + "[learner.DPG]\ntau = 1.0\n", "unknown name in table"),
        (BASE + "[[grid]]\nnoises = [0.0]\n", "unknown key in .*did you mean noise"),
        ("name = [", "not valid TOML"),
        (BASE + 'learners = ["DQN:sb3"]\n', "DQN has no variant sb3"),
        (BASE + f"capacity = {'9' * 5000}\n", "not valid TOML"),
        (BASE + f"capacity = {HUGE}\n", "capacity must be at least 1 and .*, not a number of about 6021 digits"),
        (BASE + f"noise = [{HUGE}]\n", "noise is too large: a number of about 6021 digits"),
        (BASE + f"noise = {'[' * 5000}{']' * 5000}\n", "not valid TOML: it is nested too deeply"),
        (BASE + f"[plant.Pendulum]\nlength = {HUGE}\n", "length must be a finite number"),
        (BASE + "[plant.Pendulum]\nname = 1.0\n", "unknown parameter of Pendulum 'name'"),
        (BASE.replace('"x"', '"a\\u001b[31m"'), "usable as a folder name"),
        (BASE + "frequency = [1e9]\n", "frequency must be above 0 and at most 100000 Hz"),
        (BASE + "block = 1000000000000000000000000000000\n", "block must be at least 1"),
        (BASE + "[[grid]]\nnoise = [11]\n", "noise must be at least 0 and at most 10 normalised units, not 11"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        read_study(write(tmp_path, text)).cells()
    assert "\n" not in str(caught.value)


def test_whole_numbers_are_the_same_cells_in_python_and_in_a_file(tmp_path: Path) -> None:
    """Else a study that Python ran would begin anew from its own study.toml."""
    whole = small_study(noise=(0,), frequency=(50,))
    assert_reads_back(whole, tmp_path)
    assert whole.cells() == small_study(noise=(0.0,), frequency=(50.0,)).cells()


def test_defaults_are_the_papers_runs() -> None:
    study = Study(name="x", plants=("Pendulum",), strategies=("FIFO[Uniform]",))
    assert (study.seeds, study.episodes, study.capacity, study.noise) == (50, 3000, 10_000, (0.0,))
    assert (study.block, study.greedy_every, study.root_seed) == (50, 10, 0)
    assert (study.discount, study.buffers, study.device, study.replayed_noise) == ("fixed", "final", "cpu", False)
    (cell,) = study.cells()
    assert (cell.first_member, cell.members, cell.update_every) == (0, 50, 0)


def test_settings_of_plants_and_learners_that_options_leave_out_are_left_out(tmp_path: Path) -> None:
    """A stored study names all settings; some of its cells can be run again without editing the file."""
    tables = '[learner.DDPG]\ntau = 0.02\n[learner."DDPG:fast"]\ntau = 0.1\n[plant.Magman]\nmass = 0.03\n'
    text = BASE.replace('"Pendulum"', '"Pendulum", "magman"') + 'learners = ["DDPG", "DDPG:fast"]\n' + tables
    path = write(tmp_path, text)
    study = read_study(path, {"plants": ["Pendulum"], "learners": ["ddpg:fast"]})
    assert (list(study.plant), list(study.learner)) == ([], ["DDPG:fast"])
    assert read_study(path, {"plants": ["Magman"]}).plant == {"Magman": {"mass": 0.03}}
    with pytest.raises(UserError, match="'DDPG'"):
        read_study(path, {"learners": ["DDPG:fast"], "learner": {"DDPG": {"tau": 0.5}}})
    write(tmp_path, text.replace('."DDPG:fast"', '."DDPG:fas"'))
    with pytest.raises(UserError, match="'DDPG:fas'"):
        read_study(path, {"learners": ["DDPG"]})


def test_a_cell_says_which_it_is(tmp_path: Path) -> None:
    text = BASE + "block = 3\nnoise = [0.02]\nfrequency = [100]\n"
    first, second = read_study(write(tmp_path, text)).cells()
    assert [list(cell.seeds) for cell in (first, second)] == [[0, 1, 2], [3]]
    assert first.label == "Pendulum DDPG FIFO[Uniform] noise 0.02 100 Hz seeds 0–2"
    assert second.label.endswith("seeds 3–3")
    further = read_study(write(tmp_path, text + "first_seed = 3\n")).cells()
    assert [list(cell.seeds) for cell in further] == [[3, 4, 5], [6]]
    assert len(first.id) == 16
    assert dataclasses.replace(first, settings=dict(reversed(first.settings.items()))).id == first.id
    with pytest.raises(UserError, match="source of plant Pendulum has changed"):
        dataclasses.replace(first, fingerprint="0").make_plant()


def test_the_last_episodes_are_a_hundred_or_a_tenth_of_the_iterations() -> None:
    assert [last_episodes(count, iterations=False) for count in (3000, 101, 100, 60, 1)] == [100, 100, 100, 60, 1]
    assert [last_episodes(count, iterations=True) for count in (3000, 60, 19, 5)] == [300, 6, 1, 1]


def made(**changes: Any) -> Study:
    return small_study(**{"plants": ("Pendulum",), "episodes": 10} | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategies": ("FIFO(15)[Uniform]",)}, "capacity 15 is smaller than a batch of 16"),
        ({"capacity": 15}, "capacity 15 is smaller than a batch of 16"),
        ({"capacity": 199, "learners": ("ACER",)}, "smaller than a batch of 200"),
        ({"update_every": 2001}, "update_every = 2001 is more than the 2000 steps of a run"),
        ({"evaluate_every_steps": 199}, "evaluate_every_steps must be at least the 200"),
        ({"evaluate_every_steps": 2001}, "evaluate_every_steps"),
        ({"strategies": ("Synth(state=0.1)*FIFO[Uniform]",), "observe": ("angle",)}, "needs all states; leave observe"),
        ({"strategies": ("FULL[Uniform]",), "learners": ("ACER",), "update_every": 100}, "keeps everything"),
        ({"learners": ("ACER",), "replayed_noise": True}, "replayed_noise measures single experiences"),
    ],
)
def test_what_cannot_be_replayed_is_refused(changes: dict[str, Any], words: str) -> None:
    made(capacity=16, update_every=2000).cells()
    made(learners=("ACER",), capacity=200, update_every=100).cells()
    with pytest.raises(UserError, match=words):
        made(**changes).cells()


def test_a_discount_is_an_axis_or_one_plants_or_one_learners(tmp_path: Path) -> None:
    tables = {
        "discount = [0.9, 0.99]\n": {("DDPG:discount=0.9", 0.9), ("DDPG:discount=0.99", 0.99)},
        "discount = 0.9\n": {("DDPG:discount=0.9", 0.9)},
        "[[grid]]\ndiscount = [0.9]\n[[grid]]\n": {("DDPG:discount=0.9", 0.9), ("DDPG", 0.95)},
        "[plant.Pendulum]\ndiscount = 0.9\n": {("DDPG", 0.9)},
        "[plant.Pendulum]\ndiscount = 0.9\n[learner.DDPG]\ndiscount = 0.99\n": {("DDPG", 0.99)},
        'frequency = [100]\ndiscount = "horizon"\n[plant.Pendulum]\ndiscount = 0.81\n': {("DDPG", 0.9)},
    }
    for text, due in tables.items():
        study = read_study(write(tmp_path, BASE + text))
        cells = study.cells()
        assert {(cell.learner, round(cell.gamma, 12)) for cell in cells} == due
        for cell in cells:
            assert make_agent(cell, cell.make_plant()).task.discount == cell.gamma
        assert_reads_back(study, tmp_path)


def test_the_replay_volume_is_an_axis_in_place_of_a_setting_of_learners(tmp_path: Path) -> None:
    table = "[learner.DDPG]\nreplays_per_experience = 4\n"
    volumes = {
        "replay_volume = [2, 32]\n": {("DDPG:replay_volume=2", 2), ("DDPG:replay_volume=32", 32)},
        "replay_volume = 2\n": {("DDPG:replay_volume=2", 2)},
        "": {("DDPG", 4)},
        "discount = [0.9]\n[[grid]]\nreplay_volume = [2]\n[[grid]]\n": {
            ("DDPG:discount=0.9:replay_volume=2", 2),
            ("DDPG:discount=0.9", 4),
        },
    }
    for text, due in volumes.items():
        study = read_study(write(tmp_path, BASE + text + table))
        cells = study.cells()
        assert {(cell.learner, cell.settings["replays_per_experience"]) for cell in cells} == due
        for cell in cells:
            agent = make_agent(cell, cell.make_plant())
            assert agent.schedule.replays_per_experience == cell.settings["replays_per_experience"]
        assert_reads_back(study, tmp_path)
    refuses("replay_volume", small_study, replay_volume=-1.0)


def test_the_delay_is_an_axis_and_the_rest_of_the_channel_a_table(tmp_path: Path) -> None:
    text = 'plants = ["pendulum"]\nstrategies = ["FULL[Uniform]"]\n'
    plain = read_study(write(tmp_path, text)).cells()
    none, short, long = read_study(write(tmp_path, f"{text}delay = [0, 5e-3, 0.04]")).cells()
    assert none == plain[0]
    assert [short.plant, long.plant] == ["Pendulum:delay=0.005", "Pendulum:delay=0.04"]
    assert short.make_plant().channel == Channel(delay=0.005)
    assert len({none.id, short.id, long.id}) == 3
    table = "[channel]\nhistory = 2\n[plant.Pendulum.channel]\nresolution = { angle = 0.01 }"
    study = read_study(write(tmp_path, f"{text}delay = [0.04]\n{table}"))
    (cell,) = study.cells()
    assert cell.make_plant().channel == Channel(delay=0.04, history=2, resolution={"angle": 0.01})
    assert cell.id not in {none.id, short.id, long.id}
    assert build(Cell, json.loads(json.dumps(dataclasses.asdict(cell))), "").make_plant() == cell.make_plant()
    assert "the last 2 commands may still be under way" in plan_warnings([long])[0]
    assert not any("under way" in line for line in plan_warnings([none, cell]))
    (odd,) = read_study(write(tmp_path, f"{text}delay = [0.041]\nfrequency = [50]\n[channel]\nhistory = 2\n")).cells()
    assert "the last 3 commands may still be under way" in plan_warnings([odd])[0]
    assert "observe 2 of them; set history = 3" in plan_warnings([odd])[0]
    named = read_study(write(tmp_path, text.replace("pendulum", "pendulum:delay=0.04"))).cells()
    assert named == [long]


@pytest.mark.parametrize(
    ("resolution", "words"),
    [
        (2048, "not a number of counts: for an encoder of 2048 counts per turn, write 2π / 2048 = 0.00306796"),
        (0.32, "is 0.32 rad, more than 5 % of the normalisation range of 6.283 rad; .* not a number of counts$"),
        (0.31, ""),
    ],
)
def test_a_resolution_in_counts_is_noted(resolution: float, words: str, tmp_path: Path) -> None:
    text = f'plants = ["Pendulum"]\nstrategies = ["FULL[PER]"]\n[channel]\nresolution = {{ angle = {resolution} }}\n'
    found = [line for line in plan_warnings(read_study(write(tmp_path, text)).cells()) if "resolution of angle" in line]
    assert len(found) == bool(words)
    assert all(re.search(words, line) for line in found)


def test_a_delay_beyond_the_horizon_of_the_discount_is_noted(tmp_path: Path) -> None:
    text = 'plants = ["Pendulum"]\nstrategies = ["FULL[PER]"]\ndelay = [DELAY]\nfrequency = [100]\ndiscount = 0.95\n'
    text += "[channel]\nhistory = 50\n"
    late = plan_warnings(read_study(write(tmp_path, text.replace("DELAY", "0.5"))).cells())
    assert any("act up to 0.5 s after their reading, but γ = 0.95 looks 20 steps ahead, 0.2 s" in line for line in late)
    assert any("set discount above 0.98" in line for line in late)
    assert plan_warnings(read_study(write(tmp_path, text.replace("DELAY", "0.2"))).cells()) == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("delay = [4.0]", "delay = 4 s is as long as an episode of Pendulum, 4 s; lower it"),
        ("delay = [-0.1]", "delay must be at least 0"),
        ("[channel]\ndelay = 0.1", r"delay is an axis; write delay = \[0.1\] above all tables"),
        ("[channel]\nhistroy = 1", "did you mean history"),
        ("replayed_noise = true\n[channel]\nnoise = { angle = 0.1 }", "replayed_noise needs the same noise"),
        ("[plant.Pendulum.spread]\nmas = 0.2", "did you mean mass"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    path = write(tmp_path, f'plants = ["Pendulum"]\nstrategies = ["FULL[Uniform]"]\n{lines}')
    refuses(words, lambda: read_study(path).cells())


def test_synthetic_experiences_and_a_second_delay_are_refused() -> None:
    synthetic = made(strategies=("Synth(state=0.1)*FIFO[Uniform]",), delay=0.01)
    refuses("Synth steps the plant's model without delay", synthetic.cells)
    spread = {"Pendulum": {"spread": {"mass": 0.2}}}
    refuses(
        "Synth .* spread; leave these out", made(strategies=("Synth(state=0.1)*FIFO[Uniform]",), plant=spread).cells
    )
    refuses("delay is given for all and in Pendulum:delay=0.1", made(plants="Pendulum:delay=0.1", delay=0.01).cells)


def test_the_discount_that_looks_the_farthest_decides_the_references(tmp_path: Path) -> None:
    cells = read_study(write(tmp_path, BASE + "discount = [0.9, 0.99, 0.95]\nnoise = [0.0, 0.02]\n")).cells()
    chosen = reference_cells(cells)
    assert [cell.gamma for cell in chosen.values()] == [0.99, 0.99]
    plants = [cell.make_plant() for cell in cells]
    assert reference_discount(chosen["Pendulum", 50.0, 0.0].make_plant(), 50.0) == 0.99
    assert len({kept_at(plant, 50.0, 0.0, None) for plant in plants}) == len(set(plants)) == 3


def test_a_plant_declares_which_states_are_observed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "from dataclasses import dataclass\nfrom replaybench.envs.ode.pendulum import PendulumDCSC\n"
    source += "@dataclass(frozen=True, kw_only=True)\nclass Mine(PendulumDCSC):\n    name = 'Mine'\n    {}\n"
    (tmp_path / "mine.py").write_text(source.format("observed = ('angle',)"))
    usual: dict[str, Any] = {"name": "s", "plants": (f"{tmp_path / 'mine.py'}:Mine",), "strategies": ("FULL[PER]",)}
    (cell,) = Study(**usual, seeds=2, episodes=2).cells()
    assert cell.observe == ("angle",)
    with contextlib.closing(CellRun(cell)) as run:
        run.advance()
        assert run.replay.columns.column("observation").shape[-1] == 1
    (other,) = Study(**usual, observe=("angle", "angular velocity"), seeds=2, episodes=2).cells()
    assert other.observe == ("angle", "angular velocity")
    show_plan(Console(width=200), Study(**usual, seeds=2, episodes=2), tmp_path / "run", 1, measure=False)
    assert "Mine: angle; not angular velocity" in capsys.readouterr().out
    with pytest.raises(UserError, match="Synth steps the plant's model, which needs all states"):
        Study(**{**usual, "strategies": ("Synth(state=0.1)*FIFO[Uniform]",)}).cells()


def test_from_python_one_name_or_number_is_a_list() -> None:
    short: Any = {"plants": "Pendulum", "strategies": ["FULL[PER]"], "noise": 0, "observe": "angle"}
    whole: Any = {"plants": ("Pendulum",), "strategies": ("FULL[PER]",), "noise": (0.0,), "observe": ("angle",)}
    assert Study(name="x", **short) == Study(name="x", **whole)
    with pytest.raises(UserError, match="plants must be text"):
        Study(name="x", plants=(object(),))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no such study file"):
        read_study("none.toml")


def test_names_in_files_are_not_imported_at_construction(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')\n")
    name = f"{tmp_path / 'mine.py'}:X"
    Study(name="x", plants=(name,), learners=(name,), strategies=(f"{name}[Uniform]",))


def test_a_changed_axis_is_that_of_all_grids(tmp_path: Path) -> None:
    path = write(
        tmp_path, BASE + "[[grid]]\nnoise = [0.0, 0.02]\nfrequency = [50]\n[learner.DDPG]\ntau = 0.5\nclip = 1.0\n"
    )
    changes = setting_values(("noise=0.1", "strategies=FULL[PER]", "learner.DDPG.tau=0.1", "capacity=5000"))
    [cell] = read_study(path, changes).cells()
    assert (cell.noise, cell.frequency, cell.strategy, cell.capacity) == (0.1, 50.0, "FULL[PER]", 5000)
    assert (cell.settings["tau"], cell.settings["clip"]) == (0.1, 1.0)
    dotted = setting_values(('plant."own.py:Tank".wall-area=2', "learner.V-RACER.batch-size=8"))
    assert dotted == {"plant": {"own.py:Tank": {"wall_area": 2}}, "learner": {"V-RACER": {"batch_size": 8}}}


@pytest.mark.parametrize("learner", SB3)
def test_variants_like_stable_baselines3_update_once_a_step(learner: str) -> None:
    name = f"{learner}:sb3"
    cell = small_cell(learners=name, learner={name: {"tau": 0.1}})
    assert cell.settings["replays_per_experience"] == cell.settings["batch_size"] == 256
    assert cell.settings["tau"] == 0.1


STRATEGY = "from replaybench.replay.strategies.uniform import Uniform\nclass Mine(Uniform): pass\n"
LEARNER = """
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig
from neighbour import NUMBER
class Mine(DQN): pass
class MineConfig(DQNConfig): pass
"""


def test_cells_of_the_packages_own_do_not_depend_on_the_field() -> None:
    """Their ids are those that they had before there was one."""
    mine = small_cell(learners=("V-RACER",), strategies=("Drop(0.3)*FIFO[PER+IS+ReFER]",))
    assert mine.sources == ""
    assert dataclasses.replace(mine, sources="x").id != mine.id


@pytest.mark.parametrize("what", ["strategy", "learner"])
def test_an_edited_strategy_or_learner_is_another_cell(what: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    named, source = {
        "strategy": ({"strategies": f"FIFO[{file}:Mine]"}, STRATEGY),
        "learner": ({"learners": f"{file}:Mine:variant"}, LEARNER),
    }[what]

    def of(source: str) -> Cell:
        file.write_text(source)
        return small_cell(**named, seeds=1, episodes=1)

    (tmp_path / "neighbour.py").write_text("NUMBER = 1\n")
    first, edited = of(source), of(source + "# edited\n")
    assert "own.py " in first.sources
    assert ("neighbour.py " in first.sources) == ("neighbour" in source)
    assert edited.id != first.id
    with pytest.raises(UserError, match=r"source of .*own\.py:Mine.* has changed"):
        CellRun(first)
    CellRun(edited).close()


def test_an_edited_plant_is_another_cell(tmp_path: Path) -> None:
    source, file = (EXAMPLES / "two_tank.py").read_text(encoding="utf-8"), tmp_path / "own.py"
    file.write_text(source, encoding="utf-8")
    before = small_cell(plants=f"{file}:TwoTank").id
    file.write_text(source.replace("WANTED = 0.15", "WANTED = 0.16"), encoding="utf-8")
    assert small_cell(plants=f"{file}:TwoTank").id != before


SOON = {"SAC": {"warmup_episodes": 0}, "V-RACER": {"warmup_episodes": 1}}


def study(name: str = "DDPG", start: dict[str, Any] | None = None, **changed: Any) -> Study:
    words: dict[str, Any] = {
        "name": "t", "plants": ("PendulumDCSC",), "learners": (name,), "strategies": ("FIFO[Uniform]",), "seeds": 3,
        "episodes": 2, "greedy_every": 1, "capacity": 1000, "learner": {name: SOON[name]} if name in SOON else {},
    }  # fmt: skip
    return build(Study, {**words, **changed, "start": {name: start} if start else {}}, "test")


def learned(folder: Path, learner: str = "DDPG", **changed: Any) -> Path:
    """Leave the policy file of a short run of three members."""
    assert run_cell(study(learner, **changed).cells()[0], folder, "none")
    return folder / "policy.safetensors"


def begun(cell: Cell, stored: Mapping[str, NDArray[Any]], members: list[int]) -> Learner:
    """Return the learner of a cell, which begins with the weights of these members."""
    agent = make_agent(cell, cell.make_plant())
    assert isinstance(agent, Learner)
    for name, array in agent.weights().items():
        np.testing.assert_array_equal(array, stored[name][members], err_msg=name)
    return agent


@pytest.mark.parametrize("learner", ["DDPG", "SAC", "V-RACER"])
def test_seeds_take_the_members_of_the_file_in_turn(tmp_path: Path, learner: str) -> None:
    path = learned(tmp_path, learner)
    stored = read_policy(path)[1]
    cells = study(learner, {"policy": f"{path}"}, seeds=5, block=4).cells()
    for cell, members in zip(cells, ([0, 1, 2, 0], [1]), strict=True):
        begun(cell, stored, members)
    agent = begun(study(learner, {"policy": f"{path}", "member": 1}).cells()[0], stored, [1, 1, 1])
    for name, target in agent.networks.targets.items():
        np.testing.assert_array_equal(target.parameters, agent.networks[name].parameters)


def test_no_first_value_takes_the_place_of_a_stored_one(tmp_path: Path) -> None:
    """V of a V-RACER that begins anew is set to the mean return of its first episodes; here it has been learned."""
    path = learned(tmp_path, "V-RACER")
    still = {"learner": {"V-RACER": {**SOON["V-RACER"], "learning_rate": 1e-9}}}
    [cell] = study("V-RACER", {"policy": f"{path}"}, **still).cells()
    seen = np.zeros((3, 1, 2), np.float32)
    before, run = CellRun(cell).agent.value(seen).copy(), advanced(cell)
    assert updates_of(run) > 0
    np.testing.assert_allclose(run.agent.value(seen), before, atol=1e-4)
    assert np.abs(before).min() > 1e-3


def test_what_a_cell_starts_with_is_part_of_its_identity_but_not_where_it_lies(tmp_path: Path) -> None:
    path = learned(tmp_path / "one")
    other = tmp_path / "elsewhere.safetensors"
    shutil.copy(path, other)

    def begun_with(start: dict[str, Any] | None) -> str:
        return study(start=start).cells()[0].id

    assert len({begun_with({"policy": f"{each}"}) for each in (path, other, path.parent)}) == 1
    facts, weights = read_policy(path)
    write_policy(other, {name: array + 1 for name, array in weights.items()}, facts)
    starts: list[Any] = [None, {"policy": f"{path}"}, {"policy": f"{path}", "member": 0}, {"policy": f"{other}"}]
    assert len({begun_with(start) for start in starts}) == 4


def test_a_study_says_what_it_starts_with(tmp_path: Path) -> None:
    path = learned(tmp_path)
    made = study("DDPG:tuned", {"policy": f"{path}"})
    [cell], again = made.cells(), assert_reads_back(made, tmp_path)
    facts, weights = read_policy(path)
    write_policy(path, {name: array + 1 for name, array in weights.items()}, facts)
    with pytest.raises(UserError, match="holds another policy than when this run began; restore it, or leave content"):
        again.cells()
    with pytest.raises(UserError, match="holds another policy"):
        make_agent(cell, cell.make_plant())
    assert made.cells()[0].id != cell.id


def test_a_run_that_began_with_a_policy_is_no_evidence_for_one_that_did_not(tmp_path: Path) -> None:
    path = learned(tmp_path)
    plain, started = study().cells()[0], study(start={"policy": f"{path}"}).cells()[0]
    assert started.start is not None
    table = {"start": {"DDPG": dataclasses.asdict(started.start)}}

    def told(run: dict[str, Any], cell: Cell) -> list[str]:
        data = xr.Dataset(coords={"update_every": ("plant", [0]), "plant": ["PendulumDCSC"], "episode": [1, 2]})
        differences = Evidence(tmp_path, data, run).differences(cell)
        return [name for name in differences if name.startswith("start")]

    assert told(table, plain) == ["start.DDPG"]
    assert told({}, started) == ["start.DDPG"]
    assert not told(table, started)
    assert not told({}, plain)


def test_blocks_of_a_run_are_taken_together(tmp_path: Path) -> None:
    made = study(seeds=5, block=2)
    for number, cell in enumerate(made.cells()):
        assert run_cell(cell, tmp_path / "cells" / f"{9 - number}", "none")  # not in the order of their names
    parts = [read_policy(tmp_path / "cells" / f"{9 - number}" / "policy.safetensors")[1] for number in range(3)]
    stored = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    begun(study(start={"policy": f"{tmp_path}"}, seeds=7).cells()[0], stored, [0, 1, 2, 3, 4, 0, 1])
    with pytest.raises(UserError, match="holds members 0 to 4, not 5"):
        study(start={"policy": f"{tmp_path}", "member": 5}).cells()
    assert run_cell(study(noise=(0.1,)).cells()[0], tmp_path / "cells" / "noisy", "none")
    with pytest.raises(UserError, match="policies of 2 grid points; name the file of one, as .*PendulumDCSC DDPG FIFO"):
        study(start={"policy": f"{tmp_path}"}).cells()
    with pytest.raises(UserError, match="holds no policies"):
        study(start={"policy": f"{tmp_path / 'cells'}"}).cells()


def test_a_diverged_member_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = learned(tmp_path)
    facts, weights = read_policy(path)
    weights["actor.0.bias"][2] = np.nan
    write_policy(path, weights, facts)
    with pytest.raises(UserError, match="member 2 .* NaN or infinite"):
        study(start={"policy": f"{path}"}, seeds=3).cells()
    study(start={"policy": f"{path}"}, seeds=2).cells()
    study(start={"policy": f"{path}", "member": 1}, seeds=3).cells()


def test_what_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = learned(tmp_path)
    start, small = {"policy": f"{path}"}, {"learner": {"DDPG": {"actor_hidden": [8]}}}
    cases: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("DDPG", start, small, r"do not fit .* DDPG; .*\(actor_hidden = \[\d+, \d+\] there, \[8\] here\)"),
        ("SAC", start, {}, r"do not fit .* SAC; .*\(learner = \"DDPG\" there, \"SAC\" here"),
        ("DDPG", start, {"observe": ("angle",)}, "observation_size = 2 there, 1 here"),
        ("DDPG", {**start, "member": 3}, {}, "holds members 0 to 2, not 3"),
        ("DDPG", {"policy": "nowhere.safetensors"}, {}, r"nowhere.safetensors"),
        ("NAF", start, {"learners": ("DDPG",)}, r"name in table \[start\]: 'NAF'"),
        ("DDPG", {"member": 0}, {}, "policy"),
    ]
    for name, given, changed, told in cases:
        with pytest.raises(UserError, match=told):
            study(name, given, **changed).cells()
