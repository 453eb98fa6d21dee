"""Progress of sweeps: journal, state from a run folder, plain lines, remaining time, TensorBoard."""

import dataclasses
import io
import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from rich.console import Console

from replaybench.cli import watch
from replaybench.cli.watch import view, watch_run
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.experiments import display
from replaybench.experiments import progress as journal
from replaybench.experiments.display import Display, History, RunHistory, TensorBoard, seconds_left
from replaybench.experiments.progress import Journal, JournalFile, JournalReader, Round, begin, event, printed_lines
from replaybench.experiments.study import Cell
from replaybench.experiments.study_record import write_provenance
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_cell, small_study
from tests.helpers.commands import Capsys, Patch

STRATEGIES = ("FIFO[Uniform]", "FULL[PER]")
REFERENCE = event("reference", plant="PendulumDCSC", frequency=50.0, noise=0.0, random=-160.0, dp=-20.0, usable=True)
CELLS = small_study(strategies=STRATEGIES, seeds=2, episodes=100).cells()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder as it is when its sweep begins."""
    found = RunFolder(tmp_path / "run")
    found.path.mkdir()
    found.study.write_text("")
    write_provenance(found, "t", CELLS, complete=False)
    return found


def write(folder: RunFolder, *events: journal.Event) -> None:
    file = JournalFile(folder.progress)
    for each in events:
        file.write(each)
    file.close()


def shown(folder: RunFolder) -> str:
    console = Console(width=150)
    with console.capture() as printed:
        console.print(view(RunHistory(folder), 20))
    return printed.get()


def rewards(cell: Cell, *values: float, done: int = 0) -> list[journal.Event]:
    told = enumerate(values, done + 1)
    return [event("round", cell=cell.id, done=10 * n, of=100, reward=value, failed=0) for n, value in told]


def test_a_running_sweep_is_seen(folder: RunFolder) -> None:
    write(folder, begin("t", 2, 2), REFERENCE, *rewards(CELLS[0], -160, -90, -20))
    told = shown(folder)
    for part in ("t: running, 0/2 cells, 1 under way", "30/100", "▁", "█", "μ_r 1.00"):
        assert part in told
    write(folder, event("round", cell=CELLS[0].id, done=40, of=100, reward=None, failed=2))
    assert "2 failed runs" in shown(folder)


def test_what_a_killed_sweep_wrote_is_seen(folder: RunFolder, monkeypatch: Patch) -> None:
    write(folder, {**begin("t", 2, 2), "pid": 2**22 + 1}, *rewards(CELLS[0], -160, -90))
    folder.progress.write_text(folder.progress.read_text() + '{"event": "round", "cell": "')
    assert "interrupted" in shown(folder)
    write(folder, begin("t", 2, 2), *rewards(CELLS[0], -80, done=1))
    found = RunHistory(folder)
    assert found.state == "running"
    assert found.cells[CELLS[0].id].points == [(10, -160.0), (20, -80.0)], "rounds done again replace the old"
    write(folder, event("end", status=130))
    found.update()
    assert found.state == "interrupted"


def test_a_silent_sweep_gives_signs_of_life(folder: RunFolder, monkeypatch: Patch) -> None:
    """As one whose cells run for hours on a cluster, watched from another machine."""
    monkeypatch.setattr(display, "PULSE_SECONDS", 0.02)
    with Display(folder, "t", CELLS, CELLS, 2, Console(quiet=True), None, None):
        seen = RunHistory(folder)
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        os.utime(folder.progress, (time.time() - 1000,) * 2)
        end = time.monotonic() + 60
        while seen.state != "running" and time.monotonic() < end:
            time.sleep(0.02)
        assert seen.state == "running"
    os.utime(folder.progress, (time.time() - 1000,) * 2)
    time.sleep(0.1)
    assert seen.state == "interrupted"
    assert folder.progress.read_text().count("\n") == 1


def test_a_finished_run_without_a_journal_shows_the_curves_of_its_scores(folder: RunFolder) -> None:
    curve = np.repeat(np.linspace(-160, -20, 100)[None], 2, axis=0)
    curve[1, 50] = np.nan
    for cell in CELLS:
        write_record(folder.cell(cell.id) / "scores.h5", "scores", {}, {"reward": curve})
    told = shown(folder)
    assert all(part in told for part in ("finished, 2/2 cells, 2 failed runs", "▁", "█"))


def test_a_forged_journal_does_no_harm(folder: RunFolder) -> None:
    lines = ["[]", "7", '{"event": 1}', "[" * 10_000, '{"event": "round", "cell": [1], "done": "x"}', "nonsense"]
    lines += [json.dumps({"event": "round", "cell": CELLS[0].id, "done": 1e300, "reward": "x", "failed": -(10**400)})]
    lines += ['{"event": "begin", "pid": -1, "study": {"a": 1}}', '{"event": "reference", "dp": null, "usable": true}']
    folder.progress.write_text("\n".join(lines) + "\n")
    assert "0/2 cells" in shown(folder)
    folder.progress.unlink()
    folder.progress.symlink_to(folder.path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        JournalFile(folder.progress)
    folder.provenance.write_text('{"cells": 3}')
    with pytest.raises(UserError, match="does not say which cells"):
        RunHistory(folder)
    with pytest.raises(UserError, match="not a run folder"):
        watch_run(Console(), folder.path / "none")


def test_ctrl_c_leaves_watching(folder: RunFolder, monkeypatch: Patch, capsys: Capsys) -> None:
    write(folder, begin("t", 2, 2))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background ignores it

    def interrupt(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)

    monkeypatch.setattr(watch, "time", type("Clock", (), {"sleep": staticmethod(interrupt)}))
    try:
        watch_run(Console(width=100), folder.path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "t: running" in capsys.readouterr().out


def test_a_journal_is_thinned_out_and_loses_no_reward(monkeypatch: Patch) -> None:
    clock = [0.0]
    monkeypatch.setattr("replaybench.experiments.progress.time.monotonic", lambda: clock[0])
    mine, kept = Journal(), list[journal.Event | None]()
    for done in range(1, 4001):
        clock[0] += 0.25
        kept.append(mine.round("a", Round(done, float(done)), of=4000))
    told = [each for each in kept if each]
    assert 200 < len(told) < 700, "a line a second at first, fewer later"
    assert (told[1]["done"], told[1]["reward"]) == (5, np.mean([2, 3, 4, 5]))


def test_readers_take_up_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    reader = JournalReader(path)
    assert list(reader.news()) == []
    file = JournalFile(path)
    file.write(event("a"))
    assert [told["event"] for told in reader.news()] == ["a"]
    file.write(event("b", value=float("nan")))
    [told] = reader.news()
    assert told["value"] is None
    file.close()


def test_a_running_sweep_in_words() -> None:
    """Time left follows the pace of each learner, also of a resumed cell; earlier sweeps count as work."""
    state = History(CELLS, 1, attrgetter("steps_per_episode"))
    assert state.seconds_left() is None
    words = "0/2 cells, 0% of the episodes, compiling, or in the first episode or iteration, references 0/1"
    assert state.in_words() == words
    state.take(REFERENCE)
    for at, done in ((0.0, 50), (10.0, 60)):
        state.take({**event("round", cell=CELLS[0].id, done=done, failed=at > 0, reward=-1.0), "at": at})
    assert state.seconds_left() == pytest.approx(40 + 100)
    assert state.in_words() == "0/2 cells, 30% of the episodes, 2 min 20 s left"
    state.take({**event("round", cell=CELLS[0].id, done=61, failed=1), "at": 11.0})
    assert "1 failed runs" in state.in_words()
    state.take({**event("complete", cell=CELLS[0].id), "at": 50.0})
    assert state.complete == 1
    assert state.seconds_left() == pytest.approx(100)


def test_time_left_reckons_with_rates_plants_and_strategies_that_were_not_seen_yet() -> None:
    """The longest cells come first: as long as they, the rest would be told two to four times too long."""
    study = small_study(strategies=STRATEGIES, frequency=(10, 100), seeds=2, episodes=100)
    slow, fast, slow_per, fast_per = study.cells()
    magman = small_cell(plants=("Magman",), seeds=2, episodes=100)

    def left(*cells: Cell, seen: Sequence[tuple[Cell, float]] = ((fast, 100.0),)) -> float | None:
        rounds = [(cell, seconds, 100) for cell, seconds in seen]
        return seconds_left(rounds, [(cell, 0) for cell in cells], 1, attrgetter("steps_per_episode"))

    assert left(fast) == left(fast_per) == pytest.approx(100.0)
    assert left(slow, slow_per) == pytest.approx(2 * 10.0)
    assert left(magman) == pytest.approx(100.0 * magman.steps_per_episode / fast.steps_per_episode)
    assert left(fast, fast_per, seen=[(fast, 100.0), (fast_per, 150.0)]) == pytest.approx(250.0)
    assert left(fast, seen=[]) is None
    assert left(fast, seen=[(fast, 0.0)]) is None
    assert left(fast, seen=[(fast, 100.0), (slow, 0.0)]) == pytest.approx(100.0)
    backwards = [(fast, 5.0, -3), (dataclasses.replace(fast, members=0), 5.0, 3)]
    assert seconds_left(backwards, [(fast, 0)], 1, attrgetter("frequency")) is None


@pytest.mark.parametrize("form", ["terminal", "jupyter", "file"])
def test_terminals_and_notebooks_show_a_bar(form: str, folder: RunFolder, monkeypatch: Patch) -> None:
    bar = MagicMock()
    monkeypatch.setattr(display, "Progress", bar)
    console = Console(file=io.StringIO(), force_terminal=form == "terminal", force_jupyter=form == "jupyter")
    with Display(folder, "t", CELLS, CELLS, 2, console, None, None):
        assert bar.called == (form != "file")


@pytest.mark.parametrize("stderr", [False, True])
def test_plain_lines_are_printed_if_they_change(stderr: bool, monkeypatch: Patch, capsys: Capsys) -> None:
    """On the stream of the console: programs read JSON from standard output."""
    monkeypatch.setattr(journal, "duration", lambda seconds: "12 min")
    monkeypatch.setattr(journal, "LINE_SECONDS", 0.02)
    words, last = ["three", "three", "two", "one", "one", "one"], threading.Event()

    def word() -> str:
        if len(words) == 1:
            last.set()
            return words[0]
        return words.pop()

    with printed_lines(Console(stderr=stderr), word):
        assert last.wait(60)
    printed = capsys.readouterr()
    assert printed[not stderr] == ""
    assert printed[stderr].splitlines() == [f"after 12 min: {word}" for word in ("one", "two", "three")]


def test_tensorboard_events_are_what_was_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    board = TensorBoard(tmp_path, {cell.id: cell for cell in CELLS})
    told = Round(10, steps=2000.0, latest=(("reward_greedy", -20.0), ("metric_q", 3.0)))
    board.write(CELLS[0].id, told, -160.0)
    board.write(CELLS[0].id, Round(20, steps=4000.0), -90.0)
    board.finish(CELLS[0].id)
    board.close()
    [file] = tmp_path.glob("*/events.out.tfevents.*")
    content = file.read_bytes()
    seen: list[tuple[str, int, float]] = []
    while content:
        length = int.from_bytes(content[:8], "little")  # 4 bytes of a checksum follow, and 4 behind the event
        found = Event.FromString(content[12 : 12 + length])
        seen += [(value.tag, found.step, value.simple_value) for value in found.summary.value]
        content = content[16 + length :]
    assert [each for each in seen if each[0] == "reward"] == [("reward", 2000, -160.0), ("reward", 4000, -90.0)]
    assert {("reward_greedy", 2000, -20.0), ("metric_q", 2000, 3.0), ("episode", 4000, 20.0)} < set(seen)


def test_time_left_is_known_between_two_cells_too(folder: RunFolder) -> None:
    """When a cell has ended and the next has not told of itself yet, as many run as did before."""
    told = [{**each, "at": 100.0 + n} for n, each in enumerate(rewards(CELLS[0], *[-100.0] * 10))]
    write(folder, begin("t", 2, 2), *told[:5])
    found = RunHistory(folder)
    assert found.seconds_left() == pytest.approx(5.0 + 10.0)
    write(folder, *told[5:], {**event("complete", cell=CELLS[0].id), "at": 109.0})
    found.update()
    assert found.seconds_left() == pytest.approx(10.0)
