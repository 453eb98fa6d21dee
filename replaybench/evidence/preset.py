"""Presets: studies that reproduce published figures and tables, at three scales.

The folder `presets` has one folder for each paper. The file `paper.toml` holds the keys that all studies of the paper
have in common, and the keys that each scale changes. Every other file describes one figure. If such a file has the key
`like`, missing values are taken from the file with that name. Files whose names begin with `_` are only templates.
"""

import contextlib
import dataclasses
import functools
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from replaybench.data.documents import read_toml
from replaybench.data.policy_file import read_policy
from replaybench.data.record import read_record
from replaybench.data.run_folder import RunFolder, claim, is_own
from replaybench.envs.registry import missing
from replaybench.experiments.study import Cell, Study, changed, read_study
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.configuration import build, merged
from replaybench.runtime.errors import UserError, unknown

Scale = Literal["quick", "standard", "paper"]
"""Size of a reproduction: a trial, enough seeds to detect large effects, or the paper's seeds and episodes."""

FOLDER: Final = Path(__file__).parent / "presets"
_PAPER: Final = "paper.toml"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Settings that all presets (studies that reproduce figures) of one paper have in common.

    Attributes:
        title: Authors, year, title and journal.
        seeds: Number of seeds per cell in the paper.
        scales: Settings of the studies, by scale. Settings under the key `study` apply to all scales.
        reduced: Sentences that describe differences from the paper at any scale.
        reduced_on: Further sentences that apply to studies on one plant, by the plant's name.
    """

    title: str
    seeds: int
    scales: Mapping[str, dict[str, Any]]
    reduced: tuple[str, ...] = ()
    reduced_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    study: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Settings of one figure or table of a paper, which take precedence over the settings of the paper.

    Attributes:
        figure: Name in the paper, for example "Figure 12".
        shows: One line that describes the comparison.
        seeds: Number of seeds per cell in the paper; None for the number in `Paper.seeds`.
        reduced: Sentences that describe further differences from the paper at any scale.
        scales: Settings of the study, by scale. Settings under the key `study` apply to all scales.
    """

    figure: str
    shows: str
    study: dict[str, Any]
    seeds: int | None = None
    reduced: tuple[str, ...] = ()
    scales: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A study that reproduces a figure or table of a paper, with a name such as `debruin2018/fig12`."""

    name: str
    paper: Paper
    figure: Figure

    def study(self, scale: Scale, changes: Mapping[str, Any] | None = None) -> Study:
        """Return the study that reproduces the figure at a scale, such as "quick", with changed settings."""
        layers = (self.paper.study, self.figure.study, self.paper.scales[scale], self.figure.scales.get(scale, {}))
        table = functools.reduce(merged, layers, {"name": self.name.replace("/", "-")})
        return build(Study, changed(table, changes or {}), f"{self.name} at scale {scale}")

    @property
    def missing(self) -> str:
        """The command that installs a missing library for a plant of the preset, or an empty string."""
        plants = (plant for grid in self.study("paper").grids() for plant in grid.plants)
        return next((command for plant in plants if (command := missing(plant))), "")

    def reductions(self, scale: Scale) -> list[str]:
        """Return sentences that describe how the study at a scale, such as "quick", differs from the paper."""
        here, there = self.study(scale), self.study("paper")
        sentences = []
        for key in ("seeds", "episodes"):
            if getattr(here, key) < getattr(there, key):
                sentences.append(f"{getattr(here, key)} {key} instead of {getattr(there, key)}")
        sentences += _schedules(here, there)
        if there.seeds < (printed := self.figure.seeds or self.paper.seeds):
            sentences.append(f"{there.seeds} seeds at paper scale, where the paper has {printed}")
        plants = {plant for grid in there.grids() for plant in grid.plants}
        own = [text for plant, texts in self.paper.reduced_on.items() if plant in plants for text in texts]
        return list(dict.fromkeys((*sentences, *self.paper.reduced, *own, *self.figure.reduced)))


def _schedules(here: Study, there: Study) -> Iterator[str]:
    """Yield sentences about schedules that are cut or compressed, because runs are shorter than in study `there`."""
    cells = here.cells()
    steps = here.episodes * max(cell.steps_per_episode for cell in cells)
    horizon = max(cell.horizon_steps for cell in cells)
    if steps < horizon:
        yield f"schedules take {horizon:,} steps, of which a run has {steps:,}"
    elif not horizon and here.episodes < there.episodes and any(parse(cell.strategy).anneals for cell in cells):
        yield "schedules are compressed into the shorter run"


def preset_names() -> list[str]:
    """Return the names of all presets (studies that reproduce figures), sorted by paper and figure number."""

    def order(path: Path) -> tuple[str, str, int]:
        stem = path.stem.rstrip("0123456789")
        return path.parent.name, stem, int(path.stem.removeprefix(stem) or 0)

    files = [path for path in FOLDER.glob("*/*.toml") if path.name != _PAPER and path.stem[0] != "_"]
    return [f"{path.parent.name}/{path.stem}" for path in sorted(files, key=order)]


def read_preset(name: str) -> Preset:
    """Read the preset (study that reproduces a figure) with a name such as `debruin2018/fig12`, in any letter case."""
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
    if of_paper := [each for each in known if each.startswith(f"{asked}/")]:
        return UserError(f"{name} is a paper; name one of its presets: {', '.join(of_paper)}")
    if not paper and (same := [each for each in known if each.endswith(f"/{asked}")]):
        return UserError(f"no preset {name!r}; name its paper, too: {' or '.join(same)}")
    same_paper = [each for each in known if paper and each.startswith(f"{paper}/")]
    if wanted := re.fullmatch(r"(fig|table)\D*(\d+)", asked):
        for each in same_paper:
            if wanted.groups() in _shown(figure := read_preset(each).figure.figure):
                return UserError(f"no preset {name!r}; {each} shows it ({figure})")
    return unknown("preset", name, same_paper or known)


def _shown(figure: str) -> set[tuple[str, str]]:
    """Parse the figures and tables in a text: "Figures 5 and 6" gives ("fig", "5") and ("fig", "6")."""
    lists = re.findall(r"(fig|table)[a-z]* ((?:\d+(?:, | and )?)+)", figure.casefold())
    return {(kind, number) for kind, numbers in lists for number in re.findall(r"\d+", numbers)}


def presets() -> Iterator[Preset]:
    """Yield all presets (studies that reproduce figures of papers)."""
    return map(read_preset, preset_names())


def folder_of(preset: Preset, scale: Scale) -> Path:
    """Return the default folder for the results of a preset at a scale, such as "quick"."""
    return Path("runs") / f"{preset.name.replace('/', '-')}-{scale}"


def continued(study: Study, folder: Path, seeds: int) -> Study:
    """Return a study with another number of seeds, whose blocks of seeds include those that a run folder holds.

    A last block that is not full is computed again.

    Raises:
        UserError: The folder has results of the first seeds without their cells, or more seeds than are wanted.
    """
    run = RunFolder(folder)
    wanted = dataclasses.replace(study, seeds=seeds)
    if not run.results.is_file():
        return wanted
    before = read_study(run.study)
    held = before.seeds
    if held > seeds:
        raise UserError(f"{folder} has {held} seeds already; name another run folder with --output")
    if not (run.path / "cells").is_dir():
        raise UserError(
            f"{folder} has results of {held} seeds, but not their cells; compute the further seeds into another "
            f"folder, as in `sweep {run.study} --seeds {seeds - held} --set first_seed={held} --output …`; `claims` "
            "takes both folders"
        )
    return dataclasses.replace(wanted, block=min(before.block, held))


_COPIED: Final = ("policy.safetensors", "snapshots.h5", "scores.h5")
"""Files of a cell that are copied. The scores come last, because they mark a complete cell."""


def take_over(study: Study, folder: Path) -> dict[Path, int]:
    """Copy results that a study needs from run folders next to `folder`.

    Cells with equal ids have equal results. Buffer files are not copied. A cell is copied only from a folder of the
    same user that this package made, without links, and if all checksums match.

    Returns:
        The number of copied cells, by run folder.

    Raises:
        UserError: If `folder` is neither new nor empty nor a run folder.
    """
    folder = claim(folder)
    run, copied = RunFolder(folder), Counter[Path]()
    neighbours = [RunFolder(other) for other in sorted(folder.parent.iterdir()) if other != folder and _trusted(other)]
    for cell in study.cells():
        if run.cell(cell.id).exists():
            continue
        for neighbour in neighbours:
            with contextlib.suppress(UserError, OSError):  # damaged files, or no permission: the cell is run
                contents = _verified(neighbour, cell)
                for name in contents:
                    with atomic_path(run.cell(cell.id) / name) as temporary:
                        temporary.write_bytes(contents[name])
                copied[neighbour.path] += 1
                break
    return copied


def _trusted(folder: Path) -> bool:
    """Return whether a folder is no link, belongs to the user, and was made by this package."""
    with contextlib.suppress(OSError):  # e.g. no permission to read the folder
        return _of_user(folder, stat.S_IFDIR) and is_own(folder)
    return False


def _verified(run: RunFolder, cell: Cell) -> dict[str, bytes]:
    """Return the contents of the files to copy of a finished cell, by name.

    Raises:
        OSError: A file is missing.
        UserError: A file is damaged, a link, another user's, or of another cell.
    """
    place = run.cell(cell.id)
    if not all(_of_user(folder, stat.S_IFDIR) for folder in (place.parent, place)):
        raise UserError(f"{place} is a link or another user's")
    contents = {}
    for name in _COPIED:
        path = place / name
        if name == "snapshots.h5" and not path.exists():
            continue
        if not _of_user(path, stat.S_IFREG):
            raise UserError(f"{path} is no file of this user")
        facts = read_policy(path)[0] if path.suffix == ".safetensors" else read_record(path, path.stem)[0].facts
        if facts.get("id") != cell.id:
            raise UserError(f"{path} is of another cell")
        contents[name] = path.read_bytes()
    return contents


def _of_user(path: Path, file_type: int) -> bool:
    found = path.lstat()
    return stat.S_IFMT(found.st_mode) == file_type and found.st_uid == os.getuid()
