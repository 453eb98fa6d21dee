"""TensorBoard event files of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from replaybench.data.errors import UserError
from replaybench.experiments.progress.round import Round
from replaybench.experiments.training.study import Cell

ProgressForm = Literal["bar", "lines", "json", "none"]
"""How progress is shown."""


class TensorBoard:
    """TensorBoard event files, a folder for each cell: rewards, greedy rewards, metrics and failed runs.

    The axis is environment steps of a member.

    Raises:
        UserError: the extra is not installed.
    """

    def __init__(self, folder: Path, cells: dict[str, Cell]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs the extra: pip install 'replaybench[tensorboard]'") from None
        self._make: Any = SummaryWriter
        self._folder, self._cells = folder, cells
        self._writers: dict[str, Any] = {}

    def write(self, key: str, state: Round, reward: float | None) -> None:
        """Write a cell's round, with the mean `reward` since the last written one."""
        if key not in self._writers:
            label = "".join(c if c.isalnum() or c in "-.[]()+" else "_" for c in self._cells[key].label)
            self._writers[key] = self._make(f"{self._folder / f'{label}-{key[:6]}'}")
        values = {"reward": reward, "failed": state.failed, "episode": state.done, **dict(state.latest)}
        for name, value in values.items():
            if value is not None:
                self._writers[key].add_scalar(name, value, round(state.steps))

    def finish(self, key: str) -> None:
        """Close the file of a complete cell."""
        if key in self._writers:
            self._writers.pop(key).close()

    def close(self) -> None:
        """Close all files."""
        for key in list(self._writers):
            self.finish(key)
