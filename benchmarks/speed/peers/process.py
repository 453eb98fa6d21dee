"""A peer as a process that does so many updates when told a number, and answers with the CPU seconds that took."""

import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Peer:
    """A process that serves numbers line by line; it is on the cores of this one, and ends with the `with` block."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self, updates: int, members: int = 1) -> float:
        """Let it do `updates` of each of its members; return member-updates per CPU second.

        Raises:
            RuntimeError: the process has ended.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            print(updates, file=asked, flush=True)
            answer = answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self._process.args} ended with status {self._process.wait()}")
        return updates * members / float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
