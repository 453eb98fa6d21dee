"""DDPG on Roboschool's tasks: the protocol, its failure on the reacher, and retentions there."""

from typing import Final

from benchmarks.tables.stored import cell, cells, looks, results, runs
from benchmarks.tables.text import captioned, difference, number, spread, table

LATE: Final = 100
"""Rounds of the reacher whose greedy episodes are averaged."""
CHANGED: Final = {
    "DDPG": "no change: noise of 0.2 on parameters, actor learning rate 1e-4",
    "DDPG:adapting": "σ adapted 75 times per episode",
    "DDPG:louder": "σ adapted 75 times per episode, and noise of 0.5 instead of 0.2",
    "DDPG:white": "white noise of 0.2 on actions instead of parameters",
    "DDPG:process": "correlated noise on actions, fading from 1 to 0.1 (the default of this package)",
    "DDPG:process-small": "correlated noise on actions, constant at 0.2",
    "DDPG:white-fading": "white noise on actions, fading from 1 to 0.1",
    "DDPG:rate": "actor learning rate 1e-3",
    "DDPG:process-rate": "correlated, fading noise, and actor learning rate 1e-3",
    "DDPG:no-decay": "no L2",
    "TD3": "TD3 with correlated, fading noise, and actor learning rate 1e-3",
    "TD3:white": "TD3 with white noise of 0.2",
    "SAC": "SAC",
}
"""What the learners of `reacher-causes` differ in."""
ENDING: Final = {
    "DDPG": "time limit as a terminal state, as in the authors' code",
    "DDPG:process": "time limit as a terminal state, with correlated, fading noise",
    "DDPG:process-rate": "time limit as a terminal state, with correlated, fading noise and actor learning rate 1e-3",
}
"""What they are where the end by time is a terminal state."""


def texts() -> dict[str, str]:
    study, names = "reacher-retention", ("FULL[Uniform]", "FIFO(10000)[Uniform]")
    full, newest = (cell(study, strategy=name).data["reward"].values.mean(axis=1) for name in names)
    return {
        **_roboschool(),
        "reacher.causes": _causes(),
        "reacher.ending": _ending(),
        "reacher.retention": _retention(),
        "reacher.newest": difference(newest, full, digits=1)[0],
    }


def _roboschool() -> dict[str, str]:
    found = {
        name: {c.strategy: c for c in cells(f"roboschool-{name}") if c.learner == "DDPG"}
        for name in ("pendulum", "reacher")
    }
    pendulum, reacher = found.values()
    rows = [
        [name, spread(a.final, 0), spread(a.looks(30), 0), spread(b.final, 1), spread(b.looks(100), 1)]
        for name, a, b in ((name, pendulum[name], reacher[name]) for name in pendulum)
    ]
    doing = [
        f"{number(data['reference_random'].item(), digits)} / {number(data['reference_zero'].item(), digits)}"
        for data, digits in ((results("roboschool-pendulum"), 0), (results("roboschool-reacher"), 1))
    ]
    rows.append(["random / zero actions", doing[0], "", doing[1], ""])
    caption = (
        f"Runs: {runs('roboschool-pendulum', 'iterations')} of 1000 steps on the double pendulum, and "
        f"{runs('roboschool-reacher', 'iterations')} of 150 steps on the reacher. All values are mean returns over "
        "seeds with 95 % intervals. *Training* covers the last tenth of training, exploration included. *Greedy* "
        f"covers the greedy episodes after iterations {looks('roboschool-pendulum', 30)} on the double pendulum, and "
        f"after iterations {looks('roboschool-reacher', 100)} on the reacher. The last row shows random control and "
        "zero actions."
    )
    plants = "double pendulum", "reacher"
    headings = ("strategy", *(f"{plant}, {when}" for plant in plants for when in ("training", "greedy")))
    return {"roboschool": captioned(caption, table(headings, rows))}


def _causes() -> str:
    """Compare changes of the protocol on the reacher."""
    study = "reacher-causes"
    data = results(study).sel(plant="BulletReacher")
    nothing = data["reference_zero"].item()
    rows = [
        [
            (CHANGED if found.plant == "BulletReacher" else ENDING)[found.learner],
            spread(found.final, 1),
            spread(found.looks(LATE), 1),
            f"{(found.final > 0).sum()} of {found.final.size}",
        ]
        for found in cells(study)
    ]
    rows.append(["zero actions", number(nothing, 1), "", ""])
    rows.append(["random actions", number(data["reference_random"].item(), 1), "", ""])
    caption = (
        f"Runs: {runs(study, 'iterations')} of 150 steps. All experiences are kept. All values are mean returns over "
        "seeds with 95 % intervals. *Training* covers the last tenth of training, exploration included. *Greedy* "
        f"covers the greedy episodes after iterations {looks(study, LATE)}. The last column counts the seeds whose "
        "training return is above 0."
    )
    headings = ("change of the protocol of DDPG", "training", "greedy", "seeds above 0")
    return captioned(caption, table(headings, rows))


def _ending() -> str:
    """Compare fading noise with and without a terminal state at the time limit."""
    plain, ending = (c.final for c in cells("reacher-causes") if c.learner == "DDPG:process")
    return difference(ending, plain, digits=1)[0]


def _retention() -> str:
    """Compare retentions on the reacher, at the end and over the whole of training."""
    study, rows = "reacher-retention", []
    first = None
    for found in cells(study):
        measures = found.final, found.data["reward"].values.mean(axis=1)
        first = first or measures
        apart = [
            ("", "") if mine is base else difference(mine, base, digits=1)
            for mine, base in zip(measures, first, strict=True)
        ]
        told = [(spread(mine, 1), *others) for mine, others in zip(measures, apart, strict=True)]
        rows.append([found.strategy.replace("alpha=", "").replace("capacity=", ""), *told[0], *told[1]])
    caption = (
        f"Runs: {runs(study, 'iterations')} of 150 steps. Returns are those of training episodes, with their mean "
        "over seeds and its 95 % interval. *At the end* is the last tenth of training. *Difference* is the return "
        "minus that of the first row, as a mean over paired seeds with its BCa interval. *p* is from a sign-flip test, "
        "uncorrected."
    )
    columns = ("difference [95 %]", "p")
    headings = ("strategy", "return at the end", *columns, "return over all of training", *columns)
    return captioned(caption, table(headings, rows))
