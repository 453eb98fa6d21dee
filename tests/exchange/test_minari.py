"""Buffers and other libraries' datasets: only whole episodes leave, and they come back bit for bit."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from scipy.io import savemat

from replaybench.baselines.references import Reference, reference
from replaybench.data.logs.log import read_log
from replaybench.data.logs.minari_dataset import Episode, dataset_folder, write_dataset
from replaybench.data.record import read_record, write_record
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.exchange.minari_export import export_buffer
from replaybench.exchange.minari_import import convert_dataset
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.recorded import buffer, collect
from tests.helpers.refusals import refuses

NAME = "replaybench/pendulum/full-per-v0"
STEPS = 200  # of an episode at 50 Hz
Arrays = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "datasets"


@pytest.fixture
def references(monkeypatch: Patch) -> None:
    """Spare the dynamic programming; one test does it."""
    one = Reference("Pendulum", 50.0, 0.0, -200.0, 1.0, -150.0, -100.0, -50.0, -50.0, -60.0, 0.95, (3, 3), 3, 9)
    monkeypatch.setattr("replaybench.exchange.minari_export.reference", lambda *_: one)


def keep(arrays: Arrays, slots: NDArray[np.int64]) -> Arrays:
    """Return what a bounded buffer with these slots would hold."""
    kept = {name: a[:, slots] if a.ndim > 1 else a for name, a in arrays.items()}
    return kept | {"count": np.full(len(arrays["count"]), len(slots))}


@pytest.fixture(scope="module")
def whole() -> Arrays:
    return collect(Pendulum(), episodes=3)


def done(capsys: Capsys, *words: object) -> str:
    """Run a command that must succeed without a word on stderr; return what it prints."""
    capsys.readouterr()
    assert call(*words) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize(
    ("name", "noise"), [("Pendulum", 0.01), ("gymnasium:Pendulum-v1", 0.0), ("MujocoHalfCheetah", 0.0)]
)
def test_a_recording_comes_back_bit_for_bit(name: str, noise: float, tmp_path: Path) -> None:
    """With a plant's equations and without."""
    plant = make_plant(name)
    recorded = collect(plant, episodes=2, noise=noise, frequency=plant.frequency)
    path = buffer(tmp_path / "b.h5", recorded, plant, frequency=plant.frequency, noise=noise)
    done = export_buffer(path, NAME, member=1)
    arrays, facts, summary = convert_dataset(NAME, plant)
    for field in ("observation", "action", "reward", "next_observation", "terminated", "serial", "episode", "step"):
        np.testing.assert_array_equal(arrays[field][0], recorded[field][1], err_msg=field)
        assert arrays[field].dtype == recorded[field].dtype
    assert (facts["frequency"], facts["noise"], facts["dataset"]) == (plant.frequency, noise, NAME)
    assert (done.steps, done.left_out) == (summary.transitions, 0) == (recorded["step"].shape[1], 0)
    assert done.episodes == summary.episodes >= 2
    assert not any("did not write" in line for line in summary.warnings)


@pytest.mark.usefixtures("references")
def test_minari_sees_episodes_as_gymnasium_gives_them(whole: Arrays, tmp_path: Path) -> None:
    done = export_buffer(buffer(tmp_path / "b.h5", whole), NAME)
    dataset = minari.load_dataset(NAME)
    assert (dataset.total_episodes, dataset.total_steps) == (done.episodes, done.steps) == (6, 6 * STEPS)
    for number, episode in enumerate(dataset):
        member, rows = number // 3, slice(number % 3 * STEPS, number % 3 * STEPS + STEPS)
        np.testing.assert_array_equal(episode.observations[:-1], whole["observation"][member, rows])
        np.testing.assert_array_equal(episode.observations[1:], whole["next_observation"][member, rows])

        assert episode.truncations.tolist() == [False] * (STEPS - 1) + [True]
        assert not episode.terminations.any()
        assert episode.infos["exploration"][:, 0].tolist() == [0.0] + [0.25] * STEPS
        assert all(dataset.observation_space.contains(row) for row in episode.observations)
        assert all(dataset.action_space.contains(row) for row in episode.actions)
    metadata = dataset.storage.metadata
    assert (metadata["ref_min_score"], metadata["ref_max_score"]) == (-200.0 * STEPS, -50.0 * STEPS)
    assert metadata["algorithm_name"] == "DDPG, FULL[PER]"
    assert (metadata["replaybench"]["frequency"], metadata["replaybench"]["noise"]) == (50.0, 0.01)


@pytest.mark.usefixtures("references")
def test_the_recovered_environment_is_the_plant_that_was_recorded(tmp_path: Path) -> None:
    plant = Pendulum(inertia=5e-4)
    arrays = collect(plant, episodes=1, noise=0.0, frequency=100.0)
    export_buffer(buffer(tmp_path / "b.h5", arrays, plant, frequency=100.0, noise=0.0), NAME)
    dataset = minari.load_dataset(NAME)
    env = dataset.recover_environment()
    assert env.observation_space == dataset.observation_space
    assert env.action_space == dataset.action_space
    episode = dataset[0]
    observation, _ = env.reset()
    np.testing.assert_array_equal(observation, episode.observations[0])
    for step, action in enumerate(episode.actions):
        observation, reward, _, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, episode.observations[step + 1])
        assert (np.float32(reward), truncated) == (episode.rewards[step], episode.truncations[step])
    refuses(r"with other parameters of Pendulum; import it with --inertia 0.0005$", convert_dataset, NAME, Pendulum())
    convert_dataset(NAME, plant)


@pytest.mark.slow
def test_reference_scores_are_those_of_the_score_table(tmp_path: Path) -> None:
    arrays = collect(Pendulum(), episodes=1, members=1, noise=0.0)
    done = export_buffer(buffer(tmp_path / "b.h5", arrays, noise=0.0), NAME)
    found = reference(Pendulum(), 50.0, 0.0)
    assert (done.low, done.high) == (found.random * STEPS, found.dp * STEPS)
    scored = minari.get_normalized_score(minari.load_dataset(NAME), np.array([found.random, found.dp]) * STEPS)
    np.testing.assert_allclose(scored, [0.0, 1.0])


@pytest.mark.usefixtures("references")
def test_only_whole_episodes_leave(whole: Arrays, tmp_path: Path) -> None:
    shuffled = np.random.default_rng(0).permutation(np.arange(100, 600))  # a FIFO of 500 slots has lost 100 steps
    done = export_buffer(buffer(tmp_path / "fifo.h5", keep(whole, shuffled)), "a-v0", member=0)
    assert (done.episodes, done.steps, done.left_out) == (2, 400, 100)
    np.testing.assert_array_equal(minari.load_dataset("a-v0")[0].observations[:-1], whole["observation"][0, 200:400])

    cut = np.arange(590)  # the end of the last episode is missing
    assert export_buffer(buffer(tmp_path / "cut.h5", keep(whole, cut)), "b-v0").left_out == 2 * 190
    holed = np.delete(np.arange(600), 300)
    assert export_buffer(buffer(tmp_path / "hole.h5", keep(whole, holed)), "c-v0").episodes == 4

    torn = whole | {"next_observation": whole["next_observation"].copy()}
    torn["next_observation"][0, 20] += 1e-3
    assert export_buffer(buffer(tmp_path / "torn.h5", torn), "d-v0").episodes == 5


@pytest.mark.usefixtures("references")
def test_termination_is_no_truncation(whole: Arrays, tmp_path: Path) -> None:
    ended = keep(whole, np.arange(40))  # copies
    ended["terminated"][0, 39] = 1
    done = export_buffer(buffer(tmp_path / "b.h5", ended), NAME)
    assert (done.episodes, done.left_out) == (1, 40)
    (episode,) = minari.load_dataset(NAME)
    assert (episode.terminations[-1], episode.truncations[-1]) == (True, False)
    arrays, _, _ = convert_dataset(NAME, Pendulum())
    assert arrays["terminated"][0, :, 0].tolist() == [0.0] * 39 + [1.0]


@pytest.mark.usefixtures("references")
def test_what_a_log_recorded_ends_where_it_ends(whole: Arrays, tmp_path: Path) -> None:
    log = buffer(tmp_path / "b.h5", keep(whole, np.arange(210)), source="import", noise=None, frequency=33.0)
    done = export_buffer(log, NAME, member=0)
    assert (done.episodes, done.steps, done.low) == (2, 210, None), "episodes of other lengths have no μ_r by returns"
    assert [each.truncations[-1] for each in minari.load_dataset(NAME)] == [True, True]
    for frequency, steps in ((33.0, 132), (25.25, 101)):
        log = buffer(tmp_path / f"{steps}.h5", keep(whole, np.arange(steps)), source="import", frequency=frequency)
        assert export_buffer(log, f"log{steps}-v0").low == -200.0 * steps
    odd = buffer(tmp_path / "d.h5", keep(whole, np.arange(210)), source="import", frequency=33.1)
    assert export_buffer(odd, "odder-v0").low is None
    assert minari.load_dataset("odder-v0").env_spec is None


@pytest.mark.usefixtures("references")
def test_what_cannot_be_exported_is_one_line(whole: Arrays, tmp_path: Path, monkeypatch: Patch) -> None:
    path = buffer(tmp_path / "b.h5", whole)
    scattered = np.sort(np.random.default_rng(0).permutation(600)[:300])
    resv = buffer(tmp_path / "resv.h5", keep(whole, scattered), strategy="Resv[Uniform]")
    refuses(r"no whole episode: Resv\[Uniform\] kept 600 steps, but of every episode", export_buffer, resv, NAME)
    refuses(r"'nonsense' is no Minari id", export_buffer, path, "nonsense")
    refuses(r"--member must be 0 … 1, not 2: .* holds 2 recordings", export_buffer, path, NAME, 2)
    refuses(r"--member must be 0 … 1, not -1", export_buffer, path, NAME, -1)
    refuses(r"no such file", export_buffer, tmp_path / "none.h5", NAME)
    for missing in ("episode", "step"):
        old = buffer(tmp_path / "old.h5", {name: a for name, a in whole.items() if name != missing})
        refuses(r"does not hold the episode and step of each experience", export_buffer, old, NAME)
    starts = {"episode_starts": np.array([[1, 201, 401]] * 2, np.uint32)}
    stated = {name: a for name, a in whole.items() if name not in ("episode", "step")} | starts
    assert export_buffer(buffer(tmp_path / "starts.h5", stated), "starts-v0").episodes == 6
    failed = whole | {"reward": whole["reward"].copy()}
    failed["reward"][0, 7] = np.nan
    refuses("recording 0 .* NaN .*--member", export_buffer, buffer(tmp_path / "nan.h5", failed), NAME, member=0)
    assert export_buffer(tmp_path / "nan.h5", NAME).episodes == 3
    refuses(r"full-per-v0 exists already; remove it or choose another id", export_buffer, path, NAME)
    monkeypatch.setitem(sys.modules, "minari", None)
    refuses(r"the extra: pip install 'replaybench\[minari\]'$", export_buffer, tmp_path / "none.h5", NAME)


@pytest.mark.usefixtures("references")
def test_export_then_import_on_the_command_line(whole: Arrays, tmp_path: Path, capsys: Capsys) -> None:
    path = buffer(tmp_path / "b.h5", keep(whole, np.arange(100, 600)))
    out = done(capsys, "export", path, NAME, "--member", 0, "--output", tmp_path / "mine")
    assert "episodes 2 whole ones, 400 steps; 100 steps of incomplete ones left out" in out
    assert "random control returns -40000 (0), dynamic programming -10000 (1)" in out
    assert f"dataset  {tmp_path / 'mine' / NAME}" in out
    words = "import", f"minari:{NAME}", "--plant", "Pendulum"
    assert "fetch it with `minari download`, or set MINARI_DATASETS_PATH" in refused(capsys, *words)

    done(capsys, "export", path, NAME)
    assert "800 transitions in 4 episodes" in done(capsys, *words)
    assert read_record(Path("runs/replaybench-pendulum-full-per-v0.h5"), "buffer")[1]["step"].max() == 199
    for option in (("--columns", "angle=x"), ("--time", "t")):
        assert f"{option[0]} is for logs" in refused(capsys, *words, "--output", "x.h5", *option)
    assert "exists already" in refused(capsys, *words)
    assert "did you mean --member" in refused(capsys, "export", path, NAME, "--membr", "0")


@pytest.mark.parametrize("suffix", [".mat", ".parquet"])
def test_one_recording_gives_one_buffer_whatever_its_format(suffix: str, tmp_path: Path, capsys: Capsys) -> None:
    text = Path(__file__).parents[2] / "replaybench" / "examples" / "rig_log.csv"
    columns = dict(read_log(text).columns)
    log = tmp_path / f"rig{suffix}"
    if suffix == ".mat":
        savemat(log, {"rig": columns, "Ts": 0.02})
    else:
        parquet.write_table(pyarrow.table(columns), log)
    words = ("--plant", "Pendulum", "--columns", "angular_velocity=velocity")
    done(capsys, "import", text, *words, "--output", tmp_path / "text.h5")
    told = f"rig{suffix} → Pendulum: 1000 rows, 998 transitions in 2 episodes"
    assert told in done(capsys, "import", log, *words)
    (_, expected), (_, found) = read_record(tmp_path / "text.h5"), read_record(tmp_path / "rig.h5")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_lost_cells_and_unwritable_targets_on_the_command_line(tmp_path: Path, capsys: Capsys) -> None:
    head = "time,angle,angular_velocity,voltage\n"
    (tmp_path / "rig.csv").write_text(head + "0,0,0,1\n0.02,0,0,1\n,0,0,1\n0.06,0,0,1\n0.08,0,0,1\n")
    words = "import", "rig.csv", "--plant", "Pendulum"
    assert "column 'time' is not a number at line 4" in refused(capsys, *words)
    assert "warning: 1 rows have no time: left out" in done(capsys, *words, "--missing", "drop")
    assert "Not a directory; choose another --output" in refused(capsys, *words, "--output", "rig.csv/rig.h5")
    rows = [f"{0.02 * n:.2f},{'inf' if n == 3 else 0},0,1\n" for n in range(9)]
    (tmp_path / "infinite.csv").write_text(head + "".join(rows))
    assert "9 rows" in done(capsys, "import", "infinite.csv", "--plant", "Pendulum", "--missing", "drop")


X, U = np.zeros((21, 2)), np.zeros((20, 1))


def foreign(root: Path, observations: NDArray[Any], actions: NDArray[Any], **told: Any) -> None:
    """Write a dataset as someone else might."""
    space, steps = PopulationEnv(Pendulum()), len(actions)
    episode = Episode(observations, actions, np.zeros(steps), np.zeros(steps, bool), np.arange(steps) == steps - 1, {})
    spaces = space.single_observation_space, space.single_action_space
    write_dataset(dataset_folder("theirs-v0", root), "theirs-v0", [episode], *spaces, None, told)


def test_someone_elses_dataset_is_taken_as_normalised_and_checked(root: Path, capsys: Capsys) -> None:
    foreign(root, X, U, env_spec='{"id": "CartPole-v1"}')
    words = "import", "minari:theirs-v0", "--plant", "Pendulum", "--frequency", 50
    assert "was recorded on 'CartPole-v1', not on Pendulum" in refused(capsys, *words)
    done(capsys, *words, "--other-plant")
    refuses("does not say at which rate .* --frequency", convert_dataset, "theirs-v0", Pendulum(), other_plant=True)
    arrays, facts, summary = convert_dataset("theirs-v0", Pendulum(), frequency=50.0, other_plant=True)
    assert (arrays["observation"].shape, facts["frequency"], facts["noise"]) == ((1, 20, 2), 50.0, None)
    assert [state["unit"] for state in facts["states"]] == ["rad", "rad/s"]
    assert facts["actions"] == [{"name": "voltage", "unit": "V", "center": 0.0, "scale": 3.0}]
    assert "replaybench did not write this dataset" in summary.warnings[0]


@pytest.mark.parametrize(
    ("observations", "actions", "facts", "message"),
    [
        (np.zeros((21, 3)), U, {}, r"has observations of 3 numbers, Pendulum of 2 \(angle, angular vel"),
        (X, np.zeros((20, 2)), {}, r"has actions of 2 numbers, Pendulum of 1 \(voltage\)"),
        (X + 3.0, U, {}, r"episode 0, step 0: observation angle is 3, beyond ±1.05"),
        (X * np.nan, U, {}, r"observation angle is not a number, beyond"),
        (X, U + 2.0, {}, r"action voltage is 2, beyond ±1; .* must be normalised"),
        (X, U, {"plant": "Magman"}, r"was recorded on Magman, not on Pendulum"),
        (X, U, {"plant": "Pendulum", "frequency": 20}, r"at 20 Hz, not at 50 Hz; leave"),
        (X, U, {"plant": "Pendulum", "noise": "x"}, r"damaged: its noise is 'x'"),
        (X, U, {"plant": "Pendulum", "noise": 1e300}, r"its noise is 1e"),
        (X, U, {"plant": "Pendulum", "frequency": "x"}, r"was recorded at"),
    ],
)
def test_what_is_not_of_this_plant_is_refused(
    observations: NDArray[Any], actions: NDArray[Any], facts: dict[str, Any], message: str, root: Path
) -> None:
    foreign(root, observations, actions, replaybench=facts)
    refuses(message, convert_dataset, "theirs-v0", Pendulum(), frequency=50.0)


def test_choices_that_a_plant_does_not_have_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    foreign(root, np.zeros((21, 4)), np.r_[np.zeros(10), np.ones(10)][:, None])
    assert convert_dataset("theirs-v0", plant)[0]["action"][0, :, 0].tolist() == [-1.0] * 10 + [1.0] * 10
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root / "other"))
    foreign(root / "other", np.zeros((21, 4)), np.full((20, 1), 0.37))
    refuses("action 0 is 0.37, none of its choices, 0, 1", convert_dataset, "theirs-v0", plant)


def test_actions_that_a_task_clips_are_clipped_if_asked(root: Path, capsys: Capsys) -> None:
    actions = np.linspace(-3, 3, 20)[:, None]  # the task takes -2 … 2
    foreign(root, np.zeros((21, 3)), actions)
    words = "import", "minari:theirs-v0", "--plant", "gymnasium:Pendulum-v1", "--output", root / "theirs.h5"
    told = refused(capsys, *words)
    assert "step 0: action action 0 is -3, beyond the task's -2 … 2; it" in told
    assert "give --clip-actions" in told
    assert "warning: 8 actions were clipped" in done(capsys, *words, "--clip-actions")
    stored = read_record(root / "theirs.h5")[1]["action"][0]
    np.testing.assert_allclose(stored, np.clip(actions / 2, -1, 1), rtol=1e-6)


@pytest.mark.parametrize("rate", [1e300, 1e-9, float("inf")])
def test_a_rate_that_no_plant_can_have_is_refused(rate: float, root: Path) -> None:
    foreign(root, X, U, replaybench={"plant": "Pendulum", "frequency": rate})
    refuses("Hz", convert_dataset, "theirs-v0", Pendulum())


@pytest.mark.usefixtures("references")
def test_a_plant_of_ones_own_leaves_without_an_environment(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom replaybench.envs.ode.pendulum import Pendulum\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(Pendulum):\n    name = 'Mine'\n"
    )
    mine = f"{tmp_path / 'mine.py'}:Mine"
    header, stored = read_record(buffer(path := tmp_path / "b.h5", collect(Pendulum(), episodes=1)))
    write_record(path, "buffer", {**header.facts, "plant": mine}, stored)
    assert "if you trust that file" in refused(capsys, "export", path, NAME)
    done(capsys, "export", path, NAME, "--plant", mine)
    dataset = minari.load_dataset(NAME)
    assert dataset.env_spec is None
    assert json.loads((tmp_path / "datasets" / NAME / "data" / "metadata.json").read_text())["ref_max_score"] == -10000
    refuses(r"was recorded on .*:Mine, not on Pendulum", convert_dataset, NAME, Pendulum())


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # Minari leaves a folder behind
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("task", ["Pendulum-v1", "InvertedPendulum-v5", "CartPole-v1"])
def test_a_dataset_of_minaris_own_collector_is_read_in_the_tasks_units(task: str) -> None:
    pytest.importorskip("jax", reason="Minari's DataCollector needs JAX")
    env: Any = minari.DataCollector(gymnasium.make(task, max_episode_steps=30))
    env.action_space.seed(3)
    for seed in range(3):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # who wrote it, and where its code is, is not said
        theirs = env.create_dataset("theirs/random-v0")
    env.close()
    plant = make_plant(f"gymnasium:{task}")
    arrays, facts, summary = convert_dataset("theirs/random-v0", plant)
    assert facts["frequency"] == plant.frequency
    given = list(theirs)
    for name, rows in (("observation", slice(None, -1)), ("next_observation", slice(1, None))):
        expected = np.concatenate([each.observations[rows] for each in given])
        np.testing.assert_allclose(plant.denormalise_state(arrays[name][0]), expected, rtol=1e-6, atol=1e-6)
    assert np.abs(arrays["action"]).max() <= 1.0
    actions = np.concatenate([each.actions.reshape(len(each.actions), -1) for each in given])
    np.testing.assert_allclose(plant.denormalise_action(arrays["action"][0]), actions, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(arrays["reward"][0, :, 0], np.concatenate([each.rewards for each in given]), rtol=1e-6)
    ends = np.concatenate([each.terminations for each in given])
    np.testing.assert_array_equal(arrays["terminated"][0, :, 0], ends)
    assert any("taken as Gymnasium's task's own" in line for line in summary.warnings)
    refuses("no other rate, not at 7 Hz", convert_dataset, "theirs/random-v0", plant, frequency=7.0)
