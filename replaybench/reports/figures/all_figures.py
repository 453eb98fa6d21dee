"""Functions that draw all figures of a sweep or of an offline replay."""

import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from replaybench.baselines.references import normalise
from replaybench.data.run_folder import AUTHOR, RunFolder, refuse_foreign
from replaybench.exchange.offline_scores import OfflineScores
from replaybench.experiments.dataset import runs_there
from replaybench.experiments.statistics import Interval, interval
from replaybench.experiments.study import Cell
from replaybench.reports.figures import curves, style
from replaybench.reports.figures.curves import Curve, OtherCurve
from replaybench.reports.figures.distributions import paired_differences, performance_profiles
from replaybench.reports.figures.learning_curves import draw_curve, learning_curves, length_curves, metric_curves
from replaybench.reports.figures.maps import advantage_map, condition_map
from replaybench.reports.figures.scores import response, score_dots
from replaybench.reports.figures.style import MU_LABEL, RAW_LABELS, SCREEN, Medium, Series
from replaybench.reports.figures.surfaces import policy_surfaces
from replaybench.runtime.arrays import Floats
from replaybench.runtime.atomic import write_text


def draw_figures(
    data: xr.Dataset,
    folder: RunFolder,
    cells: Sequence[Cell],
    medium: Medium = SCREEN,
    output: Path | None = None,
    in_steps: bool = False,
    others: Sequence[OtherCurve] = (),
    only: Container[str] = (),
) -> list[Path]:
    """Draw all figures of a sweep, and return the paths of the files.

    Figures for screens are written as SVG and PNG, and the paths of the PNG files are returned. Captions of figures for
    print are written to `captions.txt`, whose path is returned too.

    Args:
        cells: Cells of the study, whose policies are drawn. If empty, no policies are drawn.
        output: Folder to write into. If None, it is the folder `figures` of the run folder.
        in_steps: Whether learning curves are drawn over environment steps instead of episodes.
        others: Learning curves of other programs to draw next to those of the sweep.
        only: File names, without suffix, of the figures to draw. If empty, all figures are drawn.
    """
    drawn, captions = [], [f"Captions, {AUTHOR}\n"]
    plants, output = [str(plant) for plant in data["plant"].values], output or folder.figures
    for path in figure_paths(output, plants):
        refuse_foreign(path)
    with style.style(medium):
        for plant, name in zip(plants, style.file_names(plants), strict=True):
            own = of_plant(data, plant)
            if not own["reward"].notnull().any():
                continue
            for group, draw in _DRAWN.items():
                if only and f"{group}-{name}" not in only:
                    continue
                over = group == "learning_curves"
                figure = learning_curves(own, in_steps, others) if over else draw(own, folder, cells)
                if figure is not None:
                    drawn.append(style.save(figure, output, f"{group}-{name}"))
                    captions.append(f"{drawn[-1].name}: {style.caption_of(figure)}\n")
    if medium.columns and drawn:
        drawn.append(output / "captions.txt")
        write_text(drawn[-1], "\n".join(captions))
    return drawn


def of_plant(data: xr.Dataset, plant: str) -> xr.Dataset:
    """Return the results of one plant, without strategies, learners, noise levels and control rates that lack runs."""
    part = data.sel(plant=plant)
    for axis in ("learner", "strategy", "noise", "frequency"):
        present = runs_there(part)
        part = part.isel({axis: present.any([other for other in present.dims if other != axis]).values})
    return part


_DRAWN: Final[dict[str, Callable[[xr.Dataset, RunFolder, Sequence[Cell]], Figure | None]]] = {
    "learning_curves": lambda data, folder, cells: learning_curves(data),
    "episode_steps": lambda data, folder, cells: length_curves(data),
    "scores": lambda data, folder, cells: score_dots(data),
    "differences": lambda data, folder, cells: paired_differences(data),
    "conditions": lambda data, folder, cells: condition_map(data),
    "advantage": lambda data, folder, cells: advantage_map(data),
    "profiles": lambda data, folder, cells: performance_profiles(data),
    "response_noise": lambda data, folder, cells: response(data, "noise"),
    "response_frequency": lambda data, folder, cells: response(data, "frequency"),
    "metrics": lambda data, folder, cells: metric_curves(data),
    "policies": lambda data, folder, cells: policy_surfaces(data, folder, cells) if cells else None,
}
"""Functions that draw the figures of one plant, by the first part of the figures' file names."""


def figure_paths(folder: Path, plants: Sequence[str]) -> Iterator[Path]:
    """Yield the paths of all files that `draw_figures` may write into a folder for results on the given plants."""
    for group, name, suffix in itertools.product(_DRAWN, style.file_names(plants), style.KINDS):
        yield folder / f"{group}-{name}{suffix}"
    yield folder / "captions.txt"


class OfflineSeries(NamedTuple):
    """The results of offline training from a stored buffer, prepared for a figure.

    Rewards are normalised to μ_r if μ_r is defined.

    Attributes:
        runs: Rewards of the learners that did not fail; float64, shape `[N, K]` for N learners and K evaluations.
        curve: Mean reward over the learners in `runs` with its 95 % band; None if all learners failed.
        levels: Mean rewards with 95 % intervals, by label, such as that of the stored data. The learners are compared
            with these rewards.
        references: Rewards of reference controllers by name.
    """

    series: Series
    runs: Floats
    curve: Curve | None
    levels: dict[str, Interval]
    references: dict[str, float]


def offline_series(scores: OfflineScores) -> OfflineSeries:
    """Return the results of offline training from a stored buffer, in the form that the figure and the report draw."""
    reference = scores.reference

    def scale(reward: Any) -> Floats:
        return normalise(reward, reference) if reference.usable else np.asarray(reward, np.float64)

    series = Series("", scores.label, scores.label, style.PALETTE[0], "o", "-")
    runs = scale(scores.reward[np.isfinite(scores.reward).all(axis=1)])
    updates = scores.updates.astype(np.float64)
    means = [curve._replace(episode=updates) for _, curve in curves.series_curves([(series, runs)], 1)]
    levels = {label: interval(scale(values)) for label, values in scores.levels().items()}
    known = {name: float(scale(getattr(reference, name.removeprefix("reference_")))) for name in curves.REFERENCES}
    references = {name: level for name, level in known.items() if np.isfinite(level)}
    return OfflineSeries(series, runs, means[0] if means else None, levels, references)


@style.style()
def draw_offline(scores: OfflineScores, folder: Path) -> Path:
    """Write the figure of offline training from a stored buffer, and return the path of the PNG file."""
    return style.save(offline_figure(scores), folder, "offline")


def offline_figure(scores: OfflineScores) -> Figure:
    """Plot the rewards of learners that were trained offline from a stored buffer against the number of updates."""
    reference, (series, runs, curve, levels, references) = scores.reference, offline_series(scores)
    label = f"offline: {series.label}"
    caption = f"Greedy episodes, {style.condition(reference.noise, reference.frequency)}.\n"
    caption += "One learner" if len(runs) == 1 else f"n = {len(runs)} learners (thin lines), mean and 95 % band"
    failed = len(scores.reward) - len(runs)
    caption += f"; {failed} of {len(scores.reward)} failed." if failed else "."
    title = f"{style.plant_name(reference.plant)}: learning offline from a stored buffer"
    figure = style.new_figure(5.0 + style.legend_width([label, *levels]), 3.4, title, caption)
    axes = figure.subplots()
    if curve is not None:
        draw_curve(axes, replace(series, label=label), curve)
        axes.plot(scores.updates, runs.T, color=series.color, alpha=0.25, linewidth=0.6, zorder=2)
    handles = list(axes.lines[:1])
    for (name, level), color in zip(levels.items(), style.PALETTE[1:], strict=False):
        axes.axhspan(level.low, level.high, color=color, alpha=0.15, linewidth=0)
        handles.append(axes.axhline(level.mean, color=color, linewidth=1.3, label=name))
    last = max(1, int(scores.updates[-1]))
    axes.set_xlim(0, last)
    axes.xaxis.set_major_locator(style.whole_numbers(5, last))
    curves.draw_references([(axes, references)])
    axes.set(xlabel="updates", ylabel=MU_LABEL if reference.usable else RAW_LABELS[reference.episode_metric])
    axes.grid(axis="y")
    style.add_legend(figure, handles)
    return figure
