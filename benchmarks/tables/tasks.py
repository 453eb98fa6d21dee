"""Learning on tasks that are measured by return: locomotion, CartPole."""

from collections.abc import Sequence

from benchmarks.tables.stored import cells, looks, results, runs
from benchmarks.tables.text import captioned, number, spread, table
from benchmarks.walkers import la3p_figure
from benchmarks.walkers.locomotion_figure import (
    BIASES,
    FIRST_FIVE,
    LONG,
    STUCK,
    TASKS,
    WINDOW,
    Difference,
    arms,
    by_seed,
    compare,
    difference,
    sides,
)
from replaybench.experiments.effects import holm


def texts() -> dict[str, str]:
    longer = {**_longer("TD3", "locomotion-long"), **_longer("SAC", "locomotion-long-sac")}
    return {**_locomotion(), **longer, **_biases(), **_published_curves(), **_cartpole(), **_huber()}


def _locomotion() -> dict[str, str]:
    rows = []
    for task, source in TASKS.items():
        for name, (returns, greedy) in sides(source).items():
            last = spread(returns[:, -10_000 // WINDOW :].mean(axis=1), 0)
            rows.append([task, name, f"{len(returns)}", last, spread(greedy, 0)])
    caption = (
        "*Training return* is a mean over the training episodes of the last 10,000 steps. It is averaged within "
        "iterations of 1000 steps first, then over iterations and seeds. *Greedy return* is that of one greedy episode "
        "of each seed after its last step, as a mean over seeds."
    )
    headings = ("task", "library", "seeds", "training return [95 %]", "greedy return [95 %]")
    return {
        "locomotion": captioned(caption, table(headings, rows)),
        "locomotion.hopper": _told(difference(TASKS["Hopper"])),
        "locomotion.first-five": _told(difference(FIRST_FIVE)),
    }


def _longer(learner: str, run: str) -> dict[str, str]:
    rows, tasks = [], LONG[learner]
    for task, source in tasks.items():
        for (name, (_, greedy)), last in zip(sides(source).items(), by_seed(source), strict=True):
            each = ", ".join(number(value, 0) for value in sorted(last))
            rows.append([task, name, spread(last, 0), each, spread(greedy, 0)])
    caption = (
        f"{learner} in both libraries, {runs(run, 'iterations')} of 1000 steps. *Training return* is a mean over the "
        "training episodes of the last 100,000 steps. It is averaged within iterations first, then over iterations and "
        "seeds. *Greedy return* is that of one greedy episode of each seed after its last step, as a mean over seeds."
    )
    headings = ("task", "library", "training return [95 %]", "training return of each seed", "greedy return [95 %]")
    found = [difference(source) for source in tasks.values()]
    told = {f"{run}.{task}": _told(pair) for task, pair in zip(tasks, _by_holm(found), strict=True)}
    return {run: captioned(caption, table(headings, rows)), **told}


def _biases() -> dict[str, str]:
    (ours, drawn, peer), names = arms().values(), list(arms())
    labels = {"replaybench": "replaybench, zero biases", "replaybench, biases drawn": "replaybench, random biases"}
    rows = [
        [labels.get(name, name), f"{len(x)}", spread(x, 0), f"{(x < STUCK).sum()} of {len(x)}"]
        for name, x in zip(names, (ours, drawn, peer), strict=True)
    ]
    start, end = BIASES.compared
    caption = (
        f"TD3 on HalfCheetah. *Training return* is a mean over the training episodes of steps {start:,} to {end:,}. It "
        "is averaged within iterations of 1000 steps first, then over iterations and seeds. The last column counts the "
        f"seeds with a training return below {STUCK:,.0f}."
    )
    found = [compare(drawn, ours, paired=True), compare(ours, peer), compare(drawn, peer)]
    adjusted = _by_holm(found)
    names_of_pairs = ("random-zero", "zero-peer", "random-peer")
    headings = ("library", "seeds", "training return [95 %]", f"seeds below {STUCK:,.0f}")
    return {
        "locomotion-biases": captioned(caption, table(headings, rows)),
        **{f"locomotion-biases.{name}": _told(one) for name, one in zip(names_of_pairs, adjusted, strict=True)},
    }


def _published_curves() -> dict[str, str]:
    rows, told = [], dict[str, str]()
    for learner in la3p_figure.RUNS:
        for task in la3p_figure.TASKS:
            for name, (returns, last) in la3p_figure.sides(learner, task).items():
                compared = returns[:, la3p_figure.COMPARED].mean(axis=1)
                each = ", ".join(number(value, 0) for value in sorted(compared))
                rows.append([learner, task, name, f"{len(returns)}", spread(compared, 0), each, spread(last, 0)])
        found = _by_holm([la3p_figure.difference(learner, task) for task in la3p_figure.TASKS])
        told |= {
            f"la3p-curves.{learner}-{task}": _told(pair) for task, pair in zip(la3p_figure.TASKS, found, strict=True)
        }
    caption = (
        "FIFO[LA3P]. *Return* is a mean over the evaluations after 50,000 to 100,000 steps, each of ten greedy "
        "episodes. *Last return* is that of the last evaluation. Both are means over seeds."
    )
    headings = ("learner", "task", "runs of", "seeds", "return [95 %]", "return of each seed", "last return [95 %]")
    return {"la3p-curves": captioned(caption, table(headings, rows)), **told}


def _by_holm(found: Sequence[Difference]) -> list[Difference]:
    """Return the same with each p raised by Holm's correction over all of them."""
    return [pair._replace(p=p) for pair, p in zip(found, holm([pair.p for pair in found]), strict=True)]


def _told(found: Difference) -> str:
    low, high = number(found.low, 0), number(found.high, 0)
    return f"{number(found.estimate, 0)} [{low}, {high}], p = {number(found.p, 2 if found.p >= 0.01 else 4)}"


def _cartpole() -> dict[str, str]:
    data, rows = results("cartpole"), []
    late = 25  # iterations whose greedy episodes are averaged: the last five
    for found in cells("cartpole"):
        high = f"{(found.final >= 400).sum()} of {found.final.size}"
        rows.append([found.strategy, spread(found.final, 0), spread(found.looks(late), 0), high])
    names = ("reference_random", "reference_zero")
    random, first = (number(data[name].item(), 0) for name in names)
    rows.append(["random actions / always the first action", f"{random} / {first}", "", ""])
    caption = (
        f"DQN, {runs('cartpole', 'iterations')} of 500 steps. Entries are means over seeds with 95 % intervals. "
        "*Training return* covers the last tenth of training, exploration included. *Greedy return* covers the greedy "
        f"episodes after iterations {looks('cartpole', late)}."
    )
    headings = ("strategy", "training return", "greedy return", "seeds with a training return of at least 400")
    return {"cartpole": captioned(caption, table(headings, rows))}


_LOSSES = {
    "DQN:stored": "squared errors",
    "DQN:huber10": "Huber loss, `huber = 10`",
    "DQN:huber": "Huber loss, `huber = 1`",
    "DQN:default": "squared errors, default settings of DQN",
    "DQN:decay": "squared errors, default settings, exploration fades within 20 iterations",
}


def _huber() -> dict[str, str]:
    late = 25
    found = {one.learner: one for one in cells("huber")}
    rows = [
        [words, spread(found[name].final, 0), spread(found[name].looks(late), 0)] for name, words in _LOSSES.items()
    ]
    caption = (
        f"DQN with FIFO[Uniform], {runs('huber', 'iterations')} of 500 steps. Entries are means over seeds with 95 % "
        "intervals. *Training return* covers the last tenth of training, exploration included. *Greedy return* covers "
        f"the greedy episodes after iterations {looks('huber', late)}."
    )
    means = {name: number(float(found[name].final.mean()), 0) for name in _LOSSES}
    told = f"{means['DQN:stored']} with squared errors, {means['DQN:huber10']} with `huber = 10`, "
    told += f"{means['DQN:huber']} with `huber = 1`"
    return {
        "huber": captioned(caption, table(("loss and settings", "training return", "greedy return"), rows)),
        "huber.said": told,
        "huber.default": f"{means['DQN:default']} instead of {means['DQN:decay']}",
    }
