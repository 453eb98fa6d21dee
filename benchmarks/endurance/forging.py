"""Files as a stranger could send them: damaged, or forged with their checksums in order, and what reading them does.

    python -m benchmarks.endurance.forging RUN ROOM SEED COUNT

reads COUNT of them made from a run's files, and prints how that ended.
"""

import contextlib
import copy
import io
import json
import math
import random
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

_BATCH: Final = 250
_LONGEST: Final = 3600.0
"""Seconds that a batch may take; a file that a reader never finishes ends it."""
_EVIL: Final = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 10**30, 10**400, 1e308, math.nan, math.inf, "", "x" * 5000, "\ud800", "\x1b[31m", "a\nb"),
    *([], {}, [[[]]], {"": 0}, "evil.py:Foo", "gymnasium:evil:Foo-v0", "gymnasium:a\n/evil.py:-X"),
    *("FIFO[evil.py:Foo]", "../../x"),
)


def read_forged(run: Path, room: Path, count: int) -> Counter[str]:
    """Read `count` forged files in processes of their own; return how many were read, refused, loud, or ran code."""
    found: Counter[str] = Counter(read=0, refused=0, loud=0, ran=0)
    for seed, first in enumerate(range(0, count, _BATCH)):
        size = min(_BATCH, count - first)
        words = ["-m", "benchmarks.endurance.forging", str(run), str(room / f"forged-{seed}"), str(seed), str(size)]
        told = '{"loud": 1}'
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, timeout=_LONGEST)
            told = done.stdout if done.returncode == 0 else told
        found.update(json.loads(told))
        print(f"forged {first + size}: {dict(found)}", file=sys.stderr, flush=True)
    return found


def _changed(facts: Any, chance: random.Random) -> Any:
    """Return facts with a forged value in the place of one of theirs, at any depth, or without it."""
    place = facts = copy.deepcopy(facts)
    while isinstance(place, dict | list) and place:
        key: Any = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
            place = place[key]
        elif chance.random() < 0.2:
            del place[key]
            break
        else:
            place[key] = chance.choice(_VALUES)
            break
    return facts


def _other(array: Any, chance: random.Random) -> Any:
    """Return another array in the place of one."""
    flat = np.array(array)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: flat[..., :0] if flat.ndim else flat,
        lambda: flat[None],
        lambda: flat.reshape(-1),
        lambda: flat.astype(np.float32),
        lambda: flat.astype(np.int8),
        lambda: np.full_like(flat, chance.choice((0, 1, 127))),
        lambda: np.full(flat.shape, chance.choice((math.nan, math.inf, -1e300))),
        lambda: np.concatenate([flat, flat]) if flat.ndim else flat,
    )
    with np.errstate(all="ignore"):
        return chance.choice(ways)()


def _damage(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    for _ in range(chance.choice((1, 2, 20)) if content else 0):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def _forge(path: Path, chance: random.Random) -> None:
    """Change what a file says, and write it as its own writer does."""
    from replaybench.data.policy_file import read_policy, write_policy
    from replaybench.data.record import read_record, write_record
    from replaybench.experiments.results_file import read_results, write_results

    if path.suffix == ".h5":
        header, arrays = read_record(path)
        if arrays and chance.random() < 0.4:
            name = chance.choice(sorted(arrays))
            arrays[name] = _other(arrays[name], chance)
        write_record(path, header.kind, _changed(header.facts, chance), arrays)
    elif path.suffix == ".safetensors":
        facts, weights = read_policy(path)
        if chance.random() < 0.4:
            name = chance.choice(sorted(weights))
            weights[name] = _other(weights[name], chance)
        write_policy(path, weights, _changed(facts, chance))
    elif path.suffix == ".nc":
        data = read_results(path)
        name = chance.choice(sorted(map(str, data.variables)))
        values, axes = data[name].values.copy(), data[name].dims
        if values.dtype.kind == "U":
            values = values.astype(object)
            values.flat[0] = chance.choice([each for each in _VALUES if isinstance(each, str) and each.isascii()])
            values = values.astype(str)
        else:
            values[...] = chance.choice((0, 1, 9))
        data = (
            data.assign_coords({name: (axes, values)}) if name in data.coords else data.assign({name: (axes, values)})
        )
        write_results(path, data)
    elif path.suffix == ".json":
        path.write_text(json.dumps(_changed(json.loads(path.read_text()), chance)))
    else:
        text = path.read_text()
        old = chance.choice([word for word in text.split() if len(word) > 1])
        path.write_text(text.replace(old, json.dumps(chance.choice(_VALUES)), 1))


def _commands(path: Path, run: Path) -> list[list[str]]:
    """Return commands that read a file."""
    if path.suffix in (".toml", ".json"):
        return [["inspect", str(run)], ["claims", str(run)], ["export-policy", str(run), "--seed", "0"]]
    more = {"buffer.h5": "advise", "policy.safetensors": "export-policy", "results.nc": "table"}.get(path.name)
    return [["inspect", str(path), "--verify"], *([[more, str(path)]] if more else [])]


def end_of(words: list[str]) -> str:
    """Run a command line here; return how it ended. Warnings and progress may come before the line of an error."""
    from replaybench.cli.main import main

    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            main(words)
    except SystemExit as end:
        lines = told.getvalue().splitlines()
        if end.code in (0, 1):  # 1: a verdict, such as that of `check`
            return "read"
        errors = [line for line in lines if line.startswith("replaybench: ")]
        if end.code == 2 and len(errors) == 1 and "Traceback" not in told.getvalue():
            return "refused"
        print(end.code, *lines[-20:], sep="\n", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    return "loud"


def _batch(run: Path, room: Path, seed: int, count: int) -> Counter[str]:
    chance, found = random.Random(seed), Counter[str]()
    for folder in (room, room / "a\n"):
        folder.mkdir()
        (folder / "evil.py").write_text(_EVIL)
    sys.path.insert(0, str(room))
    files = [path.relative_to(run) for path in sorted(run.rglob("*")) if path.suffix in (".h5", ".safetensors")]
    about = [Path("results.nc"), Path("study.toml"), Path("provenance.json")]
    with contextlib.chdir(room):
        for number in range(count):
            copied, chosen = Path(f"got-{number}"), chance.choice([*files, *about])
            for name in {chosen, *about}:
                (copied / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(run / name, copied / name)
            path = copied / chosen
            (_damage if chance.random() < 0.3 else _forge)(path, chance)
            ends = {" ".join(words): end_of(words) for words in _commands(path, copied)}
            worst = min(ends.values(), key=["loud", "refused", "read"].index)
            ran = list(room.rglob("ran"))
            if worst == "loud" or ran:
                print(f"seed {seed}, file {number}: {ends}, ran {ran}", file=sys.stderr, flush=True)
            for mark in ran:
                mark.unlink()
            found.update({worst: 1, "ran": len(ran)})
            shutil.rmtree(copied)
    return found


if __name__ == "__main__":
    run, room, seed, count = sys.argv[1:]
    print(json.dumps(_batch(Path(run).resolve(), Path(room), int(seed), int(count))))
