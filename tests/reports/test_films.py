"""The command `show`: length, speed and content of films, and its errors."""

import importlib.util
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.reports.films import Scene, check_output, random_actions, shots, show
from replaybench.reports.time_series import Episode, figure_of, write_episode
from replaybench.runtime.errors import UserError
from tests.helpers.commands import Patch

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"


@pytest.mark.parametrize("plant", ["Magman", "MujocoHopper", f"{EXAMPLES / 'cart_pole.py'}:CartPole"])
def test_plants_move_in_a_film(plant: str, tmp_path: Path) -> None:
    lines = show(plant, tmp_path / "film.gif", seconds=0.4)
    with Image.open(tmp_path / "film.gif") as film:
        pictures = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
        assert film.info["loop"] == 0
    assert len(pictures) >= 4
    assert all((a != b).any() for a, b in itertools.pairwise(pictures))
    assert f"({len(pictures)} pictures" in lines[0]
    assert "under random actions; rewards add up to" in lines[1]


@pytest.mark.slow
def test_speed_and_length_of_a_film(tmp_path: Path) -> None:
    show("gymnasium:MountainCar-v0", tmp_path / "film.gif", seconds=math.inf)
    with Image.open(tmp_path / "film.gif") as film:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(film)]
    assert set(durations[:-1]) == {60, 70}  # 15 pictures a second, in a format that counts in 10 ms
    assert sum(durations[:-1]) / (len(durations) - 1) == pytest.approx(1000 / 15, rel=0.01)


def test_a_policy_acts_at_its_rate_on_what_it_observes(tmp_path: Path) -> None:
    kind, config = load_learner("DDPG")
    agent = kind(config(), LearnerSetting(Task(1, 1, 0.95, 1.0), 0, range(3), 25.0))
    cell = {"plant": "PendulumDCSC", "observe": ["angle"], "learner": "DDPG", "strategy": "FULL[PER]", "noise": 0.1}
    path = tmp_path / "policy.safetensors"
    write_policy(path, agent.weights(), {"cell": cell, "policy": policy_facts("DDPG", agent, 25.0)})
    lines = show("pendulumdcsc", tmp_path / "film.mp4", (path, 2), seconds=0.4)
    assert "PendulumDCSC under DDPG FULL[PER], member 2" in lines[1]
    ffmpeg = importlib.import_module("imageio_ffmpeg")
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "film.mp4"))
    assert (count, seconds) == (11, pytest.approx(11 / 25, abs=0.01))
    with pytest.raises(UserError, match="is a policy for PendulumDCSC, not for Magman"):
        show("Magman", tmp_path / "x.gif", (path, 0))
    assert not (tmp_path / "x.gif").exists()


def test_a_policy_keeps_its_state_within_an_episode() -> None:
    given = []

    def predict(observation: Any, state: Any) -> tuple[Any, Any]:
        given.append(state)
        return observation[:, :3], (state or 0) + 1

    list(shots(Scene(make_plant("MujocoHopper"), 125.0, 0.0, (), 0, 1000, 200), predict, 50))
    begins = [step for step, state in enumerate(given) if state is None]
    assert len(begins) > 1, "an episode begins with an empty state"
    assert given == [step - max(begin for begin in begins if begin <= step) or None for step in range(len(given))]


def test_pictures_are_taken_every_so_many_steps_and_at_the_end() -> None:
    plant = make_plant("PendulumDCSC")
    scene = Scene(plant, 50.0, 0.0, (), 3, 11)
    every = list(shots(scene, random_actions(scene)))
    some = list(shots(scene, random_actions(scene), 4))
    assert [shot.last for shot in every] == [False] * 11 + [True]
    assert len(some) == 4
    assert sum(shot.reward for shot in some) == pytest.approx(sum(shot.reward for shot in every))
    np.testing.assert_array_equal(some[-1].picture, every[-1].picture)


@pytest.mark.slow
def test_short_episodes_follow_each_other(tmp_path: Path) -> None:
    """Those of a hopper under random actions end after a tenth of a second."""
    text = "\n".join(show("MujocoHopper", tmp_path / "film.gif"))
    assert re.search(r"\(\d+ pictures, [34]\.\d s", text)
    assert re.search(r"rewards add up to [\d.]+ over \d+ episodes", text)
    plant = make_plant("PendulumDCSC")
    scene = Scene(plant, 50.0, 0.0, (), 3, 1000, 250)
    lasts = [shot.last for shot in shots(scene, random_actions(scene), 50)]
    assert lasts == [*[False] * 4, True] * 2, "an episode is completed, and none begins after the least steps"


@pytest.mark.slow
def test_slow_plants_are_shown_faster_and_to_their_end(tmp_path: Path) -> None:
    text = "\n".join(show("Drafting", tmp_path / "film.gif"))
    assert "10 times as fast" in text
    with Image.open(tmp_path / "film.gif") as film:
        assert getattr(film, "n_frames", 0) > 2
        assert film.info["duration"] == 100


def test_impossible_formats_are_refused(monkeypatch: Patch, tmp_path: Path) -> None:
    for name in ("film.avi", "film"):
        with pytest.raises(UserError, match=r"must end in \.gif or \.mp4"):
            check_output(tmp_path / name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"replaybench\[film\]"):
        check_output(tmp_path / "film.mp4")


@pytest.mark.slow
def test_without_a_display_no_window_is_tried() -> None:
    program = (
        "import os; [os.environ.pop(n, None) for n in ('DISPLAY', 'WAYLAND_DISPLAY', 'MPLBACKEND')]\n"
        "from replaybench.reports.films import check_output\n"
        "from replaybench.runtime.errors import UserError\n"
        "try: check_output(None)\nexcept UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "there is no display for a window here" in done.stdout


OWN = """import numpy as np
from replaybench.extend import ReferenceController

class Full(ReferenceController):
    def act(self, observation):
        return np.ones((len(observation), 1), np.float32)
"""


def test_an_episode_over_time_is_a_figure_or_a_table(tmp_path: Path) -> None:
    """With references under the same conditions; the numbers are those of the plant's equations."""
    conditions: Any = {"policy": None, "learner": None, "noise": 0.0, "frequency": 50.0, "seed": 1, "seconds": 0.2}
    write_episode("PendulumDCSC", tmp_path / "episode.json", **conditions)
    rows = json.loads((tmp_path / "episode.json").read_text(encoding="utf-8"))
    assert [row["controller"] for row in rows[::11]] == [
        "random control", "linear-quadratic regulator", "dynamic programming", "MPPI, knows the model"
    ]  # fmt: skip
    first, second, *_, last = rows[:11]
    assert (last["time [s]"], last["voltage [V]"], last["reward"]) == (0.2, None, None)
    assert first["set point of angle [rad]"] == pytest.approx(math.pi)
    plant: Any = make_plant("PendulumDCSC")
    env = PopulationEnv(plant, 1, frequency=50.0)
    states = np.array([[row["angle [rad]"], row["angular velocity [rad/s]"]] for row in (first, second)])
    after, reward = env.simulate(plant.normalise_state(states[:1]), plant.normalise_action([[first["voltage [V]"]]]))
    assert plant.denormalise_state(after) == pytest.approx(states[1:], abs=1e-6)
    assert reward == pytest.approx(first["reward"])
    (tmp_path / "pid.py").write_text(OWN)
    for name, own, last_one in (("own", [f"{tmp_path}/pid.py:Full"], "Full"), ("none", None, "dynamic programming")):
        lines = write_episode("PendulumDCSC", tmp_path / f"{name}.csv", **conditions, own=own)
        assert f"shown    {last_one}: mean reward -" in lines[-1]
    lines = write_episode("PendulumDCSC", tmp_path / "episode.png", **conditions)
    assert (tmp_path / "episode.png").read_bytes().startswith(b"\x89PNG")
    assert sum("dynamic programming: mean reward -" in line for line in lines) == 1
    for name, why in (
        ("episode.png", "exists already"),
        ("episode.jpg", "--plot must end in .png, .svg, .pdf or .csv"),
    ):
        with pytest.raises(UserError, match=why):
            write_episode("PendulumDCSC", tmp_path / name, **conditions)


@pytest.mark.parametrize("name", ["Servo", "MujocoHopper"])
def test_the_figure_of_an_episode_has_the_range_of_the_policy(name: str) -> None:
    """A controller that leaves is cut; each controller has its own line; set points are steps."""
    plant = make_plant(name)
    states, actions = len(plant.state_names), len(plant.action_names)

    def made(controller: str, last: float) -> Episode:
        course = np.zeros((5, states))
        course[:, 0], course[:, 2] = np.linspace(0, last, 5), (0.2, 0.2, -0.1, -0.1, 1.4)
        return Episode(controller, course, np.zeros((4, actions)), np.full(4, -1.0), controller == "policy")

    others = [made(name, 0.3) for name in ("tuned PID", "LQR with integral action", "MPPI, knows the model", "MyPD")]
    episodes = [made("policy", 0.2), *others, made("random control", -3.0)]
    panels: Any = figure_of(Scene(plant, 100.0, 0.0, (), 0, 4), episodes).axes
    low, high = panels[0].get_ylim()
    assert -0.2 < low < high < 0.4
    assert high > 0.3
    looks = {(one.get_color(), str(one._unscaled_dash_pattern)) for one in panels[states].lines}
    assert len(looks) == 6
    exogenous = name == "Servo"
    assert panels[2].get_ylim()[1] < 0.3 or not exogenous
    assert all(("steps" in one.get_drawstyle()) == exogenous for one in panels[2].lines)
    everything: Any = figure_of(Scene(plant, 100.0, 0.0, (), 0, 4), episodes[1:]).axes
    assert everything[0].get_ylim()[0] < -3.0, "without a policy, nothing is cut"
