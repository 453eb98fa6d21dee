"""MuJoCo models from MJCF files: found, loaded once per process, and kept from writing into the user's folder."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from replaybench.data.errors import UserError


def gymnasium_assets() -> Path:
    """Return the folder of the MJCF files that come with Gymnasium, without importing its simulators."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise UserError("the MuJoCo plants need the MJCF files of the package gymnasium: pip install gymnasium")
    return Path(spec.origin).parent / "envs" / "mujoco" / "assets"


@functools.cache
def load_model(path: Path) -> Any:
    """Return the `mujoco.MjModel` of an MJCF file; engines share it and must not write to it.

    MuJoCo's automatic reset is off: a member that blows up is to be seen, not silently put back to its start.

    Raises:
        UserError: the file does not exist, or is no model.
    """
    import mujoco

    if not path.is_file():
        raise UserError(f"no MJCF file {str(path)!r}; give the path of a file that exists")
    with quiet():
        try:
            model = mujoco.MjModel.from_xml_path(str(path))
        except (ValueError, mujoco.FatalError) as error:
            raise UserError(f"the MJCF file {path} does not load: {' '.join(str(error).split())}") from error
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model


def model_digest(path: Path) -> str:
    """Return what decides how a model moves: MuJoCo's version and a digest of the MJCF file."""
    return f"mujoco {importlib.metadata.version('mujoco')} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def reset_quietly(model: Any, data: Any) -> None:
    """Bring an `MjData` to the model's defaults, its warnings set so that none of them is printed.

    MuJoCo prints the first warning of a kind, and appends it to a file `MUJOCO_LOG.TXT` in the user's folder. Counters
    that do not start at 0 know of no first one.
    """
    import mujoco

    mujoco.mj_resetData(model, data)
    for warning in data.warning:
        warning.number = 1


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings about a file's style to itself; they, too, would be appended to `MUJOCO_LOG.TXT`."""
    import mujoco

    theirs = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(theirs)
