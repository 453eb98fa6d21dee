"""Printing of dynamic programming on a plant and of the scores of reference controllers (command `baseline`)."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Column, Table

from replaybench.baselines.controllers import linear_quadratic_regulator
from replaybench.baselines.fuzzy_q_iteration import Variant, solve
from replaybench.baselines.grid_choice import Rule, check_effort, reference_solution
from replaybench.baselines.references import Reference, no_score, normalise, reference
from replaybench.baselines.rivals import Rivals
from replaybench.data.run_folder import claim
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.interface.plant import Parameter, Plant
from replaybench.envs.ode.plant import OdePlant, with_equations
from replaybench.envs.registry import make_plant
from replaybench.experiments.comparison import RIVAL, reference_label
from replaybench.experiments.progress import plain_lines
from replaybench.reports.figures.style import check_saved, save, style
from replaybench.reports.figures.surfaces import solution_figure
from replaybench.reports.offline import file_name, metric_words, score_table
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals


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
    folder = output or Path("runs") / f"baseline-{file_name(name)}"
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
    table = score_table("controller", f"{plant.name}, {frequency:g} Hz, noise {noise:g}: {metric_words(known)}")
    zero, one = (" (μ_r = 0)", " (μ_r = 1)") if known.usable else ("", "")
    best_of = isinstance(plant, OdePlant) and plant.episodes_differ(noise) and not plant.random_episodes
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
