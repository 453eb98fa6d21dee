"""Draw the final scores over the delay of commands, with and without past commands in the observation.

python -m benchmarks.evidence.delay_figure
"""

from pathlib import Path
from typing import Final

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.tables.delays import STUDIES
from benchmarks.tables.stored import results
from replaybench.envs.registry import without_delay
from replaybench.experiments.statistics import interval
from replaybench.reports.figures.style import GREY, MU_LABEL, PALETTE, style, write_figure

PICTURE: Final = Path(__file__).parents[2] / "docs/images/delay.png"


def draw() -> None:
    """Draw one panel for each plant and number of past commands."""
    plants = dict.fromkeys(without_delay(str(name))[0] for name in results("delay")["plant"].values)
    with style():
        figure, panels = plt.subplots(
            len(plants), len(STUDIES), sharex=True, sharey=True, layout="constrained", figsize=(7.2, 5.0)
        )
        for column, (study, history) in enumerate(STUDIES.items()):
            data = results(study).isel(learner=0, noise=0, frequency=0)
            names = [str(name) for name in data["plant"].values]
            for row, plant in enumerate(plants):
                axes = panels[row, column]
                own = sorted((without_delay(name)[1] or 0.0, name) for name in names if without_delay(name)[0] == plant)
                delays, here = [1000 * delay for delay, _ in own], data.sel(plant=[name for _, name in own])
                for strategy, color in zip(here["strategy"].values, PALETTE, strict=False):
                    found = [interval(scores) for scores in here["mu_final"].sel(strategy=strategy).values]
                    means = np.array([each.mean for each in found])
                    ends = np.abs([[each.low for each in found], [each.high for each in found]] - means)
                    axes.errorbar(delays, means, yerr=ends, marker="o", markersize=3, color=color, label=str(strategy))
                random, best, unaware = (here[f"reference_{each}"].values for each in ("random", "dp", "dp_unaware"))
                score = np.where(np.isnan(unaware), 1.0, (unaware - random) / (best - random))
                axes.plot(delays, score, color=GREY, linestyle="--", label="DP, unaware of the delay")
                axes.set_title(f"{plant}, {history if int(history) else 'no'} past commands observed")
                axes.grid(True)
        for axes in panels[-1]:
            axes.set_xlabel("delay [ms]; the control period is 20 ms")
        for axes in panels[:, 0]:
            axes.set_ylabel(MU_LABEL)
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        write_figure(figure, PICTURE)
        plt.close(figure)


if __name__ == "__main__":
    draw()
