"""`Mix`: the composition of batches, the checks of its file, and runs that are stopped and continued."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replaybench.data.run_folder import RunFolder
from replaybench.evidence.contracts import difference
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import replaced, resolved, write_toml
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.storage.replayed import ReplayTally
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.mixed import FixedExperiences
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.user_file import names_from
from tests.helpers.cells import assert_resumes
from tests.helpers.refusals import refuses

FIELDS, MEMBERS, STORED = step_fields(2, 1), 3, (40, 25)
FILE_REWARD = 1000


def fixed() -> FixedExperiences:
    """Return two recordings whose rewards are their places, from 1000 and from 2000 on, in episodes of five steps."""
    place = np.arange(max(STORED))
    reward = FILE_REWARD * np.arange(1, 3)[:, None] + place
    following = np.where((place % 5 < 4) & (place < np.array(STORED)[:, None] - 1), place + 1, -1)
    fields = {name: np.zeros((2, len(place), width), np.float32) for name, width in FIELDS.items()}
    fields["reward"][:, :, 0] = reward
    fields["next_observation"][:] = reward[..., None] + 1
    return FixedExperiences(fields, np.array(STORED), following.astype(np.int32))


def filled(strategy: str, batch: int = 16, **options: Any) -> Replay:
    replay = Replay(parse(strategy), FIELDS, 50, 0, range(MEMBERS), batch, fixed=fixed(), **options)
    rng = np.random.Generator(np.random.PCG64(1))
    for _ in range(80):
        step = {name: rng.random((MEMBERS, width), np.float32) for name, width in FIELDS.items()}
        replay.add(step | {"td_error": rng.random((MEMBERS, 1), np.float32)}, np.ones(MEMBERS, np.bool_))
    return replay


def test_a_share_of_each_batch_is_drawn_uniformly_from_the_members_recording() -> None:
    replay, counts = filled("Mix(a.h5, share=0.25)*FIFO[Uniform]"), np.zeros((MEMBERS, max(STORED)))
    for _ in range(100):
        reward = replay.sample(updates=4).reward[..., 0].reshape(MEMBERS, -1)
        assert ((reward >= FILE_REWARD).reshape(-1, 16).sum(axis=1) == 4).all()
        for m in range(MEMBERS):
            drawn = reward[m][reward[m] >= FILE_REWARD] - FILE_REWARD * (1 + m % 2)
            np.add.at(counts[m], drawn.astype(int), 1)
    for m in range(MEMBERS):
        stored = STORED[m % 2]
        assert counts[m, :stored].sum() == 1600
        assert stats.chisquare(counts[m, :stored]).pvalue > 1e-3


def test_rules_of_the_strategy_see_the_running_buffer_only() -> None:
    """The other samples and their weights are those of a smaller batch without the file, also after TD errors."""
    mixed, alone = filled("Mix(a.h5, share=0.25)*TDE[PER+IS]"), filled("TDE[PER+IS]", batch=12)
    rng = np.random.Generator(np.random.PCG64(2))
    for _ in range(20):
        batch, own = mixed.sample(), alone.sample()
        for name in ("idx", "serial", "probability", "weight", "actor_weight", "reward"):
            np.testing.assert_array_equal(getattr(batch, name)[:, :12], getattr(own, name))
        assert (batch.weight[:, 12:] == 1).all()
        error = rng.random((MEMBERS, 16), np.float32)
        mixed.annotate(batch, {"td_error": error})
        alone.annotate(own, {"td_error": error[:, :12]})
    other = {name: array for name, array in mixed.state_dict().items() if name != "mix_stream"}
    assert not difference(other, alone.state_dict())


@pytest.mark.parametrize(("share", "anneal", "counts"), [(1.0, 0.5, [16, 8, 0, 0]), (0.3, "none", [5, 5, 5, 5])])
def test_the_share_falls_to_0_over_a_part_of_the_run(share: float, anneal: Any, counts: list[int]) -> None:
    replay = filled(f"Mix(a.h5, share={share}, anneal={anneal})*FIFO[PER]")
    assert replay.strategy.anneals == (anneal != "none")
    for progress, count in zip((0, 0.25, 0.5, 1), counts, strict=True):
        reward = replay.sample(Context(progress=progress)).reward
        assert reward.shape == (MEMBERS, 16, 1)
        assert ((reward >= FILE_REWARD).sum(axis=(1, 2)) == count).all()


def test_rewards_of_the_file_are_summed_within_its_episodes() -> None:
    replay = filled("Mix(a.h5, share=1.0)*FIFO[Uniform]", n_step=3, discount=0.5)
    batch = replay.sample()
    assert batch.steps is not None
    for m in range(MEMBERS):
        for reward, successor, steps in zip(batch.reward[m], batch.next_observation[m], batch.steps[m], strict=True):
            last = int(successor[0]) - 1
            assert steps == min(3, 5 - (last - steps + 1) % 5) or last % 1000 == STORED[m % 2] - 1
            assert reward[0] == sum(0.5**i * (last - steps + 1 + i) for i in range(steps))


def test_samples_that_the_file_replaces_are_not_counted_as_replayed() -> None:
    replay = filled("Mix(a.h5, share=1.0)*FIFO[Uniform+Newest]")
    replay.tally = ReplayTally()
    replay.sample()
    measured = replay.tally.measure(replay.columns.serial, replay.collected, replay.count)
    assert np.isnan([*measured.values()]).all()


def test_an_empty_buffer_has_weights_of_0() -> None:
    replay = Replay(parse("Mix(a.h5)*FIFO[Uniform]"), FIELDS, 50, 0, range(2), 4, fixed=fixed())
    step = {name: np.ones((2, width), np.float32) for name, width in FIELDS.items()}
    replay.add(step, np.array([True, False]))
    batch = replay.sample()
    assert batch.weight.tolist() == batch.actor_weight.tolist() == [[1] * 4, [0] * 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mixed")
    made: dict[str, dict[str, Any]] = {"good": {}, "other": {"root_seed": 1}, "fast": {"frequency": (100.0,)}}
    for name, changes in made.items():
        (cell,) = study(place, "FULL[Uniform]", **changes).cells()
        run_cell(cell, place / name, "final")
        shutil.move(place / name / "buffer.h5", place / f"{name}.h5")
    (place / "log.csv").write_text("time,angle\n")
    return place


def study(folder: Path, strategy: str = "Mix(good.h5)*FIFO[Uniform]", **changes: Any) -> Study:
    usual = {"name": "m", "plants": ("Pendulum",), "seeds": 2, "episodes": 3, "greedy_every": 1, "folder": str(folder)}
    return Study(**{**usual, "strategies": (strategy,), **changes})


def one_cell(study: Study) -> Cell:
    (cell,) = study.cells()
    return cell


def test_a_stopped_run_resumes(folder: Path, tmp_path: Path) -> None:
    changes = {"learner": {"DDPG": {"n_step": 3}}}
    with names_from(str(folder)):
        assert_resumes(
            one_cell(study(folder, "Mix(good.h5, anneal=0.9)*FIFO(100)[PER+IS]", **changes)), tmp_path, (1, 2)
        )


def test_the_content_of_the_file_is_part_of_the_cell(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "good.h5", "good.h5")
    before = one_cell(study(tmp_path))
    stored = resolved(study(tmp_path), [before], tmp_path)
    assert one_cell(stored) == before
    assert "good.h5" in write_toml(stored)
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.study.write_text(write_toml(stored))
    assert replaced(run, study(tmp_path), [before]) is None
    shutil.copy(folder / "other.h5", "good.h5")
    assert one_cell(study(tmp_path)).id != before.id
    changed = [one_cell(study(tmp_path))]
    refuses("good.h5 holds other experiences than when the run .* began", replaced, run, study(tmp_path), changed)
    refuses("good.h5 holds other experiences than when this run began", stored.cells)
    refuses("good.h5 holds other experiences than when this run began", CellRun, before)


@pytest.mark.parametrize(
    ("strategy", "changes", "message"),
    [
        ("Mix(none.h5)*FIFO[Uniform]", {}, "none.h5"),
        ("Mix(good.h5, share=0.03)*FIFO[Uniform]", {}, "a share of 0.03 of a batch of 16 is no sample"),
        ("Mix(log.csv)*FIFO[Uniform]", {}, "log.csv is a log; make a buffer of it first"),
        ("Mix(good.h5)*FIFO[Uniform]", {"plants": ("Magman",)}, "was recorded on 'Pendulum', not on Magman"),
        ("Mix(fast.h5)*FIFO[Uniform]", {}, "with a control rate of 100 Hz, not 50 Hz; use a file of equal settings"),
        ("Mix(good.h5)*FIFO[Uniform]", {"plant": {"Pendulum": {"mass": 0.06}}}, "with mass = 0.05"),
        ("Mix(good.h5)*FIFO[Uniform]", {"observe": ("angle",)}, "with the states .*, not angle;"),
    ],
)
def test_files_that_do_not_fit_are_refused(strategy: str, changes: dict[str, Any], message: str, folder: Path) -> None:
    refuses(message, study(folder, strategy, **changes).cells)


@pytest.mark.parametrize("learner", ["ACER", "V-RACER"])
def test_learners_of_trajectories_are_refused(learner: str, folder: Path) -> None:
    with names_from(str(folder)):
        refuses("Mix replays single steps", CellRun, one_cell(study(folder, learners=(learner,))))
