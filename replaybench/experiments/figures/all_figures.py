"""All figures of a sweep, and the one of an offline replay, drawn and written into their folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.baselines.references import normalise
from replaybench.data.atomic import write_text
from replaybench.data.formats.run_folder import RunFolder
from replaybench.experiments.figures.curves import learning_curve
from replaybench.experiments.figures.episode_lengths import length_curves
from replaybench.experiments.figures.learner_metrics import metric_curves
from replaybench.experiments.figures.learning_curves import draw_curve, learning_curves
from replaybench.experiments.figures.maps.advantage_map import advantage_map
from replaybench.experiments.figures.maps.condition_map import condition_map
from replaybench.experiments.figures.paired_differences import paired_differences
from replaybench.experiments.figures.performance_profiles import performance_profiles
from replaybench.experiments.figures.reference_lines import REFERENCES
from replaybench.experiments.figures.responses import response
from replaybench.experiments.figures.score_bars import score_bars
from replaybench.experiments.figures.single_file import KINDS
from replaybench.experiments.figures.style import (
    MU_LABEL,
    PALETTE,
    RAW_LABELS,
    SCREEN,
    Look,
    Series,
    add_legend,
    caption_of,
    condition,
    file_names,
    legend_width,
    new_figure,
    plant_name,
    save,
    style,
    whole_numbers,
)
from replaybench.experiments.figures.surfaces import policy_surfaces
from replaybench.experiments.results.dataset import runs_there
from replaybench.experiments.results.results_file import read_results
from replaybench.experiments.results.statistics import interval
from replaybench.experiments.training.study import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from replaybench.experiments.figures.curves import OtherCurve
    from replaybench.experiments.offline.scores import OfflineScores

Floats = NDArray[np.float64]


def draw_figures(
    data: xr.Dataset,
    folder: RunFolder,
    cells: Sequence[Cell],
    look: Look = SCREEN,
    output: Path | None = None,
    in_steps: bool = False,
    others: Sequence[OtherCurve] = (),
) -> list[Path]:
    """Draw all figures of a sweep.

    Args:
        data: dataset of `results.assemble`.
        folder: run folder; policies are read from the folders of its cells.
        cells: cells of the study; without any, policies are not drawn.
        look: what they are for. Those for print have their captions in `captions.txt` beside them.
        output: where to write; the run's folder of figures if not given.
        in_steps: whether learning curves are drawn over environment steps.
        others: curves from elsewhere, which are drawn over the learning curves.

    Returns:
        The path of each; on screens, of the PNG files, beside which are SVG files of the same names.
    """
    drawn, captions = [], []
    plants, output = [str(plant) for plant in data["plant"].values], output or folder.figures
    with style(look):
        for plant, name in zip(plants, file_names(plants), strict=True):
            mine = _of_plant(data, plant)
            if not mine["reward"].notnull().any():
                continue
            for kind, draw in _DRAWN.items():
                curves = kind == "learning_curves"
                figure = learning_curves(mine, in_steps, others) if curves else draw(mine, folder, cells)
                if figure is not None:
                    drawn.append(save(figure, output, f"{kind}-{name}"))
                    captions.append(f"{drawn[-1].name}: {caption_of(figure)}\n")
    if look.columns and drawn:
        drawn.append(output / "captions.txt")
        write_text(drawn[-1], "\n".join(captions))
    return drawn


def _of_plant(data: xr.Dataset, plant: str) -> xr.Dataset:
    """Return one plant's part, cut to the strategies, learners, noise levels and rates that it was run with."""
    mine = data.sel(plant=plant)
    for axis in ("learner", "strategy", "noise", "frequency"):
        there = runs_there(mine)
        mine = mine.isel({axis: there.any([other for other in there.dims if other != axis]).values})
    return mine


_DRAWN: Final[dict[str, Callable[[xr.Dataset, RunFolder, Sequence[Cell]], Figure | None]]] = {
    "learning_curves": lambda data, folder, cells: learning_curves(data),
    "episode_steps": lambda data, folder, cells: length_curves(data),
    "scores": lambda data, folder, cells: score_bars(data),
    "differences": lambda data, folder, cells: paired_differences(data),
    "conditions": lambda data, folder, cells: condition_map(data),
    "advantage": lambda data, folder, cells: advantage_map(data),
    "profiles": lambda data, folder, cells: performance_profiles(data),
    "response_noise": lambda data, folder, cells: response(data, "noise"),
    "response_frequency": lambda data, folder, cells: response(data, "frequency"),
    "metrics": lambda data, folder, cells: metric_curves(data),
    "policies": lambda data, folder, cells: policy_surfaces(data, folder, cells) if cells else None,
}
"""What draws the figures of one plant, by kind."""


def remove_figures(folder: RunFolder) -> None:
    """Remove the figures of the results that a run folder holds, and no other file beside them.

    Raises:
        UserError: the results are damaged, so that nobody knows which these are.
    """
    if not folder.results.is_file():
        return
    names = file_names([str(plant) for plant in read_results(folder.results)["plant"].values])
    for place in (folder.figures, folder.figures / "paper"):
        for kind, name, suffix in itertools.product(_DRAWN, names, KINDS):
            (place / f"{kind}-{name}{suffix}").unlink(missing_ok=True)
    (folder.figures / "paper" / "captions.txt").unlink(missing_ok=True)


def draw_offline(scores: OfflineScores, folder: Path) -> list[Path]:
    """Draw how well a population that learns from a stored buffer controls its plant; return the path of the PNG."""
    with style():
        return [save(offline_curve(scores), folder, "offline")]


def offline_curve(scores: OfflineScores) -> Figure:
    """Return the figure of `draw_offline`."""
    updates, rewards, reference, strategy = scores.updates, scores.reward, scores.reference, scores.label

    def scale(reward: Any) -> Floats:
        return normalise(reward, reference) if reference.usable else np.asarray(reward, np.float64)

    offline = Series("", strategy, f"offline: {strategy}", PALETTE[0], "o", "-", "")
    levels = [(label, scale(values)) for label, values in scores.levels().items()]
    labels = [offline.label, *(label for label, _ in levels), *(label for label, _ in REFERENCES.values())]
    whole = scale(rewards[np.isfinite(rewards).all(axis=1)])
    caption = f"Greedy episodes, {condition(reference.noise, reference.frequency)}: "
    caption += "one learner." if len(whole) == 1 else f"mean of {len(whole)} learners, 95 % band, each learner."
    if len(whole) < len(rewards):
        caption += f" Failed, not drawn: {len(rewards) - len(whole)} of {len(rewards)}."
    figure = new_figure(
        5.0 + legend_width(labels),
        3.4,
        f"{plant_name(reference.plant)}: learning offline from a stored buffer",
        caption,
    )
    axes = figure.subplots()
    if len(whole):
        curve = learning_curve(whole, window=1)
        draw_curve(axes, offline, curve._replace(episode=updates.astype(np.float64)))
        axes.plot(updates, whole.T, color=offline.color, alpha=0.25, linewidth=0.6, zorder=2)
    handles = [axes.lines[0]] if axes.lines else []
    for (label, values), color in zip(levels, PALETTE[1:], strict=False):
        found = interval(values)
        axes.axhspan(found.low, found.high, color=color, alpha=0.15, linewidth=0)
        handles.append(axes.axhline(found.mean, color=color, linewidth=1.3, label=label))
    for name, (label, dashes) in REFERENCES.items():
        level = float(scale(getattr(reference, name.removeprefix("reference_"))))
        if np.isfinite(level):
            handles.append(axes.axhline(level, color="0.45", linewidth=0.9, linestyle=dashes, label=label, zorder=1))
    axes.set_xlim(0, max(1, int(updates[-1])))
    axes.xaxis.set_major_locator(whole_numbers(5, max(1, int(updates[-1]))))
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    axes.set(xlabel="updates", ylabel=MU_LABEL if reference.usable else RAW_LABELS[reference.episode_metric])
    axes.grid(axis="y", color="0.92", linewidth=0.7)
    add_legend(figure, handles)
    return figure
