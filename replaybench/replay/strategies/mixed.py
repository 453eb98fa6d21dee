"""Batches with experiences from a fixed buffer file, `Mix`, as in RLPD (Ball et al., 2023)."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.data.batch import Links, ReplayBatch
from replaybench.replay.storage.columns import Columns, Indices
from replaybench.replay.storage.traces import n_step_returns
from replaybench.replay.strategies.interface import BufferView, Drawing, Draws, Term
from replaybench.replay.strategies.uniform import draw_uniform
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError


@dataclass(frozen=True)
class Mix(Term):
    """A share of each batch from a fixed buffer file, such as a log or an earlier run (Ball et al., 2023).

    Samples of the file are drawn uniformly, with replacement, and have the weight 1. Retention, sampling, weighting and
    TD errors refer to the other samples, from the running buffer. A share of 0.5 is the symmetric sampling of RLPD.
    Member i draws from the i-th recording of the file. If there are more members, the recordings repeat in order.

    Attributes:
        file: Path of the buffer file, absolute or relative to the folder of the study.
        share: Share of each batch from the file, rounded to a whole number of samples.
        anneal: Fraction of the run over which the share falls linearly to 0, or None for a constant share.
    """

    file: Path = Path()
    share: float = 0.5
    anneal: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", Path(os.path.normpath(self.file)))
        if not self.file.suffix:
            raise UserError("Mix needs a buffer file, e.g. Mix(path/to/buffer.h5)*FIFO[Uniform]")
        if refused := sorted(set(str(self.file)) & set("()*·+[],=\"'`\n")):
            raise UserError(f"Mix: the path {str(self.file)!r} contains {' '.join(refused)}; rename the file or folder")
        if not 0 < self.share <= 1:
            raise UserError(f"Mix: share must lie in (0, 1], not {self.share:g}")
        if self.anneal is not None and not 0 < self.anneal <= 1:
            raise UserError(f"Mix: anneal is a fraction of the run, in (0, 1], or none, not {self.anneal:g}")

    def samples(self, batch: int, progress: float) -> int:
        """Return how many of `batch` samples are from the file when a fraction `progress` of the run is over."""
        left = 1.0 if self.anneal is None else max(0.0, 1.0 - progress / self.anneal)
        return int(self.share * left * batch + 0.5)


class FixedExperiences(NamedTuple):
    """The experiences of R recordings with up to N steps each, from which `Mix` draws.

    Attributes:
        fields: Values of each field by name, in order of collection; float32, shape `[R, N, width]`.
        stored: Number of steps of each recording, at least 1; int64, shape `[R]`.
        following: Place of the next step of the same episode, or −1; int32, shape `[R, N]`.
    """

    fields: dict[str, Floats32]
    stored: Indices
    following: Links


class RunningMix(Drawing):
    """The object that draws the samples of the file during a run. Fields that the file does not hold are 0."""

    def __init__(
        self, rule: Mix, view: BufferView, fixed: FixedExperiences | None, n_step: int, discount: float
    ) -> None:
        if fixed is None:
            raise UserError(f"Mix needs the experiences of {rule.file}, which only studies read: leave Mix out")
        super().__init__(view, "mix")
        self.rule, (recordings, places) = rule, fixed.following.shape
        self.recording = np.array(view.members) % recordings
        self.count = fixed.stored[self.recording]
        self.columns = Columns(recordings, places, view.columns.fields)
        for name in self.columns.fields:
            self.columns.column(name)[:] = fixed.fields.get(name, 0)
        every = np.tile(np.arange(places), (recordings, 1))
        sums, self.steps = n_step_returns(self.columns, fixed.following, every, n_step, discount)
        for name, values in sums.items():
            self.columns.column(name)[:] = values

    def join(self, own: ReplayBatch, rest: int, samples: int) -> ReplayBatch:
        """Return batches of the first `rest` samples of `own` and of `samples` further samples from the file.

        The further samples have the slot 0 and the serial number 0, so that no annotation refers to them.
        """
        rows, members = len(own.weight), len(self.count)
        shape, joint = (rows, samples), (members, rows // members * samples)
        draws = Draws(np.empty(joint, np.int64), np.empty(joint), own.rate_factor)
        draw_uniform(self.stream.state, self.count, draws)
        place = np.repeat(self.recording, rows // members)[:, None], draws.idx.reshape(shape)
        found = self.columns.views(self.columns.rows[place])
        views = self.columns.views(np.empty((rows, rest + samples, self.columns.width), np.float32))

        def joined(values: NDArray[Any], further: ArrayLike, view: Floats32 | None = None) -> NDArray[Any]:
            # Learners' updates are compiled for this layout: sums of rewards are contiguous, and other fields are not.
            if view is None or values.flags.c_contiguous:
                view = np.empty((rows, rest + samples, *values.shape[2:]), values.dtype)
            view[:, :rest], view[:, rest:] = values[:, :rest], further
            return view

        weight = (own.rate_factor > 0)[:, None]  # 0 while a buffer is empty
        return dataclasses.replace(
            own,
            columns={name: joined(values, found[name], views[name]) for name, values in own.columns.items()},
            idx=joined(own.idx, 0),
            serial=joined(own.serial, 0),
            probability=joined(own.probability, draws.probability.reshape(shape)),
            weight=joined(own.weight, weight),
            actor_weight=joined(own.actor_weight, weight),
            steps=None if own.steps is None else joined(own.steps, self.steps[place]),
        )
