"""Logs as loggers, spreadsheets and strangers could write them, with what importing each must give.

    python -m benchmarks.endurance.forged_logs ROOM COUNT

imports COUNT logs of a pendulum and prints how many were read, refused, misread, ended in a traceback or killed the
process. A log is misread if it is imported with other steps than those that were recorded.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.io import savemat

_ROWS: Final = 60
_NAMES: Final = ("angle", "angular velocity", "voltage")
_BATCH: Final = 250
_DEGREES: Final = (
    "{} [deg]",
    "{} (DEG)",
    "{}_deg",
    "{} in degrees",
    "{} / deg",
    "{} [Deg] raw",
    "{} <degree>",
    "{}Deg",
)
_UNITS: Final = ("[s],[deg],[deg/s],[V]", "s,DEG,Deg/s,V", "(s),(degrees),(degrees/s),(Volt)", "# s,deg,dps,V")
_EPISODES: Final = (
    "done",
    "dones",
    "terminals",
    "timeouts",
    "is_last",
    "is_first",
    "run",
    "trial",
    "episode_id",
    "traj",
)
_MARKS: Final = (1e30, -9999.0, -32768.0, 99999.0, -999.0)
_SUFFIXES: Final = (".csv", ".npz", ".mat", ".parquet", ".v73")


def _recorded() -> dict[str, Any]:
    time = 0.02 * np.arange(_ROWS)
    return {"time": time, "angle": 4 * np.sin(time), "angular velocity": 4 * np.cos(time), "voltage": np.sin(9 * time)}


def _write(path: Path, table: dict[str, Any], mark: str = ",") -> Path:
    """Write a table in the form that the suffix selects, and return the path of the file."""
    named = {name.replace(" ", "_"): np.asarray(column, np.float64) for name, column in table.items()}
    if path.suffix == ".npz":
        np.savez(path, **named)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    elif path.suffix == ".mat":
        savemat(path, {name: column for name, column in named.items() if name.isidentifier()})
    elif path.suffix == ".v73":
        path = path.with_suffix(".mat")
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, column in named.items():
                file[name] = column[None]
                file[name].attrs["MATLAB_class"] = np.bytes_(b"double")
        with path.open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    else:
        np.savetxt(path, np.stack([*table.values()], 1), "%.9g", mark, header=mark.join(table), comments="")
    return path


def _degrees(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    table = _recorded()
    table |= {name: np.degrees(table[name]) / 60 for name in _NAMES[:2]}  # small enough to pass for radians
    if chance.random() < 0.5:
        title = chance.choice(_DEGREES)
        suffix = chance.choice((".csv", ".parquet"))
        path = folder / f"log{suffix}"
        return _write(path, {title.format(name) if name == "angle" else name: c for name, c in table.items()}), None
    path = _write(folder / "log.csv", table)
    header, rest = path.read_text().split("\n", 1)
    rows = [header, chance.choice(_UNITS)]
    if chance.random() < 0.5:
        rows.insert(1, "Time,Pole angle,Pole speed,Motor")
    elif chance.random() < 0.5:
        rows.reverse()
    path.write_text("\n".join([*rows, rest]))
    return path, None


def _episodes(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    name, length, rows = chance.choice(_EPISODES), chance.choice((10, 15, 20, 30)), np.arange(_ROWS)
    column = rows // length if name in ("run", "trial", "episode_id", "traj") else rows % length == length - 1
    column = rows % length == 0 if name == "is_first" else column
    path = _write(folder / f"log{chance.choice(_SUFFIXES)}", _recorded() | {name: column * 1.0})
    return path, _ROWS - _ROWS // length


def _missing(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    table, start = _recorded(), chance.randrange(_ROWS - 5)
    table["angle"][start : start + chance.randint(1, 5)] = chance.choice(_MARKS)
    return _write(folder / f"log{chance.choice(_SUFFIXES)}", table), None


def _blocks(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    path = _write(folder / "log.csv", {"k": np.arange(_ROWS), **_recorded()} if chance.random() < 0.3 else _recorded())
    header, *rows = path.read_text().splitlines()
    length, parted = chance.choice((10, 20, 30)), chance.choice(("", "\n", header, " ", "," * header.count(",")))
    for at in range(_ROWS - length, 0, -length):
        rows.insert(at, parted)
    path.write_text("\n".join([header, *rows, ""]))
    return path, _ROWS - _ROWS // length


def _fractions(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    step, table = chance.choice((5, 20, 25, 33)), _recorded()
    form = chance.choice(("{}.{}", "2024-03-31 01:59:{:02}.{}", "31.03.2024 01:59:{:02}.{}"))
    stamps = [form.format(*divmod(step * k, 1000)) for k in range(_ROWS)]
    rows = [",".join([s, *(f"{table[n][k]:.9g}" for n in _NAMES)]) for k, s in enumerate(stamps)]
    (folder / "log.csv").write_text("\n".join([",".join(("time", *_NAMES)), *rows]))
    return folder / "log.csv", None


def _heads(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    mark = chance.choice((",", ";", "\t", "|"))
    path = _write(folder / "log.csv", _recorded(), mark)
    above = chance.choice(("", f"Rate{mark}50{mark}{mark}\n", "Rig 3\n", '"Rig, hall"\n', "# a comment\n"))
    text = path.read_text()
    if chance.random() < 0.5:
        text = text.replace("angle", '"angle\n[rad]"', 1)
    path.write_text(above * chance.choice((1, 20, 300)) + text)
    return path, _ROWS - 1


def _damaged(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    path = _write(folder / f"log{chance.choice(_SUFFIXES)}", _recorded())
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 2, 20))):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content[: chance.choice((len(content), len(content), len(content) // 2))])
    return path, None


def _forged(folder: Path, chance: random.Random) -> tuple[Path, int | None]:
    """Write a MATLAB file of version 7.3 whose attributes have any type, also one that only pretends to be text."""
    path = _write(folder / "log.v73", _recorded())
    types = (h5py.vlen_dtype(np.uint8), h5py.vlen_dtype(np.float64), np.dtype("V9"), np.dtype("u1"), h5py.ref_dtype)
    with h5py.File(path, "r+") as file:
        for name in file:
            del file[name].attrs["MATLAB_class"]
            dtype, size = chance.choice(types), chance.choice((1, 3))
            stored = np.zeros(size, dtype)
            if dtype.kind == "O" and not h5py.check_ref_dtype(dtype):
                stored[:] = [np.array([100, 111, 117], h5py.check_vlen_dtype(dtype)) for _ in range(size)]
            if h5py.check_ref_dtype(dtype):
                stored[:] = file[name].ref
            file[name].attrs.create("MATLAB_class", stored, dtype=dtype)
    content = bytearray(path.read_bytes())
    for at in [i for i in range(len(content) - 4) if content[i] & 0x0F == 9 and content[i + 1] < 2][:200]:
        if chance.random() < 0.3:
            content[at + 1] = chance.randrange(16)  # the class of a list of any length
    path.write_bytes(content)
    return path, None


_CASES: Final = (_degrees, _episodes, _missing, _blocks, _fractions, _heads, _damaged, _forged)
_FREE: Final = (_damaged, _forged)
"""Cases in which any content may be read, because damage also changes numbers."""


def _end_of(path: Path, steps: int | None, free: bool) -> str:
    """Import a log, and return how that ended, where `steps` are the steps to find and None is to be refused."""
    from replaybench.data.logs.log import read_log
    from replaybench.envs.ode.pendulum import Pendulum
    from replaybench.exchange.log_columns import reserved_names
    from replaybench.exchange.logs_to_buffer import convert
    from replaybench.runtime.errors import UserError

    plant, columns = Pendulum(), {}
    try:
        for _ in range(2):
            try:
                log = read_log(path, None, False, reserved_names(plant, columns))
                arrays, _, _ = convert(log, plant, columns)
                return "read" if free or arrays["count"].tolist() == [steps] else "misread"
            except UserError as error:
                if "\n" in str(error).replace("\n  ", ""):
                    return "loud"
                # A user then gives the proposed columns.
                log = read_log(path, None, False, reserved_names(plant, columns))
                columns = {"angle": next(name for name in log.columns if name.startswith("angle"))}
    except UserError:
        return "refused"
    except StopIteration:
        return "refused"
    except Exception:
        traceback.print_exc()
        return "loud"
    return "refused"


def import_forged(room: Path, count: int) -> dict[str, Counter[str]]:
    """Import `count` logs in processes of their own, and return how many ended in which way, by case."""
    found: dict[str, Counter[str]] = {case.__name__: Counter() for case in _CASES}
    first = 0
    while first < count:
        last = min(first + _BATCH, count)
        words = [sys.executable, "-m", "benchmarks.endurance.forged_logs", str(room), str(last), str(first)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                case, end = json.loads(line)
                found[case][end] += 1
                first += 1
        if process.returncode:
            found[_CASES[first % len(_CASES)].__name__]["crashed"] += 1
            first += 1
    return found


if __name__ == "__main__":
    room, count, *begin = sys.argv[1:]
    Path(room).mkdir(exist_ok=True)
    if not begin:
        for case, ends in import_forged(Path(room), int(count)).items():
            print(case, dict(ends))
        sys.exit()
    for number in range(int(begin[0]), int(count)):
        case, chance = _CASES[number % len(_CASES)], random.Random(number)
        for old in Path(room).iterdir():
            old.unlink()
        with contextlib.redirect_stderr(open(os.devnull, "w")):
            path, steps = case(Path(room), chance)
            end = _end_of(path, steps, case in _FREE)
        print(json.dumps([case.__name__, end]), flush=True)
