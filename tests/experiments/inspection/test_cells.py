"""Cells of a run folder: what is asked for is asked for by the options of the command that was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from replaybench.cli.main import main
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.study import Study
from replaybench.experiments.study_record import write_provenance, write_toml


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder of eight cells, none of which has begun."""
    study = Study(
        name="cells", plants=("PendulumDCSC",), learners=("DDPG", "TD3"), strategies=("FULL[Uniform]", "FIFO[PER]"),
        noise=(0.0, 0.02), seeds=2, episodes=3,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    write_provenance(folder, study.name, study.cells(), complete=False)
    folder.study.write_text(write_toml(study))
    return folder.path


@pytest.mark.parametrize(
    ("command", "learner", "strategy"),
    [("replay", "--from-learner", "--from-strategy"), ("export-policy", "--learner", "--strategy")],
)
def test_the_remedy_is_an_option_of_the_command(
    command: str, learner: str, strategy: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"say which: {learner} DDPG or TD3; {strategy} 'FULL[Uniform]' or 'FIFO[PER]'; --noise 0 or 0.02"
    given = f"{strategy} chooses among the cells of a run folder"
    for words, said in (((run,), told), ((run / "study.toml", strategy, "FIFO[PER]"), given)):
        with pytest.raises(SystemExit) as ended:
            main([command, *map(str, words)])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
