"""Public functions that run studies, solve plants and write reports, and the class of their results."""

import importlib.util
import io
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import xarray as xr
from matplotlib.figure import Figure
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from replaybench.baselines import fuzzy_q_iteration
from replaybench.controllers.registry import spelled
from replaybench.envs.ode.plant import OdePlant, with_equations
from replaybench.envs.registry import PLANTS, make_plant
from replaybench.evidence.advice import advise as advising
from replaybench.evidence.advice.probes import Question
from replaybench.evidence.advice.proposal import Advice
from replaybench.evidence.advice.text import advice_parts
from replaybench.exchange.offline import Changes
from replaybench.exchange.offline_scores import OfflineScores
from replaybench.experiments.cell_lookup import find_file
from replaybench.experiments.overview import screen
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Study, read_study
from replaybench.experiments.sweep import Figures, cores, run_sweep
from replaybench.experiments.text_table import Collector, plain_table
from replaybench.experiments.workers import leave_if_imported
from replaybench.reports.figures.all_figures import draw_figures, figure_paths, of_plant, offline_figure
from replaybench.reports.figures.learning_curves import learning_curves
from replaybench.reports.figures.style import file_names, style
from replaybench.reports.figures.surfaces import solution_figure
from replaybench.reports.offline import offline_parts, run_replay
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, unknown

T = TypeVar("T")


class Picture(NamedTuple):
    """A Matplotlib figure that notebooks display."""

    figure: Figure

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with style():
            self.figure.savefig(content, format="png", dpi=100)
        return content.getvalue()


class Result(Generic[T]):
    """A wrapper that prints a result as text and shows the result as tables in notebooks.

    Attributes and items of `data` can be read from the wrapper: `result["mu_final"]` is `result.data["mu_final"]`.

    Attributes:
        data: The wrapped object. Use it for functions that need its type, such as `xarray.concat`.
    """

    def __init__(self, data: T, show: Callable[[Console], object], draw: Callable[..., Figure] | None = None) -> None:
        self.data, self._show, self._draw = data, show, draw

    def plot(self, **chosen: Any) -> Picture:
        """Draw learning curves, the solution of a plant, or the rewards of an offline replay.

        Args:
            **chosen: The plant to draw, such as `plant="Magman"`. Required if a study's results hold several plants.

        Raises:
            UserError: The result has no figure, or the results do not hold this plant.
        """
        if self._draw is None:
            raise UserError("there is no picture of this result")
        with style():
            return Picture(self._draw(**chosen))

    def __repr__(self) -> str:
        text = io.StringIO()
        self._show(Console(file=text, width=120, emoji=False, force_jupyter=False, force_terminal=False))
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:

        collected = Collector()
        self._show(collected)
        return collected.html()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":
            raise AttributeError(name)
        return getattr(self.data, name)

    def __getitem__(self, key: Any) -> Any:
        items: Any = self.data
        return items[key]


def sweep(
    study: Study | Path | str, output: Path | str | None = None, *, workers: int | None = None,
    cluster: str | None = None, progress: bool = True, rivals: bool = True,
) -> Result[xr.Dataset]:  # fmt: skip
    """Run a study, or continue an interrupted run, and return its results.

    A script must call this function under `if __name__ == "__main__":`, because worker processes import the script.

    Args:
        study: A study, the path of a study file, or the name of a study that the package contains.
        output: Run folder; `runs/<name of the study>` by default.
        workers: Number of local worker processes; one per core by default.
        cluster: Address of a Dask scheduler, whose workers are used instead of local workers.
        progress: Whether to print progress: a bar in terminals and notebooks, and a line every 30 s elsewhere.
        rivals: Whether to tune and score rivals of learners, such as PID controllers.

    Returns:
        The results as an `xarray.Dataset`, wrapped in a `Result`.

    Raises:
        UserError: The study cannot run on this machine, memory or disk space is too small, or the folder is in use.
        KeyboardInterrupt: Ctrl-C was pressed. Checkpoints were written. Repeat the call to continue the run.

    Example:
        >>> results = replaybench.sweep("demo", workers=4)
    """
    leave_if_imported()
    read = study if isinstance(study, Study) else read_study(study)
    outcome = run_sweep(
        read, Path(output or Path("runs") / read.name), workers or cores(), cluster, checkpoint_seconds=60.0,
        console=_console(progress), figures=Figures(draw_figures, figure_paths), rivals=rivals,
    )  # fmt: skip
    if outcome.status:
        raise KeyboardInterrupt("checkpoints are written; run the cell or the script again to resume")
    return _results(outcome.data)


def open_results(path: Path | str) -> Result[xr.Dataset]:
    """Read the results of a study from a run folder or a results file, and verify the checksum.

    Returns:
        The results as an `xarray.Dataset`, wrapped in a `Result`.

    Raises:
        UserError: There are no results, or the file is damaged.

    Example:
        >>> replaybench.open_results("runs/mine")["mu_final"].mean("seed")
    """
    return _results(read_results(path))


def _results(data: xr.Dataset) -> Result[xr.Dataset]:
    def draw(plant: str | None = None) -> Figure:
        plants = [str(name) for name in data["plant"].values]
        if (plant or len(plants) > 1) and plant not in plants:
            raise unknown("plant of these results:", str(plant), plants)
        return learning_curves(of_plant(data, plant or plants[0]))

    return Result(data, lambda console: _print(console, screen(data, None)), draw)


def solve(plant: OdePlant | str, frequency: float | None = None, **options: Any) -> Result[fuzzy_q_iteration.Solution]:
    """Solve a plant by fuzzy Q-iteration (Buşoniu et al., 2010), or read its solution from the cache.

    Args:
        plant: The plant, or its name.
        frequency: Control rate in Hz; the plant's own control rate by default.
        **options: Keyword arguments `grid`, `discount`, `variant`, `tolerance` and `store` of
            `replaybench.baselines.fuzzy_q_iteration.solve`.

    Returns:
        The solution, wrapped in a `Result`. Its methods `greedy` and `value` return the greedy action and the value at
        normalised states `[..., S]`.

    Raises:
        UserError: The plant has no equations or no grid, or a setting is out of its range.

    Example:
        >>> replaybench.solve("PendulumDCSC", 50.0).plot()
    """
    made = with_equations(make_plant(plant), "dynamic programming") if isinstance(plant, str) else plant
    solution = fuzzy_q_iteration.solve(made, made.frequency if frequency is None else frequency, **options)
    return Result(solution, lambda console: console.print(_solution_table(solution)), lambda: solution_figure(solution))


def _solution_table(solution: fuzzy_q_iteration.Solution) -> Table:
    """Return the grid, the discount and the convergence of a solution of dynamic programming as a table."""
    table = plain_table(("plant", "Hz", "nodes", "actions", "γ", "sweeps", "last ‖Δθ‖∞"), title="Fuzzy Q-iteration")
    nodes, actions = " × ".join(map(str, solution.grid.nodes)), f"{len(solution.actions)}"
    last = f"{solution.discount:.4g}", f"{solution.sweeps}", f"{solution.convergence[-1]:.3g}"
    table.add_row(Text(solution.plant.name), f"{solution.frequency:g}", nodes, actions, *last)
    return table


def replay_offline(
    buffer: Path | str, strategy: str = "FULL[Uniform]", output: Path | str | None = None, *,
    cell: Mapping[str, Any] | None = None, plant: str | None = None, learner: str = "DDPG", updates: int = 20_000,
    capacity: int | None = None, seeds: int | None = None, root_seed: int = 0,
    settings: Mapping[str, Any] | None = None, discount: float | None = None, evaluation_noise: float | None = None,
    progress: bool = True,
) -> Result[OfflineScores]:  # fmt: skip
    """Train learners offline from a stored replay buffer, and evaluate the learners on the buffer's plant.

    Args:
        buffer: A buffer file, or a run folder, in which `cell` selects the buffer.
        strategy: Retention and sampling rules of the new buffer, such as `FULL[PER]`.
        output: New folder for the policy, the scores and a figure; `runs/replay-…` by default.
        cell: Values of `learner`, `strategy`, `noise`, `frequency` or `seed` that select one buffer of a run folder.
        plant: The plant on which to evaluate. Required if the plant is defined in a Python file (`plant.py:MyPlant`).
        updates: Number of updates of each learner.
        capacity: Capacity of the new buffer in experiences; by default, the number of stored experiences.
        seeds: Number of learners. By default, one for each recorded learner, and at least 8.
        settings: Settings of the learner that differ from their defaults.
        discount: Discount γ of a control step; by default the discount of the run that filled the buffer.
        evaluation_noise: Standard deviation of the noise in evaluations, in normalised units; by default the
            noise of the run that filled the buffer.
        progress: Whether to print progress: a bar in terminals and notebooks, and a line every 30 s elsewhere.

    Returns:
        The scores of the learners, of the recorded episodes and of reference controllers, wrapped in a `Result`.

    Raises:
        UserError: The buffer or a setting is invalid, or `output` already holds an offline replay.

    Example:
        >>> replaybench.replay_offline("runs/mine", "FULL[PER]", cell={"strategy": "FIFO[Uniform]"}, updates=2000)
    """
    known = ("learner", "strategy", "noise", "frequency", "seed")
    if wrong := sorted({*(cell or {})} - {*known}):
        raise unknown("key of cell:", wrong[0], known)
    file, member = find_file(Path(buffer), None, "buffer", plant=plant, **(cell or {}))
    scores, _ = run_replay(
        _console(progress), file, Path(output) if output else None, strategy, learner, plant=plant, stream=False,
        updates=updates, capacity=capacity, seeds=seeds, root_seed=root_seed, member=member,
        changes=Changes(dict(settings or {}), discount, evaluation_noise),
    )  # fmt: skip
    return Result(scores, lambda console: _print(console, offline_parts(scores)), lambda: offline_figure(scores))


def advise(
    subject: Path | str, output: Path | str | None = None, *, noise: float | None = None,
    frequency: float | None = None, memory: int = 0, workers: int | None = None, progress: bool = True,
    **options: Any,
) -> Result[list[Advice]]:  # fmt: skip
    """Recommend a retention and a sampling rule for a replay buffer.

    Args:
        subject: A run folder, a buffer file, or the name of a plant. For a plant, new runs are made.
        output: Folder of the new runs; `runs/advice-PLANT` by default.
        noise: Noise of new runs, or noise that selects stored results; a standard deviation in normalised units.
        frequency: Control rate of new runs, or control rate that selects stored results, in Hz.
        memory: Largest number of experiences that a buffer may hold; 0 for no limit.
        workers: Number of local worker processes; one per core by default.
        progress: Whether to print progress: a bar in terminals and notebooks, and a line every 30 s elsewhere.
        **options: Settings of new runs: `minutes`, `learner`, `seeds`, `episodes`, `probes`, `root_seed`, `settings`,
            `observe`.

    Returns:
        A list with one recommendation for each plant, learner, noise and control rate, wrapped in a `Result`.

    Raises:
        UserError: There is no such plant or file, or the folder has no results of the strategy `FULL[Uniform]`.

    Example:
        >>> replaybench.advise("runs/mine")[0].chosen
    """
    run = Path(subject) if Path(subject).exists() else None
    if run is None:
        leave_if_imported()
    given = {"noise": noise, "frequency": frequency, "memory": memory, **options}
    plant, folder = None if run else str(subject), Path(output) if output else None
    advices = advice(run, plant, folder, workers, _console(progress), **given)
    return Result(advices, lambda console: _print(console, chain.from_iterable(map(advice_parts, advices))))


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
            return [advising.advise_on_buffer(run, plant, memory, noise)]
        return advising.advise_from(run, plant, memory, frequency, noise)
    assert plant is not None
    rate = make_plant(plant).frequency if frequency is None else frequency
    given = {"seeds": 10, "root_seed": 0, "settings": {}, "episodes": 0, "probes": 0, **options}
    given |= {"plant": plant, "frequency": rate, "noise": noise or 0.0, "memory": memory, "minutes": minutes}
    given["learner"] = spelled(learner)
    question = build(Question, given, "advise")
    folder = folder or Path("runs") / f"advice-{file_names([plant])[0]}"
    return [advising.advise(question, folder, workers or cores(), console)]


def report(run: Path | str, output: Path | str | None = None) -> Result[Path]:
    """Write the results of a study or of an offline replay as one HTML page.

    Args:
        run: A run folder, a results file, or the folder of an offline replay.
        output: Path of the new file; `report.html` in the folder `run` by default.

    Returns:
        The path of the HTML file, wrapped in a `Result`.

    Raises:
        UserError: There are no results, or the file `output` exists.

    Example:
        >>> replaybench.report("runs/mine")
    """
    from replaybench.reports.page.report import write_report

    written = write_report(Path(run), Path(output) if output else None)
    return Result(written, lambda console: console.print(f"report   {written}", markup=False, soft_wrap=True))


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    for part in parts:
        console.print(part, highlight=False)


def _console(progress: bool) -> Console:
    """Return a console for progress, which prints to stderr or, in a notebook, below the cell."""
    console = Console(quiet=not progress, stderr=True, emoji=False)
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:  # without it, bars are not shown
        return Console(quiet=not progress, emoji=False, force_jupyter=False, force_terminal=False)
    return console
