"""The base class of the MuJoCo plants: an MJCF file, two kernels, and noise at the start of an episode.

Rewards, bounds and starts are those of Gymnasium's v5 tasks (Towers et al. 2024), whose MJCF files are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.data.streams import Stream
from replaybench.data.user_code.source_hash import made_of
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant, Vector
from replaybench.envs.mujoco.engine import MujocoEngine
from replaybench.envs.mujoco.model import gymnasium_assets, load_model, model_digest
from replaybench.envs.ode.function_hash import content_hash

FORCE_LIMIT: Final = 1e7
"""Bound on observed forces and torques [N, N m]: no contact of bodies of at most 50 kg is nearly as hard."""


@dataclass(frozen=True, kw_only=True)
class MujocoPlant(FixedStepPlant):
    """A task in MuJoCo; its fields have Gymnasium's names. A motor's gear turns a control into a force."""

    mjcf: ClassVar[str]
    """The file, in Gymnasium's folder."""
    term_names: ClassVar[tuple[str, ...]]
    """Names of what `reward` writes to `terms`."""
    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"
    """Distribution of velocities at the start."""
    observes_forces: ClassVar[bool] = False
    """Whether contact forces (`cfrc_ext`) are computed after a step."""
    camera: ClassVar[tuple[float, float, float, bool]] = (3.5, 0.9, 0.15, True)
    """Of pictures: width [m], height of the middle [m], angle of view [rad], and whether they follow the body."""

    observe: ClassVar[Callable[..., None]]
    """Kernel `(chosen[M], raw[M, R], low[S], high[S], observed[M, S])`."""
    reward: ClassVar[Callable[..., None]]
    """Kernel `(running[M], raw[M, R], action[M, A], marker[M, 2], dt, constants, reward[M], terminated[M], terms[M,
    K])`; `marker` is the place of a member before the step, and is updated."""

    update_every = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "observes" in vars(cls):
            cls.action_names = tuple(f"control of {joint}" for joint in cls.actuated)

    @property
    def path(self) -> Path:
        """Path of the MJCF file."""
        return gymnasium_assets() / self.mjcf

    def model(self) -> Any:
        """Return the `mujoco.MjModel`."""
        return load_model(self.path)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return MujocoEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        kernels = content_hash([type(self).observe, type(self).reward])
        return f"{model_digest(self.path)} {kernels} {made_of(type(self))}".rstrip()

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        """Return the one-dimensional parts of an `MjData` that make up a row of `raw`: qpos and qvel first."""
        return data.qpos, data.qvel

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the places `[M, 2]` of members with rows `raw` `[M, R]`, from which `reward` measures progress."""
        return raw[:, :2]

    def constants(self) -> tuple[float, ...]:
        """Return the numbers that `reward` takes."""
        return ()

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw positions and velocities, a row for each chosen member, about the model's `qpos` and `qvel`."""
        noise: float = getattr(self, "reset_noise_scale")  # noqa: B009 (a field of the tasks that use this method)
        start = qpos + noise * (2.0 * draws.uniform(len(qpos), chosen) - 1.0)
        if self.velocity_noise == "normal":
            return start, qvel + noise * draws.normal(len(qvel), chosen)
        return start, qvel + noise * (2.0 * draws.uniform(len(qvel), chosen) - 1.0)
