"""Tasks of dm_control as plants, after the experiments with ACER (Wang et al., 2017, appendix E.1).

Models, rewards and initial states are those of dm_control, in which the same authors published later forms of these
tasks. dm_control's rewards are in [0, 1], and falling does not end an episode. The docstring of each task lists further
differences from the paper.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.foreign.engine import Step, StepwiseEngine
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant, Observed, Vector, positions, velocities
from replaybench.envs.mujoco.plant import MujocoCanvas, quiet

STEPS: Final = 500
"""Number of control steps in an episode (Wang et al., 2017, appendix E.1)."""


@dataclass(frozen=True, kw_only=True)
class SuitePlant(FixedStepPlant):
    """The base class of tasks of dm_control.

    A subclass declares a task of dm_control's suite, and the observations of the task in order. The control rate
    determines how long an action is held. An episode has the same duration at every rate.
    """

    task: ClassVar[tuple[str, str]]
    """Domain and task in dm_control's suite."""
    camera: ClassVar[tuple[float, float, float, bool]] = (3.5, 0.9, 0.15, True)
    """View of pictures, as that of `MujocoPlant`."""

    update_every = 50  # the length of the segments in Wang et al. (2017)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.episode_steps = STEPS * cls.frame_skip
        super().__init_subclass__(**kwargs)

    def engine(self, num_envs: int, frequency: float) -> Engine:
        members = [SuiteMember(self, self.physics_steps(frequency)) for _ in range(num_envs)]
        return SuiteEngine(self, members, frequency)

    def made_of(self) -> str:
        return f"{self.task}; dm_control {version('dm_control')}; mujoco {version('mujoco')}"


class SuiteEngine(StepwiseEngine):
    """The engine that steps a task of dm_control for each member, and draws pictures of its MuJoCo model."""

    def __init__(self, plant: SuitePlant, members: Sequence["SuiteMember"], frequency: float) -> None:
        super().__init__(members, len(plant.state_names), len(plant.action_names), plant.episode_steps, frequency)
        self._physics, self._camera = [member.physics for member in members], plant.camera
        self._canvas: MujocoCanvas | None = None

    def frame(self, member: int) -> NDArray[np.uint8]:
        physics = self._physics[member]
        self._canvas = self._canvas or MujocoCanvas(physics.model.ptr, *self._camera)
        return self._canvas.frame(physics.data.ptr)


class SuiteMember:
    """The simulator of one copy of a plant that is a task of dm_control.

    Each action is held for `substeps` physics steps. dm_control's `Environment` is not used, because its time limit and
    rate are fixed.
    """

    def __init__(self, plant: SuitePlant, substeps: int = 1) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dm_control searches for a display, which is not needed here
            from dm_control import suite
            from dm_control.rl import control
        self._invalid: type[Exception] = control.PhysicsError
        with quiet():
            made = suite.load(*plant.task, task_kwargs={"random": 0})
        self.physics, self._task, self._substeps = made.physics, made.task, substeps

    def restart(self, seed: int) -> Vector:
        self._task.random.seed(seed)
        with self.physics.reset_context():
            self._task.initialize_episode(self.physics)
        self._observed = _flat(self._task.get_observation(self.physics))
        return self._observed

    def advance(self, action: Vector) -> Step:
        """Advance by one control step, or truncate the episode with reward 0 if the simulation diverges."""
        task, physics = self._task, self.physics
        try:
            task.before_step(action, physics)
            physics.step(self._substeps)
            task.after_step(physics)
            reward, observation = task.get_reward(physics), task.get_observation(physics)
        except self._invalid:
            return Step(self._observed, 0.0, False, True)
        self._observed, discount = _flat(observation), task.get_termination(physics)
        terminated = discount == 0.0
        return Step(self._observed, float(reward), terminated, discount is not None and not terminated)

    def close(self) -> None:
        self.physics.free()


def _flat(observation: Any) -> Vector:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)


def _along(what: str, unit: str) -> tuple[Observed, ...]:
    return tuple(Observed(f"{what} {axis}", unit) for axis in "xyz")


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
    """A cart that has to swing up a pole (Wang et al., 2017, appendix E.1).

    The reward is positive only while the pole is upright and the cart is in the middle of the track. The pole starts
    hanging, with small noise. In the paper it starts at any angle. The middle is ±0.25 m here, and ±0.05 m in the
    paper.
    """

    name = "AcerCartpole"
    task = ("cartpole", "swingup_sparse")
    camera = (4.5, 1.0, 0.15, False)
    physics_step = 0.01
    frame_skip = 1
    observes = (
        *positions(("slider",), ("slider",)),
        *(Observed(f"{function} hinge", "1") for function in ("cos", "sin")),
        *velocities(("slider", "hinge"), ("slider",)),
    )
    actuated = ("slide",)


@dataclass(frozen=True, kw_only=True)
class AcerCheetah(SuitePlant):
    """Half a cheetah that has to run fast (Wang et al., 2017, appendix E.1).

    The reward is a tenth of the speed [m/s], up to 10 m/s. In the paper, speed has no bound, and control has a cost.
    """

    name = "AcerCheetah"
    task = ("cheetah", "run")
    physics_step = 0.01
    frame_skip = 1
    observes = (
        *positions(("rootz", "rooty", *_CHEETAH), ("rootz",)),
        *velocities(("rootx", "rootz", "rooty", *_CHEETAH), ("rootx", "rootz")),
    )
    actuated = _CHEETAH


@dataclass(frozen=True, kw_only=True)
class AcerFish(SuitePlant):
    """A fish that has to swim to a target (Wang et al., 2017, appendix E.1).

    Seven eighths of the reward depend on the distance from the target, and are earned near the target only. One eighth
    depends on whether the fish is upright. In the paper, the reward falls with the distance.
    """

    name = "AcerFish"
    task = ("fish", "swim")
    camera = (1.2, 0.2, 0.8, False)
    physics_step = 0.004
    frame_skip = 10
    observes = (
        *(*positions(_FISH), Observed("upright", "1"), *_along("target", "m")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *velocities(_FISH)),
    )
    actuated = ("tail", "tail_twist", "fins_flap", "finleft_pitch", "finright_pitch")


@dataclass(frozen=True, kw_only=True)
class AcerWalker(SuitePlant):
    """A robot with two legs that has to move as fast as possible (Wang et al., 2017, appendix E.1).

    This is the task `run` of dm_control. The reward for standing upright is multiplied by a factor that is linear in
    the speed up to 8 m/s. The robot starts in any pose and may get up again. In the paper, falling ends the episode,
    and control has a cost.
    """

    name = "AcerWalker"
    task = ("walker", "run")
    physics_step = 0.0025
    frame_skip = 10
    observes = (
        *(Observed(f"{function} {body}", "1") for body in _WALKER_BODIES for function in ("cos", "sin")),
        *(Observed("height", "m"), *velocities(("rootz", "rootx", "rooty", *_WALKER), ("rootz", "rootx"))),
    )
    actuated = _WALKER


@dataclass(frozen=True, kw_only=True)
class AcerHumanoid(SuitePlant):
    """A humanoid that has to stand up from any pose and to stand with little effort (Wang et al., 2017, appendix E.1).

    The humanoid has 67 observations here, and 94 in the paper.
    """

    name = "AcerHumanoid"
    task = ("humanoid", "stand")
    physics_step = 0.005
    frame_skip = 5
    observes = (
        *(*positions(_HUMANOID), Observed("height of head", "m")),
        *(entry for s in ("left", "right") for limb in ("hand", "foot") for entry in _along(f"{s} {limb}", "m")),
        *(*_along("upwards", "1"), *_along("velocity of mass", "m/s")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *velocities(_HUMANOID)),
    )
    actuated = _HUMANOID_MOTORS
