"""Offline learning from recordings."""

import numpy as np

from benchmarks.tables.stored import facts
from benchmarks.tables.text import between, captioned, number, table
from replaybench.experiments.statistics import interval


def texts() -> dict[str, str]:
    """Return the table of `benchmarks/evidence/offline.py`."""
    told = facts("offline.json")
    recordings = list(dict.fromkeys(row["recording"] for row in told["rows"]))
    caption = (
        f"μ_r of the greedy policy on `PendulumDCSC` at 50 Hz with "
        f"noise {told['noise']:g}, mean [95 %] of {told['seeds']} learners after {told['updates']:,} updates, each of "
        f"a recording of its own of {told['episodes']} episodes. Stepped inputs: random, held for 0.2 s. A controller: "
        "that of dynamic programming, with 5 % of its actions random; excited: with half of them."
    )
    rows = []
    for name in recordings:
        mine = [row for row in told["rows"] if row["recording"] == name]
        scores = [interval(np.array(row["final"])) for row in mine]
        shown = number(float(np.mean(mine[0]["shown"])))
        rows.append([name, shown, *(between(score.mean, score.low, score.high) for score in scores)])
    learners = list(dict.fromkeys(row["learner"] for row in told["rows"]))
    return {"offline": captioned(caption, table(("recorded", "itself", *learners), rows))}
