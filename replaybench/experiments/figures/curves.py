"""Series of learning curves: smoothed means with bootstrap bands, also from files of other libraries.

Such a file is Stable-Baselines3's `monitor.csv`, or a CSV with the columns `step` (environment steps so far) and
`return` (sum of an episode's rewards).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.errors import UserError, no_such_file, shown
from replaybench.experiments.figures.style import Series
from replaybench.experiments.results.dataset import episode_metric, mu_r

Floats = NDArray[np.float64]

CROWDED: Final = 5
"""With more series than this, bands would hide each other and are not drawn."""
EPISODE_LABELS: Final = ("training episode", "round of training")
FLOOR: Final = -0.5
"""μ_r of early episodes may be far below; views of curves begin here unless curves end lower."""
_RESAMPLES: Final = 1000
_MOST_POINTS: Final = 600
_POINTS: Final = 200
_LARGEST: Final = 100_000_000
"""Largest file that is read [bytes]."""


class Curve(NamedTuple):
    """A mean learning curve `[P]` over the centres of its windows, and its 95 % band (None for a single run)."""

    episode: Floats
    mean: Floats
    band: tuple[Floats, Floats] | None


def moving_mean(rewards: Floats, window: int) -> Floats:
    """Return the mean of every whole window along the last axis, `[..., E]` → `[..., E - window + 1]`."""
    # A running sum would lose the digits of all rewards that follow a huge one.
    found: Floats = np.lib.stride_tricks.sliding_window_view(rewards, window, axis=-1).mean(axis=-1)
    return found


def smoothing_window(episodes: int) -> int:
    """Return the odd number of episodes to average over: about a sixtieth of the run, at most 25."""
    return min(25, 1 + 2 * (episodes // 120))


def learning_curve(rewards: Floats, window: int, most: int | None = None) -> Curve:
    """Average runs `[N, E]` over windows and runs, at `most` points; the band is a percentile bootstrap over runs."""
    smooth = moving_mean(rewards, window)
    episode = np.arange(smooth.shape[1], dtype=np.float64) + (window + 1) / 2
    stride = max(1, min(window // 2, smooth.shape[1] // _MOST_POINTS))
    stride = max(stride, -(-smooth.shape[1] // most) if most else 1)
    smooth, episode = smooth[:, ::stride], episode[::stride]
    runs = len(smooth)
    mean: Floats = smooth.mean(axis=0)
    if runs < 2:
        return Curve(episode, mean, None)
    draws = np.random.Generator(np.random.PCG64(0)).multinomial(runs, np.full(runs, 1 / runs), _RESAMPLES)
    low, high = np.percentile(draws @ smooth / runs, (2.5, 97.5), axis=0)
    return Curve(episode, mean, (low, high))


def series_curves(
    runs: Iterable[tuple[Series, Floats]], window: int, most: int | None = None
) -> list[tuple[Series, Curve]]:
    """Return the curve of each series from its runs `[N, E]` without failed ones; none of a series without runs."""
    sound = ((one, rewards[np.isfinite(rewards).all(axis=1)]) for one, rewards in runs)
    return [(one, learning_curve(rewards, window, most)) for one, rewards in sound if len(rewards)]


def curve_range(means: Sequence[Floats]) -> tuple[float, float]:
    """Return the range of a view of μ_r curves: all of them, except how far below −0.5 they begin."""
    late = min(mean[-max(2, len(mean) // 5) :].min() for mean in means)
    low = min(late, max(FLOOR, min(mean.min() for mean in means)))
    return float(low), float(max(mean.max() for mean in means))


@dataclass(frozen=True)
class OtherCurve:
    """Runs of another program under one label.

    Attributes:
        label: text of the legend.
        runs: of each run the environment steps after its episodes `[K]`, their returns `[K]`, and their lengths `[K]`
            [steps] if the file has them.
    """

    label: str
    runs: tuple[tuple[Floats, Floats, Floats | None], ...]

    def scaled(self, data: xr.Dataset, normalised: bool) -> Curve:
        """Return the mean over runs and its band in the unit of a panel, smoothed as the sweep's own curves.

        Raises:
            UserError: the runs have no steps in common.
        """
        begin = max(steps[0] for steps, _, _ in self.runs)
        end = min(steps[-1] for steps, _, _ in self.runs)
        if begin > end:
            raise UserError(f"--overlay: the runs of {self.label} have no steps in common")
        grid = np.linspace(begin, end, _POINTS)
        rows = []
        for steps, rewards, lengths in self.runs:
            if episode_metric(data) == "mean reward":
                rewards = rewards / (float(data["whole_steps"]) if lengths is None else lengths)
            if normalised:
                rewards = mu_r(data, xr.DataArray(rewards, dims="episode")).values
            window = smoothing_window(len(steps))
            rows.append(np.interp(grid, moving_mean(steps, window), moving_mean(rewards, window)))
        return learning_curve(np.array(rows), 1)._replace(episode=grid)


def read_others(entries: Sequence[str]) -> tuple[OtherCurve, ...]:
    """Read curves given as LABEL=FILE; files with the same label are runs of one curve.

    Raises:
        UserError: an entry has another form, or a file is missing or holds no curve.
    """
    runs: dict[str, list[tuple[Floats, Floats, Floats | None]]] = {}
    for entry in entries:
        label, equals, path = entry.partition("=")
        if not (equals and label and path):
            raise UserError(f"--overlay takes LABEL=FILE, as in 'SB3 SAC=monitor.csv', not {shown(entry)}")
        runs.setdefault(label, []).append(_read(Path(path)))
    return tuple(OtherCurve(label, tuple(found)) for label, found in runs.items())


def _read(path: Path) -> tuple[Floats, Floats, Floats | None]:
    if not path.is_file():
        raise no_such_file(path)
    if path.stat().st_size > _LARGEST:
        raise UserError(f"{path} has more than {_LARGEST / 1e6:g} MB; thin it out")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8") from None
    rows = list(csv.reader(line for line in lines if line.strip() and not line.startswith("#")))
    names = [name.strip().casefold() for name in rows[0]] if rows else []
    monitor = {"r", "l"} <= set(names)
    wanted = ("l", "r") if monitor else ("step", "return")
    if missing := [name for name in wanted if name not in names]:
        raise UserError(f"{path} has no column {missing[0]!r}: a curve needs step and return, or SB3's r and l")
    first, second = (np.array([_number(path, row, names.index(name)) for row in rows[1:]]) for name in wanted)
    if not first.size:
        raise UserError(f"{path} has no row of data")
    if monitor:
        return np.cumsum(first), second, first
    if (np.diff(first) < 0).any():
        raise UserError(f"{path}: its steps do not ascend")
    return first, second, None


def _number(path: Path, row: Sequence[str], place: int) -> float:
    text = row[place] if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise UserError(f"{path}: {shown(text)} is no finite number")
    return value
