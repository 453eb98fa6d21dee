"""What Ctrl-C and SIGTERM raise, also where a library makes something else of it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

from replaybench.experiments.interruption import Interrupted, Terminated, interruptions, stopping_raises
from replaybench.experiments.training import workers

MEANT = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


@pytest.mark.parametrize("sent", MEANT)
def test_an_interruption_is_told_as_one_whatever_a_library_made_of_it(sent: signal.Signals) -> None:
    before = signal.signal(sent, signal.default_int_handler)  # who runs tests in the background ignores Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt) as told, stopping_raises():
            try:
                os.kill(os.getpid(), sent)
                time.sleep(10.0)
            except KeyboardInterrupt:
                raise ValueError("Invalid bounding box") from None
        assert told.type is MEANT[sent]
        assert isinstance(told.value.__cause__, ValueError)
        assert signal.getsignal(sent) is signal.default_int_handler
    finally:
        signal.signal(sent, before)


def test_other_errors_are_told_as_they_are() -> None:
    with pytest.raises(ValueError, match="mine"), stopping_raises():
        raise ValueError("mine")


@pytest.mark.parametrize("sent", MEANT)
def test_an_interruption_that_a_c_library_swallowed_is_raised_again(sent: signal.Signals) -> None:
    """As LLVM does, whose callbacks to Python cannot raise."""
    hook, before = sys.unraisablehook, signal.signal(sent, signal.default_int_handler)
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), sent))
    try:
        with pytest.raises(KeyboardInterrupt) as told, stopping_raises():
            callback()
            deadline = time.monotonic() + 10.0
            while time.monotonic() < deadline:
                time.sleep(0.001)
            raise AssertionError("was not stopped")
        assert told.type is MEANT[sent]
        assert sys.unraisablehook is hook
    finally:
        signal.signal(sent, before)


@pytest.mark.parametrize("sent", MEANT)
def test_nor_is_it_lost_where_the_command_ends_at_once(sent: signal.Signals) -> None:
    before = signal.signal(sent, signal.default_int_handler)
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), sent))
    try:
        with pytest.raises(KeyboardInterrupt) as told, stopping_raises():
            callback()
            sys.exit(0)
        assert told.type is MEANT[sent]
        time.sleep(0.1)  # it is raised once
    finally:
        signal.signal(sent, before)


def test_what_was_repeated_is_not_counted_twice() -> None:
    """Where something brings itself to an end in order meanwhile, that is how the command ends."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(SystemExit), stopping_raises():
            callback()
            with interruptions() as noted:
                deadline = time.monotonic() + 10.0
                while not noted and time.monotonic() < deadline:
                    time.sleep(0.001)
            assert len(noted) == 1
            sys.exit(77)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_signal_is_no_repetition_of_a_lost_one() -> None:
    kept = {number: signal.signal(number, signal.default_int_handler) for number in MEANT}
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(Terminated), stopping_raises():
            callback()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10.0)
    finally:
        for number, before in kept.items():
            signal.signal(number, before)


def test_two_ctrl_c_at_once_are_one() -> None:
    """`timeout --signal INT` sends it to its child, and to the group in which the child is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interruptions() as noted:
            for count in (1, 2):
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
                assert len(noted) == count
                time.sleep(0.2)
        with pytest.raises(KeyboardInterrupt) as told, stopping_raises():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10.0)
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
                raise
        assert told.value.__context__ is None
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("sent", MEANT)
def test_an_interruption_while_workers_end_is_not_forgotten(
    sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(sent, signal.default_int_handler)
    monkeypatch.setattr(workers._Crew, "close", lambda crew: os.kill(os.getpid(), sent))
    try:
        with pytest.raises(Interrupted) as told:
            workers.run_locally(1, [], lambda key, told: None, lambda key, result: None)
        assert told.value.status == 128 + sent
    finally:
        signal.signal(sent, before)


@pytest.mark.parametrize("sent", MEANT)
def test_what_comes_after_the_end_changes_nothing(sent: signal.Signals) -> None:
    code = (
        f"import os, signal, sys; signal.signal({int(sent)}, signal.default_int_handler)\n"
        "from replaybench.experiments import cli\n"
        f"sys.exit = lambda status: (os.kill(os.getpid(), {int(sent)}), print('end'))\n"
        "sys.argv[1:] = ['--version']; cli.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()[-1]) == (0, "", "end")


def test_an_interruption_during_imports_is_one_word() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Early:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'replaybench.experiments.cli': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Early())\n"
        "from replaybench.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "replaybench: stopped\n")
