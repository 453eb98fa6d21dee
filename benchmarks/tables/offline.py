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
        f"`PendulumDCSC` at 50 Hz with noise {told['noise']:g}. Entries are μ_r of the greedy policy after "
        f"{told['updates']:,} updates, as a mean [95 %] over {told['seeds']} learners. Each learner has a recording of "
        f"its own with {told['episodes']} episodes. *Stepped inputs* are random actions that are held for 0.2 s each. "
        "*A controller* is the dynamic-programming solution, with 5 % random actions. *A controller, excited* is the "
        "same with 50 % random actions."
    )
    rows = []
    for name in recordings:
        mine = [row for row in told["rows"] if row["recording"] == name]
        scores = [interval(np.array(row["final"])) for row in mine]
        shown = number(float(np.mean(mine[0]["shown"])))
        rows.append([name, shown, *(between(score.mean, score.low, score.high) for score in scores)])
    learners = list(dict.fromkeys(row["learner"] for row in told["rows"]))
    return {"offline": captioned(caption, table(("recorded", "μ_r of the recording", *learners), rows))}
