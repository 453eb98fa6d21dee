"""One plant behind Gymnasium's interface for single environments: a view of a population of one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import Float32Array, PopulationEnv


class SingleEnv(gymnasium.Env[Float32Array, Float32Array]):
    """A single plant, made by `gymnasium.make("replaybench/Pendulum-v0")`, with the settings of `PopulationEnv`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (as in Gymnasium)

    def __init__(self, plant: Plant | str, *, render_mode: str | None = None, **settings: Any) -> None:
        self.population = PopulationEnv(plant, 1, render_mode=render_mode, **settings)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": self.population.metadata["render_fps"]}
        self._spec: EnvSpec | None = None
        self._seeded = settings.get("seed") is not None
        self.observation_space = self.population.single_observation_space
        self.action_space = self.population.single_action_space

    @property
    def spec(self) -> EnvSpec | None:
        """The specification from Gymnasium's registry, with `max_episode_steps` of the present rate.

        A time limit in the registry would cut episodes at higher rates short.
        """
        return self._spec

    @spec.setter
    def spec(self, value: EnvSpec | None) -> None:
        self._spec = value
        if value is not None:
            value.max_episode_steps = self.population.steps_per_episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Start an episode; a seed restarts the noise. Without any, the first seed is random, as in Gymnasium."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation, infos = self.population.reset(seed=seed, options=options)
        return observation[0], _first(infos)

    def step(self, action: Float32Array) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Advance by one sample under the commanded action `[A]`."""
        observation, reward, terminated, truncated, infos = self.population.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(infos)

    def render(self) -> NDArray[np.uint8] | None:
        """Return the image uint8 `[height, width, 3]`, or None without a render mode."""
        frames = self.population.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Free what the plant's engine holds."""
        self.population.close()


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    return {name: values[0] for name, values in infos.items()}
