"""Pictures of a plant's episodes, under a policy or random actions."""

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
"""Return the controller of a new episode."""


class Scene(NamedTuple):
    """Conditions of a film.

    Attributes:
        plant: the plant.
        frequency: control rate [Hz].
        noise: standard deviation of sensor and actuator noise, normalised.
        observe: states that are observed; all if empty.
        seed: root seed of start and noise.
        steps: length of the film, which may end within an episode.
        least: least length; a new episode begins if one has ended before.
    """

    plant: Plant
    frequency: float
    noise: float
    observe: Sequence[str]
    seed: int
    steps: int
    least: int = 0


class Shot(NamedTuple):
    """A picture uint8 `[height, width, 3]`, the reward since the one before, and whether it is an episode's last."""

    picture: NDArray[np.uint8]
    reward: float
    last: bool


def act_with(policy: Policy) -> Begin:
    """Act with a greedy policy; the memory of a recurrent one is empty at the beginning of an episode."""

    def begin() -> Act:
        state: Any = None

        def act(observation: NDArray[np.float32]) -> NDArray[np.float32]:
            nonlocal state
            action, state = policy.predict(observation, state)
            return action

        return act

    return begin


def act_randomly(scene: Scene) -> Begin:
    """Act at random, from one random stream for all episodes."""
    controller = RandomController(scene.plant, [0], scene.seed)
    return lambda: controller.act


def shots(scene: Scene, begin: Begin, every: int = 1) -> Iterator[Shot]:
    """Yield the pictures of episodes: the start, then one after every `every` steps and after the last."""
    noise: dict[str, Any] = {"sensor_noise": scene.noise, "actuator_noise": scene.noise, "observe": scene.observe}
    settings: dict[str, Any] = {"frequency": scene.frequency, "seed": scene.seed, "role": "evaluation", **noise}
    env = PopulationEnv(scene.plant, 1, render_mode="rgb_array", **settings)
    try:
        steps = 0
        while steps < max(1, min(scene.least, scene.steps)):
            observation, _ = env.reset()
            yield Shot(_picture(env), 0.0, False)
            act, begun, done, gained = begin(), steps, False, 0.0
            while not done:
                observation, reward, terminated, truncated, _ = env.step(act(observation))
                steps, gained = steps + 1, gained + float(reward[0])
                done = bool(terminated[0] or truncated[0]) or steps >= scene.steps
                if done or (steps - begun) % every == 0:
                    yield Shot(_picture(env), gained, done)
                    gained = 0.0
    finally:
        env.close()


def _picture(env: PopulationEnv) -> NDArray[np.uint8]:
    pictures = env.render()
    assert pictures is not None
    return pictures[0]
