"""Ctrl-C and SIGTERM: what they raise, also if a library swallows or replaces it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from replaybench.experiments import workers
from replaybench.experiments.interruption import Interrupted, Terminated, interruptions, stopping_raises

MEANT = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
both = pytest.mark.parametrize("sent", MEANT)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Handle both signals: tests in a shell's background ignore Ctrl-C."""
    kept = {number: signal.signal(number, signal.default_int_handler) for number in MEANT}
    yield
    for number, before in kept.items():
        assert signal.signal(number, before) is signal.default_int_handler


def swallowed(sent: signal.Signals) -> Any:
    """Return a callback of a C library that sends a signal; what it raises is lost, as in LLVM."""
    return ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), sent))


def wait_for(noted: list[KeyboardInterrupt] | None = None) -> None:
    deadline = time.monotonic() + 10.0
    while not noted and time.monotonic() < deadline:
        time.sleep(0.001)


@both
def test_an_interruption_is_raised_whatever_a_library_made_of_it(sent: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        try:
            os.kill(os.getpid(), sent)
            time.sleep(10.0)
        except KeyboardInterrupt:
            raise ValueError("Invalid bounding box") from None
    assert caught.type is MEANT[sent]
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="mine"), stopping_raises():
        raise ValueError("mine")


@both
@pytest.mark.parametrize("end", [False, True], ids=["goes on", "ends at once"])
def test_a_swallowed_interruption_is_raised_again(sent: signal.Signals, end: bool) -> None:
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        swallowed(sent)()
        if end:
            sys.exit(0)
        wait_for()
    assert caught.type is MEANT[sent]
    assert sys.unraisablehook is hook
    time.sleep(0.1)  # it is raised once


def test_a_repeated_interruption_counts_once() -> None:
    """If another part handles it meanwhile, the command ends as that part decides."""
    with pytest.raises(SystemExit), stopping_raises():
        swallowed(signal.SIGINT)()
        with interruptions() as noted:
            wait_for(noted)
        assert len(noted) == 1
        sys.exit(77)
    with pytest.raises(Terminated), stopping_raises():
        swallowed(signal.SIGINT)()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10.0)


def test_two_ctrl_c_at_once_are_one() -> None:
    """`timeout --signal INT` sends it to its child, and to the child's group."""
    with interruptions() as noted:
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert len(noted) == count
            time.sleep(0.2)
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10.0)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGINT)
            raise
    assert caught.value.__context__ is None


@both
def test_an_interruption_while_workers_end_counts(sent: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers._WorkerPool, "close", lambda crew: os.kill(os.getpid(), sent))
    with pytest.raises(Interrupted) as caught:
        workers.run_locally(1, [], lambda key, state: None, lambda key, result: None)
    assert caught.value.status == 128 + sent


AFTER_THE_END = """
import os, signal, sys; signal.signal({0}, signal.default_int_handler)
from replaybench.experiments import cli
sys.exit = lambda status: (os.kill(os.getpid(), {0}), print("end"))
sys.argv[1:] = ["--version"]; cli.main()
"""
DURING_IMPORTS = """
import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)
class Early:
    def find_spec(self, name, *_):
        if name == "replaybench.cli.main": signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Early())
from replaybench.__main__ import main; main()
"""


@both
def test_a_signal_after_the_end_changes_nothing(sent: signal.Signals) -> None:
    code = AFTER_THE_END.format(int(sent))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()[-1]) == (0, "", "end")


def test_an_interruption_during_imports_is_one_word() -> None:
    ended = subprocess.run([sys.executable, "-c", DURING_IMPORTS], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "replaybench: stopped\n")
