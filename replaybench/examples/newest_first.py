"""A sampling strategy that replays the newest experiences first: `FIFO[examples/newest_first.py:NewestFirst]`."""

from dataclasses import dataclass

import numpy as np

from replaybench.extend import BufferView, Context, Draws, Indices, RunningSampling, Sampling, UserError


@dataclass(frozen=True)
class NewestFirst(Sampling):
    share: float = 1.0  # share of newest experiences in a batch; the others are drawn uniformly
    importance_undefined = "it is not by chance that the newest experiences are replayed"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UserError(f"NewestFirst({self.share:g}): share must be from 0 to 1")

    def start(self, view: BufferView) -> RunningSampling:
        return _Running(view, self.share)


class _Running(RunningSampling):
    def __init__(self, view: BufferView, share: float) -> None:
        super().__init__(view)
        self.columns, self.share = view.columns, share

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        draws.idx[:] = self.stream.uniform(draws.idx.shape[1]) * count[:, None]
        draws.probability[:] = np.nan
        newest = np.argsort(-self.columns.serial.astype(np.int64))[:, : round(self.share * draws.idx.shape[1])]
        np.copyto(draws.idx[:, : newest.shape[1]], newest, where=np.arange(newest.shape[1]) < count[:, None])
