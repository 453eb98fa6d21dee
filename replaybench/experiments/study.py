"""A study: a grid of settings, read from TOML and divided into cells.

A cell is one grid point, run as one population of seeds. Its id is a hash of everything that can change its numbers,
so a run folder can be continued, extended and compared.
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

from replaybench.baselines.grid_choice import Rule
from replaybench.controllers.interface.agent import Actions
from replaybench.controllers.registry import LEARNERS, algorithm_of, load_learner, spelled, variant_settings
from replaybench.data.documents import read_toml
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.registry import GYMNASIUM, PLANTS, make_plant
from replaybench.experiments.bundled import study_file
from replaybench.experiments.schedule import make_task, with_phases
from replaybench.experiments.start import Start
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.strategy import Strategy
from replaybench.runtime.configuration import (
    Count,
    Discount,
    Hertz,
    Name,
    Noise,
    NonNegativeInt,
    RootSeed,
    Seeds,
    build,
    check,
    merged,
)
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.user_file import canonical, names_from
from replaybench.runtime.version import NUMERICS_VERSION

GAMMA: Final = ":discount="
"""Text between a learner's name and its discount."""

Buffers = Literal["final", "compressed", "none"]
"""How each cell's replay buffer is stored."""

SINCE: Final = {"horizon_steps": 0, "evaluate_every_steps": 0, "evaluation_episodes": 10}
"""Keys that older stored cells lack, with the values that those cells had."""

FINAL_EPISODES: Final = 100

AXES = ("plants", "learners", "strategies", "noise", "frequency", "discount")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One full grid of a study; an empty list means the study's list."""

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

    - `noise`: standard deviations of sensor and actuator noise, in normalised units.
    - `frequency`: control rates in Hz; each plant's own if empty.
    - `capacity`: experiences in a bounded buffer, unless its retention names a capacity (`FIFO(5000)`).
    - `update_every`: steps between updates, 0 for updates after each episode; each plant's own if not given. With a
      number of steps, a member begins another episode when one has ended, and `episodes` counts iterations of as many
      steps as the longest episode has.
    - `horizon_steps`: steps of a member over which schedules run (λ of AER, η of ERE, β of IS), 0 for all steps of the
      run; afterwards schedules keep their last value.
    - `evaluate_every_steps`: steps of a member between evaluations without exploration, of `evaluation_episodes`
      episodes, at the end of an episode or iteration; 0 for none. Nothing is learned from them.
    - `discount`: "fixed" keeps the plant's discount at every rate, "horizon" its horizon in seconds, and scales rewards
      likewise (de Bruin et al. 2018, 6.4). A number is the discount γ of a control step. A list of numbers is one more
      axis: learners are then named `DDPG:discount=0.99`. `discount` may also be in the table of a plant or a learner; a
      learner's takes precedence.
    - `reference`: grid of the dynamic programming that defines scores: "converged" refines the plant's grid until
      results no longer change, "paper" uses it as declared; each plant's own choice if not given. Learning does not
      depend on it.
    - `replayed_noise`: also store the noise in every experience, and measure how much of it is replayed (table 6).
    - `observe`: names of the observed states, all if empty; the references of scores observe all.
    - `block`: seeds of a cell, which run as one population; on a device, a cell holds all seeds.
    - `device`: where cells run: `cpu`, or on a GPU `cuda`, or `cuda:1` for one of several.
    - `folder`: where paths of users' files and policies are looked up first; the study file's if not given.
    - `learner`, `plant`: tables of settings. A learner may be listed several times, as variants (`DDPG:decay`) with
      separate tables.
    - `start`: by learner, the stored policy from which it starts.
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
    update_every: NonNegativeInt | None = None
    root_seed: RootSeed = 0
    block: Count = 50
    capacity: Count = 10_000
    greedy_every: Count = 10
    horizon_steps: NonNegativeInt = 0
    evaluate_every_steps: NonNegativeInt = 0
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
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f'device must be "cpu", "cuda", or "cuda:1" for one of several, not {self.device!r}')
        tables: tuple[Study | Grid, ...] = (self, *self.grid)
        for table in tables:
            _spell(table, self.folder)
        if isinstance(self.discount, int | float):
            object.__setattr__(self, "discount", (float(self.discount),))
        if not self.name.isprintable() or not self.name or {"/", "\\"} & set(self.name) or self.name.startswith("."):
            raise UserError(f"study name {self.name!r} must be usable as a folder name")
        grids = self.grids()
        for key, axis in (("learner", "learners"), ("plant", "plants"), ("start", "learners")):
            names = {name for grid in grids for name in getattr(grid, axis)}
            for name, table in getattr(self, key).items():
                if name not in names:
                    raise unknown(f"name in table [{key}]:", name, names)
                if not isinstance(table, Mapping | Start):
                    raise UserError(f"study {self.name!r}: [{key}.{name}] must be a table of settings, not {table!r}")
        for grid in grids:
            for axis in AXES:
                if not getattr(grid, axis) and axis not in ("frequency", "discount"):
                    raise UserError(f"study {self.name!r}: {axis} is empty; list at least one")
            for plant in grid.plants:
                if not plant.startswith(GYMNASIUM):
                    PLANTS.check(plant)
            for learner in grid.learners:
                LEARNERS.check(algorithm_of(learner))
            for strategy in grid.strategies:
                if ".py:" not in strategy:
                    parse(strategy)

    def grids(self) -> list[Grid]:
        """Return the grids, with the study's lists in place of empty ones."""
        lists = {axis: getattr(self, axis) for axis in AXES}
        lists["discount"] = () if isinstance(self.discount, str) else self.discount
        tables = self.grid or (Grid(),)
        return [Grid(**{axis: getattr(table, axis) or lists[axis] for axis in AXES}) for table in tables]

    def cells(self) -> list[Cell]:
        """Return the study's cells without duplicates, in the order of its lists.

        Raises:
            UserError: a name is unknown, or settings do not fit together.
        """
        cells: dict[str, Cell] = {}
        plants: dict[Any, tuple[Plant, str]] = {}  # a cache, because fingerprints are slow
        with names_from(self.folder):
            for plant, learner, strategy, noise, frequency, gamma in itertools.chain(*map(_points, self.grids())):
                discount = self._discount(plant, learner, gamma)
                key = plant, *discount.values()
                if key not in plants:
                    made = make_plant(plant, **{**self.plant.get(plant, {}), **discount})
                    plants[key] = made, made.fingerprint()
                point = self._cell(plant, *plants[key], learner, strategy, noise, frequency, gamma)
                for first in range(0, self.seeds, point.members):
                    cell = dataclasses.replace(
                        point, first_member=first, members=min(point.members, self.seeds - first)
                    )
                    cells.setdefault(cell.id, cell)
        return list(cells.values())

    def _discount(self, plant: str, learner: str, gamma: float | None) -> dict[str, Any]:
        """Return the plant's discount as a table: from the axis, or from the learner's table; else an empty one."""
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
        strategy: str,
        noise: float,
        rate: float | None,
        gamma: float | None,
    ) -> Cell:
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
        kind.check(settings, actions, parsed.refer is not None)
        self._check_buffers(parsed, settings, every)
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
            evaluation_episodes=self.evaluation_episodes if self.evaluate_every_steps else SINCE["evaluation_episodes"],
            replayed_noise=self.replayed_noise,
            observe=self.observe,
            device=self.device,
            start=start,
        )

    def _check_buffers(self, strategy: Strategy, settings: Any, every: int) -> None:
        """Raise `UserError` if buffers are smaller than a batch, or a strategy needs single steps or all states."""
        segment = getattr(settings, "segment", 1)
        batch = settings.batch_size * segment
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
        if strategy.synth is not None and hasattr(settings, "segment"):
            raise UserError(f"{strategy}: Synth alters single experiences, and this learner replays trajectories")
        if strategy.synth is not None and self.observe:
            raise UserError(f"{strategy}: Synth steps the plant's model, which needs all states; leave observe out")


def _points(grid: Grid) -> Iterable[tuple[Any, ...]]:
    axes = (grid.plants, grid.learners, grid.strategies, grid.noise)
    return itertools.product(*axes, grid.frequency or (None,), grid.discount or (None,))


def _own_discount(config: Any, table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a learner's table into the plant's discount and the learner's settings, some of which have a discount."""
    if "discount" not in table or "discount" in config.__dataclass_fields__:
        return {}, dict(table)
    return {"discount": table["discount"]}, {key: value for key, value in table.items() if key != "discount"}


def _spell(table: Grid | Study, folder: str = "") -> None:
    """Canonicalise, in place, names and paths within `folder`, so that equal cells have equal ids."""
    spell: dict[str, Callable[[str], str]] = {"plants": PLANTS.spelled, "learners": spelled, "strategies": str}
    for axis, known in spell.items():
        object.__setattr__(table, axis, tuple(canonical(known(name), folder) for name in getattr(table, axis)))
    for key, axis in (("plant", "plants"), ("learner", "learners"), ("start", "learners")):
        if isinstance(table, Study):
            named = getattr(table, key).items()
            object.__setattr__(table, key, {canonical(spell[axis](name), folder): value for name, value in named})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One grid point for one block of seeds: everything that decides its numbers, in values for JSON.

    Attributes:
        horizon_steps: steps over which schedules run; 0 for all steps of the run, or if the strategy has no schedule.
        sources: digest of the source of users' learners and strategies; empty for built-in ones.
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
    numerics: int = NUMERICS_VERSION

    @functools.cached_property
    def id(self) -> str:
        """Hash of the content: equal ids mean equal numbers."""
        settings = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        settings["device"] = self.device.partition(":")[0]  # numbers do not depend on which GPU computes them
        if not self.sources:
            del settings["sources"]
        for key, before in SINCE.items():
            if settings[key] == before:
                del settings[key]
        if self.start is None:
            del settings["start"]
        else:  # independent of the file's path
            settings["start"] = [self.start.content, self.start.member]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def grid_point(self) -> tuple[str | float, ...]:
        """Place in the study's grid, equal for all blocks of seeds of one point."""
        return self.plant, self.learner, self.strategy, self.noise, self.frequency

    @property
    def configuration(self) -> tuple[str | float, ...]:
        """A key that is equal for cells of one study with the same settings and the same number of seeds."""
        return *self.grid_point, self.members

    @property
    def label(self) -> str:
        """Plant, learner, strategy, noise, rate and seeds, as text."""
        seeds = f"seeds {self.first_member}–{self.first_member + self.members - 1}"
        return f"{self.plant} {self.learner} {self.strategy} noise {self.noise:g} {self.frequency:g} Hz {seeds}"

    @property
    def seeds(self) -> range:
        """Member numbers."""
        return range(self.first_member, self.first_member + self.members)

    @property
    def seed_range(self) -> str:
        """Member numbers as in tables: `0–7`, or `3`."""
        return f"{self.seeds[0]}–{self.seeds[-1]}" if self.members > 1 else f"{self.seeds[0]}"

    @functools.cached_property
    def steps_per_episode(self) -> int:
        """Steps of the longest episode, and of an iteration."""
        return make_plant(self.plant, **self.parameters).steps_per_episode(self.frequency)

    @property
    def evaluations(self) -> int:
        """Number of evaluations in a run."""
        every = self.evaluate_every_steps
        return self.steps_per_episode * self.episodes // every if every else 0

    @functools.cached_property
    def gamma(self) -> float:
        """Discount of a control step."""
        return make_task(make_plant(self.plant, **self.parameters), self.frequency, self.discount).discount

    @property
    def total_steps(self) -> int:
        """Steps of all members in all episodes."""
        return self.steps_per_episode * self.members * self.episodes

    def make_plant(self) -> Plant:
        """Return the plant."""
        plant = make_plant(self.plant, **self.parameters)
        if plant.fingerprint() != self.fingerprint:
            raise UserError(f"the source of plant {self.plant} has changed since this cell was planned")
        return plant


def read_study(path: Path | str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Read a study file, or a study of the package by its name; `overrides` change its keys.

    Raises:
        UserError: the file is missing, is not TOML, or holds an unknown key or a wrong value.
    """
    path = study_file(Path(path))
    table = read_toml(path)
    table.setdefault("name", path.stem)
    if isinstance(folder := table.get("folder", ""), str):
        table["folder"] = str((path.parent / folder).resolve())
    return build(Study, changed(table, overrides or {}), str(path))


def changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's table with changed keys; nested tables are merged, a changed axis applies to all grids."""
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
    """Return, by plant, rate and noise, the cell of greatest discount, which defines the reference of scores."""
    chosen: dict[tuple[str, float, float], Cell] = {}
    for cell in cells:
        other = chosen.setdefault((cell.plant, cell.frequency, cell.noise), cell)
        if other.parameters != cell.parameters and other.gamma < cell.gamma:
            chosen[cell.plant, cell.frequency, cell.noise] = cell
    return chosen


def last_episodes(count: int, iterations: bool) -> int:
    """Return the number of episodes in a run's final score: the last 100, or the last tenth of iterations."""
    return max(1, count // 10) if iterations else min(FINAL_EPISODES, count)
