"""What tasks on a cluster say is told as said there; `test_workers.py` runs a real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from replaybench.envs.registry import make_plant
from replaybench.experiments import workers as cluster
from replaybench.experiments.progress import Report
from replaybench.experiments.tasks import Job
from replaybench.runtime.errors import UserError


def plant_of_a_file(name: str, report: Report) -> None:
    make_plant(name)


def number(found: int, report: Report) -> int:
    if found == 0:
        raise UserError("zero")
    return found


@contextlib.contextmanager
def threads(address: str) -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_finished_tasks_are_stored_though_another_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_executor", threads)
    monkeypatch.setattr(cluster, "wait", lambda futures, **_: (wait(futures).done, set()))
    stored: dict[str, int] = {}
    with pytest.raises(UserError, match="zero"):
        cluster.run_on_cluster("", [Job(f"{n}", number, (n,)) for n in range(20)], print, stored.__setitem__)
    assert stored == {f"{n}": n for n in range(1, 20)}


def test_a_file_that_workers_do_not_have_is_told_as_missing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_executor", threads)
    told = (
        f"^on a worker of the cluster: no plant file 'own.py' in {tmp_path}, where this runs; give the path of a Python"
    )
    with pytest.raises(UserError, match=told):
        cluster.run_on_cluster("", [Job("x", plant_of_a_file, ("own.py:Mine",))], print, print)
