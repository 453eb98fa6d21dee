"""Every command in every kind of folder, as users and strangers leave them, and what becomes of the folder's files.

    python -m benchmarks.endurance.folders RUN ROOM

lets each command write into, and read, a folder of each kind, where RUN is a finished run; it prints how that ended.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.endurance.forging import end_of
from replaybench.runtime.atomic import MARK

_LONGEST: Final = 900
"""Seconds that a command may take; a file that a reader never finishes ends it."""
_MINE: Final = "mine # with a comment\n"
_STUDY: Final = 'plants = ["PendulumDCSC"]\nstrategies = ["FIFO[Uniform]"]\nseeds = 1\nepisodes = 2  # few\n'
_NAMES: Final = (
    *("study.toml", "results.nc", "provenance.json", "progress.jsonl", "report.html", "captions.txt", "offline.png"),
    *("solution.png", "advice.toml", "scores-PendulumDCSC.png", "cells/mine", "figures/mine", "solved/mine", "out.csv"),
)


def _foreign(place: Path, names: tuple[str, ...] = ("thesis.tex", ".download.partial/part")) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(_MINE)


def _copy(run: Path, place: Path) -> None:
    shutil.copytree(run, place, symlinks=True)


def _without(*names: str) -> Callable[[Path, Path], None]:
    def prepare(run: Path, place: Path) -> None:
        _copy(run, place)
        for name in names:
            (shutil.rmtree if (place / name).is_dir() else os.unlink)(place / name)

    return prepare


def _linked(run: Path, place: Path) -> None:
    """Copy a run in which links to foreign files and folders have taken the places of its own."""
    _copy(run, place)
    elsewhere = place.with_name("elsewhere")
    _foreign(elsewhere, _NAMES)
    for name in ("figures", "solved", "results.nc", "study.toml"):
        (shutil.rmtree if (place / name).is_dir() else os.unlink)(place / name)
        (place / name).symlink_to(elsewhere / name)


def _pipes(run: Path, place: Path) -> None:
    """Copy a run in which all files of its first cell, and those about the run, are pipes that nobody writes to."""
    _copy(run, place)
    first = min((place / "cells").iterdir())
    for path in (*place.iterdir(), *first.iterdir()):
        if path.is_file() and path.name not in (MARK, "study.toml"):
            path.unlink()
            os.mkfifo(path)


def _truncated(run: Path, place: Path) -> None:
    _copy(run, place)
    for path in place.rglob("*"):
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2)


def _linked_folder(run: Path, place: Path) -> None:
    _foreign(place.with_name("elsewhere"), _NAMES)
    place.symlink_to(place.with_name("elsewhere"))


_KINDS: Final[dict[str, Callable[[Path, Path], object]]] = {
    "new": lambda run, place: None,
    "empty": lambda run, place: place.mkdir(),
    "foreign": lambda run, place: _foreign(place),
    "foreign, with our names": lambda run, place: _foreign(place, _NAMES),
    "a link to a foreign folder": _linked_folder,
    "a link to nothing": lambda run, place: place.symlink_to("nowhere"),
    "a file": lambda run, place: place.write_text(_MINE),
    "own": _copy,
    "own, without its results": _without("results.nc", "figures"),
    "own, without its cells": _without("cells", "solved"),
    "own, without its study": _without("study.toml", "provenance.json"),
    "own, without its mark": _without(MARK),
    "own, truncated": _truncated,
    "own, with links": _linked,
    "own, with pipes": _pipes,
}


def _commands(run: Path, place: Path) -> list[list[str]]:
    """Return commands that write into a folder or a file in it, and commands that read it."""
    few = ["--seeds", "1", "--episodes", "2"]
    buffer, policy = (str(min(run.glob(f"cells/*/{name}"))) for name in ("buffer.h5", "policy.safetensors"))
    log, study, at, out = *(str(run.with_name(name)) for name in ("log.csv", "few.toml")), str(place), "-o"
    chosen = ["--learner", "DDPG", "--strategy", "FIFO[ERE]", "--seed", "0"]
    return [
        ["sweep", study, out, at],
        ["sweep", f"{at}/study.toml", out, at],
        ["reproduce", "debruin2018/fig12", "--set", "seeds=1", "episodes=2", "--dry-run", out, at],
        ["advise", "--plant", "PendulumDCSC", *few, "--probes", "1", "--budget-minutes", "0.2", out, at],
        ["baseline", "PendulumDCSC", out, at],
        ["replay", buffer, "--updates", "20", "--seeds", "2", out, at],
        ["figures", str(run), out, at],
        ["init", f"{at}/study.toml"],
        ["examples", at],
        ["table", str(run), out, f"{at}/out.csv"],
        ["claims", out, f"{at}/out.json"],
        ["report", str(run), out, f"{at}/report.html"],
        ["show", "PendulumDCSC", "--seconds", "0.1", "--plot", f"{at}/out.csv"],
        ["import", log, "--plant", "Pendulum", out, f"{at}/out.h5"],
        ["export", buffer, f"{at}/out.csv"],
        ["export-policy", policy, out, f"{at}/out.h"],
        ["inspect", buffer, "--figure", f"{at}/out.svg"],
        ["table", at],
        ["claims", at],
        ["report", at],
        ["figures", at],
        ["inspect", at],
        ["watch", at],
        ["advise", at],
        ["replay", at, *("--from-strategy", "FIFO[ERE]", "--seed", "0", "--updates", "20"), out, f"{at}-replayed"],
        ["export", at, *chosen, f"{at}-exported.csv"],
        ["export-policy", at, *chosen, out, f"{at}-exported.h"],
        ["show", "PendulumDCSC", "--policy", at, *chosen, "--seconds", "0.1", "--plot", f"{at}-shown.csv"],
        ["import", at, "--plant", "Pendulum", out, f"{at}-imported.h5"],
        ["check", at],
    ]


def _mine(room: Path) -> dict[str, str]:
    """Return the links below a folder, and the files that are the user's own, with their contents."""
    found = {}
    for path in room.rglob("*"):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file() and path.stat().st_size == len(_MINE) and path.read_text(errors="replace") == _MINE:
            found[str(path)] = _MINE
    return found


def _late(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("it does not end")  # a TimeoutError would be reported in one line, as errors of files are


def _try(run: Path, room: Path) -> Counter[str]:
    found: Counter[str] = Counter(read=0, refused=0, loud=0, lost=0)
    signal.signal(signal.SIGALRM, _late)
    run.with_name("few.toml").write_text(_STUDY)
    rows = "".join(f"{k / 50:.2f},0.1,0.2,0.3\n" for k in range(40))
    run.with_name("log.csv").write_text(f"time,angle,angular_velocity,voltage\n{rows}")
    for kind, prepare in _KINDS.items():
        for number in range(len(_commands(run, room))):
            shutil.rmtree(room, ignore_errors=True)
            room.mkdir()
            place = room / "place"
            prepare(run, place)
            before, words = _mine(room), _commands(run, place)[number]
            with contextlib.chdir(room):
                signal.alarm(_LONGEST)
                end = end_of(words)
                signal.alarm(0)
            after = _mine(room)
            lost = [path for path, content in before.items() if after.get(path) != content]
            if end == "loud" or lost:
                print(f"{kind}: {' '.join(words)}: {end}, lost {lost}", file=sys.stderr, flush=True)
            found.update({end: 1, "lost": len(lost)})
        print(f"{kind}: {dict(found)}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    run, room = (Path(word).resolve() for word in sys.argv[1:])
    print(json.dumps(_try(run, room)))
