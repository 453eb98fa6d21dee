"""Look-up of cells and their files in a run folder, without making plants or executing users' Python files.

A run folder is the folder that a sweep of a study wrote.
"""

import contextlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from replaybench.controllers.policies import policy
from replaybench.controllers.policies.policy import Policy
from replaybench.controllers.registry import spelled
from replaybench.data.documents import read_json
from replaybench.data.record import read_header
from replaybench.data.run_folder import RunFolder, runs_within
from replaybench.envs.registry import spelled as spelled_plant
from replaybench.experiments.study import Cell
from replaybench.experiments.study_record import shared_from
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, shown
from replaybench.runtime.user_file import canonical, same_class_name, shortened

AXES: Final = ("plant", "learner", "strategy", "noise", "frequency", "seed")
_NAMED: Final = ("plant", "learner", "strategy")
_TOLERANCE: Final = 1e-9


def cells_of(folder: RunFolder) -> list[Cell]:
    """Read the cells of a study from `provenance.json` in a run folder."""
    if not folder.study.is_file():
        raise no_run_folder(folder.path)
    table = read_json(folder.provenance).get("cells")
    if not isinstance(table, dict):
        raise UserError(f"{folder.provenance} does not say which cells there are; run the sweep again to rewrite it")
    cells = [each.get("cell") if isinstance(each, dict) else None for each in table.values()]
    if not all(isinstance(cell, dict) for cell in cells):
        raise UserError(f"{folder.provenance} does not describe each cell; run the sweep again to rewrite it")
    return [build(Cell, cell, f"{folder.provenance}: cell") for cell in cells if cell is not None]


def no_run_folder(path: Path) -> UserError:
    """Return the error that a folder is not a run folder, with suggestions of run folders or files in the folder."""
    if inside := runs_within(path):
        return UserError(inside)
    files = sorted((*path.glob("*.h5"), *path.glob("*.safetensors")))
    hint = f"name a file of it: {' or '.join(map(str, files))}" if files else "name the folder that a sweep wrote"
    return UserError(f"{path} is not a run folder (it holds no study.toml); {hint}")


def find_file(
    path: Path, member: int | None, *names: str, options: Mapping[str, str] | None = None, **chosen: Any
) -> tuple[Path, int | None]:
    """Find a file of the only cell in a run folder that has the chosen values.

    If `path` is a file, the path is returned unchanged.

    Args:
        path: A run folder, or a file.
        member: Index of a member (one seed) in the file, or None.
        *names: Acceptable names of the file without suffix, the preferred name first.
        options: Names of the values in error messages by axis, such as `--strategy`.
        **chosen: Values that select the cell, such as `plant="Magman"` or `seed=3`. None accepts every value.

    Returns:
        The path of the file, and the index of the member. If `seed` is chosen, the index is that of this seed.
    """
    options = {axis: f"--{axis}" for axis in AXES} | dict(options or {})
    given = {axis: chosen[axis] for axis in AXES if chosen.get(axis) is not None}
    if not path.is_dir():
        for axis in (axis for axis in given if axis != "plant"):
            raise UserError(f"{path} is no run folder; leave out {options[axis]}, which chooses among its cells")
        return path, member
    folder = RunFolder(path)
    cells = cells_of(folder)
    cell = _only(path, fitting_cells(path, cells, given), options)
    if (file := stored_file(folder, cells, cell, *names)) is None:
        finished = folder.finished(cell.id)
        why = "its study keeps none (buffers)" if finished else "it is not finished; run the sweep again to continue"
        raise UserError(f"cell {cell.id} of {path} ({cell.label}) has no {names[0]} file: {why}")
    if "seed" not in given:
        return file, member
    if member is not None:
        raise UserError("--member counts the recordings of a file, --seed names one of a run: leave one out")
    return file, given["seed"] - cell.first_member


def find_condition(path: Path, **chosen: Any) -> Cell:
    """Return a cell of the only plant, noise and control rate in a run folder that have the chosen values.

    Args:
        path: A run folder.
        **chosen: Values that select the condition, such as `plant="Magman"` or `noise=0.01`. None accepts every value.
    """
    cells = cells_of(RunFolder(path))
    fitting = fitting_cells(path, cells, {axis: value for axis, value in chosen.items() if value is not None})
    conditions = {(cell.plant, cell.noise, cell.frequency): cell for cell in fitting}
    axes = ("plant", "noise", "frequency")
    return _only(path, list(conditions.values()), {axis: f"--{axis}" for axis in axes})


def _only(path: Path, fitting: Sequence[Cell], options: Mapping[str, str]) -> Cell:
    """Return the only cell in `fitting`, or raise `UserError` with the options that choose among several."""
    if len(fitting) != 1:
        several = {axis: values for axis in options if len(values := _written(fitting, axis)) > 1}
        if not several:
            raise UserError(f"{path} holds no cells yet; run its sweep first")
        remedies = "; ".join(
            f"{options[axis]} {' or '.join(map(shlex.quote, values[:4]))}{' …' * (len(values) > 4)}"
            for axis, values in several.items()
        )
        raise UserError(f"{len(fitting)} cells of {path} fit; say which: {remedies}")
    return fitting[0]


def stored_file(folder: RunFolder, cells: Sequence[Cell], cell: Cell, *names: str) -> Path | None:
    """Return the first file with one of the names, without suffix, of a cell, or None if there is none.

    The results of the cell may be those of another one of the study's `cells`.
    """
    scores = folder.cell(cell.id) / "scores.h5"
    source = shared_from(read_header(scores, "scores").facts) if scores.is_file() else ""
    places = [folder.cell(cell.id), *(folder.cell(other.id) for other in cells if other.id == source)]
    found = (place / f"{name}{suffix}" for name in names for suffix in (".h5", ".safetensors") for place in places)
    return next(filter(Path.is_file, found), None)


def find_inspected(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Find the buffer, scores or checkpoint file of the chosen settings for the command `inspect`.

    Without chosen settings, the run folder itself is returned.
    """
    if path.is_dir() and all(value is None for value in chosen.values()):
        return path, member
    file, place = find_file(path, member, "buffer", "scores", "checkpoint", **chosen)
    return file, place if file.stem == "buffer" else member


def reached(folder: RunFolder, cell: Cell) -> str:
    """Return the progress of an unfinished cell as text, for example "at 81 of 1200".

    The numbers count episodes or iterations. The result is empty if the cell has no checkpoint.
    """
    checkpoint = folder.cell(cell.id) / "checkpoint.h5"
    if not checkpoint.is_file():
        return ""
    done = read_header(checkpoint).facts.get("episode")
    return f"at {done if isinstance(done, int) else '?'} of {cell.episodes}"


def fitting_cells(path: Path, cells: Sequence[Cell], given: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of the run folder `path` with the `given` values by axis, or raise `UserError` if none fits."""
    left = list(cells)
    for axis, wanted in given.items():
        before = left
        if axis in _NAMED:  # as tables print it
            written = shortened(dict.fromkeys(getattr(cell, axis) for cell in before))
            wanted = next((name for name, short in written.items() if short == wanted), wanted)
        left = [cell for cell in before if _fits(cell, axis, wanted)]
        if not left and axis in _NAMED:  # the same Python file under a path from another folder
            left = [cell for cell in before if same_class_name(getattr(cell, axis), wanted)]
        if not left:
            values = _written(before, axis)
            listed = f"there {'is' if len(values) == 1 else 'are'} {', '.join(values) or 'none at all'}"
            raise UserError(f"{path} has no cell of {axis} {shown(wanted)}; {listed}")
    return left


def _fits(cell: Cell, axis: str, wanted: Any) -> bool:
    if axis == "seed":
        return wanted in cell.seeds
    own = getattr(cell, axis)
    if axis in ("noise", "frequency"):
        return math.isclose(own, wanted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if axis == "strategy":
        with contextlib.suppress(UserError):  # a strategy in a user's file, which is not executed here
            return bool(own == wanted or own == str(parse(wanted)))
        return bool(own == wanted)
    return bool(own == canonical((spelled_plant if axis == "plant" else spelled)(wanted)))


def _written(cells: Sequence[Cell], axis: str) -> list[str]:
    if axis == "seed":
        return list(dict.fromkeys(cell.seed_range for cell in cells))
    values = (getattr(cell, axis) for cell in cells)
    return list(dict.fromkeys(f"{value:g}" if isinstance(value, float | int) else value for value in values))


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
    """Load a trained policy from a policy file or a run folder.

    A policy file holds one policy for each seed. A run folder holds policy files for all combinations of settings.

    Args:
        path: A policy file (`.safetensors`), or a run folder, in which the other arguments select the policy.
        member: Index of the policy in the file; 0 by default.
        learner: In a run folder, the name of the learner. A learner in a Python file must always be named, as
            `path/to/file.py:ClassName`, because opening a policy file never executes code that it names.
        plant: Name of the plant.
        strategy: Retention and sampling of the replay buffer, such as `FULL[PER]`.
        noise: Standard deviation of sensor and actuator noise, in normalised units.
        frequency: Control rate in Hz.
        seed: Seed of the run, instead of `member`.

    Raises:
        UserError: The file is missing or damaged, has no such member, or needs a learner that is not named; or
            several policy files in the folder match the arguments.
    """
    path = Path(path)
    named = learner if path.is_dir() else None
    options = {axis: f"{axis} =" for axis in AXES}
    file, place = find_file(
        path, member, "policy", plant=plant, learner=named, strategy=strategy, noise=noise, frequency=frequency,
        seed=seed, options=options,
    )  # fmt: skip
    return policy.load_policy(file, place or 0, learner)
