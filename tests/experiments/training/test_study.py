"""Study files: defaults, grids, identity of cells, and one-line errors for everything that can be mistyped."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from replaybench.baselines.fuzzy_q_iteration import reference_discount
from replaybench.baselines.references import kept_at
from replaybench.cli.options import setting_values
from replaybench.controllers.algorithms.ddpg import DDPGConfig
from replaybench.controllers.registry import SB3
from replaybench.experiments.cell import make_agent
from replaybench.experiments.plan import plan_warnings
from replaybench.experiments.study import Study, last_episodes, read_study, reference_cells
from replaybench.experiments.study_record import resolved, write_toml
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError

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
    assert found == [
        ("Pendulum", "FIFO[Uniform]", 0.0, 50.0),
        ("Pendulum", "FIFO[Uniform]", 0.0, 100.0),
        ("Pendulum", "FIFO[Uniform]", 0.02, 50.0),
        ("Pendulum", "FIFO[Uniform]", 0.02, 100.0),
        ("Magman", "FIFO[Uniform]", 0.0, 50.0),
        ("Magman", "FULL[PER]", 0.0, 50.0),
    ]
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
    ],
)
def test_resolved_studies_and_settings_of_cells_read_back(tmp_path: Path, table: str) -> None:
    text = BASE + 'reference = "paper"\n[[grid]]\nnoise = [0.02]\n[learner.DDPG]\n' + table
    study = read_study(write(tmp_path, text))
    cells = study.cells()
    again = read_study(write(tmp_path, write_toml(resolved(study, cells))))
    assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]
    assert (again.learner["DDPG"]["tau"], again.plant["Pendulum"]["mass"], again.reference) == (0.01, 5.5e-2, "paper")
    settings = json.loads(json.dumps(cells[0].settings))
    assert dataclasses.asdict(build(DDPGConfig, settings, "cell")) == cells[0].settings


@pytest.mark.parametrize("variant", ['DDPG:a"b', "DDPG:a\\b"])
def test_whatever_a_variant_is_called_it_reads_back(tmp_path: Path, variant: str) -> None:
    name = json.dumps(variant)
    text = f"{BASE}learners = [{name}]\n[learner.{name}]\nexploration = {{ decay_episodes = 500 }}\n"
    cells = read_study(write(tmp_path, text)).cells()
    again = read_study(write(tmp_path, write_toml(resolved(read_study(write(tmp_path, text)), cells))))
    assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]
    [warning] = plan_warnings(cells)
    [table] = re.findall(r"in (\[.*\]) to", warning)
    assert tomllib.loads(table) == {"learner": {variant: {"exploration": {}}}}


def test_whatever_changes_numbers_changes_the_identity(tmp_path: Path) -> None:
    study = Study(name="a", plants=("Pendulum",), strategies=("FIFO[Uniform]",), seeds=2, episodes=10)
    changes: list[dict[str, Any]] = [
        {"root_seed": 1}, {"episodes": 11}, {"capacity": 99}, {"discount": "horizon"}, {"noise": (0.1,)},
        {"frequency": (25.0,)}, {"strategies": ("FULL[PER]",)}, {"plant": {"Pendulum": {"inertia": 1e-3}}},
        {"learner": {"DDPG": {"tau": 0.02}}}, {"learner": {"DDPG": {"exploration": {"friction": 0.1}}}},
        {"seeds": 1}, {"greedy_every": 5}, {"learner": {"DDPG": {"discount": 0.96}}},
    ]  # fmt: skip
    ids = [study.cells()[0].id] + [dataclasses.replace(study, **change).cells()[0].id for change in changes]
    assert len(set(ids)) == len(ids)
    same: list[dict[str, Any]] = [
        {"name": "b"},
        {"horizon_steps": 10**6},  # nothing is annealed here
        {"buffers": "none"},
        {"reference": "paper"},
        {"learner": {"DDPG": {"discount": 0.95}}},  # the plant's own
        {"learner": {"DDPG": {"tau": 0.01}}},
        {"learner": {"DDPG": {"exploration": {"form": "process"}}}},
        {"strategies": ("fifo[uniform]",)},
    ]
    assert {dataclasses.replace(study, **change).cells()[0].id for change in same} == {ids[0]}


@pytest.mark.parametrize("strategy", ["FIFO[AER]", "FIFO[ERE]", "FIFO[PERprop+IS(0.4, 1)]", "FIFO[Annealed]"])
def test_over_how_many_steps_schedules_run_is_part_of_a_cell_that_has_one(strategy: str) -> None:
    study = Study(name="a", plants=("Pendulum",), learners=("SAC",), strategies=(strategy,), seeds=2, episodes=10)
    assert dataclasses.replace(study, horizon_steps=10**6).cells()[0].id != study.cells()[0].id


def test_the_file_of_a_plant_has_its_place_beside_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder, however its path is written, and from the study in the run folder."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    source = (Path(__file__).parents[3] / "replaybench" / "examples" / "two_tank.py").read_text(encoding="utf-8")
    (home / "tank.py").write_text(source, encoding="utf-8")
    name = next(line.split()[1].split("(")[0] for line in source.splitlines() if line.startswith("class "))
    monkeypatch.chdir(away)
    ids = set()
    for path in ("tank.py", "./tank.py", "../home/tank.py", str(home / "tank.py")):
        text = BASE.replace("Pendulum", f"{path}:{name}") + f'[plant."{path}:{name}"]\ndiscount = 0.5\n'
        study = read_study(write(home, text))
        cells = study.cells()
        assert cells[0].parameters["discount"] == 0.5
        if not path.startswith(".."):
            assert cells[0].plant == f"tank.py:{name}"
            ids.add(cells[0].id)
        run = tmp_path / "runs" / "one"
        run.mkdir(parents=True, exist_ok=True)
        again = read_study(write(run, write_toml(resolved(study, cells, run))))
        assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]
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
        (BASE + 'learner = "SAC"\n', r"learner must be a table, not 'SAC'; did you mean learners\?$"),
        (BASE + "episods = 3\n", "unknown key in .*'episods'; did you mean episodes"),
        (BASE.replace("Pendulum", "Pendulm"), "unknown plant 'Pendulm'; did you mean Pendulum"),
        (BASE.replace("FIFO", "FILO"), "unknown retention strategy 'FILO'; did you mean FIFO"),
        (BASE + 'learners = ["DDPGG"]\n', "unknown learner 'DDPGG'; did you mean DDPG"),
        (BASE + "noise = [nan]\n", "noise must be at least 0 and at most 10 normalised units, not nan"),
        (BASE + "noise = []\n", "noise is empty"),
        (BASE + "[plant.Pendulm]\ninertia = 1.0\n", "'Pendulm'; did you mean Pendulum"),
        (BASE + "[learner]\nDDPG = 3\n", "must be a table"),
        (BASE + "[learner.DDPG]\nbatch_size = 0\n", "batch_size must be at least 1"),
        (BASE + '[learner.DDPG.exploration]\nform = "gausian"\n', "unknown form in .*'gausian'; did you mean gaussian"),
        (BASE + "[learner.DDPG.exploration]\nsigma = 0.1\n", "unknown key in .*exploration: 'sigma'"),
        (BASE.replace('"x"', '"../x"'), "usable as a folder name"),
        (BASE + "frequency = [33.3]\n", "33.3 Hz .*use 33.25 or 33.5 Hz"),
        (BASE.replace("episodes = 10", "episodes = 2.5"), "episodes must be a whole number"),
        (BASE + "update_every = -1\n", "update_every must be at least 0 and at most 1000000000, not -1"),
        (BASE + "update_every = true\n", "update_every must be a whole number, not True"),
        (BASE + 'buffers = "all"\n', "buffers must be one of 'final', 'compressed', 'none'"),
        (BASE + 'reference = "finest"\n', "reference must be one of 'converged', 'paper'"),
        (BASE + "[learner.DPG]\ntau = 1.0\n", "unknown name in table"),
        (BASE + "[plant.Pendulum]\ninertai = 1.0\n", "did you mean inertia"),
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
        (BASE.replace("Pendulum", "a\\u0000.py:Mine"), "control character"),
        (BASE.replace("Pendulum", "gymnasium:..x:X-v0"), "the module ..x cannot be imported"),
        (BASE + "frequency = [1e9]\n", "frequency must be above 0 and at most 100000 Hz"),
        (BASE + "block = 1000000000000000000000000000000\n", "block must be at least 1"),
        (BASE + "[[grid]]\nnoise = [11]\n", "noise must be at least 0 and at most 10 normalised units, not 11"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        read_study(write(tmp_path, text)).cells()
    assert "\n" not in str(caught.value)


def test_whole_numbers_are_the_same_cells_in_python_and_in_a_file() -> None:
    """Else a study that Python ran would begin anew from its own study.toml."""
    common = {"name": "x", "plants": ("Pendulum",), "strategies": ("FIFO[Uniform]",)}
    whole = Study(**common, noise=(0,), frequency=(50,))  # type: ignore[arg-type]
    again = build(Study, tomllib.loads(write_toml(resolved(whole, whole.cells()))), "file")
    assert [cell.id for cell in whole.cells()] == [cell.id for cell in again.cells()]
    assert whole.cells() == Study(**common, noise=(0.0,), frequency=(50.0,)).cells()  # type: ignore[arg-type]


def test_defaults_are_the_papers_runs() -> None:
    study = Study(name="x", plants=("Pendulum",), strategies=("FIFO[Uniform]",))
    assert (study.seeds, study.episodes, study.capacity, study.noise) == (50, 3000, 10_000, (0.0,))
    assert (study.block, study.greedy_every, study.root_seed) == (50, 10, 0)
    assert (study.discount, study.buffers, study.device, study.replayed_noise) == ("fixed", "final", "cpu", False)
    (cell,) = study.cells()
    assert (cell.first_member, cell.members, cell.update_every) == (0, 50, 0)


def test_a_cell_says_which_it_is(tmp_path: Path) -> None:
    text = BASE + "block = 3\nnoise = [0.02]\nfrequency = [100]\n"
    first, second = read_study(write(tmp_path, text)).cells()
    assert [list(cell.seeds) for cell in (first, second)] == [[0, 1, 2], [3]]
    assert first.label == "Pendulum DDPG FIFO[Uniform] noise 0.02 100 Hz seeds 0–2"
    assert second.label.endswith("seeds 3–3")
    assert len(first.id) == 16
    assert dataclasses.replace(first, settings=dict(reversed(first.settings.items()))).id == first.id
    with pytest.raises(UserError, match="plant Pendulum is not the one this cell was made for"):
        dataclasses.replace(first, fingerprint="0").make_plant()


def test_the_last_episodes_are_a_hundred_or_a_tenth_of_the_rounds() -> None:
    assert [last_episodes(count, rounds=False) for count in (3000, 101, 100, 60, 1)] == [100, 100, 100, 60, 1]
    assert [last_episodes(count, rounds=True) for count in (3000, 60, 19, 5)] == [300, 6, 1, 1]


def made(**changes: Any) -> Study:
    settings = {"name": "x", "plants": ("Pendulum",), "strategies": ("FIFO[Uniform]",), "episodes": 10, **changes}
    return Study(**settings)


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
        ({"strategies": ("Synth(state=0.1)*FIFO[Uniform]",), "learners": ("ACER",)}, "replays trajectories"),
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
        again = read_study(write(tmp_path, write_toml(resolved(study, cells))))
        assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]


def test_the_discount_that_looks_the_farthest_decides_the_references(tmp_path: Path) -> None:
    cells = read_study(write(tmp_path, BASE + "discount = [0.9, 0.99, 0.95]\nnoise = [0.0, 0.02]\n")).cells()
    chosen = reference_cells(cells)
    assert [cell.gamma for cell in chosen.values()] == [0.99, 0.99]
    plants = [cell.make_plant() for cell in cells]
    assert reference_discount(chosen["Pendulum", 50.0, 0.0].make_plant(), 50.0) == 0.99
    assert len({kept_at(plant, 50.0, 0.0, None) for plant in plants}) == len(set(plants)) == 3


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
    words: dict[str, Any] = {"plants": "Pendulum", "strategies": "FULL[PER]", "learners": name}
    [cell] = Study(name="x", **words, learner={name: {"tau": 0.1}}).cells()
    assert cell.settings["replays_per_experience"] == cell.settings["batch_size"] == 256
    assert cell.settings["tau"] == 0.1
