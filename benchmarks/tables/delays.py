"""Final scores over the delay of commands, with and without past commands in the observation."""

from typing import Final

from benchmarks.tables.stored import results, runs
from benchmarks.tables.text import captioned, number, spread, table
from replaybench.envs.registry import without_delay

STUDIES: Final = {"delay": "0", "delay-history": "2"}
"""Studies, with the number of past commands that learners observe."""
RIG: Final = {"delay-rig": "0", "delay-rig-history": "4"}
"""Studies with the delay of a rig, as in `STUDIES`."""


def _rows(studies: dict[str, str]) -> list[list[str]]:
    rows = []
    for study, history in studies.items():
        data = results(study)
        for name in map(str, data["plant"].values):
            plant, delay = without_delay(name)
            here = data.sel(plant=name).isel(learner=0, noise=0, frequency=0)
            random, best, unaware = (float(here[f"reference_{each}"]) for each in ("random", "dp", "dp_unaware"))
            score = number((unaware - random) / (best - random)) if delay else "1"
            scores = [spread(here["mu_final"].sel(strategy=each).values) for each in data["strategy"].values]
            rows.append([plant, number(1000 * (delay or 0.0), 0), history, *scores, score])
    return sorted(rows, key=lambda row: (row[0] != "PendulumDCSC", float(row[1])))


def texts() -> dict[str, str]:
    names = [str(name) for name in results("delay")["strategy"].values]
    headings = ("plant", "delay [ms]", "history", *names, "DP, unaware")
    caption = (
        f"DDPG, {runs('delay')}, at 50 Hz without noise: a delay of 20 ms is one control period. *History* is the "
        "number of past commands that the learner observes. Scores are mean μ_final with 95 % intervals. μ_r = 1 is "
        "dynamic programming with prediction. The last column is μ_r of dynamic programming unaware of the delay."
    )
    return {
        "delays": captioned(caption, table(headings, _rows(STUDIES))),
        "delays.rig": captioned(f"As above, with {runs('delay-rig')}.", table(headings, _rows(RIG))),
    }
