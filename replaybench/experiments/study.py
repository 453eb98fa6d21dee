"""Studies, which are grids of settings in TOML files, and cells, which are single combinations of these settings.

A cell is one combination of settings, with seeds that run together as one population. The id of a cell is a hash of
everything that can change the cell's numbers. A run folder can therefore be continued, extended and compared.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from warnings import warn

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.rivals import CONTROLLERS, Rivals
from replaybench.controllers.interface.agent import Schedule
from replaybench.controllers.registry import LEARNERS, algorithm_of, load_learner, spelled, variant_settings
from replaybench.data.documents import read_toml
from replaybench.envs.interface.channel_of_plant import check_channel
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.registry import DELAY, GYMNASIUM, PLANTS, make_plant, untrusted, without_delay
from replaybench.envs.registry import spelled as spelled_plant
from replaybench.experiments.recorded_buffer import read_mixed
from replaybench.experiments.schedule import make_task, with_phases
from replaybench.experiments.start import Start
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime import configuration
from replaybench.runtime.configuration import (
    Count,
    Discount,
    Hertz,
    Name,
    Noise,
    NonNegativeInt,
    RootSeed,
    Seconds,
    Seeds,
)
from replaybench.runtime.errors import ReplaybenchWarning, UserError, unknown
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import ImportRefusedError, canonical, names_from
from replaybench.runtime.version import NUMERICS_VERSION

GAMMA: Final = ":discount="
"""Text between the name of a learner and its discount, if the discount is an axis of the study."""
VOLUME: Final = ":replay_volume="
"""Text between the name of a learner and its replay volume, if the replay volume is an axis of the study."""

Buffers = Literal["final", "compressed", "none"]
"""How the replay buffers of a cell are stored at its end."""

_UNLESS_DEFAULT: Final = ("horizon_steps", "evaluate_every_steps", "evaluation_episodes", "sources", "start", "mixed")
"""Settings that are part of a cell's id only if they differ from their default."""

FINAL_EPISODES: Final = 100

AXES = ("plants", "learners", "strategies", "noise", "frequency", "delay", "discount", "replay_volume")
_MAY_BE_EMPTY: Final = ("frequency", "delay", "discount", "replay_volume")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of settings, which contains all combinations of the values in its lists.

    An empty list stands for the list of the same name in the study.
    """

    plants: tuple[Name, ...] = ()
    learners: tuple[Name, ...] = ()
    strategies: tuple[Name, ...] = ()
    noise: tuple[Noise, ...] = ()
    frequency: tuple[Hertz, ...] = ()
    delay: tuple[Seconds, ...] = ()
    discount: tuple[Discount, ...] = ()
    replay_volume: tuple[configuration.Positive, ...] = ()

    def __post_init__(self) -> None:
        configuration.check(self, "[[grid]]")
        _spell(self)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study that compares learners and replay strategies on plants, over a grid of settings.

    Each list `plants`, `learners`, `strategies`, `noise`, `frequency` and `delay` is an axis of the grid.

    Attributes:
        strategies: Retention and sampling rules of the replay buffer, such as `FULL[PER]`.
        noise: Standard deviations of sensor and actuator noise, in normalised units.
        frequency: Control rates in Hz. If the list is empty, each plant has its own control rate.
        delay: Times in seconds from a sample to the moment when its command acts. With a delay, plants are named
            `Pendulum:delay=0.01`.
        grid: Grids whose union is the study. By default, the study is one grid.
        episodes: Number of training episodes, or of iterations if updates follow a number of steps. An iteration has as
            many steps as the longest episode.
        update_every: Number of steps between update phases; 0 for updates after each episode. By default, each plant
            has its own value. With a number of steps, a new episode begins as soon as an episode ends.
        first_seed: Smallest seed. A study that continues another one with further seeds begins behind its last seed.
        block: Number of seeds that run together as one population. On a GPU, all seeds run together.
        capacity: Number of experiences in a bounded buffer, unless its retention names a capacity (`FIFO(5000)`).
        greedy_every: Number of training episodes between greedy episodes, from which nothing is learned.
        horizon_steps: Number of control steps of each seed over which sampling schedules run (λ of AER, η of ERE, β of
            importance sampling); 0 for all steps of the run. Afterwards, schedules keep their last value.
        evaluate_every_steps: Number of control steps per seed between evaluations without exploration; 0 for none.
            Evaluations begin at the end of an episode or iteration, and nothing is learned from them.
        evaluation_episodes: Number of episodes in each evaluation.
        discount: "fixed" keeps the plant's discount at every control rate. "horizon" keeps the plant's horizon in
            seconds, and scales rewards accordingly (de Bruin et al., 2018, section 6.4). A number is the discount γ of
            a control step. A list of numbers is a further axis, and learners are then named `DDPG:discount=0.99`. The
            tables of plants and learners may also contain `discount`. The value of a learner takes precedence.
        replay_volume: Mean number of replayed experiences for each new experience, in place of the learners' setting
            `replays_per_experience`. A list is a further axis, and learners are then named `DDPG:replay_volume=8`.
        reference: Grid of the dynamic programming that defines the score 1. "converged" refines the plant's grid until
            the result no longer changes. "paper" uses the grid that the plant declares. By default, each plant has its
            own choice. Learning does not depend on this grid.
        references: Users' controllers, such as `pid.py:MyPID`, with which tables and figures compare learners. Learning
            does not depend on them.
        replayed_noise: Whether to store the noise in every experience, and to measure how much noise is replayed (de
            Bruin et al., 2018, table 6).
        observe: Names of the states that learners observe; by default those that the plant declares, or all. Reference
            controllers observe all states.
        device: `cpu`, `cuda` for a GPU, or `cuda:1` for one of several GPUs.
        channel: Further settings of the channel between plants and controllers, such as `history`; see
            `replaybench.envs.interface.channel`. The table of a plant may contain its own `channel`.
        folder: Folder in which relative paths of users' files and policies are looked up first; by default the folder
            of the study file.
        learner: Settings of learners by name. A learner may be listed several times, as variants such as `DDPG:decay`.
        plant: Parameters of plants by name.
        start: Stored policies from which learners start, by name of the learner.
        mixed: Checksums that the files of `Mix` must have, by path, as stored in the `study.toml` of a run.
    """

    name: str
    plants: tuple[Name, ...] = ()
    learners: tuple[Name, ...] = ("DDPG",)
    strategies: tuple[Name, ...] = ()
    noise: tuple[Noise, ...] = (0.0,)
    frequency: tuple[Hertz, ...] = ()
    delay: tuple[Seconds, ...] = ()
    grid: tuple[Grid, ...] = ()
    seeds: Seeds = 50
    episodes: Count = 3000
    update_every: NonNegativeInt | None = None
    root_seed: RootSeed = 0
    first_seed: NonNegativeInt = 0
    block: Count = 50
    capacity: Count = 10_000
    greedy_every: Count = 10
    horizon_steps: NonNegativeInt = 0
    evaluate_every_steps: NonNegativeInt = 0
    evaluation_episodes: Count = 10
    discount: Literal["fixed", "horizon"] | Discount | tuple[Discount, ...] = "fixed"
    replay_volume: configuration.Positive | tuple[configuration.Positive, ...] = ()
    reference: Rule | None = None
    references: tuple[Name, ...] = ()
    buffers: Buffers = "final"
    replayed_noise: bool = False
    observe: tuple[Name, ...] = ()
    device: str = "cpu"
    channel: dict[str, Any] = field(default_factory=dict)
    folder: str = field(default="", compare=False)
    learner: dict[str, Any] = field(default_factory=dict)
    plant: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Start] = field(default_factory=dict)
    mixed: dict[str, Name] = field(default_factory=dict)

    def __post_init__(self) -> None:
        configuration.check(self, f"study {self.name!r}")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f'device must be "cpu", "cuda", or "cuda:1" for one of several, not {self.device!r}')
        tables: tuple[Study | Grid, ...] = (self, *self.grid)
        for table in tables:
            _spell(table, self.folder or str(Path.cwd()))
        for name in self.references:
            CONTROLLERS.check(name)
        own = (canonical(name, self.folder or str(Path.cwd())) for name in self.references)
        object.__setattr__(self, "references", tuple(own))
        if isinstance(self.discount, int | float):
            object.__setattr__(self, "discount", (float(self.discount),))
        if isinstance(self.replay_volume, int | float):
            object.__setattr__(self, "replay_volume", (float(self.replay_volume),))
        if not self.name.isprintable() or not self.name or {"/", "\\"} & set(self.name) or self.name.startswith("."):
            raise UserError(f"study name {self.name!r} must be usable as a folder name")
        grids = self.grids()
        for key, axis in _TABLES:
            names = {name for grid in grids for name in getattr(grid, axis)}
            for name, table in getattr(self, key).items():
                if name not in names:
                    raise unknown(f"name in table [{key}]:", name, names)
                if not isinstance(table, Mapping | Start):
                    raise UserError(f"study {self.name!r}: [{key}.{name}] must be a table of settings, not {table!r}")
        for grid in grids:
            for axis in AXES:
                if not getattr(grid, axis) and axis not in _MAY_BE_EMPTY:
                    raise UserError(f"study {self.name!r}: {axis} is empty; list at least one")
            for plant in grid.plants:
                if not plant.startswith(GYMNASIUM):
                    PLANTS.check(without_delay(plant)[0])
            for learner in grid.learners:
                LEARNERS.check(algorithm_of(learner))
                if of_axis := next((axis for axis in (VOLUME, GAMMA) if axis in learner), ""):
                    bare, _, value = learner.partition(of_axis)
                    raise UserError(
                        f"study {self.name!r}: the name {learner} has a value of an axis; write {bare} and the key "
                        f"{of_axis[1:-1]} = [{value}]"
                    )
            for strategy in grid.strategies:
                if ".py:" not in strategy:
                    parse(strategy)

    def rivals(self) -> Rivals:
        """Return the settings of the rivals with which learners are compared."""
        return Rivals(self.references)

    def grids(self) -> list[Grid]:
        """Return the grids of the study, in which the study's lists replace empty lists."""
        lists = {axis: getattr(self, axis) for axis in AXES}
        lists["discount"] = () if isinstance(self.discount, str) else self.discount
        tables = self.grid or (Grid(),)
        return [Grid(**{axis: getattr(table, axis) or lists[axis] for axis in AXES}) for table in tables]

    def cells(self) -> list[Cell]:
        """Return the cells of the study, without duplicates, in the order of the lists.

        Raises:
            UserError: A name is unknown, or settings do not fit together.
        """
        cells: dict[str, Cell] = {}
        plants: dict[Any, tuple[Plant, str]] = {}  # a cache, because fingerprints are slow
        with names_from(self.folder):
            for plant, learner, *point, delay, gamma, volume in itertools.chain(*map(_combinations, self.grids())):
                discount, delayed = self._discount(plant, learner, gamma), self._delayed(plant, delay)
                key = delayed, *discount.values()
                if key not in plants:
                    made = make_plant(delayed, **{**self._parameters(plant), **discount})
                    plants[key] = made, made.fingerprint()
                block = self._cell(delayed, *plants[key], learner, (point[0], point[1], point[2]), gamma, volume)
                end = self.first_seed + self.seeds
                for first in range(self.first_seed, end, block.members):
                    cell = dataclasses.replace(block, first_member=first, members=min(block.members, end - first))
                    cells.setdefault(cell.id, cell)
        return list(cells.values())

    def _delayed(self, plant: str, delay: float | None) -> str:
        """Return the name of a plant with a delay of the axis `delay`, or unchanged if the delay is None or 0."""
        if delay is not None and DELAY in plant:
            raise UserError(f"study {self.name!r}: delay is given for all and in {plant}; leave one out")
        return plant if delay is None else spelled_plant(f"{plant}{DELAY}{delay!r}")

    def _parameters(self, plant: str) -> dict[str, Any]:
        """Return the parameters of a plant, with the settings of its channel if there are any."""
        own = self.plant.get(plant, {})
        channel = configuration.merged(self.channel, own.get("channel", {}))
        if "delay" in channel:
            raise UserError(
                f"study {self.name!r}: delay is an axis; write delay = [{channel['delay']}] above all tables"
            )
        return {**own, "channel": channel} if channel else own

    def _discount(self, plant: str, learner: str, gamma: float | None) -> dict[str, Any]:
        """Return `{"discount": γ}` if the axis or the learner's table has a discount γ, else an empty dictionary."""
        own, _ = _own_discount(load_learner(learner)[1], self.learner.get(learner, {}))
        for key, table in ((f"plant.{plant}", self.plant.get(plant, {})), (f"learner.{learner}", own)):
            if "discount" in table and gamma is not None:
                raise UserError(f"study {self.name!r}: discount is given for all and in [{key}]; leave one out")
        return own if gamma is None else {"discount": gamma}

    def _cell(
        self,
        plant: str,
        made: Plant,
        fingerprint: str,
        learner: str,
        point: tuple[str, float, float | None],
        gamma: float | None,
        volume: float | None,
    ) -> Cell:
        """Return the first cell of a plant, learner and point, which is a strategy, a noise and a control rate."""
        strategy, noise, rate = point
        frequency = made.frequency if rate is None else rate
        steps = made.steps_per_episode(frequency) * self.episodes
        every = made.update_every if self.update_every is None else self.update_every
        observe = self.observe or made.observed
        seen_states(made.name, made.state_names, observe)
        check_channel(made, steps // self.episodes, made.episode_seconds / (steps // self.episodes))
        if self.replayed_noise and made.channel.noise:
            raise UserError(
                f"study {self.name!r}: replayed_noise needs the same noise on all states; leave noise out of channel"
            )
        kind, config = load_learner(learner)
        _, table = _own_discount(config, configuration.merged(variant_settings(learner), self.learner.get(learner, {})))
        if volume is not None:
            table = {**table, "replays_per_experience": volume}
        settings = configuration.build(config, table, f"[learner.{learner}]")
        axes = "" if gamma is None else f"{GAMMA}{gamma:.12g}", "" if volume is None else f"{VOLUME}{volume:.12g}"
        parsed = parse(strategy)
        if parsed.synth is not None:
            with_equations(made, str(parsed))
            if not made.channel.is_off or made.spread:
                raise UserError(
                    f"{parsed}: Synth steps the plant's model without delay, channel and spread; leave these out"
                )
        if every > steps:
            raise UserError(
                f"study {self.name!r}: update_every = {every} is more than the {steps} steps of a run, which would "
                "learn nothing; lower it, or raise episodes"
            )
        if self.evaluate_every_steps and not steps // self.episodes <= self.evaluate_every_steps <= steps:
            raise UserError(
                f"study {self.name!r}: evaluate_every_steps must be at least the {steps // self.episodes} steps of an "
                f"episode and at most the {steps} of a run, not {self.evaluate_every_steps}; 0 for no evaluations"
            )
        mode = self.discount if isinstance(self.discount, str) else "fixed"
        task = make_task(made, frequency, mode, observe)
        kind.check(settings, task, parsed.refer is not None, made.name)
        kind.check_loss(parsed.sampling.critic_loss, str(parsed))
        self._check_buffers(parsed, settings.schedule, every, observe)
        with_phases(parsed.at(frequency), settings.schedule, made.steps_per_episode(frequency), every)
        mixed = ""
        if (mix := parsed.mix) is not None:
            recording = read_mixed(mix, plant, made, frequency, observe, self.mixed.get(str(mix.file), ""))
            mixed = recording.checksum
            for line in recording.warnings:
                warn(f"{recording.path}: {line}", ReplaybenchWarning, stacklevel=2)
        start = self.start.get(learner)
        if start is not None:
            start = start.checked(kind, settings, task, frequency, self.first_seed + self.seeds)
        return Cell(
            sources=made_of(kind, *map(type, parsed.terms)),
            plant=plant,
            parameters=made.settings(),
            fingerprint=fingerprint,
            learner="".join((learner, *axes)),
            settings=_settings(settings),
            strategy=str(parsed),
            noise=abs(float(noise)),  # ids differ between −0.0 and 0.0, and between an int and a float
            frequency=float(frequency),
            first_member=0,
            members=min(self.block, self.seeds) if self.device == "cpu" else self.seeds,
            root_seed=self.root_seed,
            episodes=self.episodes,
            capacity=parsed.capacity_or(self.capacity),
            greedy_every=self.greedy_every,
            update_every=every,
            discount=mode,
            horizon_steps=self.horizon_steps if parsed.anneals else 0,
            evaluate_every_steps=self.evaluate_every_steps,
            evaluation_episodes=self.evaluation_episodes if self.evaluate_every_steps else Cell.evaluation_episodes,
            replayed_noise=self.replayed_noise,
            observe=observe,
            device=self.device,
            start=start,
            mixed=mixed,
        )

    def _check_buffers(self, strategy: Strategy, schedule: Schedule, every: int, observe: tuple[str, ...]) -> None:
        segment = schedule.segment
        batch = schedule.batch_size * segment
        if every and segment > 1 and not strategy.retention.bounded:
            raise UserError(
                f"{strategy} keeps everything, but the number of segments of {segment} steps depends on when episodes "
                "end; use FIFO with a capacity, or update_every = 0"
            )
        if self.replayed_noise and segment > 1:
            raise UserError(
                f"study {self.name!r}: replayed_noise measures single experiences, and this learner replays "
                "trajectories; leave it out, or give that learner a study of its own"
            )
        capacity = strategy.capacity_or(self.capacity)
        if strategy.retention.bounded and capacity < batch:
            raise UserError(f"study {self.name!r}, {strategy}: capacity {capacity} is smaller than a batch of {batch}")
        if strategy.synth is not None and segment > 1:
            raise UserError(f"{strategy}: Synth alters single experiences, and this learner replays trajectories")
        if strategy.mix is not None and not strategy.mix.samples(schedule.batch_size, 0.0):
            share, batch = strategy.mix.share, schedule.batch_size
            raise UserError(f"{strategy}: a share of {share:g} of a batch of {batch} is no sample; raise it")
        if strategy.synth is not None and observe:
            raise UserError(f"{strategy}: Synth steps the plant's model, which needs all states; leave observe out")


def without_axes(learner: str) -> str:
    """Return the name of a learner without its discount and replay volume, if these are axes of the study."""
    for axis in (VOLUME, GAMMA):
        learner = learner.rpartition(axis)[0] or learner
    return learner


def _settings(settings: Any) -> dict[str, Any]:
    """Return the settings of a learner. Single-step targets are left out, so that ids do not depend on `n_step`."""
    found = dataclasses.asdict(settings)
    return {key: value for key, value in found.items() if (key, value) != ("n_step", 1)}


def _combinations(grid: Grid) -> Iterable[tuple[Any, ...]]:
    """Yield a plant, learner, strategy, noise, control rate, delay, discount and volume. The last four may be None."""
    further = (getattr(grid, axis) or (None,) for axis in _MAY_BE_EMPTY)
    return itertools.product(grid.plants, grid.learners, grid.strategies, grid.noise, *further)


def _own_discount(config: Any, table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a learner's table into the task's discount, unless `discount` is a setting of the learner, and the rest."""
    if "discount" not in table or "discount" in config.__dataclass_fields__:
        return {}, dict(table)
    return {"discount": table["discount"]}, {key: value for key, value in table.items() if key != "discount"}


_SPELL: Final[dict[str, Callable[[str], str]]] = {"plants": spelled_plant, "learners": spelled, "strategies": str}
_TABLES: Final = (("plant", "plants"), ("learner", "learners"), ("start", "learners"))
"""Keys of tables with settings by name, each with the axis of these names."""


def _spell(table: Grid | Study, folder: str = "") -> None:
    """Canonicalise the names and paths of a grid or study in place, so that equal settings have equal ids."""
    for axis, known in _SPELL.items():
        object.__setattr__(table, axis, tuple(canonical(known(name), folder) for name in getattr(table, axis)))
    for key, axis in _TABLES:
        if isinstance(table, Study):
            named = getattr(table, key).items()
            object.__setattr__(table, key, {canonical(_SPELL[axis](name), folder): value for name, value in named})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of a study's settings, with a range of seeds that run together as one population.

    A cell contains all values on which the numerical results depend, in types that JSON supports.

    Attributes:
        parameters: All parameters of the plant.
        fingerprint: Hash of the plant's source and parameters.
        settings: All settings of the learner.
        first_member: Smallest seed.
        members: Number of seeds.
        horizon_steps: Number of steps over which sampling schedules run; 0 for all steps or without schedules.
        sources: Hash of the source of users' learners and strategies; empty if these are built in.
        mixed: Checksum of the file of `Mix`; empty without `Mix`.
        numerics: Version of all code that can change numerical results.
    """

    plant: Name
    parameters: dict[str, Any]
    fingerprint: str
    learner: Name
    settings: dict[str, Any]
    strategy: Name
    noise: float
    frequency: float
    first_member: int
    members: int
    root_seed: int
    episodes: int
    capacity: int
    greedy_every: int
    update_every: int
    discount: str
    replayed_noise: bool = False
    observe: tuple[Name, ...] = ()
    device: str = "cpu"
    horizon_steps: NonNegativeInt = 0
    evaluate_every_steps: NonNegativeInt = 0
    evaluation_episodes: Count = 10
    sources: str = ""
    start: Start | None = None
    mixed: str = ""
    numerics: int = NUMERICS_VERSION

    @functools.cached_property
    def id(self) -> str:
        """The hash of all settings on which the numerical results of the cell depend, as 16 hexadecimal digits."""
        values = ((each, getattr(self, each.name)) for each in dataclasses.fields(self))
        settings = {
            each.name: value for each, value in values if each.name not in _UNLESS_DEFAULT or value != each.default
        }
        settings["device"] = self.device.partition(":")[0]  # numbers do not depend on which GPU computes them
        if self.start is not None:  # independent of the file's path
            settings["start"] = [self.start.content, self.start.member]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def grid_point(self) -> tuple[str | float, ...]:
        """The plant, learner, strategy, noise and control rate."""
        return self.plant, self.learner, self.strategy, self.noise, self.frequency

    @property
    def configuration(self) -> tuple[str | float, ...]:
        """A key that is equal for cells with the same settings and number of seeds, within one study."""
        return *self.grid_point, self.members

    @property
    def label(self) -> str:
        """The plant, learner, strategy, noise, control rate and seeds as text."""
        seeds = f"seeds {self.first_member}–{self.first_member + self.members - 1}"
        return f"{self.plant} {self.learner} {self.strategy} noise {self.noise:g} {self.frequency:g} Hz {seeds}"

    @property
    def seeds(self) -> range:
        """The seeds of the runs."""
        return range(self.first_member, self.first_member + self.members)

    @property
    def seed_range(self) -> str:
        """The seeds of the runs as text, such as `0–7` or `3`."""
        return f"{self.seeds[0]}–{self.seeds[-1]}" if self.members > 1 else f"{self.seeds[0]}"

    @functools.cached_property
    def steps_per_episode(self) -> int:
        """The number of control steps in the longest episode. A training iteration has equally many steps."""
        return make_plant(self.plant, **self.parameters).steps_per_episode(self.frequency)

    @property
    def evaluations(self) -> int:
        """The number of evaluations without exploration in each run."""
        every = self.evaluate_every_steps
        return self.steps_per_episode * self.episodes // every if every else 0

    @functools.cached_property
    def gamma(self) -> float:
        """The discount γ of a control step."""
        return make_task(make_plant(self.plant, **self.parameters), self.frequency, self.discount).discount

    @property
    def total_steps(self) -> int:
        """The number of environment steps of all seeds together, if every episode has its full length."""
        return self.steps_per_episode * self.members * self.episodes

    def make_plant(self) -> Plant:
        """Make the plant, after checking that its source code has not changed since this cell was created."""
        try:
            plant = make_plant(self.plant, **self.parameters)
        except ImportRefusedError:
            raise untrusted(self.plant) from None
        if plant.fingerprint() != self.fingerprint:
            raise UserError(f"the source of plant {self.plant} has changed since this cell was planned")
        return plant


STUDIES: Final = Path(__file__).parents[1] / "studies"


def _study_file(path: Path) -> Path:
    """Return the path of a study file, given its path or the name of a study in the package."""
    if path.is_file():
        return path
    names = sorted(file.stem for file in STUDIES.glob("*.toml"))
    for name in names:
        if name.casefold() == str(path).casefold():
            return STUDIES / f"{name}.toml"
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a study file in it")
    raise UserError(f"no such study file: {path}; studies that come with replaybench: {', '.join(names)}")


def read_study(path: Path | str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Read a study from a TOML file, or a study of the package by its name.

    Args:
        path: Path of the study file, or name of a study in the package.
        overrides: Values that replace values of the file, by key. Tables are merged.

    Raises:
        UserError: The file is missing, is not TOML, or holds an unknown key or a wrong value.
    """
    path = _study_file(Path(path))
    table = read_toml(path)
    table.setdefault("name", path.stem)
    if isinstance(folder := table.get("folder", ""), str):
        table["folder"] = str((path.parent / folder).resolve())
    return configuration.build(Study, changed(table, overrides or {}), str(path))


def changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a study's table in which some values are changed.

    Nested tables are merged. New values of an axis, such as `plants`, apply to all grids of the study. Settings of the
    plants and learners that the new values leave out are left out, too.
    """
    lists = {
        key: [value]
        for key, value in changes.items()
        if key in AXES and key != "discount" and not isinstance(value, list | tuple)
    }
    result = configuration.merged(_without_left_out(table, {**changes, **lists}), {**changes, **lists})
    for grid in result["grid"] if isinstance(result.get("grid"), list) else ():
        for axis in set(AXES) & set(changes) if isinstance(grid, dict) else ():
            grid.pop(axis, None)
    return result


def _without_left_out(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's table without the settings of plants and learners that changed axes no longer list."""
    folder, result = str(table.get("folder", "")), dict(table)
    for key, axis in _TABLES:
        if axis not in changes or not isinstance(named := table.get(key), Mapping):
            continue
        grids = table["grid"] if isinstance(table.get("grid"), list) else []
        lists = [each.get(axis, []) for each in (table, *grids) if isinstance(each, Mapping)]
        before, after = (
            {canonical(_SPELL[axis](name), folder) for values in each for name in values if isinstance(name, str)}
            for each in (lists, [changes[axis]])
        )
        gone = before - after
        result[key] = {name: own for name, own in named.items() if canonical(_SPELL[axis](name), folder) not in gone}
    return result


def reference_cells(cells: Iterable[Cell]) -> dict[tuple[str, float, float], Cell]:
    """Return, for each plant, control rate and noise, the cell with the greatest discount.

    Reference controllers, such as random control, are scored on this cell's plant, with its discount.
    """
    chosen: dict[tuple[str, float, float], Cell] = {}
    for cell in cells:
        other = chosen.setdefault((cell.plant, cell.frequency, cell.noise), cell)
        if other.parameters != cell.parameters and other.gamma < cell.gamma:
            chosen[cell.plant, cell.frequency, cell.noise] = cell
    return chosen


def last_episodes(count: int, iterations: bool) -> int:
    """Return the number of last episodes (at most 100) or iterations (a tenth) over which a final score averages."""
    return max(1, count // 10) if iterations else min(FINAL_EPISODES, count)
