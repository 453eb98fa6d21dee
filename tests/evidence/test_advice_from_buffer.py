"""Advice from a buffer file: the curve that it holds, what it says of the plant, and what it cannot say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.envs.ode.pendulum import Pendulum
from replaybench.evidence.advice.advise import advise_on_buffer
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.recorded import Arrays, buffer, collect
from tests.helpers.refusals import refuses

EPISODES, STEPS = 40, Pendulum().steps_per_episode(50)


def explored(*amplitudes: float) -> np.ndarray:
    """Return amplitudes of exploration that are each kept for an equal part of the run `[2, n, 1]`."""
    return np.tile(np.repeat(np.array(amplitudes, np.float32), EPISODES * STEPS // len(amplitudes)), (2, 1))[..., None]


@pytest.fixture(scope="module")
def learned() -> Arrays:
    """Two recordings of 40 episodes that get better until the 20th, and of exploration that falls to a quarter."""
    arrays = collect(Pendulum(), EPISODES)
    along = np.clip(np.arange(EPISODES) / 20, 0, 1).repeat(STEPS)
    arrays["reward"] = np.tile(-10 + 8 * along, (2, 1)).astype(np.float32)[..., None]
    return arrays | {"exploration": explored(0.4, 0.1)}


def without(arrays: Arrays, *names: str) -> Arrays:
    return {name: array for name, array in arrays.items() if name not in names}


def said_of(path: Path, **asked: Any) -> tuple[Any, str]:
    found = advise_on_buffer(path, **{"plant": None, "memory": 0, "noise": None} | asked)
    return found, " ".join(found.cautions)


def test_the_curve_is_that_of_the_episodes_in_their_order(tmp_path: Path, learned: Arrays) -> None:
    order = np.random.Generator(np.random.PCG64(2)).permutation(EPISODES * STEPS)
    shuffled = {name: array[:, order] if array.ndim > 1 else array for name, array in learned.items()}
    for arrays in (learned, shuffled):
        found, _ = said_of(buffer(tmp_path / "b.h5", arrays, source="import", cell=None))
        # The first twentieth, two episodes, is where it began: −9.8. Nine tenths from there to −2 are −2.78, which the
        # mean of two episodes has reached with the 20th.
        assert (found.capacity.start, found.capacity.final) == pytest.approx((-9.8, -2.0))
        assert (found.capacity.steps, found.capacity.stored) == (20 * STEPS, EPISODES * STEPS)
        assert (found.seeds, found.episodes, found.frequency, found.noise) == (2, EPISODES, 50.0, 0.01)
        assert found.traits.decay == pytest.approx(4.0)
        assert found.traits.symmetry == pytest.approx(0.0, abs=1e-6)
        assert found.traits.authority is not None
        votes = [each.candidate.votes for each in found.ranked]
        assert votes == sorted(votes, reverse=True)
        assert found.chosen is found.ranked[0]
        assert found.chosen.capacity in (None, 20 * STEPS)


def test_noise_is_the_files_unless_it_is_told(tmp_path: Path, learned: Arrays) -> None:
    path = buffer(tmp_path / "b.h5", learned, noise=None)
    for told, noise, prioritised in ((None, 0.0, True), (0.02, 0.02, False)):
        found, cautions = said_of(path, noise=told)
        assert (found.noise, found.traits.noise) == (told, noise)
        assert (found.chosen.name.endswith("[PER]"), "--noise" in cautions) == (prioritised, prioritised)


def test_what_does_not_fit_is_not_proposed(tmp_path: Path, learned: Arrays) -> None:
    path = buffer(tmp_path / "b.h5", learned)
    for memory, fits in ((EPISODES * STEPS - 1, False), (EPISODES * STEPS, True)):
        found, _ = said_of(path, memory=memory)
        assert any(each.candidate.retention == "FULL" for each in found.ranked) == fits
        assert all((each.capacity or 0) <= memory for each in found.ranked)
    assert said_of(path, memory=100)[0].traits.memory == pytest.approx(100 / (20 * STEPS))


def test_a_capacity_that_holds_the_whole_log_is_not_proposed(tmp_path: Path, learned: Arrays) -> None:
    """Neither where the 90 % rule has no answer, nor where it asks for the whole log."""
    whole, path = EPISODES * STEPS, tmp_path / "b.h5"
    late = learned | {"reward": learned["reward"] * 0 - 1}
    late["reward"][:, : whole - STEPS] = -10 + np.linspace(0, 0.1, whole - STEPS)[:, None]
    for arrays in (learned, late, without(learned, "episode")):
        for memory in (0, whole, whole - 1):
            found, _ = said_of(buffer(path, arrays), memory=memory)
            assert all((each.capacity or 0) < whole for each in found.ranked)
    for arrays in (late, without(learned, "episode")):
        found, said = said_of(buffer(path, arrays))
        assert {each.candidate.retention for each in found.ranked} == {"FULL"}
        assert "bounded retentions are left out" in said


def test_what_a_file_lacks_is_not_made_up(tmp_path: Path, learned: Arrays) -> None:
    path, level = tmp_path / "b.h5", np.random.Generator(np.random.PCG64(3)).normal(-3, 1, (2, EPISODES, 1))
    cases = (
        (learned | {"collected": learned["collected"] + 1}, "some collected experiences are not stored"),
        (learned | {"reward": level.repeat(STEPS, axis=1).astype(np.float32)}, "its episodes do not significantly"),
        (without(learned, "episode"), "the file does not say where episodes begin"),
        (learned | {"episode": learned["episode"] // 3}, "14 whole episodes are too few"),
        (learned | {"episode": learned["episode"] * 0, "episode_begins": np.zeros(2, np.uint8)}, "0 whole episodes"),
    )
    for arrays, why in cases:
        found, said = said_of(buffer(path, arrays))
        assert found.capacity is None
        assert f"the 90 % rule gives no capacity: {why}" in said
    found, said = said_of(buffer(path, without(learned, "exploration"), cell=None))
    assert (found.traits.decay, "was exploration is not known" in said) == (None, True)


def test_an_episode_under_way_and_failed_recordings_are_left_out(tmp_path: Path, learned: Arrays) -> None:
    begins = learned | {"episode_begins": np.array([1, 0], np.uint8)}
    found, _ = said_of(buffer(tmp_path / "b.h5", begins))
    assert (found.episodes, found.capacity.stored) == (EPISODES - 1, (EPISODES - 1) * STEPS)
    broken = {name: array.copy() for name, array in learned.items()}
    broken["reward"][0, 7] = np.nan
    found, said = said_of(buffer(tmp_path / "b.h5", broken, plant_fingerprint="another"))
    assert found.seeds == 1
    assert "1 recording(s) hold NaN" in said
    assert "Pendulum has changed since" in said


def test_segments_are_read_as_steps(tmp_path: Path, learned: Arrays) -> None:
    """Of 20 steps each: the same curve, and no memory below a batch of four of them."""
    whole, length = EPISODES * STEPS, 20
    cut: Arrays = {}
    for name, array in learned.items():
        if array.ndim == 3:
            cut[name] = array.reshape(2, whole // length, length, -1)
        elif name in ("serial", "episode", "step"):
            cut[name] = array[:, ::length]
    cut["length"] = np.full((2, whole // length), length, np.uint16)
    cut |= {"count": np.full(2, whole // length), "offers": np.full(2, whole // length), "collected": np.full(2, whole)}
    unit = {"kind": "segment", "steps": length}
    fields = {name: array.shape[-1] for name, array in learned.items() if array.ndim == 3}
    path = buffer(tmp_path / "b.h5", cut, unit=unit, batch_size=4, fields=fields)
    found, _ = said_of(path)
    assert (found.capacity.steps, found.capacity.stored) == (20 * STEPS, whole)
    refuses("--memory 79 is smaller than a batch of 80", said_of, path, memory=79)
    assert said_of(path, memory=80)[0].ranked[0].capacity == 80


def test_a_buffer_that_forgot_does_not_pass_for_the_whole_run(tmp_path: Path, learned: Arrays) -> None:
    """FULL would have to keep all that was collected, of which this file has a tenth."""
    forgot = learned | {"collected": learned["collected"] * 10, "serial": learned["serial"] + EPISODES * STEPS * 9}
    path = buffer(tmp_path / "b.h5", forgot)
    for memory, fits in ((EPISODES * STEPS, False), (EPISODES * STEPS * 10, True)):
        assert any(each.candidate.retention == "FULL" for each in said_of(path, memory=memory)[0].ranked) == fits


def test_a_rate_that_the_plant_cannot_have_leaves_traits_unknown(tmp_path: Path, learned: Arrays) -> None:
    found, said = said_of(buffer(tmp_path / "b.h5", learned, frequency=0.001))
    assert (found.traits.authority, found.traits.symmetry) == (None, None)
    assert "cannot have the recording's rate" in said


@pytest.mark.parametrize(("last", "decay"), [(0.0, np.inf), (0.4, 1.0)])
def test_decay_is_measured_or_that_of_settings(tmp_path: Path, learned: Arrays, last: float, decay: float) -> None:
    arrays = learned | {"exploration": explored(0.4, last)}
    assert said_of(buffer(tmp_path / "b.h5", arrays, cell=None))[0].traits.decay == decay
    exploration = {"first_amplitude": 1.0, "last_amplitude": 0.1, "decay_episodes": 2 * EPISODES}
    cell = {"learner": "DDPG", "settings": {"exploration": exploration}}
    assert said_of(buffer(tmp_path / "b.h5", arrays, cell=cell))[0].traits.decay == pytest.approx(1 / 0.55)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("b.h5", "--seeds", "4"), "--seeds is for new runs, but a buffer file"),
        (("b.h5", "--frequency", "20"), "--frequency is for new runs, but a buffer file"),
        (("run", "--budget-minutes", "4"), "--budget-minutes is for new runs, but a run folder"),
        (("none.h5",), "no such file: none.h5"),
        (("log.csv",), "is a log; make a buffer of it first: replaybench import log.csv"),
        (("b.h5", "--plant", "Magman"), "was recorded on 'Pendulum', not on Magman; name its own plant"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], said: str, learned: Arrays, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    buffer(Path("b.h5"), learned, parameters={})
    Path("run").mkdir()
    Path("log.csv").write_text("time,angle\n0,1\n")
    assert said in refused(capsys, "advise", *words)


def test_text_and_json_agree(tmp_path: Path, learned: Arrays, capsys: Capsys) -> None:
    path = buffer(tmp_path / "b.h5", learned, noise=None)
    outputs = []
    for form in ("text", "json"):
        assert call("advise", path, "--format", form) == 0
        outputs.append(capsys.readouterr().out)
    text, record = outputs[0], json.loads(outputs[1])
    assert f"use {record['strategy']}" in text
    assert "noise not known" in text
    assert (record["tried"], record["noise"]) == ([], None)
    assert [each["strategy"] in text for each in record["ranked"][:6]] == [True] * 6
    assert "nothing was tried" in text
