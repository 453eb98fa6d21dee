"""Commands that compare: table, claims, advise. Signatures are options; imports are inside."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final, Literal

from tyro.conf import Positional

from replaybench.data.bounds import Count, Hertz, Noise, RootSeed, Seconds, Seeds, Workers
from replaybench.data.errors import UserError, no_such_file
from replaybench.experiments.command_line.options import setting_values

_FOR_RUNS: Final = ("budget_minutes", "learner", "seeds", "episodes", "probes", "root_seed", "set", "output", "workers")
"""Options of `advise` for runs, which need a named plant."""


def table(
    run: Positional[Path],
    baseline: str | None = None,
    compare: Literal["strategy", "learner", "noise", "frequency", "plant"] | None = None,
    output: Path | None = None,
) -> int:
    """Print the tables of a sweep again: scores, how cells compare along an axis of the study, seed by seed, noise.

    Args:
        run: Run folder, or a results file (.nc) by itself.
        baseline: What the others are compared with, e.g. a strategy; the study's first if not given.
        compare: Axis along which cells are compared; strategies if not given, or the first axis that varies.
        output: File (.csv, .parquet) to write the scores to as well, a row a cell, its blocks of seeds together.
    """
    from replaybench.data.formats.column_file import check_columns_file, write_columns
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.results.comparison_tables import comparison_tables
    from replaybench.experiments.results.dataset import without_rewards
    from replaybench.experiments.results.results_file import read_results
    from replaybench.experiments.results.tables import noise_tables, score_columns, score_tables

    if output is not None:
        check_columns_file(output)
    console, data = make_console(), read_results(run)
    if not (scores := score_tables(data)):
        raise without_rewards(run, data, "a table needs")
    for shown in (*scores, *comparison_tables(data, baseline, compare), *noise_tables(data)):
        console.print(shown)
    if output is not None:
        write_columns(output, score_columns(data))
        print(f"table    {output}")
    return 0


def claims(
    runs: Positional[tuple[Path, ...]] = (),
    paper: str | None = None,
    claim: str | None = None,
    output: Path | None = None,
    figure: Path | None = None,
) -> int:
    """Test published claims by runs: reproduced, contradicted or undecided, with effect, interval and seeds needed.

    Without runs, it lists the claims.

    Args:
        runs: Run folders, of presets or of studies with cells under the same settings.
        paper: Test the claims of this paper only, for example debruin2018.
        claim: Show this claim only, by its name, which stands in front of each.
        output: File to write the verdicts to as well, as JSON.
        figure: File (.png, .svg or .pdf) to draw effects and verdicts into.
    """
    from replaybench.experiments.claims.show import show_claims
    from replaybench.experiments.command_line.console import make_console

    show_claims(make_console(), runs, () if paper is None else (paper,), output, figure, claim)
    return 0


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
    """Advise on retention and sampling for a plant: learn with FULL[Uniform], judge it, try a few, propose one.

    Called again, it continues; what is finished is not run again. With a run folder, nothing is run: its results are
    judged. With a buffer file, as `import` makes one of a log, nothing is compared either: rules alone decide.

    Args:
        run: Run folder of a sweep that ran FULL[Uniform], and others, or a buffer file, instead of a plant.
        plant: Plant name (see `replaybench list`) or path/to/file.py:ClassName; of a run folder, which of its
            plants; of a buffer file, in place of the one that it names.
        budget_minutes: Wall-clock time that the runs and dynamic programming may take, in minutes; the first time
            compiling comes on top.
        noise: Standard deviation of sensor and actuator noise, normalised units; of a run folder, which of its levels.
        frequency: Control rate in Hz; the plant's own if not given.
        learner: Learner (see `replaybench list`).
        memory: Most experiences that may be kept; no limit if not given.
        seeds: Learners of each strategy; intervals of fewer than ten are too narrow.
        episodes: Length of the runs; what the budget allows if not given.
        probes: Most strategies to try besides FULL[Uniform]; what the budget allows, at most eight, if not given.
        set: Changed settings of the learner, as in --set tau=0.005.
        output: Folder of the runs; runs/advice-PLANT if not given.
        format: Text for people, or JSON: one object, of a run folder a list of them; progress goes to stderr then.
    """
    given = dict(locals())
    from rich.console import Console

    from replaybench.controllers.registry import spelled
    from replaybench.envs.registry import PLANTS, make_plant
    from replaybench.experiments.advice.advise import advise as find
    from replaybench.experiments.advice.advise import advise_from
    from replaybench.experiments.advice.from_buffer import advise_on_buffer
    from replaybench.experiments.advice.probes import Question
    from replaybench.experiments.advice.show import show
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
    """Refuse options for runs where nothing is run, and for a file those that it answers itself."""
    defaults = inspect.signature(advise).parameters
    for name in (*_FOR_RUNS, "frequency") if of_file else _FOR_RUNS:
        if given[name] != defaults[name].default:
            option, what = name.replace("_", "-"), "buffer file" if of_file else "run folder"
            raise UserError(f"--{option} is for runs, and a {what} is only read; leave it out")
