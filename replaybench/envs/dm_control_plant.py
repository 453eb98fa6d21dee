"""The continuous-control tasks of ACER (Wang et al. 2017, appendix E.1), as far as dm_control has them.

Models, rewards and starts are dm_control's, which publishes its authors' later form of these tasks: its rewards lie in
[0, 1], and falling ends no episode. From the paper come the episodes of 500 steps and the discount 0.99. Each task says
where it departs from the paper. dm_control is imported where members are made, and not before.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.envs.plant import Plant, Vector
from replaybench.envs.replayed import Moved, Replayed
from replaybench.envs.settings import whole_steps

if TYPE_CHECKING:
    from replaybench.envs.engine import Engine

LIMIT: Final = 1e4
"""Bound on what is observed, in m, rad and per second: orders beyond what these bodies can do."""

STEPS: Final = 500
"""Samples in an episode (E.1)."""

Signals = tuple[tuple[str, str], ...]
"""Names with their units."""


@dataclass(frozen=True, kw_only=True)
class SuitePlant(Plant):
    """Base class of the tasks; a subclass names one of dm_control's suite and what it shows, in its order.

    States are in raw units, centre 0 and scale 1. A sample is any whole number of physics steps that cuts the episode
    into whole samples; the rate decides how long the action is held, not how long the episode lasts.
    """

    task: ClassVar[tuple[str, str]]
    """Domain and task in the suite."""
    physics_step: ClassVar[float]
    """Time step of the task's model. [s]"""
    shows: ClassVar[Signals]
    """Names and units of what is observed."""
    actuators: ClassVar[tuple[str, ...]]

    told_by = "return"
    discount = 0.99  # E.1
    update_every = 50  # the length of ACER's segments
    reference_episodes = 10

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.state_names, cls.state_units = (tuple(column) for column in zip(*cls.shows, strict=True))
        cls.state_center, cls.state_scale = (0.0,) * len(cls.shows), (1.0,) * len(cls.shows)
        cls.action_names, cls.action_units = cls.actuators, ("1",) * len(cls.actuators)
        cls.action_low, cls.action_high = (-1.0,) * len(cls.actuators), (1.0,) * len(cls.actuators)
        cls.episode_seconds = STEPS / cls.frequency

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """The same wide bound for all."""
        return (LIMIT,) * len(self.shows)

    def substeps(self, frequency: float) -> int:
        """Return the physics steps in a sample.

        Raises:
            UserError: a sample at this `frequency` [Hz] is not a whole number of them that divides the episode.
        """
        if not frequency > 0:
            whole_steps(self.name, self.episode_seconds, frequency)  # says so
        longest = self.physics_steps()
        exact = 1.0 / (frequency * self.physics_step)
        count = round(exact)
        if count >= 1 and abs(exact - count) <= 1e-9 * exact and longest % count == 0:
            return count
        rates = [1.0 / (n * self.physics_step) for n in range(1, longest + 1) if longest % n == 0]
        near = [*[rate for rate in rates if rate < frequency][:1], *[rate for rate in rates if rate > frequency][-1:]]
        raise UserError(
            f"{self.name} takes physics steps of {self.physics_step:g} s, {longest} to an episode; {frequency:g} Hz "
            f"does not cut it into equal whole numbers of them: use {' or '.join(f'{rate:.12g}' for rate in near)} Hz"
        )

    def physics_steps(self) -> int:
        """Return the physics steps in an episode."""
        return round(self.episode_seconds / self.physics_step)

    def steps_per_episode(self, frequency: float) -> int:
        """Return the samples in an episode; raise `UserError` for a rate that cannot be."""
        return self.physics_steps() // self.substeps(frequency)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, sampled at `frequency` [Hz]."""
        return SuiteEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        """Name the versions of dm_control and MuJoCo."""
        return f"{self.task}; dm_control {version('dm_control')}; mujoco {version('mujoco')}"


class SuiteEngine(Replayed):
    """Members of a task of dm_control, each with an environment of its own."""

    def __init__(self, plant: SuitePlant, num_envs: int, frequency: float) -> None:
        self._plant = plant
        self._members = [SuiteMember(plant) for _ in range(num_envs)]
        sizes = len(plant.state_names), len(plant.action_names), plant.physics_steps()
        super().__init__(self._members, *sizes, frequency)

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]."""
        super().set_frequency(frequency)
        for member in self._members:
            member.hold(self._plant.substeps(frequency))


class SuiteMember:
    """One environment of dm_control, without its time limit."""

    def __init__(self, plant: SuitePlant) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a display, which nothing here needs
            from dm_control import suite
            from dm_control.rl import control
        self._invalid: type[Exception] = control.PhysicsError
        self._environment = control.Environment
        made = suite.load(*plant.task, task_kwargs={"random": 0})
        self._physics, self._task = made.physics, made.task

    def hold(self, substeps: int) -> None:
        """Hold each action for so many physics steps."""
        self._env = self._environment(self._physics, self._task, n_sub_steps=substeps)

    def restart(self, seed: int) -> Vector:
        """Begin the episode of a seed."""
        self._task.random.seed(seed)
        self._observed = _flat(self._env.reset().observation)
        return self._observed

    def advance(self, action: Vector) -> Moved:
        """Advance by one sample; a simulation that has blown up ends the episode where it last was, with reward 0."""
        try:
            step = self._env.step(action)
        except self._invalid:
            return Moved(self._observed, 0.0, False, True)
        self._observed = _flat(step.observation)
        return Moved(self._observed, float(step.reward), step.discount == 0.0, False)

    def close(self) -> None:
        """Free the simulation."""
        self._physics.free()


def _flat(observation: Any) -> Vector:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)


def _angles(joints: Iterable[str]) -> Signals:
    return tuple((joint, "rad") for joint in joints)


def _rates(joints: Iterable[str]) -> Signals:
    return tuple((f"velocity of {joint}", "rad/s") for joint in joints)


def _along(what: str, unit: str, axes: str = "xyz") -> Signals:
    return tuple((f"{what} {axis}", unit) for axis in axes)


_CHEETAH: Final = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_FISH: Final = ("tail1", "tail_twist", "tail2", "finright_roll", "finright_pitch", "finleft_roll", "finleft_pitch")
_WALKER: Final = ("right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle")
_WALKER_BODIES: Final = ("torso", "right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot")
_LEG: Final = ("hip_x", "hip_z", "hip_y", "knee", "ankle_y", "ankle_x")
_ARM: Final = ("shoulder1", "shoulder2", "elbow")
_HUMANOID: Final = (
    *("abdomen_z", "abdomen_y", "abdomen_x"),
    *(f"{side}_{joint}" for joints in (_LEG, _ARM) for side in ("right", "left") for joint in joints),
)
_HUMANOID_MOTORS: Final = (
    *("abdomen_y", "abdomen_z", "abdomen_x"),
    *(
        f"{side}_{joint}"
        for joints in (("hip_x", "hip_z", "hip_y", "knee", "ankle_x", "ankle_y"), _ARM)
        for side in ("right", "left")
        for joint in joints
    ),
)


@dataclass(frozen=True, kw_only=True)
class AcerCartpole(SuitePlant):
    """Swing a pole up on a cart; rewarded only while upright in the middle of the track.

    The pole starts hanging, up to small noise, where the paper's starts at any angle; the middle is ±0.25 m, not ±0.05.
    """

    name = "AcerCartpole"
    task = ("cartpole", "swingup_sparse")
    physics_step = 0.01
    frequency = 100.0
    shows = (
        *(("slider", "m"), ("cos hinge", "1"), ("sin hinge", "1")),
        *(("velocity of slider", "m/s"), ("velocity of hinge", "rad/s")),
    )
    actuators = ("slide",)


@dataclass(frozen=True, kw_only=True)
class AcerCheetah(SuitePlant):
    """Run; the reward is the speed up to 10 m/s, in tenths. The paper's has no bound, and adds a cost of control."""

    name = "AcerCheetah"
    task = ("cheetah", "run")
    physics_step = 0.01
    frequency = 100.0
    shows = (
        *(("rootz", "m"), *_angles(("rooty", *_CHEETAH))),
        *(("velocity of rootx", "m/s"), ("velocity of rootz", "m/s"), *_rates(("rooty", *_CHEETAH))),
    )
    actuators = _CHEETAH


@dataclass(frozen=True, kw_only=True)
class AcerFish(SuitePlant):
    """Swim to a target, upright; rewarded near it, where the paper's reward falls with the distance."""

    name = "AcerFish"
    task = ("fish", "swim")
    physics_step = 0.004
    frequency = 25.0
    shows = (
        *(*_angles(_FISH), ("upright", "1"), *_along("target", "m")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *_rates(_FISH)),
    )
    actuators = ("tail", "tail_twist", "fins_flap", "finleft_pitch", "finright_pitch")


@dataclass(frozen=True, kw_only=True)
class AcerWalker(SuitePlant):
    """Walk as fast as possible without falling: the suite's `run`, rewarded linearly in speed up to 8 m/s.

    It starts in any pose and may get up again; the paper's ends when it falls, and has a cost of control.
    """

    name = "AcerWalker"
    task = ("walker", "run")
    physics_step = 0.0025
    frequency = 40.0
    shows = (
        *chain.from_iterable(((f"cos {body}", "1"), (f"sin {body}", "1")) for body in _WALKER_BODIES),
        *(("height", "m"), ("velocity of rootz", "m/s"), ("velocity of rootx", "m/s"), *_rates(("rooty", *_WALKER))),
    )
    actuators = _WALKER


@dataclass(frozen=True, kw_only=True)
class AcerHumanoid(SuitePlant):
    """Stand up from any pose on the ground, and stay there with little effort; 67 observations, the paper has 94."""

    name = "AcerHumanoid"
    task = ("humanoid", "stand")
    physics_step = 0.005
    frequency = 40.0
    shows = (
        *(*_angles(_HUMANOID), ("height of head", "m")),
        *chain.from_iterable(_along(f"{s} {limb}", "m") for s in ("left", "right") for limb in ("hand", "foot")),
        *(*_along("upwards", "1"), *_along("velocity of mass", "m/s")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *_rates(_HUMANOID)),
    )
    actuators = _HUMANOID_MOTORS
