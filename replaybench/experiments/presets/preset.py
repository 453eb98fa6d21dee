"""What a preset is: one published figure or table as a study, at a scale of the reader's choice.

Presets lie in folders beside this file, one a paper: `paper.toml` holds what all of its studies share and what each
scale changes, every other file one figure. A file may be `like` another of its paper: the other's value holds where it
has none. A file whose name begins with `_` is there for that alone. Settings are a study's own keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from replaybench.data.configuration import build
from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.documents import read_toml
from replaybench.envs.registry import missing
from replaybench.experiments.training.study import Study
from replaybench.replay.strategies.notation import parse

Scale = Literal["quick", "standard", "paper"]
"""How much of a figure is run: enough to see that it works, enough to decide, or what the paper ran."""

FOLDER: Final = Path(__file__).parent
_PAPER: Final = "paper.toml"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What the presets of one paper share.

    Attributes:
        title: authors, year, title and place.
        seeds: learners of each cell that the paper itself ran.
        reduced: what every study here leaves out or makes smaller at any scale.
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

    def __post_init__(self) -> None:
        if set(self.scales) != set(get_args(Scale)):
            raise UserError(f"{self.title}: scales must be {', '.join(get_args(Scale))}")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table.

    Attributes:
        figure: how the paper calls it.
        shows: what is compared, in a line.
        seeds: learners of each cell that the paper ran for it, if not as many as for the others.
        reduced: what is left out or made smaller here at any scale, beside the paper's own.
        scales: study keys that a scale sets for this figure, over the paper's.
        study: the figure's study keys, over the paper's.
    """

    figure: str
    shows: str
    study: dict[str, Any]
    seeds: int | None = None
    reduced: tuple[str, ...] = ()
    scales: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for scale in self.scales:
            if scale not in get_args(Scale):
                raise unknown("scale", scale, get_args(Scale))


@dataclass(frozen=True)
class Preset:
    """A figure of a paper, by a name such as `debruin2018/fig12`."""

    name: str
    paper: Paper
    figure: Figure

    def study(self, scale: Scale) -> Study:
        """Return the figure's study at a scale."""
        return build(Study, self._table(scale), f"{self.name} at scale {scale}")

    def _table(self, scale: Scale) -> dict[str, Any]:
        """Merge paper, figure and scale; tables of learners and plants are merged entry by entry."""
        layers = (self.paper.study, self.figure.study, self.paper.scales[scale], self.figure.scales.get(scale, {}))
        table: dict[str, Any] = {"name": self.name.replace("/", "-")}
        for layer in layers:
            table = _merged(table, layer)
        return table

    @property
    def missing(self) -> str:
        """The command that installs what its plants lack here; empty if they lack nothing."""
        plants = (plant for grid in self.study("paper").grids() for plant in grid.plants)
        return next((command for plant in plants if (command := missing(plant))), "")

    def reductions(self, scale: Scale) -> list[str]:
        """Say how the study at a scale is less than what the paper ran, or other."""
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
    """Say where schedules (λ of AER, η of ERE, β of IS) get in shorter runs."""
    cells = here.cells()
    steps = here.episodes * max(cell.steps_per_episode for cell in cells)
    horizon = max(cell.horizon_steps for cell in cells)
    if steps < horizon:
        yield f"schedules take {horizon:,} steps, of which a run has {steps:,}"
    elif not horizon and here.episodes < there.episodes and any(parse(cell.strategy).anneals for cell in cells):
        yield "schedules are compressed into the shorter run"


def _merged(table: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with another's values in place of its own, inner tables merged alike."""
    merged = dict(table)
    for key, value in layer.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def preset_names() -> list[str]:
    """Return the names of all presets, papers in order of their names, figures by their numbers."""
    files = [path for path in FOLDER.glob("*/*.toml") if path.name != _PAPER and path.stem[0] != "_"]
    return [f"{path.parent.name}/{path.stem}" for path in sorted(files, key=_order)]


def _order(path: Path) -> tuple[str, str, int]:
    kind = path.stem.rstrip("0123456789")
    number = path.stem.removeprefix(kind)
    return path.parent.name, kind, int(number or 0)


def read_preset(name: str) -> Preset:
    """Read a preset by its name.

    Raises:
        UserError: there is none of that name, or its file is not one.
    """
    known = {each.casefold(): each for each in preset_names()}
    if name.casefold() not in known:
        raise _no_preset(name, list(known.values()))
    name = known[name.casefold()]
    path = FOLDER / f"{name}.toml"
    paper = build(Paper, read_toml(path.with_name(_PAPER)), str(path.with_name(_PAPER)))
    return Preset(name, paper, build(Figure, _figure_table(path), str(path)))


def _figure_table(path: Path) -> dict[str, Any]:
    """Read a figure's file; its values replace those of the file of the same paper that it is `like`."""
    table = read_toml(path)
    other = table.pop("like", None)
    return table if other is None else _merged(_figure_table(path.with_name(f"{other}.toml")), table)


def _no_preset(name: str, known: list[str]) -> UserError:
    """Return the error for a name that is none, offering the preset that shows such a figure, if any does."""
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
