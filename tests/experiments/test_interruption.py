"""What Ctrl-C and SIGTERM raise, also where a library makes something else of it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from replaybench.experiments.interruption import Terminated, stopping_raises

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
