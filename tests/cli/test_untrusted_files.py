"""Opening a stranger's files runs none of their code, and prints none of their control characters."""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.api import sweep
from replaybench.cli import main as cli
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import read_record, write_record
from replaybench.envs.registry import make_plant
from replaybench.experiments.interruption import printable
from replaybench.experiments.results_file import read_results, write_results
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import ImportRefusedError, imports_only, names_from
from tests.helpers.cells import run_here, small_study
from tests.helpers.commands import Capsys, Patch, call
from tests.helpers.tiers import slow

EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
BROKEN = "gymnasium:a\n/evil.py:-X"


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fail if a Python file of the folder ran meanwhile."""
    before = set(sys.modules)
    yield
    assert not list(folder.rglob("ran"))
    assert not [name for name in set(sys.modules) - before if "evil" in name]


def stranger(folder: Path) -> None:
    for name in ("evil.py", "a\n/evil.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(EVIL)


pieces = st.sampled_from(["evil", ".py", "evil.py", ":", "Foo", "-X", "/", "./", "a\n/", "gymnasium:", "FIFO[", "]"])
names = st.lists(pieces | st.characters(), min_size=1, max_size=8).map("".join)


@settings(max_examples=200, deadline=None)
@given(name=names | names.map(lambda rest: f"gymnasium:evil:{rest}") | names.map(lambda rest: f"evil.py:{rest}"))
def test_no_stored_name_imports_anything(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "stranger"
    stranger(folder)
    with pytest.MonkeyPatch.context() as patch, watched(folder):
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for resolve in (make_plant, load_learner, parse, lambda part: parse(f"FIFO[{part}]")):
            with imports_only(), contextlib.suppress(UserError):
                resolve(name)


@pytest.mark.parametrize("command", sorted(set(cli.COMMANDS) - {"sweep", "reproduce"}))
def test_only_what_users_name_is_imported(command: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    stranger(tmp_path)
    monkeypatch.chdir(tmp_path)

    def reads(file: Path = Path(), plant: str = "") -> int:
        make_plant("evil.py:Foo")
        return 0

    monkeypatch.setitem(cli.COMMANDS, command, reads)
    with pytest.raises(SystemExit) as end, watched(tmp_path):
        cli.main([command])
    assert end.value.code == 2
    assert "--plant evil.py:Foo" in capsys.readouterr().err


def test_what_the_user_names_is_imported(tmp_path: Path, monkeypatch: Patch) -> None:
    stranger(tmp_path)
    monkeypatch.chdir(tmp_path)
    with imports_only("FIFO[./evil.py:Foo(3)+IS]"), pytest.raises(UserError, match="unknown sampling"):
        parse("FIFO[evil.py:Foo]")
    assert (tmp_path / "ran").exists()
    with imports_only(None), imports_only("evil.py:Foo"), pytest.raises(ImportRefusedError):  # never more than outside
        make_plant("evil.py:Foo")


def test_a_refused_plant_is_named_with_its_delay(tmp_path: Path, monkeypatch: Patch) -> None:
    stranger(tmp_path)
    monkeypatch.chdir(tmp_path)
    (first, *_) = small_study().cells()
    cell = dataclasses.replace(first, plant="evil.py:Foo:delay=0.012")
    with watched(tmp_path), imports_only(), pytest.raises(ImportRefusedError) as refused:
        cell.make_plant()
    assert str(refused.value).endswith("add --plant evil.py:Foo:delay=0.012 if you trust that file")


def test_a_file_beside_a_study_is_not_the_one_that_the_user_named(tmp_path: Path, monkeypatch: Patch) -> None:
    """Paths count from the study's folder first; the user meant the file where the command runs."""
    folder = tmp_path / "got"
    stranger(folder)
    (tmp_path / "evil.py").write_text("class Foo: pass\n")
    monkeypatch.chdir(tmp_path)
    with watched(folder), imports_only("evil.py:Foo"), names_from(str(folder)), pytest.raises(ImportRefusedError):
        make_plant("evil.py:Foo")


@pytest.mark.parametrize("character", ["\n", "\0", "\u2028"])
@pytest.mark.parametrize("kind", ["plants", "learners", "strategies"])
def test_names_of_a_study_are_one_line(kind: str, character: str) -> None:
    named = {"plants": ["Pendulum"], "strategies": ["FULL[Uniform]"]} | {kind: [f"a{character}b"]}
    for make in (lambda: build(Study, {"name": "t", **named}, "t"), lambda: small_study(**named)):
        with pytest.raises(UserError, match=f"{kind} holds a control character"):
            make()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "got"
    study = small_study(strategies=("FULL[Uniform]",), seeds=1, episodes=2, greedy_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replaybench.experiments.sweep.run_locally", run_here)
        sweep(study, folder, workers=1)
    return folder


def renamed(value: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(value).replace(json.dumps(old), json.dumps(new)))


def forge(folder: Path, old: str, new: str) -> Path:
    """Put another name in the place of one in every file of a run folder; return the cell's folder."""
    (cell,) = (folder / "cells").iterdir()
    for path in cell.glob("*.h5"):
        header, arrays = read_record(path)
        write_record(path, header.kind, renamed(header.facts, old, new), arrays)
    facts, weights = read_policy(cell / "policy.safetensors")
    write_policy(cell / "policy.safetensors", weights, renamed(facts, old, new))
    data = read_results(folder / "results.nc")
    for axis in ("plant", "learner", "strategy"):
        data = data.assign_coords({axis: [new if name == old else name for name in data[axis].values.tolist()]})
    write_results(folder / "results.nc", data)
    provenance = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps(renamed(provenance, old, new)))
    (folder / "study.toml").write_text((folder / "study.toml").read_text().replace(json.dumps(old), json.dumps(new)))
    return cell


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"), [("PendulumDCSC", BROKEN), ("DDPG", "evil.py:Foo"), ("FULL[Uniform]", "FULL[evil.py:Foo]")]
)
def test_files_run_no_code(old: str, new: str, run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    shutil.copytree(run, tmp_path / "got")
    stranger(tmp_path)
    cell = forge(tmp_path / "got", old, new)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    buffer, policy = str(cell / "buffer.h5"), str(cell / "policy.safetensors")
    for words in (
        ["figures", "got"], ["report", "got"], ["table", "got"], ["claims", "got"], ["advise", "got"],
        ["inspect", "got", "--verify"], ["inspect", buffer, "--figure", "x.png"], ["advise", buffer],
        ["export-policy", policy], ["export-policy", "got", "--format", "torch", "--output", "x.pt2"],
        ["export", buffer, "a/b-v0", "--output", "minari"], ["replay", buffer, "--updates", "1"],
        ["show", "PendulumDCSC", "--policy", policy, "--output", "x.gif"],
    ):  # fmt: skip
        if words[0] in ("replay", "show") and old == "FULL[Uniform]":
            continue  # a strategy is only a caption there, and they would compute
        with watched(tmp_path), pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code in (0, 2), capsys.readouterr().err


TITLE = "\x1b]0;renamed\x07\x1b[2J\x9b1mbold"


def test_what_a_terminal_would_obey_is_printed_as_an_escape() -> None:
    assert printable("μ_r = 0.5 [95 %], a·b", keep="\n") == "μ_r = 0.5 [95 %], a·b"
    assert printable("a\x1b[31m\x9b\u202eb\x00\udcff\n") == r"a\x1b[31m\x9b\u202eb\x00\udcff\n"


def test_inspect_shows_escape_sequences_and_sends_none(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "s\x1b[8m.h5"
    write_record(path, "offline scores" + TITLE, {"a" + TITLE: {"b" + TITLE: TITLE}}, {"x" + TITLE: np.zeros(3)})
    (tmp_path / "study.toml").write_text(f'name = "x"\n# {TITLE}\n')
    for target, shown in (
        (path, "x1b]0;renamed"),
        (tmp_path / f"{TITLE}none.h5", "x1b]0;renamed"),
        (tmp_path, r"invalid character '\x1b'"),
    ):
        call("inspect", target)
        told = "".join(capsys.readouterr())
        assert shown in told
        assert not {"\x1b", "\x07", "\x9b"} & set(told)


@pytest.mark.slow
def test_a_stream_that_cannot_encode_gets_escapes(tmp_path: Path) -> None:
    """ASCII for Greek letters, and UTF-8 for the name of a file that is no text."""
    path = os.fsencode(tmp_path) + b"/\xff.h5"
    write_record(Path(os.fsdecode(path)), "scores", {"γ": 0.95}, {"μ": np.zeros(3)})
    command: list[str | bytes] = [sys.executable, "-m", "replaybench", "inspect", path]
    for encoding, seen in (("ascii", b"\\u03b3"), ("utf-8:strict", "γ".encode())):
        told = subprocess.check_output(command, env={**os.environ, "PYTHONIOENCODING": encoding})
        assert b"\\udcff.h5: scores file" in told
        assert seen in told


@pytest.mark.parametrize("command", ["list", *slow(["baseline"])])
def test_too_little_address_space_is_one_line(command: str) -> None:
    """Libraries would fail in many ways: unmapped segments, OpenBLAS that ends the process, arrays that do not fit."""
    limited = ["bash", "-c", 'ulimit -v 600000; exec "$@"', "-", sys.executable, "-m", "replaybench"]
    words = [command, "Pendulum"] if command == "baseline" else [command]
    done = subprocess.run([*limited, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("replaybench: the address space of a process is limited to 0.6 GiB")
    assert done.stderr.count("\n") == 1


def test_too_few_open_files_name_the_limit() -> None:
    limited = ["bash", "-c", 'ulimit -n 12; exec "$@"', "-", sys.executable, "-m", "replaybench", "sweep"]
    words = ["--plant", "PendulumDCSC", "--strategy", "FIFO[Uniform]", "--seeds", "1", "--episodes", "2"]
    done = subprocess.run([*limited, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "raise the limit with ulimit -n" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["inspect", "watch", "export-policy"])
def test_a_pipe_in_place_of_the_provenance_is_refused(command: str, tmp_path: Path) -> None:
    """A pipe that nobody writes into would never answer."""
    (tmp_path / "study.toml").write_text('plants = ["Pendulum"]')
    os.mkfifo(tmp_path / "provenance.json")
    words = [sys.executable, "-m", "replaybench", command, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "provenance.json cannot be read: it is no regular file" in ended.stderr


def test_the_working_folder_replaces_no_module(tmp_path: Path) -> None:
    for name in ("signal", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-m", "replaybench", "list"]
    ended = subprocess.run(words, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


def test_numba_without_compilation_is_refused() -> None:
    here = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    words = [sys.executable, "-m", "replaybench", "check", "Pendulum"]
    ended = subprocess.run(words, env=here, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        "replaybench: NUMBA_DISABLE_JIT is set, but replaybench computes with compiled code only; unset it\n"
    )
