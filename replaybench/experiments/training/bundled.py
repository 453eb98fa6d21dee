"""What comes with the package besides code: studies that run by their names, and examples to copy and change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from replaybench.data.atomic import atomic_folder
from replaybench.data.errors import UserError

_PACKAGE: Final = Path(__file__).parents[2]
STUDIES: Final = _PACKAGE / "studies"
EXAMPLES: Final = _PACKAGE / "examples"


def study_names() -> list[str]:
    """Return the names of the studies that come with the package."""
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def study_file(path: Path) -> Path:
    """Return a study's file: the one at `path`, or else that of the package's study of this name, in any case.

    Raises:
        UserError: there is neither.
    """
    if path.is_file():
        return path
    own = {name.casefold(): name for name in study_names()}
    if name := own.get(str(path).casefold()):
        return STUDIES / f"{name}.toml"
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a study file in it")
    raise UserError(f"no such study file: {path}; studies that come with replaybench: {', '.join(study_names())}")


def copy_examples(folder: Path) -> list[Path]:
    """Copy the package's examples into a new folder, and return what is there then.

    Raises:
        UserError: there is something at `folder` already, or it cannot be written.
    """
    if folder.exists():
        raise UserError(f"{folder} exists already; name a folder that does not")
    with atomic_folder(folder) as temporary:
        for path in EXAMPLES.iterdir():
            if path.is_file():
                shutil.copyfile(path, temporary / path.name)
    return sorted(folder.iterdir())
