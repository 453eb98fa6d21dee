"""Look-up of the studies and examples that are part of the package."""

import shutil
from pathlib import Path
from typing import Final

from replaybench.runtime.atomic import atomic_path, new_path
from replaybench.runtime.errors import UserError

STUDIES: Final = Path(__file__).parents[1] / "studies"
EXAMPLES: Final = Path(__file__).parents[1] / "examples"


def study_file(path: Path) -> Path:
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


def copy_examples(folder: Path) -> list[Path]:
    """Copy the package's examples into a new folder, and return the paths of the copies."""
    with atomic_path(new_path(folder, "name a folder that does not"), folder=True) as temporary:
        for path in EXAMPLES.iterdir():
            if path.is_file():
                shutil.copyfile(path, temporary / path.name)
    return sorted(folder.iterdir())
