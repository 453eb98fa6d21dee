"""Find the file and member that a user means by a file, or by a run folder and a choice of its cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from replaybench.controllers.policies import policy
from replaybench.controllers.policies.policy import Policy
from replaybench.data.errors import UserError
from replaybench.experiments.inspection.cells import AXES, Choice, chosen_file


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
