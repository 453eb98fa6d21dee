"""What MuJoCo plants have in common: joints, an MJCF file, physics steps, and noise at the start of an episode.

A task adds its numbers and two kernels, one that says what is observed and one that judges a step. Rewards, bounds and
starts are those of Gymnasium's v5 tasks (Towers et al. 2024), whose MJCF files are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.streams import Stream
from replaybench.data.user_code.source_hash import made_of
from replaybench.envs.interface.checks import whole_substeps
from replaybench.envs.interface.plant import Plant, Vector
from replaybench.envs.mujoco.model import gymnasium_assets, load_model, model_digest
from replaybench.envs.ode.function_hash import content_hash

MOTION_LIMIT: Final = 1e4
"""Bound on observed positions, angles and their rates [m, rad, m/s, rad/s], and on inertias. Bodies of some kilograms
under motors of at most 500 N or 200 N m stay far below: full controls at random reach 63 rad/s. Only a simulation that
blows up comes near it; at 1e10 MuJoCo itself gives a state up."""

FORCE_LIMIT: Final = 1e7
"""Bound on observed forces and torques [N, N m]: no contact of bodies of at most 50 kg is nearly as hard."""


class Observed(NamedTuple):
    """One entry of an observation: its name, its unit, and the bound to which it is clipped."""

    name: str
    unit: str
    limit: float = MOTION_LIMIT


def positions(joints: Iterable[str], slides: Iterable[str] = ()) -> tuple[Observed, ...]:
    """Return the positions of joints; those not among `slides` are hinges."""
    slides = tuple(slides)
    return tuple(Observed(joint, "m" if joint in slides else "rad") for joint in joints)


def velocities(joints: Iterable[str], slides: Iterable[str] = (), limit: float = MOTION_LIMIT) -> tuple[Observed, ...]:
    """Return the velocities of joints; those not among `slides` are hinges."""
    slides = tuple(slides)
    return tuple(Observed(f"velocity of {j}", "m/s" if j in slides else "rad/s", limit) for j in joints)


@dataclass(frozen=True, kw_only=True)
class MujocoTask(Plant):
    """What a MuJoCo plant declares; fields are the parameters of the task, in Gymnasium's names.

    States are in raw units, centre 0 and scale 1, for that is how these tasks are learned everywhere. An episode is a
    fixed number of physics steps; a sample is any whole number of them that divides it.
    """

    mjcf: ClassVar[str]
    """The file, in Gymnasium's folder."""
    physics_step: ClassVar[float]
    """The file's time step. [s]"""
    episode_steps: ClassVar[int]
    """Physics steps in an episode."""
    frame_skip: ClassVar[int]
    """Physics steps in a sample where no other rate is asked for."""
    observes: ClassVar[tuple[Observed, ...]]
    actuated: ClassVar[tuple[str, ...]]
    """Joints with a motor, in the actuators' order."""
    control_range: ClassVar[float] = 1.0
    """Largest control either way; a motor's gear turns it into a torque or force."""
    term_names: ClassVar[tuple[str, ...]]
    """What `reward` writes beside the reward, in its order."""
    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"
    """How velocities at the start are distributed."""
    observes_forces: ClassVar[bool] = False
    """Whether contact forces are to be computed after a step (`cfrc_ext`)."""
    camera: ClassVar[tuple[float, float, float, bool]] = (3.5, 0.9, 0.15, True)
    """Of pictures: width [m], height of the middle [m], angle of view [rad], and whether they follow the body."""

    observe: ClassVar[Callable[..., None]]
    """Kernel `(chosen[M], raw[M, R], low[S], high[S], observed[M, S])`."""
    reward: ClassVar[Callable[..., None]]
    """Kernel `(running[M], raw[M, R], action[M, A], marker[M, 2], dt, constants, reward[M], terminated[M], terms[M,
    K])`; `marker` is where a member was before, and is brought up to date."""

    episode_metric = "return"
    update_every = 1
    discount = 0.99
    reference_episodes = 10

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "observes" in vars(cls):
            cls.state_names = tuple(entry.name for entry in cls.observes)
            cls.state_units = tuple(entry.unit for entry in cls.observes)
            cls.state_center, cls.state_scale = (0.0,) * len(cls.observes), (1.0,) * len(cls.observes)
            cls.action_names = tuple(f"control of {joint}" for joint in cls.actuated)
            cls.action_units = ("1",) * len(cls.actuated)
            cls.action_high = (cls.control_range,) * len(cls.actuated)
            cls.action_low = (-cls.control_range,) * len(cls.actuated)
            cls.episode_seconds = cls.physics_step * cls.episode_steps
            cls.frequency = 1.0 / (cls.physics_step * cls.frame_skip)

    @property
    def path(self) -> Path:
        """The MJCF file."""
        return gymnasium_assets() / self.mjcf

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Of each entry its own."""
        return tuple(entry.limit for entry in self.observes)

    def model(self) -> Any:
        """Return the `mujoco.MjModel`."""
        return load_model(self.path)

    def made_of(self) -> str:
        """Return MuJoCo's version, digests of the MJCF file and of the kernels, and whose file the task is from."""
        kernels = content_hash([type(self).observe, type(self).reward])
        return f"{model_digest(self.path)} {kernels} {made_of(type(self))}".rstrip()

    def substeps(self, frequency: float) -> int:
        """Return the physics steps in a sample; raise `UserError` for a rate that cannot be."""
        return whole_substeps(self.name, self.physics_step, self.episode_steps, frequency)

    def steps_per_episode(self, frequency: float) -> int:
        """Return the samples in an episode; raise `UserError` for a rate that cannot be."""
        return self.episode_steps // self.substeps(frequency)

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        """Return the parts of an `MjData`, in one dimension each, that make up a row of `raw`: qpos and qvel first."""
        return data.qpos, data.qvel

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where members of rows `raw` `[M, R]` are, `[M, 2]`, from which `reward` measures how far they came."""
        return raw[:, :2]

    def constants(self) -> tuple[float, ...]:
        """Return the numbers that `reward` needs."""
        raise NotImplementedError

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw positions and velocities, a row for each chosen member, about the model's `qpos` and `qvel`."""
        noise: float = getattr(self, "reset_noise_scale")  # noqa: B009 (a field of all tasks that do not draw starts of their own)
        start = qpos + noise * (2.0 * draws.uniform(len(qpos), chosen) - 1.0)
        if self.velocity_noise == "normal":
            return start, qvel + noise * draws.normal(len(qvel), chosen)
        return start, qvel + noise * (2.0 * draws.uniform(len(qvel), chosen) - 1.0)
