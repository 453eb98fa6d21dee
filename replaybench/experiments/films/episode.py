"""Episodes of a plant, picture by picture, under a policy or random actions."""

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
Begin = Callable[[], Act]
"""Returns what acts in an episode that begins."""


class Scene(NamedTuple):
    """What is to be seen.

    Attributes:
        plant: the plant.
        frequency: control rate [Hz].
        noise: standard deviation of sensor and actuator noise, normalised.
        observe: states that are observed, all if empty.
        seed: root seed of start and noise.
        steps: end of the film, in the midst of an episode if need be.
        least: steps before which another episode follows one that has ended.
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


def act_with(policy: Policy) -> Begin:
    """Act as a greedy policy does; where it has a memory, an episode begins with an empty one."""

    def begin() -> Act:
        state: Any = None

        def act(observation: NDArray[np.float32]) -> NDArray[np.float32]:
            nonlocal state
            action, state = policy.predict(observation, state)
            return action

        return act

    return begin


def act_randomly(scene: Scene) -> Begin:
    """Draw every action anew, from one stream through all episodes."""
    controller = RandomController(scene.plant, [0], scene.seed)
    return lambda: controller.act


def shots(scene: Scene, begin: Begin, every: int = 1) -> Iterator[Shot]:
    """Yield the pictures of episodes, each from its start on: after every so many steps, and the last.

    They follow each other until there are the least steps of the scene. Rewards are the sums over the steps since the
    picture before.
    """
    noise: dict[str, Any] = {"sensor_noise": scene.noise, "actuator_noise": scene.noise, "observe": scene.observe}
    settings: dict[str, Any] = {"frequency": scene.frequency, "seed": scene.seed, "role": "evaluation", **noise}
    env = PopulationEnv(scene.plant, 1, render_mode="rgb_array", **settings)
    try:
        steps, over = 0, False
        while not over:
            observation, _ = env.reset()
            yield Shot(_picture(env), 0.0, False)
            act, begun, done, gained = begin(), steps, False, 0.0
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
