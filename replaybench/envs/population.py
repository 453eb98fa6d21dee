"""Environments that simulate M independent copies of a plant with Gymnasium's vector interface.

The copies are called members and share only the settings. The observations of a member depend on the root seed, on the
member's number and on the member's actions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.channel_of_plant import check_channel, reading_limits
from replaybench.envs.interface.channel_signals import ChannelSignals
from replaybench.envs.interface.declarations import (
    NanActions,
    Role,
    check_population,
    check_seed,
    reset_mask,
    seen_states,
)
from replaybench.envs.interface.plant import Canvas, Parameter, Plant
from replaybench.envs.interface.signals import Signals, begin_step, end_step
from replaybench.envs.measures import EpisodeMeasures
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.registry import make_plant
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

_STARTS: Final[dict[Role, str]] = {"training": "initial state", "evaluation": "evaluation initial state"}
_COURSES: Final[dict[Role, str]] = {"training": "course", "evaluation": "evaluation course"}
_SPREADS: Final[dict[Role, str]] = {"training": "spread", "evaluation": "evaluation spread"}
_LARGEST_NORMAL: Final = 9.0  # normal random numbers of a stream cannot exceed √(106 ln 2) = 8.6
_AUTORESET: Final = getattr(gymnasium.vector, "AutoresetMode", None)  # Gymnasium 1.0 has no AutoresetMode


Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]


class PopulationEnv(VectorEnv[Float32Array, Float32Array, Any]):
    """A vectorised environment that simulates M members, which are independent copies of one plant.

    Observations are noisy normalised states, float32 `[M, S]` or with a column for each state in `observe`. The noise
    is not clipped. Actions are float32 `[M, A]` in [-1, 1]. The plant gets `clip(clip(action) + noise)`. A plant with
    discrete actions gets the discrete action nearest to this value. Rewards are float64 `[M]` and not scaled for
    learning. They depend on the noise-free states and on the action that the plant gets.

    After the end of its episode, a member does not change until `reset` restarts it. Until then, its rewards are 0,
    `terminated` and `truncated` keep their values, and no noise is drawn. The noise model is that of de Bruin et al.
    (2018, eqs. 1 and 2).

    Args:
        plant: The plant, or its name for `make_plant`.
        num_envs: Number of members M.
        parameters: Values of the plant's parameters by name, if `plant` is a name.
        frequency: Control rate [Hz]; by default the plant's. The number of steps in an episode must be whole.
        sensor_noise: Standard deviation of the noise that is added to every normalised state.
        actuator_noise: Standard deviation of the noise that is added to every normalised action.
        seed: Root seed of the noise and of random initial states.
        members: Numbers of the members, `[M]`, which select their random streams. By default `range(num_envs)`.
        role: "training" or "evaluation". Evaluation uses separate random streams.
        observe: Names of the observed states. All states are observed if `observe` is empty.
        channel: The channel between plant and agent, in place of that of the plant. It may add delays and limits, and
            append past commands to the observation, `[M, S + history · A]`.
        nan_actions: Response to a NaN action. "raise" raises an error. "fail" sets the member's reward to NaN for the
            rest of its episode, and the other members continue.
        render_mode: "rgb_array" or None.

    Attributes:
        plant: The plant.
        members: The numbers of the members.
        dt: Length of a control step [s].
        steps_per_episode: Number of control steps in an episode.

    Raises:
        UserError: A setting is out of its range.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (as Gymnasium declares it)
        "autoreset_mode": _AUTORESET and _AUTORESET.DISABLED,
        "render_modes": ["rgb_array"],
        "render_fps": 50,
    }

    def __init__(
        self,
        plant: Plant | str,
        num_envs: int = 1,
        *,
        parameters: Mapping[str, Parameter] | None = None,
        frequency: float | None = None,
        sensor_noise: float = 0.0,
        actuator_noise: float = 0.0,
        seed: int = 0,
        members: Sequence[int] | None = None,
        role: Role = "training",
        observe: Sequence[str] = (),
        channel: Channel | None = None,
        nan_actions: NanActions = "raise",
        render_mode: str | None = None,
    ) -> None:
        if parameters and not isinstance(plant, str):
            raise UserError(f"parameters go with a plant's name; this {plant.name} has its own already")
        self.plant = make_plant(plant, **(parameters or {})) if isinstance(plant, str) else plant
        if channel is not None:
            self.plant = self.plant.through(channel)
        self.members = tuple(range(num_envs) if members is None else members)
        check_population(num_envs, self.members, sensor_noise, actuator_noise, role, nan_actions, render_mode)
        self.num_envs, self.render_mode, self.nan_actions = num_envs, render_mode, nan_actions
        self.sensor_noise, self.actuator_noise = float(sensor_noise), float(actuator_noise)
        frequency = self.plant.frequency if frequency is None else frequency
        self.steps_per_episode = self.plant.steps_per_episode(frequency)
        self.dt = self.plant.episode_seconds / self.steps_per_episode
        self.metadata = {**self.metadata, "render_fps": max(1, round(frequency))}

        seen = seen_states(self.plant.name, self.plant.state_names, observe)
        self._seen = slice(None) if seen == list(range(len(self.plant.state_names))) else seen
        check_channel(self.plant, self.steps_per_episode, self.dt)
        limit = reading_limits(self.plant, _LARGEST_NORMAL * self.plant.sensor_noise(self.sensor_noise))[seen]
        limit = np.append(limit, np.ones(self.plant.observation_size() - len(self.plant.state_names)))
        self.single_observation_space: Box[np.float32] = Box(-limit.astype(np.float32), limit.astype(np.float32))
        self.single_action_space: Box[np.float32] = Box(-1.0, 1.0, (len(self.plant.action_names),), np.float32)
        self.observation_space: Box[np.float32] = cast(Any, batch_space(self.single_observation_space, num_envs))
        self.action_space: Box[np.float32] = cast(Any, batch_space(self.single_action_space, num_envs))

        root = check_seed(seed)
        signals = self.plant, self.members, sensor_noise, actuator_noise, root, role
        off = self.plant.channel.is_off
        self._signals = Signals(*signals) if off else ChannelSignals(*signals, self.dt)
        self._starts = Stream(root, self.members, _STARTS[role])
        self._elapsed = np.zeros(num_envs, np.int64)
        self._truncated, self._failed, self._begun, self._running, self._moving = np.zeros((5, num_envs), np.bool_)
        self._started = False
        self._canvas: Canvas | None = None
        self._engine = self.plant.engine(num_envs, 1.0 / self.dt)
        self._measures = EpisodeMeasures(self.plant, num_envs, self.dt)
        self._engine.draws = self._starts
        self._engine.courses, self._engine.parameters = (
            Stream(root, self.members, purposes[role]) for purposes in (_COURSES, _SPREADS)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Start new episodes of chosen members, and return observations and infos of all members.

        Args:
            seed: New root seed for the random streams of the chosen members. With None, the streams continue.
            options: `{"reset_mask": mask}` chooses members by a bool array `[M]`. By default all members are chosen.
        """
        super().reset(seed=seed)
        chosen = reset_mask(options, self.num_envs)
        if seed is not None:
            engine = self._engine
            for stream in (*self._signals.streams.values(), self._starts, engine.courses, engine.parameters):
                stream.renew(check_seed(seed), chosen)
        self._signals.rest(chosen)
        self._elapsed[chosen] = 0
        self._engine.event[chosen] = 0
        self._engine.terminated[chosen] = self._truncated[chosen] = self._failed[chosen] = False
        self._begun |= chosen
        self._started = bool(self._begun.all())
        self._engine.restart(chosen, self._starts)
        self._measures.restart(self._engine.observed, chosen)
        self._signals.sense(self._engine.observed, chosen)
        return self._signals.observed(self._seen), self._infos()

    def step(
        self, actions: ArrayLike
    ) -> tuple[Float32Array, NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Advance every copy of the plant with a running episode by one control step, and return new arrays.

        Args:
            actions: Commanded actions `[M, A]`, which are clipped to [-1, 1].

        Returns:
            observation: Noisy normalised states that are observed, float32 `[M, S]`.
            reward: Unscaled rewards, float64 `[M]`.
            terminated: Whether each member has reached a terminal state, bool `[M]`.
            truncated: Whether a time limit or the simulator has ended each episode, bool `[M]`.
            infos: Arrays by name. `true_state` has all states, normalised and without noise, float32 `[M, S]`.
                `sensor_noise` and `actuator_noise` have the noise on observed states and on actions, float32. `event`
                contains the plant's events in this step as bits, int64 `[M]`. Plants may add further arrays. With a
                spread, `parameters` has the parameters in this episode in the order of the plant's fields, `[M, P]`.
        """
        if not self._started:
            raise ResetNeeded("call reset() on every member before step()")
        commanded, engine, signals = np.ascontiguousarray(actions, np.float32), self._engine, self._signals
        if commanded.shape != signals.action.shape:
            raise UserError(f"actions have shape {commanded.shape}; this population takes {signals.action.shape}")
        fail = self.nan_actions == "fail"
        bad = begin_step(
            commanded, engine.terminated, self._truncated, self._failed,
            signals.action, self._running, self._moving, fail,
        )  # fmt: skip
        if bad >= 0 and not fail:
            raise UserError(f"the action of member {self.members[bad]} is not a number: {commanded[bad].tolist()}")
        engine.reward[:], engine.event[:], engine.truncated[:] = 0.0, 0, False
        signals.drive(engine, self._moving)
        self._measures.count(signals.action, engine.observed, self._moving)
        signals.sense(engine.observed, self._moving)
        end_step(
            self._running, self._failed, self.steps_per_episode, self._elapsed, engine.truncated, self._truncated,
            engine.terminated, engine.reward,
        )  # fmt: skip
        ended = engine.terminated.copy(), self._truncated.copy()
        return signals.observed(self._seen), engine.reward.copy(), *ended, self._infos()

    def measures(self) -> NDArray[np.float64]:
        """Return the measures of each member's episode up to now, `[M, 8]`, in the order of `MEASURES`."""
        return self._measures.values()

    def simulate(self, state: ArrayLike, action: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Advance given states by one control step with the nominal parameters, without noise and channel.

        The state of the environment does not change.

        Args:
            state: Normalised states `[..., S]`.
            action: Normalised actions `[..., A]`, which are clipped to [-1, 1]. Leading axes broadcast against those of
                `state`.

        Returns:
            state: Normalised next states, float64 `[..., S]`.
            reward: Unscaled rewards, float64 `[...]`.
        """
        plant = with_equations(self.plant, "a step from any state")
        for what, given, names in (("state", state, plant.state_names), ("action", action, plant.action_names)):
            if (shape := np.shape(given))[-1:] != (len(names),):
                raise UserError(f"a {what} of {plant.name} holds {len(names)} numbers, not an array of shape {shape}")
        u = plant.denormalise_action(np.clip(action, -1.0, 1.0))
        after, reward, _ = rk4.simulate(plant, plant.denormalise_state(state), u, self.dt)
        return plant.normalise_state(after), reward

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the complete state of all members as arrays `[M, ...]` by name.

        The array `observed` contains the states of the plant in physical units.
        """
        return {name: array.copy() for name, array in self._changing().items()} | self._engine.get_state()

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state that `get_state` returned, bit for bit."""
        own = self.get_state()
        if state.keys() != own.keys() or any(np.shape(state[name]) != own[name].shape for name in own):
            raise UserError(f"this is not the state of a population of {self.num_envs} {self.plant.name}")
        kept = self._changing()
        for name, array in kept.items():
            array[:] = state[name]
        self._engine.set_state({name: array for name, array in state.items() if name not in kept})
        self._begun[:] = self._started = True

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return an image uint8 `[height, width, 3]` of each copy of the plant, or None if `render_mode` is None."""
        if self.render_mode is None:
            return None
        return tuple(self._frame(member) for member in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the resources of the simulator."""
        if hasattr(self, "_engine"):  # Gymnasium also closes environments whose construction failed
            self._engine.close()

    def _frame(self, member: int) -> NDArray[np.uint8]:
        frame = self._engine.frame(member)
        if frame is not None:
            return frame
        self._canvas = self._canvas or Canvas(self.plant)
        seconds = float(self._elapsed[member] * self.dt)
        return self._canvas.frame(self._engine.observed[member], self._signals.action[member], seconds)

    def _changing(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that change during an episode, except those in the state of the engine."""
        return {
            **self._signals.changing(),
            "start_stream": self._starts.state, "observed": self._engine.observed,
            "terminated": self._engine.terminated, "truncated": self._truncated, "failed": self._failed,
            "elapsed": self._elapsed, **self._measures.changing(),
        }  # fmt: skip

    def _infos(self) -> dict[str, Any]:
        return {
            "event": self._engine.event.copy(),
            "true_state": self._signals.true_state.copy(),
            "sensor_noise": self._signals.sensor_error[:, self._seen].copy(),
            "actuator_noise": self._signals.actuator_error.copy(),
            **self._engine.infos(),
        }


class SingleEnv(gymnasium.Env[Float32Array, Float32Array]):
    """A Gymnasium environment that simulates one copy of a plant, with the keyword arguments of `PopulationEnv`."""

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
        """The specification from Gymnasium's registry, in which `max_episode_steps` fits the current control rate.

        With a fixed number of steps, episodes at higher rates would be truncated too early.
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
        """Start an episode, and return the first observation and the infos.

        A seed restarts the random streams. If no seed was ever given, the first episode uses a random seed, as in
        Gymnasium.
        """
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation, infos = self.population.reset(seed=seed, options=options)
        return observation[0], _first(infos)

    def step(self, action: Float32Array) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Advance the plant by one control step under the commanded action `[A]`."""
        observation, reward, terminated, truncated, infos = self.population.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(infos)

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image uint8 `[height, width, 3]`, or None if `render_mode` is None."""
        frames = self.population.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Free the resources of the simulator."""
        self.population.close()


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    return {name: values[0] for name, values in infos.items()}
