"""How timings are taken, told, and stored under `results/speed`, from which the tables of the documents are made.

Imported first by a script, this module fixes the number of threads of all libraries to one. A script is a set of
sections, each a piece of work that yields timings; a section that is run again replaces its stored form, the others
stay. Every section says when, where, from which commit and beside how busy a machine it was measured.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import contextlib
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "results" / "speed"
PEERS = ("stable_baselines3", "cpprb", "rltools", "mkl", "jax")
REPETITIONS = 7


@dataclass(frozen=True)
class Timing:
    """A measured value, beside a peer's where there is one.

    Attributes:
        what: what was timed.
        ours: the value, in `unit`; a median unless `what` says otherwise.
        unit: of both values.
        peer: the peer's value.
        rival: who the peer is.
        ratio: ours over the peer's; where both sides took turns, the median of the turns' ratios.
        least_ratio, least, most: bounds asked for, of the ratio or of our value.
        at: the point of a family of timings, such as capacity and batch.
        more: further values of the same measurement.
        series: what came of it over time, for figures; not printed.
    """

    what: str
    ours: float
    unit: str
    peer: float | None = None
    rival: str = ""
    ratio: float | None = None
    least_ratio: float | None = None
    least: float | None = None
    most: float | None = None
    at: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, list[float]] = field(default_factory=dict)

    def __str__(self) -> str:
        place = "".join(f", {name} {value:g}" for name, value in self.at.items())
        text = f"{self.what + place:64s} {_digits(self.ours)} {self.unit}"
        if self.peer is not None:
            text += f"  {self.rival} {_digits(self.peer)}"
        if self.ratio is not None:
            text += f"  {self.ratio:.2f}×"
        text += "".join(f"  {name} {_digits(value)}" for name, value in self.more.items())
        for bound, value in ((self.least_ratio, self.ratio), (self.least, self.ours)):
            if bound is not None and value is not None:
                text += f"  {'ok' if value >= bound else 'MISSED'} ≥ {bound:.3g}"
        if self.most is not None:
            text += f"  {'ok' if self.ours <= self.most else 'MISSED'} ≤ {self.most:.3g}"
        return text


Sections = Mapping[str, Callable[[], Iterable[Timing]]]


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def compared(what: str, ours: float, peer: float, unit: str, rival: str, **rest: Any) -> Timing:
    """Return a timing beside a peer's whose ratio is that of the two values."""
    return Timing(what, ours, unit, peer, rival, ours / peer, **rest)


def interleaved(*sides: Callable[[], float]) -> list[float]:
    """Return the median rate of each side, taken in turns; each call does a piece of work and returns its rate."""
    for side in sides:
        side()
    rates: list[list[float]] = [[] for _ in sides]
    for _ in range(REPETITIONS):
        for side, found in zip(sides, rates, strict=True):
            found.append(side())
    return [statistics.median(found) for found in rates]


def timed(work: Callable[[], object], amount: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Do the work and return amount per second of the `clock`."""
    began = clock()
    work()
    return amount / (clock() - began)


def circumstances(note: str = "") -> dict[str, Any]:
    """Return when, where and from what a measurement is made: date, commit, processor, load, versions."""
    from replaybench.runtime.provenance import this_code, utc_now

    code, versions = this_code(), dict(this_code().versions)
    for name in PEERS:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "date": utc_now(),
        "commit": f"{code.commit}-dirty" if code.dirty else code.commit,
        "processor": code.processor,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions,
        **({"note": note} if note else {}),
    }


def store(path: Path, section: str, made: Mapping[str, Any], seconds: float, timings: Iterable[Timing]) -> None:
    """Write a section into a script's file; its other sections stay as they are."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rows = [{name: value for name, value in asdict(timing).items() if value or value == 0} for timing in timings]
    stored[section] = {"made": dict(made), "seconds": round(seconds, 1), "timings": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(script: str, sections: Sections, prog: str | None = None) -> None:
    """Run those sections of a script that the command line names, or all; print their timings and store them.

    A word names a section, or all sections of which it is a part (`Hopper`; `small` for `small:SAC`). `prog` is how the
    script is called, where that is not by its name.
    """
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("section", nargs="*", help=", ".join(sections))
    parser.add_argument("--note", default="", help="what else is to be said of this run, stored with it")
    parser.add_argument("--dry", action="store_true", help="store nothing")
    parser.add_argument("--file", default=Path(script).stem, help="name of the stored file, for a further processor")
    chosen = parser.parse_args()
    for word in chosen.section:
        if not any(word in (name, *name.split(":")) for name in sections):
            parser.error(f"no section {word}; there are {', '.join(sections)}")
    warnings.simplefilter("ignore")
    for name, work in sections.items():
        if chosen.section and not {name, *name.split(":")} & set(chosen.section):
            continue
        made, began, found = circumstances(chosen.note), time.perf_counter(), []
        for timing in work():
            print(timing, flush=True)
            found.append(timing)
        seconds = time.perf_counter() - began
        print(f"[{name}: {seconds:.0f} s]", file=sys.stderr, flush=True)
        if not chosen.dry:
            store(FOLDER / f"{chosen.file}.json", name, made, seconds, found)
