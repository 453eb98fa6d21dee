"""Tasks for worker processes, which import this file and none of the tests'."""

import os
import signal
from pathlib import Path

from replaybench.experiments.progress import Report, Round


def die_once(number: int, mark: Path, report: Report) -> int:
    if number == 0 and not mark.exists():
        mark.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    report(Round(number, reward=0.0))
    return number


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def thread_settings(report: Report) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}


def leave(report: Report) -> None:
    os._exit(5)
