"""Functions behind the commands `baseline`, `replay` and `advise`, and functions that print results."""

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from replaybench.baselines.controllers import linear_quadratic_regulator
from replaybench.baselines.fuzzy_q_iteration import Solution, Variant, solve
from replaybench.baselines.grid_choice import Rule, check_effort, reference_solution
from replaybench.baselines.references import Reference, no_score, normalise, reference
from replaybench.baselines.rivals import Rivals
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import spelled
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.run_folder import claim
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.interface.plant import Parameter, Plant
from replaybench.envs.ode.plant import OdePlant, with_equations
from replaybench.envs.registry import PLANTS, make_plant
from replaybench.evidence.advice.advise import advise, advise_from, advise_on_buffer
from replaybench.evidence.advice.probes import Question
from replaybench.evidence.advice.proposal import Advice
from replaybench.exchange.offline import Changes, replay_offline
from replaybench.exchange.offline_scores import OfflineScores, extrapolation
from replaybench.exchange.recorded_buffer import read_recording, recorded_rewards
from replaybench.experiments.comparison import RIVAL, reference_label
from replaybench.experiments.overview import LINES, screen
from replaybench.experiments.progress import plain_lines, shows_bars
from replaybench.experiments.sweep import cores
from replaybench.experiments.text_table import plain_table
from replaybench.replay.strategies.notation import parse
from replaybench.reports.figures.all_figures import draw_offline
from replaybench.reports.figures.style import check_saved, file_names, save, style
from replaybench.reports.figures.surfaces import solution_figure
from replaybench.runtime.atomic import new_path
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import ReplaybenchWarning, UserError
from replaybench.runtime.quantities import decimals, duration
from replaybench.runtime.user_file import one_line_errors
from replaybench.runtime.version import VERSION

_LEAST_LEARNERS = 8


def show_baseline(
    console: Console, name: str, parameters: Mapping[str, Parameter], frequency: float | None, noise: float,
    rule: Rule | None, output: Path | None, rivals: bool = True,
) -> None:  # fmt: skip
    """Solve a plant by dynamic programming, print convergence and scores, and draw the value and the policy."""
    plant = with_equations(make_plant(name, **parameters), "dynamic programming")
    if not plant.grid_nodes:
        raise UserError(f"{plant.name} declares no grid_nodes, so dynamic programming has no grid to work on")
    frequency = frequency or plant.frequency
    check_effort(plant, frequency, noise)
    changed = [
        f"{key}={format(value, 'g') if isinstance(value, float) else value}" for key, value in parameters.items()
    ]
    changed += [f"delay={plant.channel.delay:g}"] * (plant.channel.delay > 0)
    name = "-".join([plant.name, f"{frequency:g}Hz", *changed])
    folder = output or Path("runs") / f"baseline-{_file_name(name)}"
    drawn = len(plant.state_names) > 1
    place = claim(folder) if drawn else folder
    check_saved(place, "solution")
    stage = "fuzzy Q-iteration"
    status = console.status(stage) if console.is_terminal else contextlib.nullcontext()
    with status, plain_lines(console, lambda: stage):
        variants: tuple[Variant, ...] = ("synchronous", "asynchronous")
        sweeps = []
        for variant in variants:
            stage = f"fuzzy Q-iteration, {variant}, on the declared nodes"
            sweeps.append(solve(plant, frequency, variant=variant).convergence)
        stage = "fuzzy Q-iteration, the solution to compare with"
        solution = reference_solution(plant, frequency, rule).solution
        stage = "episodes of the reference controllers"
        scores = reference(plant, frequency, noise, rule, Rivals() if rivals else None)
    nodes = " × ".join(map(str, plant.grid_nodes))
    console.print(f"fuzzy Q-iteration on the declared {nodes} nodes: ‖Δθ‖∞ after each sweep")
    convergence = Table(*(Column(heading, justify="right") for heading in ("sweep", *variants)), box=box.SIMPLE_HEAD)
    ends = set(map(len, sweeps))
    for sweep in sorted({1, 2, 5, 10, 20, 50, *range(100, max(ends), 100), *ends}):
        shown = [f"{changes[sweep - 1]:.3g}" if sweep <= len(changes) else "" for changes in sweeps]
        if any(shown):
            convergence.add_row(str(sweep), *shown)
    console.print(convergence)
    console.print(f"{plant.name} at {frequency:g} Hz: {scores.grid}, γ = {scores.discount:.4g}", markup=False)
    for what, words in (("channel", describe_channel(plant)), ("spread", describe_spread(plant))):
        if words:
            console.print(f"{what}: {words}", markup=False)
    if note := no_score(scores.dp, scores.random):
        console.print(note)
    console.print(reference_table(plant, frequency, noise, scores))
    for name, rival in scores.rivals.items():
        console.print(f"{reference_label(RIVAL + name)}: {rival.note}", markup=False, highlight=False)
    try:
        linear_quadratic_regulator(plant, frequency)
    except UserError as why:
        console.print(f"no row for linear-quadratic control: {why}", markup=False, highlight=False)
    if not drawn:
        print(f"figure   none: a map shows two states, {plant.name} has one")
        return
    with style():
        print(f"figure   {folder / save(solution_figure(solution), place, 'solution').name}")


def reference_table(plant: Plant, frequency: float, noise: float, known: Reference) -> Table:
    """Return a table of the rewards of random control, dynamic programming and other reference controllers."""
    table = _score_table("controller", f"{plant.name}, {frequency:g} Hz, noise {noise:g}: {metric_words(known)}")
    zero, one = (" (μ_r = 0)", " (μ_r = 1)") if known.usable else ("", "")
    best_of = noise and not (isinstance(plant, OdePlant) and plant.random_episodes)
    best = f"DP, best of {plant.reference_episodes:,} episodes" if best_of else "DP, greedy policy"
    best += f", predicting from the {known.dp_from}" if known.dp_from else ""
    interpolated = "DP, interpolated policy"
    if np.isclose(known.interpolated, known.zero):
        interpolated += " (averages to rest by symmetry)"
    rows = {
        f"random{zero}": known.random,
        "zero": known.zero,
        "linear-quadratic (linearised at the reference)": known.lqr,
        "linear-quadratic, predicting over the delay": known.lqr_predicted,
        "DP, greedy policy, unaware of the delay": known.dp_unaware,
        interpolated: known.interpolated,
        "DP, greedy policy, mean": known.dp_mean if best_of else np.nan,
        best + one: known.dp,
        "DP, greedy in values averaged over the noise": known.dp_averaged,
        "DP, greedy on a model observer of the state": known.dp_observer,
        **{reference_label(RIVAL + name): rival.score for name, rival in known.rivals.items()},
    }
    digits = decimals(rows.values(), least=3)
    for controller, reward in rows.items():
        if np.isfinite(reward):
            score = f"{float(normalise(reward, known)):.3f}" if known.usable else "–"
            table.add_row(controller, f"{reward:.{digits}f}", score)
    return table


def _score_table(first: str, title: str) -> Table:
    numbers = (Column(heading, justify="right") for heading in ("reward", "μ_r"))
    return Table(first, *numbers, title=Text(title), box=box.SIMPLE_HEAD)


def run_replay(
    console: Console, path: Path, output: Path | None, strategy_text: str, learner: str, *, plant: str | None,
    stream: bool, updates: int, capacity: int | None, seeds: int | None, root_seed: int, member: int | None,
    changes: Changes,
) -> tuple[OfflineScores, dict[str, Path]]:  # fmt: skip
    """Train learners offline from a buffer file, and return their scores and the files that were written.

    The console shows the progress.
    """
    strategy, learner = parse(strategy_text), spelled(learner)
    if stream and (capacity is not None or str(strategy) != "FULL[Uniform]"):
        raise UserError("--stream draws from the whole file, block by block; leave --strategy and --capacity out")
    if capacity is not None and not strategy.retention.bounded:
        raise UserError(f"--capacity bounds the buffer, but {strategy} keeps everything; use FIFO or Resv")
    if capacity is not None and strategy.retention.capacity not in (None, capacity):
        raise UserError(f"--capacity {capacity}, but {strategy} names another capacity; leave one out")
    label = f"{learner}, {'streamed' if stream else strategy}"
    where = f"{path.parent.name}-{path.stem}" if path.stem == "buffer" else path.stem
    folder = output or Path("runs") / f"replay-{where}-{_file_name(label)}-{updates}"
    place = folder.absolute()
    policy, scores = place / "policy.safetensors", place / "scores.h5"
    new_path(folder / scores.name)
    recording = read_recording(path, plant, whole=not stream, member=member)
    noise = recording.noise if changes.noise is None else changes.noise
    if recording.changed:
        warn(f"{recording.plant.name} has changed since this buffer was filled", ReplaybenchWarning, stacklevel=3)
    if recording.failed:
        left_out = f"{recording.failed} recording(s) hold NaN or infinity and are left out"
        warn(left_out, ReplaybenchWarning, stacklevel=3)
    about = {
        "buffer": str(path),
        "strategy": "streamed" if stream else str(strategy),
        "learner": learner,
        "updates": updates,
        "plant": recording.facts.plant,
        "parameters": recording.facts.parameters,
        "frequency": recording.frequency,
        "noise": noise,
        "recording": member,
        "settings": dict(changes.settings),
        "discount": changes.discount,
        "root_seed": root_seed,
        "version": VERSION,
    }
    if policy.exists():  # replaced only if the same command wrote it and was stopped before its end
        facts, _ = read_policy(policy)
        if {name: facts.get(name) for name in about} != json.loads(json.dumps(about)):
            new_path(folder / policy.name)
    check_effort(recording.plant, recording.frequency, noise)
    claim(place)
    check_saved(place, "offline")
    learners = seeds or max(len(recording.members), _LEAST_LEARNERS)
    begin, done = time.monotonic(), 0

    def stage() -> str:
        if done == updates:
            return "references"
        seconds = time.monotonic() - begin
        left = f", {duration(seconds * (updates - done) / done)} left" if done else ""
        return f"{done} of {updates} updates{left}"

    def advance(count: int) -> None:
        nonlocal done
        done = count
        progress.update(task, completed=count)

    with (
        Progress(console=console, disable=not shows_bars(console), transient=True) as progress,
        plain_lines(console, stage),
    ):
        task = progress.add_task(f"{escape(label)} offline, {learners} learners", total=updates)
        try:
            with one_line_errors(f"{label} offline"):
                outcome = replay_offline(
                    recording, strategy, updates=updates, learner=learner, learners=learners, capacity=capacity,
                    root_seed=root_seed, progress=advance, changes=changes,
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            raise type(stop)("stopped; nothing was written, the same command starts again from 0") from stop
        progress.update(task, description="references")
        references = reference(recording.plant, recording.frequency, noise)
    online = {}
    if noise == recording.noise:  # under another noise, μ_r has another scale
        chosen = slice(None) if member is None else slice(member, member + 1)
        stored = {"online": recording.facts.reward_greedy, "online, exploring": recording.facts.reward_final}
        online = {f"{how}: {recording.facts.strategy}": rewards[chosen] for how, rewards in stored.items() if rewards}
    offline = OfflineScores(about, outcome.updates, outcome.reward, recorded_rewards(recording), online, references)
    beyond = extrapolation(recording, outcome.agent, learners, updates)
    described = {"policy": policy_facts(learner, outcome.agent, recording.frequency)}
    write_policy(policy, outcome.agent.weights(), {**about, **described})
    figure = draw_offline(offline, place)
    offline.write(scores)  # last, because this file marks a complete replay
    written = {"figure": figure, "policy": policy, "scores": scores}
    if beyond:
        warn(beyond.words(learner, bool(recording.plant.action_choices)), ReplaybenchWarning, stacklevel=3)
    return offline, {name: folder / path.name for name, path in written.items()}


def metric_words(known: Reference) -> str:
    """Return how the episodes of a plant are scored, "return" or "mean reward per step"."""
    return "return" if known.episode_metric == "return" else "mean reward per step"


def print_offline(console: Console, scores: OfflineScores) -> None:
    """Print the scores of learners that were trained offline, of the recorded data and of reference controllers."""
    known = scores.reference
    title = f"{known.plant}, {known.frequency:g} Hz: {metric_words(known)}, mean over learners [95 %]"
    table = _score_table("", title)
    for name, reward, score in scores.rows():
        table.add_row(escape(name), reward, score)
    console.print(table)
    for headline in scores.headlines():
        console.print(f"warning: {headline[0].lower()}{headline[1:]}", style="yellow", highlight=False)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "_" for c in text).strip("_")


def advice(
    run: Path | None, plant: str | None, folder: Path | None, workers: int | None, console: Console, *,
    noise: float | None = None, frequency: float | None = None, memory: int = 0, learner: str = "DDPG",
    minutes: float = 10.0, **options: Any,
) -> list[Advice]:  # fmt: skip
    """Return advice on retention and sampling for a plant.

    The advice is based on `run`, which is a run folder or a buffer file. If `run` is None, new runs are made in
    `folder`, and `options` are further settings of these runs (see `Question`).
    """
    plant = None if plant is None else PLANTS.spelled(plant)
    if run is not None:
        if run.is_file():
            return [advise_on_buffer(run, plant, memory, noise)]
        return advise_from(run, plant, memory, frequency, noise)
    assert plant is not None
    rate = make_plant(plant).frequency if frequency is None else frequency
    given = {"seeds": 10, "root_seed": 0, "settings": {}, "episodes": 0, "probes": 0, **options}
    given |= {"plant": plant, "frequency": rate, "noise": noise or 0.0, "memory": memory, "minutes": minutes}
    given["learner"] = spelled(learner)
    question = build(Question, given, "advise")
    return [advise(question, folder or Path("runs") / f"advice-{file_names([plant])[0]}", workers or cores(), console)]


def print_results(console: Console, data: xr.Dataset, following: str = "") -> None:
    """Print a small table of each plant and the verdicts, and the command `following` if given, in at most 25 lines."""
    for part in screen(data, LINES - 1 if following else None):
        console.print(part, highlight=False)
    if following:
        console.print(Text(f"next     {following}"), soft_wrap=True)


def print_solution(console: Console, solution: Solution) -> None:
    """Print the grid, the discount and the convergence of a solution of dynamic programming as a table."""
    table = plain_table(("plant", "Hz", "nodes", "actions", "γ", "sweeps", "last ‖Δθ‖∞"), title="Fuzzy Q-iteration")
    nodes, actions = " × ".join(map(str, solution.grid.nodes)), f"{len(solution.actions)}"
    last = f"{solution.discount:.4g}", f"{solution.sweeps}", f"{solution.convergence[-1]:.3g}"
    table.add_row(Text(solution.plant.name), f"{solution.frequency:g}", nodes, actions, *last)
    console.print(table)
