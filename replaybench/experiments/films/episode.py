"""One episode of a plant, picture by picture, under a policy or random actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.reference_controllers import RandomController
from replaybench.controllers.policies.policy import Policy
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv

Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From an observation float32 `[1, S]` to an action float32 `[1, A]`, step by step."""


class Scene(NamedTuple):
    """What is to be seen.

    Attributes:
        plant: the plant.
        frequency: control rate [Hz].
        noise: standard deviation of sensor and actuator noise, normalised.
        observe: states that are observed, all if empty.
        seed: root seed of start and noise.
        steps: end of the film, if the episode does not end before.
        least: steps before which another episode follows one that has ended; none follows where it is 0.
    """

    plant: Plant
    frequency: float
    noise: float
    observe: Sequence[str]
    seed: int
    steps: int
    least: int = 0


class Shot(NamedTuple):
    """A picture uint8 `[height, width, 3]`, the reward of the step before it, and whether the episode ends with it."""

    picture: NDArray[np.uint8]
    reward: float
    last: bool


class ActWith:
    """What acts as a greedy policy does, with its memory where it has one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.rest()

    def rest(self) -> None:
        """Forget, as before every episode."""
        self._state: Any = None

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the action for an observation."""
        action, self._state = self._policy.predict(observation, self._state)
        return action


def act_randomly(scene: Scene) -> Act:
    """Return what draws every action anew."""
    return RandomController(scene.plant, [0], scene.seed).act


def shots(scene: Scene, act: Act, every: int = 1) -> Iterator[Shot]:
    """Yield the pictures of an episode, from its start on: after every so many steps, and the last.

    So it goes on with further episodes as long as there are fewer than the least steps of the scene. Rewards are the
    sums over the steps since the picture before.
    """
    noise: dict[str, Any] = {"sensor_noise": scene.noise, "actuator_noise": scene.noise, "observe": scene.observe}
    settings: dict[str, Any] = {"frequency": scene.frequency, "seed": scene.seed, "role": "evaluation", **noise}
    env = PopulationEnv(scene.plant, 1, render_mode="rgb_array", **settings)
    try:
        steps, over = 0, False
        while not over:
            if isinstance(act, ActWith):
                act.rest()
            observation, _ = env.reset()
            yield Shot(_picture(env), 0.0, False)
            begun, done, gained = steps, False, 0.0
            while not done:
                observation, reward, terminated, truncated, _ = env.step(act(observation))
                steps, gained = steps + 1, gained + float(reward[0])
                over = steps >= scene.steps
                done = bool(terminated[0] or truncated[0]) or over
                if done or (steps - begun) % every == 0:
                    yield Shot(_picture(env), gained, done)
                    gained = 0.0
            over = over or steps >= scene.least
    finally:
        env.close()


def _picture(env: PopulationEnv) -> NDArray[np.uint8]:
    pictures = env.render()
    assert pictures is not None
    return pictures[0]
