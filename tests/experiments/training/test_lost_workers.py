"""A worker process that is lost loses its own task only, and that is done again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from replaybench.data.errors import UserError
from replaybench.experiments.progress.round import Report, Round
from replaybench.experiments.training.tasks import Job
from replaybench.experiments.training.workers import run_locally


def die_once(number: int, mark: Path, report: Report) -> int:
    if number == 0 and not mark.exists():
        mark.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    report(Round(number, reward=0.0))
    return number


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_lost_task_is_done_again(tmp_path: Path) -> None:
    done: dict[str, int] = {}
    reported: dict[str, Round] = {}
    tasks = [Job(str(number), die_once, (number, tmp_path / "mark")) for number in range(4)]
    run_locally(2, tasks, reported.__setitem__, done.__setitem__)
    assert done == {str(number): number for number in range(4)}
    assert reported == {str(number): Round(number, reward=0.0) for number in range(4)}
    assert (tmp_path / "mark").exists()


def test_a_task_that_kills_its_worker_every_time_is_one_line() -> None:
    with pytest.raises(UserError, match=r"died 3 times at the same task \(SIGKILL\)"):
        run_locally(1, [Job("x", die, ())], lambda key, done: None, lambda key, result: None)
