"""What a study is: a labelled grid of settings, read from TOML and cut into cells.

A cell is one grid point, run as one population of seeds. Its identity is a content hash of everything that can change
its numbers, so a run folder can be continued, extended and compared. Nothing here knows how a cell is run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from replaybench.baselines.grid_choice import Rule
from replaybench.controllers.agent import Actions
from replaybench.controllers.device import check_name
from replaybench.controllers.registry import LEARNERS, algorithm_of, load_learner, spelled, variant_settings
from replaybench.data.bounds import Count, Discount, Hertz, Name, Noise, RootSeed, Seeds, Whole
from replaybench.data.configuration import build, check, merged
from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.documents import read_toml
from replaybench.data.numerics import NUMERICS_VERSION
from replaybench.data.user_code.source_hash import made_of
from replaybench.data.user_code.user_file import canonical, names_from
from replaybench.envs.interface.checks import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.registry import GYMNASIUM, PLANTS, make_plant
from replaybench.experiments.training.bundled import study_file
from replaybench.experiments.training.learning_task import make_task
from replaybench.experiments.training.schedule import with_phases
from replaybench.experiments.training.start import Start
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy

GAMMA: Final = ":discount="
"""What stands between a learner's name and its place on the axis of discounts."""

Buffers = Literal["final", "compressed", "none"]
"""What becomes of each cell's replay buffer at its end."""

_NAMED: Final = {"plant": ("plant",), "learner": ("learner", "start")}
"""The tables of a study whose keys are names of this kind."""

SINCE: Final = {"horizon_steps": 0, "evaluate_every_steps": 0, "evaluation_episodes": 10}
"""Keys that studies have had since cells were first stored, with what holds where they are not given."""

AXES = ("plants", "learners", "strategies", "noise", "frequency", "discount")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One full grid of a study; what is left out is taken from the study's own lists."""

    plants: tuple[Name, ...] = ()
    learners: tuple[Name, ...] = ()
    strategies: tuple[Name, ...] = ()
    noise: tuple[Noise, ...] = ()
    frequency: tuple[Hertz, ...] = ()
    discount: tuple[Discount, ...] = ()

    def __post_init__(self) -> None:
        check(self, "[[grid]]")
        _spell(self)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study file. Every list spans one axis of the grid; with `[[grid]]` tables the study is their union.

    `noise` is the standard deviation of sensor and actuator noise in normalised units, `frequency` the control rate
    in Hz, each plant's own if empty, `capacity` the buffer size, in experiences, of bounded retentions that have none
    of their own (`FIFO(5000)`).
    `horizon_steps` is the number of steps of a member over which schedules run (λ of AER, η of ERE, β of IS), 0 for as
    many as the run has; what a run does after them is at the schedules' end.
    After every `evaluate_every_steps` steps of a member, at the end of the round in which they are done, its policy is
    evaluated without exploration in `evaluation_episodes` episodes, of which nothing is learned; 0 for never.
    `discount = "fixed"` keeps the plant's discount at every rate, `"horizon"` keeps its horizon in seconds and scales
    rewards alike (de Bruin et al. 2018, 6.4). A number is the discount γ of a control step in place of the plant's, a
    list of them another axis: learners are then named `DDPG:discount=0.99`. It can be set for one plant or learner
    alone, too, as `discount` in its table; a learner's counts before its plant's.
    `update_every` is the number of steps after which learners are updated, 0 for after each episode; each plant's own
    if not given. With a number of steps, members begin another episode whenever one has ended, and an episode of
    `episodes` is a round of as many steps as the longest has.
    `reference` says on which grid the dynamic programming is solved that scores are measured against: `"converged"` on
    the plant's grid refined until that changes nothing more, `"paper"` on the grid as the plant declares it; each
    plant's own choice if not given (the 2018 plants' is `"converged"`, that of plants that do not say `"paper"`).
    Nothing that is learned depends on it.
    `observe` names the states that are observed, all if empty; scores stay relative to dynamic programming, which sees
    them all.
    `device` is where learners that can do so are updated: `cpu`, `cuda`, or `cuda:1` for one of several.
    `replayed_noise` also stores the noise in every experience and measures how much of it is replayed (their table 6).
    `folder` is where paths of users' files and policies are looked for first, that of the study file if not given.
    `[learner.NAME]` and `[plant.NAME]` tables change settings; a learner may be named several times with variants,
    `DDPG:decay`, each with a table of its own. A `[start.NAME]` table has a learner begin with a stored policy.
    """

    name: str
    plants: tuple[Name, ...] = ()
    learners: tuple[Name, ...] = ("DDPG",)
    strategies: tuple[Name, ...] = ()
    noise: tuple[Noise, ...] = (0.0,)
    frequency: tuple[Hertz, ...] = ()
    grid: tuple[Grid, ...] = ()
    seeds: Seeds = 50
    episodes: Count = 3000
    update_every: Whole | None = None
    root_seed: RootSeed = 0
    block: Count = 50
    capacity: Count = 10_000
    greedy_every: Count = 10
    horizon_steps: Whole = 0
    evaluate_every_steps: Whole = 0
    evaluation_episodes: Count = 10
    discount: Literal["fixed", "horizon"] | Discount | tuple[Discount, ...] = "fixed"
    reference: Rule | None = None
    buffers: Buffers = "final"
    replayed_noise: bool = False
    observe: tuple[Name, ...] = ()
    device: str = "cpu"
    folder: str = field(default="", compare=False)
    learner: dict[str, Any] = field(default_factory=dict)
    plant: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Start] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self, f"study {self.name!r}")
        check_name(self.device)
        tables: tuple[Study | Grid, ...] = (self, *self.grid)
        for table in tables:
            _spell(table, self.folder)
        if isinstance(self.discount, int | float):
            object.__setattr__(self, "discount", (float(self.discount),))
        if not self.name.isprintable() or not self.name or {"/", "\\"} & set(self.name) or self.name.startswith("."):
            raise UserError(f"study name {self.name!r} must be usable as a folder name")
        grids = self.grids()
        named = {"learner": {n for g in grids for n in g.learners}, "plant": {n for g in grids for n in g.plants}}
        for kind, names in named.items():
            for name, table in getattr(self, kind).items():
                _known(kind, name, names)
                if not isinstance(table, Mapping):
                    raise UserError(f"study {self.name!r}: [{kind}.{name}] must be a table of settings, not {table!r}")
        for name in self.start:
            _known("start", name, named["learner"])
        for grid in grids:
            for axis in AXES:
                if not getattr(grid, axis) and axis not in ("frequency", "discount"):
                    raise UserError(f"study {self.name!r}: {axis} is empty; list at least one")
            _check_names(grid)

    def grids(self) -> list[Grid]:
        """Return the grids, what they leave out filled in from the study."""
        mine = {axis: getattr(self, axis) for axis in AXES}
        mine["discount"] = () if isinstance(self.discount, str) else self.discount
        tables = self.grid or (Grid(),)
        return [Grid(**{axis: getattr(table, axis) or mine[axis] for axis in AXES}) for table in tables]

    def cells(self) -> list[Cell]:
        """Cut the study into cells, each once, in the order of its lists.

        Raises:
            UserError: a name or value that cannot be run.
        """
        with names_from(self.folder):
            return self._cells()

    def _cells(self) -> list[Cell]:
        found: dict[str, Cell] = {}
        plants: dict[Any, tuple[Plant, str]] = {}  # reading a plant's source takes longer than all else here
        for grid in self.grids():
            axes = (grid.plants, grid.learners, grid.strategies, grid.noise)
            for plant, learner, strategy, noise, frequency, gamma in itertools.product(
                *axes, grid.frequency or (None,), grid.discount or (None,)
            ):
                discount = self._discount(plant, learner, gamma)
                key = plant, *discount.values()
                if key not in plants:
                    made = make_plant(plant, **{**self.plant.get(plant, {}), **discount})
                    plants[key] = made, made.fingerprint()
                point = self._cell(plant, *plants[key], learner, strategy, noise, frequency, gamma)
                for first in range(0, self.seeds, self.block):
                    members = min(self.block, self.seeds - first)
                    cell = dataclasses.replace(point, first_member=first, members=members)
                    found.setdefault(cell.id, cell)
        return list(found.values())

    def _discount(self, plant: str, learner: str, gamma: float | None) -> dict[str, Any]:
        """Return what a learner changes of its plant: the discount of the axis, or the one in the learner's table."""
        own, _ = _own_discount(load_learner(learner)[1], self.learner.get(learner, {}))
        for kind, name, table in (("plant", plant, self.plant.get(plant, {})), ("learner", learner, own)):
            if "discount" in table and gamma is not None:
                raise UserError(f"study {self.name!r}: discount is given for all and in [{kind}.{name}]; leave one out")
        return own if gamma is None else {"discount": gamma}

    def _cell(
        self,
        plant: str,
        made: Plant,
        fingerprint: str,
        learner: str,
        strategy: str,
        noise: float,
        rate: float | None,
        gamma: float | None,
    ) -> Cell:
        """Return a grid point's first cell."""
        frequency = made.frequency if rate is None else rate
        steps = made.steps_per_episode(frequency) * self.episodes
        every = made.update_every if self.update_every is None else self.update_every
        seen_states(made.name, made.state_names, self.observe)
        kind, config = load_learner(learner)
        _, table = _own_discount(config, merged(variant_settings(learner), self.learner.get(learner, {})))
        settings = build(config, table, f"[learner.{learner}]")
        parsed = parse(strategy)
        if parsed.synth is not None:
            with_equations(made, str(parsed))
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
        actions = Actions(made.name, len(made.action_names), made.action_choices)
        kind.check(settings, actions, parsed.refer is not None, self.device)
        self._check_room(parsed, settings, every)
        with_phases(parsed.at(frequency), settings, made.steps_per_episode(frequency), every)
        mode = self.discount if isinstance(self.discount, str) else "fixed"
        start = self.start.get(learner)
        if start is not None:
            task = make_task(made, frequency, mode, self.observe)
            start = start.checked(kind, settings, task, frequency, self.seeds)
        return Cell(
            sources=made_of(kind, *map(type, parsed.terms)),
            plant=plant,
            parameters=made.settings(),
            fingerprint=fingerprint,
            learner=learner if gamma is None else f"{learner}{GAMMA}{gamma:.12g}",
            settings=dataclasses.asdict(settings),
            strategy=str(parsed),
            noise=abs(float(noise)),  # −0.0 is 0.0; from Python it may be an int, which reads otherwise in an id
            frequency=float(frequency),
            first_member=0,
            members=min(self.block, self.seeds),
            root_seed=self.root_seed,
            episodes=self.episodes,
            capacity=parsed.room(self.capacity),
            greedy_every=self.greedy_every,
            update_every=every,
            discount=mode,
            horizon_steps=self.horizon_steps if parsed.anneals else 0,
            evaluate_every_steps=self.evaluate_every_steps,
            evaluation_episodes=self.evaluation_episodes if self.evaluate_every_steps else SINCE["evaluation_episodes"],
            replayed_noise=self.replayed_noise,
            observe=self.observe,
            device=self.device,
            start=start,
        )

    def _check_room(self, strategy: Strategy, settings: Any, every: int) -> None:
        """Refuse a buffer that cannot hold what is replayed at once, and what needs single steps or whole states."""
        segment = getattr(settings, "segment", 1)
        batch = settings.batch_size * segment
        if every and segment > 1 and not strategy.retention.bounded:
            raise UserError(
                f"{strategy} keeps everything, and how many segments of {segment} steps that is depends on when "
                "episodes end; use FIFO with a capacity, or update_every = 0"
            )
        if self.replayed_noise and segment > 1:
            raise UserError(
                f"study {self.name!r}: replayed_noise measures single experiences, and this learner replays "
                "trajectories; leave it out, or give that learner a study of its own"
            )
        capacity = strategy.room(self.capacity)
        if strategy.retention.bounded and capacity < batch:
            raise UserError(f"study {self.name!r}, {strategy}: capacity {capacity} is smaller than a batch of {batch}")
        if strategy.synth is not None and hasattr(settings, "segment"):
            raise UserError(f"{strategy}: Synth alters single experiences, and this learner replays trajectories")
        if strategy.synth is not None and self.observe:
            raise UserError(f"{strategy}: Synth steps the plant's model, which needs all states; leave observe out")


def _own_discount(config: Any, table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part a learner's table into its discount, which is the plant's, and its settings, which may have one, too."""
    theirs = "discount" in config.__dataclass_fields__
    parts = ({k: v for k, v in table.items() if (k == "discount" and not theirs) is own} for own in (True, False))
    return next(parts), next(parts)


def _known(table: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise unknown(f"name in table [{table}]:", name, names)


def _check_names(grid: Grid) -> None:
    """Refuse misspelt names; users' files and modules are not imported for this."""
    for plant in grid.plants:
        if not plant.startswith(GYMNASIUM):
            PLANTS.check(plant)
    for learner in grid.learners:
        LEARNERS.check(algorithm_of(learner))
    for strategy in grid.strategies:
        if ".py:" not in strategy:
            parse(strategy)


def _spell(table: Grid | Study, folder: str = "") -> None:
    """Write names as they are registered and paths as short as can be, in a `folder`, so that cells are the same.

    Frozen dataclasses are changed here, before anyone has seen them.
    """

    def plant(name: str) -> str:
        return canonical(PLANTS.spelled(name), folder)

    def learner(name: str) -> str:
        return canonical(spelled(name), folder)

    object.__setattr__(table, "strategies", tuple(canonical(each, folder) for each in table.strategies))
    spell: dict[str, Callable[[str], str]] = {"plant": plant, "learner": learner}
    for kind, known in spell.items():
        object.__setattr__(table, f"{kind}s", tuple(map(known, getattr(table, f"{kind}s"))))
        if isinstance(table, Study):
            for part in _NAMED[kind]:
                object.__setattr__(table, part, {known(name): value for name, value in getattr(table, part).items()})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One grid point for one block of seeds: all that decides its numbers, in plain values.

    Attributes:
        horizon_steps: steps over which schedules run, 0 for those of the run, or where the strategy has no schedule.
        sources: others' code that learner and strategy are made of; empty if they come with the package. Results are
            stale once it has changed.
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
    horizon_steps: Whole = 0
    evaluate_every_steps: Whole = 0
    evaluation_episodes: Count = 10
    sources: str = ""
    start: Start | None = None
    numerics: int = NUMERICS_VERSION

    @functools.cached_property
    def id(self) -> str:
        """Content hash: equal ids mean equal numbers."""
        settings = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        if not self.sources:
            del settings["sources"]
        for key, before in SINCE.items():
            if settings[key] == before:
                del settings[key]
        if self.start is None:
            del settings["start"]
        else:  # wherever the file lies
            settings["start"] = [self.start.content, self.start.member]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def kind(self) -> tuple[str | float, ...]:
        """What cells of one study have in common that differ in nothing but which seeds they hold."""
        return self.plant, self.learner, self.strategy, self.noise, self.frequency, self.members

    @property
    def label(self) -> str:
        """Say which cell this is, for people."""
        seeds = f"seeds {self.first_member}–{self.first_member + self.members - 1}"
        return f"{self.plant} {self.learner} {self.strategy} noise {self.noise:g} {self.frequency:g} Hz {seeds}"

    @property
    def seeds(self) -> range:
        """Member numbers."""
        return range(self.first_member, self.first_member + self.members)

    @property
    def seed_range(self) -> str:
        """Member numbers as tables write them: `0–7`, or `3`."""
        return f"{self.seeds[0]}–{self.seeds[-1]}" if self.members > 1 else f"{self.seeds[0]}"

    @functools.cached_property
    def steps_per_episode(self) -> int:
        """Steps of a whole episode, or round."""
        return make_plant(self.plant, **self.parameters).steps_per_episode(self.frequency)

    @functools.cached_property
    def gamma(self) -> float:
        """Discount of a control step."""
        return make_task(make_plant(self.plant, **self.parameters), self.frequency, self.discount).discount

    @property
    def total_steps(self) -> int:
        """Steps of all members in all episodes."""
        return self.steps_per_episode * self.members * self.episodes

    def make_plant(self) -> Plant:
        """Return the plant, its source checked against the cell's fingerprint."""
        plant = make_plant(self.plant, **self.parameters)
        if plant.fingerprint() != self.fingerprint:
            raise UserError(f"plant {self.plant} is not the one this cell was made for; its source has changed")
        return plant


def read_study(path: Path | str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Read a study file, or one that comes with the package by its name; `overrides` change its keys.

    Raises:
        UserError: the file is missing, is not TOML, or holds a key or value that means nothing.
    """
    path = study_file(Path(path))
    table = read_toml(path)
    table.setdefault("name", path.stem)
    if isinstance(folder := table.get("folder", ""), str):
        table["folder"] = str((path.parent / folder).resolve())
    return build(Study, changed(table, overrides or {}), str(path))


def changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's table with changed keys, tables within it entry by entry; a single value stands for a list.

    A changed axis is that of all grids.
    """
    lists = {
        key: [value]
        for key, value in changes.items()
        if key in AXES and key != "discount" and not isinstance(value, list | tuple)
    }
    result = merged(table, {**changes, **lists})
    for grid in result["grid"] if isinstance(result.get("grid"), list) else ():
        for axis in set(AXES) & set(changes) if isinstance(grid, dict) else ():
            grid.pop(axis, None)
    return result


def reference_cells(cells: Iterable[Cell]) -> dict[tuple[str, float, float], Cell]:
    """Return, by plant, rate and noise, the cell whose references the scores of all cells there are measured against.

    Of several discounts it is the greatest: dynamic programming that looks the farthest, so that scores have one scale.
    """
    found: dict[tuple[str, float, float], Cell] = {}
    for cell in cells:
        other = found.setdefault((cell.plant, cell.frequency, cell.noise), cell)
        if other.parameters != cell.parameters and other.gamma < cell.gamma:
            found[cell.plant, cell.frequency, cell.noise] = cell
    return found


def axis_values(cells: list[Cell]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values that occur on each axis of a list of cells, in order of appearance."""
    for axis in ("plant", "learner", "strategy", "noise", "frequency"):
        yield axis, list(dict.fromkeys(getattr(cell, axis) for cell in cells))
