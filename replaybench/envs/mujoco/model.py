"""MuJoCo models from MJCF files, loaded once per process."""

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

    MuJoCo's automatic reset is off, so that a member that blows up is noticed.

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
    """Return MuJoCo's version and a digest of the MJCF file."""
    return f"mujoco {importlib.metadata.version('mujoco')} {hashlib.sha256(path.read_bytes()).hexdigest()}"


@contextmanager
def quiet() -> Iterator[None]:
    """Drop MuJoCo's warnings, which it would print and append to `MUJOCO_LOG.TXT` in the working folder."""
    import mujoco

    theirs = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(theirs)
