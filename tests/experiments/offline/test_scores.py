"""What an offline replay is compared with, in its table, its file and its report."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from drawn_studies import UNKNOWN, USABLE
from recorded import buffer, collect

from replaybench.baselines.references import Reference
from replaybench.data.record import write_record
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.exchange.offline_scores import KIND, OfflineScores, read_scores
from replaybench.exchange.recorded_buffer import read_recording, recorded_rewards
from replaybench.experiments.comparison import NONE_BEATS_RANDOM
from replaybench.reports.page.report import show_report
from replaybench.runtime.errors import UserError

ABOUT = {
    "learner": "TD3+BC",
    "strategy": "FULL[Uniform]",
    "buffer": "logs/<rig>.h5",
    "plant": "rig.py:<b>Rig",
    "noise": 0,
}


def scores(final: float, recorded: float = -60.0, reference: Reference = USABLE) -> OfflineScores:
    reward = final + np.zeros((8, 3))
    online = {"online: FIFO[Uniform]": [-30.0, -35.0]}
    return OfflineScores(ABOUT, np.array([0, 10, 20]), reward, np.array([recorded]), online, reference)


def test_the_recording_and_controllers_that_learn_nothing_are_rows() -> None:
    rows = {name: (reward, score) for name, reward, score in scores(-55.0).rows()}
    assert rows["the recording itself: <rig>.h5"][0] == "-60.00"
    assert rows["random control"] == (f"{USABLE.random:.2f}", "0.00")
    assert rows["doing nothing"][0] == f"{USABLE.zero:.2f}"
    assert rows["dynamic programming"][1] == "1.00"
    assert "online: FIFO[Uniform]" in rows
    assert {score for *_, score in scores(-55.0, reference=UNKNOWN).rows()} == {"–"}


def test_what_is_below_random_control_or_the_recording_is_the_headline() -> None:
    assert scores(-55.0).headlines() == []
    (below,) = scores(-65.0).headlines()
    assert "below the recording" in below
    assert scores(USABLE.random - 1).headlines() == [NONE_BEATS_RANDOM, below]
    assert scores(-65.0, np.nan).headlines() == []


@pytest.mark.parametrize("whole", [True, False], ids=["read", "streamed"])
def test_the_reward_of_a_recording_is_that_of_its_steps(whole: bool, tmp_path: Path) -> None:
    arrays = collect(Pendulum(), 3)
    path = buffer(tmp_path / "b.h5", arrays)
    expected = arrays["reward"].astype(np.float64).mean(axis=(1, 2))
    np.testing.assert_allclose(recorded_rewards(read_recording(path, whole=whole)), expected, rtol=1e-6)
    forgot = buffer(tmp_path / "f.h5", arrays | {"collected": arrays["collected"] * 2})
    np.testing.assert_allclose(recorded_rewards(read_recording(forgot, whole=whole)), expected, rtol=1e-6)


def test_the_return_of_episodes_that_are_not_whole_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pendulum, "episode_metric", "return")
    arrays = collect(Pendulum(), 3)
    path = buffer(tmp_path / "b.h5", arrays)
    sums = arrays["reward"].astype(np.float64).sum(axis=(1, 2)) / 3
    np.testing.assert_allclose(recorded_rewards(read_recording(path)), sums, rtol=1e-6)
    assert recorded_rewards(read_recording(path, whole=False)).size == 0


def test_a_report_of_an_offline_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It escapes what files say, and its figure is one of Plotly's."""
    told = scores(-65.0)
    told.write(tmp_path / "scores.h5")
    again = read_scores(tmp_path / "scores.h5")
    assert (again.rows(), again.headlines()) == (told.rows(), told.headlines())
    show_report(tmp_path, None)
    assert "report.html" in capsys.readouterr().out
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "below the recording itself" in html
    assert "<b>Rig" not in html
    assert "<rig>" not in html
    (figure,) = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    traces = go.Figure(json.loads(figure)).data
    assert len(traces) == 7
    assert not any("<" in (trace.name or "") for trace in traces)


def test_scores_that_are_no_comparison_are_told_in_a_line(tmp_path: Path) -> None:
    path, arrays = tmp_path / "scores.h5", {"updates": np.arange(2), "reward_greedy": np.zeros((3, 2))}
    write_record(path, KIND, ABOUT, arrays)
    with pytest.raises(UserError, match="older version"):
        read_scores(path)
    compared = {"online": {}, "reference": dataclasses.asdict(USABLE)}
    write_record(path, KIND, ABOUT | compared, arrays | {"reward_recorded": np.zeros((2, 2))})
    with pytest.raises(UserError, match="do not belong together"):
        read_scores(path)
    write_record(path, KIND, ABOUT | compared | {"online": 3}, arrays | {"reward_recorded": np.zeros(1)})
    with pytest.raises(UserError, match="online"):
        read_scores(path)
