"""The command that advises on a user's own plant. Its signature is its options."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final, Literal

from tyro.conf import Positional

from replaybench.data.bounds import Count, Hertz, Noise, RootSeed, Seconds, Seeds, Workers
from replaybench.data.errors import UserError, no_such_file
from replaybench.experiments.command_line.options import setting_values

_FOR_RUNS: Final = ("budget_minutes", "learner", "seeds", "episodes", "probes", "root_seed", "set", "output", "workers")
"""Options that say how to run what is only run where a plant is named."""


def advise(
    run: Positional[Path | None] = None,
    plant: str | None = None,
    budget_minutes: Seconds = 10.0,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    learner: str = "DDPG",
    memory: Count | None = None,
    seeds: Seeds = 10,
    episodes: Count | None = None,
    probes: Count | None = None,
    root_seed: RootSeed = 0,
    set: tuple[str, ...] = (),
    output: Path | None = None,
    workers: Workers | None = None,
    format: Literal["text", "json"] = "text",
) -> int:
    """Advise what to keep and what to replay on a plant: learn with FULL[Uniform], look at it, try a few, propose one.

    Called again, it continues; what is finished is not run again. With a run folder, nothing is run: what it holds is
    judged. With a buffer file, as `import` makes one of a log, nothing is compared either: rules alone decide.

    Args:
        run: Run folder of a sweep that ran FULL[Uniform], and others, or a buffer file, instead of a plant.
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName; of a run folder, which of its
            plants; of a buffer file, in place of the one that it names.
        budget_minutes: Wall-clock time that the runs may take, in minutes; the first time compiling and dynamic
            programming come on top.
        noise: Standard deviation of sensor and actuator noise, normalised units; of a run folder, which of its levels.
        frequency: Control rate in Hz; the plant's own if not given.
        learner: Learner (see `replaybench list`).
        memory: Most experiences that may be kept; no limit if not given.
        seeds: Learners of each strategy; intervals of fewer than ten say too much.
        episodes: Length of the runs; what the budget allows if not given.
        probes: Most strategies to try beside FULL[Uniform]; what the budget allows, at most eight, if not given.
        root_seed: Root seed of the learners.
        set: Changed settings of the learner, as in --set tau=0.005.
        output: Folder of the runs; runs/advice-PLANT if not given.
        workers: Worker processes; one per core if not given.
        format: Text for people, or JSON: one object, of a run folder a list of them; progress goes to stderr then.
    """
    given = dict(locals())
    from rich.console import Console

    from replaybench.controllers.registry import spelled
    from replaybench.envs.registry import PLANTS, make_plant
    from replaybench.experiments.advice.advise import advise as find
    from replaybench.experiments.advice.advise import advise_from, show
    from replaybench.experiments.advice.from_buffer import advise_on_buffer
    from replaybench.experiments.advice.probes import Question
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.figures.style import file_names
    from replaybench.experiments.sweep import cores

    if run is None and plant is None:
        raise UserError("name a plant, as in --plant PendulumDCSC, a run folder with FULL[Uniform], or a buffer file")
    console, plant = make_console(), None if plant is None else PLANTS.spelled(plant)
    if run is not None:
        if not run.exists():
            raise no_such_file(run)
        _check_nothing_else(given, of_file=run.is_file())
        if run.is_file():
            show(advise_on_buffer(run, plant, memory or 0, noise), format, console)
        else:
            show(advise_from(run, plant, memory or 0, frequency, noise), format, console)
        return 0
    assert plant is not None
    question = Question(
        plant=plant,
        learner=spelled(learner),
        frequency=make_plant(plant).frequency if frequency is None else frequency,
        noise=noise or 0.0,
        seeds=seeds,
        root_seed=root_seed,
        settings=setting_values(set),
        episodes=episodes or 0,
        probes=probes or 0,
        memory=memory or 0,
        minutes=budget_minutes,
    )
    folder = output or Path("runs") / f"advice-{file_names([plant])[0]}"
    progress = Console(stderr=True, emoji=False) if format == "json" else console
    show(find(question, folder, workers or cores(), progress), format, console)
    return 0


def _check_nothing_else(given: dict[str, Any], of_file: bool) -> None:
    """Refuse options that say how to run what is not run, or, beside a file, what the file says.

    Raises:
        UserError: there is one that is not as it is by default.
    """
    defaults = inspect.signature(advise).parameters
    for name in (*_FOR_RUNS, "frequency") if of_file else _FOR_RUNS:
        if given[name] != defaults[name].default:
            option, what = name.replace("_", "-"), "buffer file" if of_file else "run folder"
            raise UserError(f"--{option} means nothing beside a {what}, which is only looked at; leave it out")
