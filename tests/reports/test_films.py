"""The command `show`: length, speed and content of films, and its errors."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.controllers.policies.policy import Policy, policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.envs.registry import make_plant
from replaybench.reports.films import Asked, Scene, act_randomly, act_with, check_output, shots, show
from replaybench.runtime.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"


def asked(plant: str, policy: tuple[Path, int | None] | None = None, seconds: float | None = 0.4) -> Asked:
    return Asked(plant, policy, None, None, None, 0, seconds)


def stored(folder: Path, plant: str) -> Path:
    kind, config = load_learner("DDPG")
    agent = kind(config(), LearnerSetting(Task(1, 1, 0.95, 1.0), 0, range(3), 25.0))
    cell = {"plant": plant, "observe": ["angle"], "learner": "DDPG", "strategy": "FULL[PER]", "noise": 0.1}
    path = folder / "policy.safetensors"
    write_policy(path, agent.weights(), {"cell": cell, "policy": policy_facts("DDPG", agent, 25.0)})
    return path


@pytest.mark.parametrize("plant", ["Magman", "MujocoHopper", f"{EXAMPLES / 'cart_pole.py'}:CartPole"])
def test_plants_move_in_a_film(plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(asked(plant), tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        pictures = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
        assert film.info["loop"] == 0
    assert len(pictures) >= 4
    assert all((a != b).any() for a, b in itertools.pairwise(pictures))
    text = capsys.readouterr().out
    assert f"({len(pictures)} pictures" in text
    assert "under random actions; rewards add up to" in text


def test_speed_and_length_of_a_film(tmp_path: Path) -> None:
    show(asked("gymnasium:MountainCar-v0", seconds=math.inf), tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(film)]
    assert set(durations[:-1]) == {60, 70}  # 15 pictures a second, in a format that counts in 10 ms
    assert sum(durations[:-1]) / (len(durations) - 1) == pytest.approx(1000 / 15, rel=0.01)


def test_a_policy_acts_at_its_rate_on_what_it_observes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, "PendulumDCSC")
    show(asked("pendulumdcsc", (path, 2)), tmp_path / "film.mp4")
    assert "PendulumDCSC under DDPG FULL[PER], member 2" in capsys.readouterr().out
    ffmpeg = importlib.import_module("imageio_ffmpeg")
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "film.mp4"))
    assert (count, seconds) == (11, pytest.approx(11 / 25, abs=0.01))
    with pytest.raises(UserError, match="is a policy for PendulumDCSC, not for Magman"):
        show(asked("Magman", (path, 0)), tmp_path / "x.gif")
    assert not (tmp_path / "x.gif").exists()


def test_a_recurrent_policy_keeps_its_state_within_an_episode() -> None:
    kind, config = load_learner("DDPG")
    agent = kind(config(memory=MemoryConfig()), LearnerSetting(Task(2, 1, 0.95, 1.0), 0, range(1), 50.0))
    policy = Policy(agent, {"policy": policy_facts("DDPG", agent, 50.0)})
    begin, row = act_with(policy), np.full((1, 2), 0.5, np.float32)
    act = begin()
    first = act(row)
    assert first != act(row)
    assert first == begin()(row), "an episode begins with an empty state"


def test_pictures_are_taken_every_so_many_steps_and_at_the_end() -> None:
    plant = make_plant("PendulumDCSC")
    scene = Scene(plant, 50.0, 0.0, (), 3, 11)
    every = list(shots(scene, act_randomly(scene)))
    some = list(shots(scene, act_randomly(scene), 4))
    assert [shot.last for shot in every] == [False] * 11 + [True]
    assert len(some) == 4
    assert sum(shot.reward for shot in some) == pytest.approx(sum(shot.reward for shot in every))
    np.testing.assert_array_equal(some[-1].picture, every[-1].picture)


def test_short_episodes_follow_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a hopper under random actions end after a tenth of a second."""
    show(asked("MujocoHopper", seconds=None), tmp_path / "film.gif")
    text = capsys.readouterr().out
    assert re.search(r"\(\d+ pictures, [34]\.\d s", text)
    assert re.search(r"rewards add up to [\d.]+ over \d+ episodes", text)
    plant = make_plant("PendulumDCSC")
    scene = Scene(plant, 50.0, 0.0, (), 3, 1000, 250)
    lasts = [shot.last for shot in shots(scene, act_randomly(scene), 50)]
    assert lasts == [*[False] * 4, True] * 2, "an episode is completed, and none begins after the least steps"


def test_slow_plants_are_shown_faster_and_to_their_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(asked("Drafting", seconds=None), tmp_path / "film.gif")
    text = capsys.readouterr().out
    assert "10 times as fast" in text
    with Image.open(tmp_path / "film.gif") as film:
        assert getattr(film, "n_frames", 0) > 2
        assert film.info["duration"] == 100


def test_impossible_formats_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("film.avi", "film"):
        with pytest.raises(UserError, match=r"must end in \.gif or \.mp4"):
            check_output(tmp_path / name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"replaybench\[film\]"):
        check_output(tmp_path / "film.mp4")


def test_without_a_display_no_window_is_tried() -> None:
    program = (
        "import os; [os.environ.pop(n, None) for n in ('DISPLAY', 'WAYLAND_DISPLAY', 'MPLBACKEND')]\n"
        "from replaybench.reports.films import check_output\n"
        "from replaybench.runtime.errors import UserError\n"
        "try: check_output(None)\nexcept UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "there is no display for a window here" in done.stdout
