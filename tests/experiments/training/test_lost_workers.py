"""A worker process that is lost loses its own task only, and that is done again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from replaybench.experiments.progress import Report, Round
from replaybench.experiments.tasks import Job
from replaybench.experiments.workers import run_locally
from replaybench.runtime.errors import UserError


def die_once(number: int, mark: Path, report: Report) -> int:
    if number == 0 and not mark.exists():
        mark.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    report(Round(number, reward=0.0))
    return number


def test_a_lost_task_is_done_again(tmp_path: Path) -> None:
    done: dict[str, int] = {}
    reported: dict[str, Round] = {}
    tasks = [Job(str(number), die_once, (number, tmp_path / "mark")) for number in range(4)]
    run_locally(2, tasks, reported.__setitem__, done.__setitem__)
    assert done == {str(number): number for number in range(4)}
    assert reported == {str(number): Round(number, reward=0.0) for number in range(4)}
    assert (tmp_path / "mark").exists()


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(report: Report) -> None:
    os._exit(5)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (die, r"died 3 times at the same task \(SIGKILL\), probably for lack of memory"),
        (leave, r"ended 3 times at the same task \(exit status 5\); its output"),
    ],
)
def test_a_task_that_ends_its_worker_every_time_is_one_line(end: Callable[[Report], None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_locally(1, [Job("x", end, ())], lambda key, done: None, lambda key, result: None)


SWEEP = """
import replaybench

replaybench.sweep(
    replaybench.Study(name="x", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=1, episodes=1), "run"
)
"""
TASK = """
from replaybench.experiments.tasks import Job
from replaybench.experiments.workers import run_locally

if __name__ != "__main__":
    raise LookupError("what it said")
run_locally(1, [Job("x", print, ())], print, print)
"""


@pytest.mark.parametrize(
    ("script", "said", "told"),
    [
        (SWEEP, 0, "the script calls replaybench.sweep as it is imported, and workers import it; put the call under"),
        (TASK, 3, "a worker process ended 3 times before it began (exit status 1); its output is above; a script"),
    ],
)
def test_a_script_that_begins_again_in_its_workers_is_told(tmp_path: Path, script: str, said: int, told: str) -> None:
    (tmp_path / "script.py").write_text(script)
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=here)
    assert ended.returncode == 1
    assert ended.stderr.count("LookupError: what it said") == said
    assert told in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].endswith("""under 'if __name__ == "__main__":'""")
