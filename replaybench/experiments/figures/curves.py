"""Smoothed learning curves with bands over runs; also from elsewhere: Stable-Baselines3's `monitor.csv`, or any CSV.

A CSV needs a row of names with `step` (environment steps so far) and `return` (sum of an episode's rewards).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.errors import UserError, no_such_file, shown
from replaybench.experiments.results.dataset import episode_metric, mu_r

Floats = NDArray[np.float64]

_RESAMPLES: Final = 1000
_MOST_POINTS: Final = 600
_POINTS: Final = 200
_LARGEST: Final = 100_000_000
"""Bytes of a file that are read at most."""


class Curve(NamedTuple):
    """A mean learning curve `[P]` over the middles of its windows, with its 95 % band: None for a single run."""

    episode: Floats
    mean: Floats
    band: tuple[Floats, Floats] | None


def moving_mean(rewards: Floats, window: int) -> Floats:
    """Return the mean of every whole window along the last axis, `[..., E]` → `[..., E - window + 1]`."""
    # Not by a running sum: one huge reward would take the digits of all that come after it.
    found: Floats = np.lib.stride_tricks.sliding_window_view(rewards, window, axis=-1).mean(axis=-1)
    return found


def smoothing_window(episodes: int) -> int:
    """Return the odd number of episodes to average over: about a sixtieth of the run, at most 25."""
    return min(25, 1 + 2 * (episodes // 120))


def learning_curve(rewards: Floats, window: int, most: int | None = None) -> Curve:
    """Average runs `[N, E]` over windows of episodes and over runs; the band is a percentile bootstrap over runs.

    Args:
        most: points of the curve, if there would be more; as dense as can be seen in print if not given.
    """
    smooth = moving_mean(rewards, window)
    episode = np.arange(smooth.shape[1], dtype=np.float64) + (window + 1) / 2
    stride = max(1, min(window // 2, smooth.shape[1] // _MOST_POINTS))  # denser points would show nothing more
    stride = max(stride, -(-smooth.shape[1] // most) if most else 1)
    smooth, episode = smooth[:, ::stride], episode[::stride]
    runs = len(smooth)
    mean: Floats = smooth.mean(axis=0)
    if runs < 2:
        return Curve(episode, mean, None)
    draws = np.random.Generator(np.random.PCG64(0)).multinomial(runs, np.full(runs, 1 / runs), _RESAMPLES)
    low, high = np.percentile(draws @ smooth / runs, (2.5, 97.5), axis=0)
    return Curve(episode, mean, (low, high))


@dataclass(frozen=True)
class OtherCurve:
    """Runs from elsewhere under one label.

    Attributes:
        label: what the legend calls them.
        runs: of each run the environment steps after its episodes `[K]`, their returns `[K]`, and their lengths `[K]`
            in steps where the file has them.
    """

    label: str
    runs: tuple[tuple[Floats, Floats, Floats | None], ...]

    def scaled(self, data: xr.Dataset, normalised: bool) -> Curve:
        """Return the mean over runs with its band, in the unit of a panel, smoothed as the sweep's own curves.

        Raises:
            UserError: the runs have no steps in common, or the plant's mean rewards need lengths that are not known.
        """
        begin = max(steps[0] for steps, _, _ in self.runs)
        end = min(steps[-1] for steps, _, _ in self.runs)
        if begin > end:
            raise UserError(f"--overlay: the runs of {self.label} have no steps in common")
        grid = np.linspace(begin, end, _POINTS)
        rows = []
        for steps, returns, lengths in self.runs:
            rewards = returns
            if episode_metric(data) == "mean reward":
                rewards = returns / (_whole_steps(data) if lengths is None else lengths)
            if normalised:
                rewards = mu_r(data, xr.DataArray(rewards, dims="episode")).values
            window = smoothing_window(len(steps))
            rows.append(np.interp(grid, moving_mean(steps, window), moving_mean(rewards, window)))
        return learning_curve(np.array(rows), 1)._replace(episode=grid)


def _whole_steps(data: xr.Dataset) -> float:
    if "whole_steps" not in data:
        raise UserError("these results do not say how long episodes are; run the sweep again to write them anew")
    return float(data["whole_steps"].item())


def read_others(entries: Sequence[str]) -> tuple[OtherCurve, ...]:
    """Read curves given as LABEL=FILE; files under one label are runs of one curve.

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
    """Return steps, returns and lengths of one run."""
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
    first, second = ([_number(path, row, names.index(name)) for row in rows[1:]] for name in wanted)
    if not first:
        raise UserError(f"{path} has no row of data")
    lengths, returns = np.array(first), np.array(second)
    if not monitor and (np.diff(lengths) < 0).any():
        raise UserError(f"{path}: its steps do not ascend")
    return (np.cumsum(lengths), returns, lengths) if monitor else (lengths, returns, None)


def _number(path: Path, row: Sequence[str], place: int) -> float:
    try:
        value = float(row[place])
    except (ValueError, IndexError):
        value = np.nan
    if not np.isfinite(value):
        raise UserError(f"{path}: {shown(row[place] if place < len(row) else '')} is no finite number")
    return value
