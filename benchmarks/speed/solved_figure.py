"""Learning curves of SAC on Pendulum-v1 beside RLtools', from what `bench_solved.py` has stored.

python benchmarks/speed/solved_figure.py
"""

import json
from pathlib import Path

from replaybench.reports.figures.style import GREY, PALETTE, new_figure, save, style

FOLDER = Path(__file__).parents[1] / "results" / "speed"


def main() -> None:
    """Draw returns over steps, and over the seconds of a core that a seed costs."""
    stored = json.loads((FOLDER / "bench_solved.json").read_text(encoding="utf-8"))
    alone, peer = stored["one"]["timings"]
    sides = [
        ("RLtools, one seed at a time", peer["series"], alone["peer"], PALETTE[1], "-"),
        ("replaybench, one seed at a time", alone["series"], alone["ours"], PALETTE[2], (0, (5, 1.6))),
    ]
    for members, color in zip(filter(str.isdigit, stored), (PALETTE[0], PALETTE[3]), strict=True):
        whole = stored[members]["timings"][0]
        sides.append((f"replaybench, population of {members}", whole["series"], whole["ours"], color, "-"))
    made = stored["one"]["made"]
    caption = (
        f"{made['processor']}, {made['date'][:10]}, commit {made['commit'][:7]}. Returns of training episodes, "
        "exploration included: medians and quartiles over seeds. Seconds are those of one core for each seed; episodes "
        "are taken to follow each other evenly."
    )
    with style():
        figure = new_figure(9.5, 3.6, "SAC on Pendulum-v1, batches of 100, an update a step", caption)
        steps, seconds = figure.subplots(1, 2, sharey=True)
        for label, series, cost, color, dashes in sides:
            for axes, factor in ((steps, 1.0), (seconds, cost / 10_000)):
                x = [step * factor for step in series["steps"]]
                axes.plot(x, series["50 %"], color=color, linestyle=dashes, label=label)
                axes.fill_between(x, series["25 %"], series["75 %"], color=color, alpha=0.15, linewidth=0)
        for axes in (steps, seconds):
            axes.axhline(-200, color=GREY, linewidth=0.8, linestyle=(0, (1.2, 1.2)))
        steps.set(xlabel="steps", ylabel="return")
        seconds.set(xlabel="CPU seconds per seed", xlim=(0, None))
        steps.legend(loc="lower right")
        save(figure, FOLDER, "solved")


if __name__ == "__main__":
    main()
