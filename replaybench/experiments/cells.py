"""The cells of a run folder, found without making a plant or running its files."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from replaybench.controllers.policies import policy
from replaybench.controllers.policies.policy import Policy
from replaybench.controllers.registry import spelled
from replaybench.data.documents import read_json
from replaybench.data.record import read_header
from replaybench.data.run_folder import RunFolder, runs_within
from replaybench.envs.registry import PLANTS
from replaybench.experiments.study import Cell
from replaybench.experiments.study_record import shared_from
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, shown
from replaybench.runtime.user_file import canonical, same_class_name

AXES: Final = ("plant", "learner", "strategy", "noise", "frequency", "seed")
_NAMED: Final = ("plant", "learner", "strategy")
_TOLERANCE: Final = 1e-9


def cells_of(folder: RunFolder) -> list[Cell]:
    """Return the cells of a run folder's study, in the study's order, as `provenance.json` lists them."""
    if not folder.study.is_file():
        raise no_run_folder(folder.path)
    table = read_json(folder.provenance).get("cells")
    if not isinstance(table, dict):
        raise UserError(f"{folder.provenance} does not say which cells there are; run the sweep again to write it anew")
    cells = [each.get("cell") if isinstance(each, dict) else None for each in table.values()]
    if not all(isinstance(cell, dict) for cell in cells):
        raise UserError(f"{folder.provenance} does not describe each cell; run the sweep again to write it anew")
    return [build(Cell, cell, f"{folder.provenance}: cell") for cell in cells if cell is not None]


def no_run_folder(path: Path) -> UserError:
    """Return the error for a folder that no sweep wrote, which suggests files in it."""
    if inside := runs_within(path):
        return UserError(inside)
    files = sorted((*path.glob("*.h5"), *path.glob("*.safetensors")))
    hint = f"name a file of it: {' or '.join(map(str, files))}" if files else "name the folder that a sweep wrote"
    return UserError(f"{path} is not a run folder (it holds no study.toml); {hint}")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A user's choice among the cells of a run, and of a seed; None leaves an axis open.

    Attributes:
        options: names of the caller's options, if they are not `--` and the axis's name.
    """

    plant: str | None = None
    learner: str | None = None
    strategy: str | None = None
    noise: float | None = None
    frequency: float | None = None
    seed: int | None = None
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def given(self) -> list[str]:
        """Return the axes of the choice."""
        return [axis for axis in AXES if getattr(self, axis) is not None]

    def option(self, axis: str) -> str:
        """Return the option of an axis."""
        return self.options.get(axis, f"--{axis}")


def chosen_file(path: Path, choice: Choice, names: Sequence[str] = ("buffer",)) -> tuple[Path, int | None]:
    """Return the file that a user means by a path and a choice, and the place of the chosen seed's member.

    Args:
        path: the file itself, or a run folder.
        choice: which of the folder's cells, and which seed.
        names: acceptable files of a cell, the preferred one first.
    """
    if not path.is_dir():
        if given := [axis for axis in choice.given() if axis != "plant"]:
            raise UserError(
                f"{choice.option(given[0])} chooses among the cells of a run folder; {path} is none, leave it out"
            )
        return path, None
    folder = RunFolder(path)
    cells = cells_of(folder)
    cell = _only(path, _fitting(path, cells, choice), choice)
    member = None if choice.seed is None else choice.seed - cell.first_member
    scores = folder.cell(cell.id) / "scores.h5"
    finished = scores.is_file()
    source = shared_from(read_header(scores, "scores").facts) if finished else ""
    places = [folder.cell(cell.id), *(folder.cell(other.id) for other in cells if other.id == source)]
    for name, suffix, place in itertools.product(names, (".h5", ".safetensors"), places):
        if (file := place / f"{name}{suffix}").is_file():
            return file, member
    why = "its study keeps none (buffers)" if finished else "it is not finished; run the sweep again to continue"
    raise UserError(f"cell {cell.id} of {path} ({cell.label}) has no {names[0]} file: {why}")


def _fitting(path: Path, cells: Sequence[Cell], choice: Choice) -> list[Cell]:
    """Return the cells that fit a choice; the error names the first axis on which none does."""
    left = list(cells)
    for axis in choice.given():
        before, wanted = left, getattr(choice, axis)
        left = [cell for cell in before if _fits(cell, axis, wanted)]
        if not left and axis in _NAMED:  # the same Python file, named from another folder
            left = [cell for cell in before if same_class_name(getattr(cell, axis), wanted)]
        if not left:
            there = _written(before, axis)
            listed = f"there {'is' if len(there) == 1 else 'are'} {', '.join(there) or 'none at all'}"
            raise UserError(f"{path} has no cell of {axis} {shown(wanted)}; {listed}")
    return left


def _fits(cell: Cell, axis: str, wanted: Any) -> bool:
    if axis == "seed":
        return wanted in cell.seeds
    own = getattr(cell, axis)
    if axis in ("noise", "frequency"):
        return math.isclose(own, wanted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if axis == "strategy":
        with contextlib.suppress(UserError):  # a part in a user's own file, which is not executed for this
            return bool(own == wanted or own == str(parse(wanted)))
        return bool(own == wanted)
    return bool(own == canonical((PLANTS.spelled if axis == "plant" else spelled)(wanted)))


def _written(cells: Sequence[Cell], axis: str) -> list[str]:
    """Return the values of cells on an axis, as a user writes them."""
    if axis == "seed":
        return list(dict.fromkeys(cell.seed_range for cell in cells))
    values = (getattr(cell, axis) for cell in cells)
    return list(dict.fromkeys(f"{value:g}" if isinstance(value, float | int) else value for value in values))


def _only(path: Path, cells: Sequence[Cell], choice: Choice) -> Cell:
    """Return the only cell; the error lists the options that would choose one."""
    if len(cells) == 1:
        return cells[0]
    several = {axis: values for axis in AXES if len(values := _written(cells, axis)) > 1}
    if not several:
        raise UserError(f"{path} holds no cells yet; run its sweep first")
    remedies = "; ".join(
        f"{choice.option(axis)} {' or '.join(map(shlex.quote, values[:4]))}{' …' * (len(values) > 4)}"
        for axis, values in several.items()
    )
    raise UserError(f"{len(cells)} cells of {path} fit; say which: {remedies}")


def find_recording(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return a buffer file and the place of a member; `chosen` are fields of a `Choice`."""
    return _with_member(*chosen_file(path, Choice(**chosen)), member)


def find_inspected(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return the file for `inspect`: the buffer of the chosen cell, else its scores or checkpoint.

    Without a choice, this is the run folder itself.
    """
    choice = Choice(**chosen)
    if path.is_dir() and not choice.given():
        return path, member
    file, place = chosen_file(path, choice, ("buffer", "scores", "checkpoint"))
    return _with_member(file, place if file.stem == "buffer" else None, member)


def find_policy(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return a policy file and the place of a member; `chosen` are fields of a `Choice`."""
    return _with_member(*chosen_file(path, Choice(**chosen), ("policy",)), member)


def load_policy(
    path: Path | str,
    member: int | None = None,
    learner: str | None = None,
    *,
    plant: str | None = None,
    strategy: str | None = None,
    noise: float | None = None,
    frequency: float | None = None,
    seed: int | None = None,
) -> Policy:
    """Load one member's policy from a file that `sweep` or `replay` wrote, or from a run folder.

    Args:
        path: a policy file (`.safetensors`), or a run folder, in which the last arguments choose a cell.
        member: place of the member in the file, from 0; 0 if not given.
        learner: learner of the cell of a run folder; of a file, its learner in a Python file
            (`path/to/file.py:ClassName`), because opening a file never executes code that it names.
        plant, strategy, noise, frequency: of the cell.
        seed: a seed of the cell, instead of a member.

    Raises:
        UserError: the file is missing, damaged or foreign, has no such member, or its learner is in a Python file that
            was not named; or several cells fit.
    """
    path = Path(path)
    named = learner if path.is_dir() else None
    options = {axis: f"{axis} =" for axis in AXES}
    file, place = find_policy(
        path, member, plant=plant, learner=named, strategy=strategy, noise=noise, frequency=frequency, seed=seed,
        options=options,
    )  # fmt: skip
    return policy.load_policy(file, place or 0, learner)


def _with_member(file: Path, place: int | None, member: int | None) -> tuple[Path, int | None]:
    if place is not None and member is not None:
        raise UserError("--member counts the recordings of a file, --seed names one of a run: leave one out")
    return file, member if place is None else place
