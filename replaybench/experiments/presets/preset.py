"""A preset: one published figure or table as a study, at a chosen scale.

Presets lie in folders next to this file, one a paper. `paper.toml` holds the keys that its studies share and that each
scale changes, every other file one figure. A file that is `like` another of its paper takes missing values from it;
files whose names begin with `_` are only for that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from replaybench.data.configuration import build, merged
from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.documents import read_toml
from replaybench.envs.registry import missing
from replaybench.experiments.training.study import Study, changed
from replaybench.replay.strategies.notation import parse

Scale = Literal["quick", "standard", "paper"]
"""How much of a figure is run: enough to see that it works, enough to decide claims, or what the paper ran."""

FOLDER: Final = Path(__file__).parent
_PAPER: Final = "paper.toml"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Values that the presets of one paper share.

    Attributes:
        title: authors, year, title and journal.
        seeds: learners of each cell in the paper.
        reduced: reductions of every study at any scale.
        reduced_on: the same for studies on a plant, by its name.
        scales: study keys that each scale sets, for all figures.
        study: study keys that all figures share.
    """

    title: str
    seeds: int
    scales: Mapping[str, dict[str, Any]]
    reduced: tuple[str, ...] = ()
    reduced_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    study: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table.

    Attributes:
        figure: name in the paper.
        shows: what is compared, in a line.
        seeds: learners of each cell in the paper, if not `Paper.seeds`.
        reduced: further reductions at any scale.
        scales: study keys that a scale sets for this figure, over the paper's.
        study: the figure's study keys, over the paper's.
    """

    figure: str
    shows: str
    study: dict[str, Any]
    seeds: int | None = None
    reduced: tuple[str, ...] = ()
    scales: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A figure of a paper, by a name such as `debruin2018/fig12`."""

    name: str
    paper: Paper
    figure: Figure

    def study(self, scale: Scale, changes: Mapping[str, Any] | None = None) -> Study:
        """Return the figure's study at a scale, with changed keys."""
        layers = (self.paper.study, self.figure.study, self.paper.scales[scale], self.figure.scales.get(scale, {}))
        table = functools.reduce(merged, layers, {"name": self.name.replace("/", "-")})
        return build(Study, changed(table, changes or {}), f"{self.name} at scale {scale}")

    @property
    def missing(self) -> str:
        """The command that installs missing libraries of its plants; empty if none is missing."""
        plants = (plant for grid in self.study("paper").grids() for plant in grid.plants)
        return next((command for plant in plants if (command := missing(plant))), "")

    def reductions(self, scale: Scale) -> list[str]:
        """Return how the study at a scale differs from the paper's, in sentences."""
        here, there = self.study(scale), self.study("paper")
        said = []
        for key, unit in (("seeds", "seeds"), ("episodes", "episodes")):
            if getattr(here, key) < getattr(there, key):
                said.append(f"{getattr(here, key)} {unit} instead of {getattr(there, key)}")
        said += _schedules(here, there)
        if there.seeds < (printed := self.figure.seeds or self.paper.seeds):
            said.append(f"{there.seeds} seeds at paper scale, where the paper has {printed}")
        plants = {plant for grid in there.grids() for plant in grid.plants}
        own = [text for plant, texts in self.paper.reduced_on.items() if plant in plants for text in texts]
        return list(dict.fromkeys((*said, *self.paper.reduced, *own, *self.figure.reduced)))


def _schedules(here: Study, there: Study) -> Iterator[str]:
    """Yield how schedules (λ of AER, η of ERE, β of IS) change in shorter runs."""
    cells = here.cells()
    steps = here.episodes * max(cell.steps_per_episode for cell in cells)
    horizon = max(cell.horizon_steps for cell in cells)
    if steps < horizon:
        yield f"schedules take {horizon:,} steps, of which a run has {steps:,}"
    elif not horizon and here.episodes < there.episodes and any(parse(cell.strategy).anneals for cell in cells):
        yield "schedules are compressed into the shorter run"


def preset_names() -> list[str]:
    """Return the names of all presets, papers by name, figures by number."""

    def order(path: Path) -> tuple[str, str, int]:
        stem = path.stem.rstrip("0123456789")
        return path.parent.name, stem, int(path.stem.removeprefix(stem) or 0)

    files = [path for path in FOLDER.glob("*/*.toml") if path.name != _PAPER and path.stem[0] != "_"]
    return [f"{path.parent.name}/{path.stem}" for path in sorted(files, key=order)]


def read_preset(name: str) -> Preset:
    """Read a preset by its name."""
    known = {each.casefold(): each for each in preset_names()}
    if name.casefold() not in known:
        raise _no_preset(name, list(known.values()))
    name = known[name.casefold()]
    path = FOLDER / f"{name}.toml"
    paper = build(Paper, read_toml(path.with_name(_PAPER)), str(path.with_name(_PAPER)))
    return Preset(name, paper, build(Figure, _figure_table(path), str(path)))


def _figure_table(path: Path) -> dict[str, Any]:
    table = read_toml(path)
    other = table.pop("like", None)
    return table if other is None else merged(_figure_table(path.with_name(f"{other}.toml")), table)


def _no_preset(name: str, known: list[str]) -> UserError:
    paper, _, asked = name.casefold().rpartition("/")
    if of_it := [each for each in known if each.startswith(f"{asked}/")]:
        return UserError(f"{name} is a paper; name one of its presets: {', '.join(of_it)}")
    if not paper and (same := [each for each in known if each.endswith(f"/{asked}")]):
        return UserError(f"no preset {name!r}; name its paper, too: {' or '.join(same)}")
    beside = [each for each in known if paper and each.startswith(f"{paper}/")]
    wanted = re.fullmatch(r"(fig|table)\D*(\d+)", asked)
    figures = {each: read_preset(each).figure.figure for each in beside}
    for each, figure in figures.items():
        if wanted and wanted.groups() in _shown(figure):
            return UserError(f"no preset {name!r}; {each} shows it ({figure})")
    return unknown("preset", name, beside or known)


def _shown(figure: str) -> set[tuple[str, str]]:
    """Return the figures and tables that a preset shows: ("fig", "5") and ("fig", "6") of "Figures 5 and 6"."""
    lists = re.findall(r"(fig|table)[a-z]* ((?:\d+(?:, | and )?)+)", figure.casefold())
    return {(kind, number) for kind, numbers in lists for number in re.findall(r"\d+", numbers)}


def presets() -> Iterator[Preset]:
    """Yield all presets."""
    return map(read_preset, preset_names())
