"""The channel between plant and controller, compared with queues, Gymnasium, SciPy and values computed by hand."""

import json
import math
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import DelayObservation
from scipy.integrate import solve_ivp

from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.ode.rk4 import BLOCK
from replaybench.envs.population import PopulationEnv, SingleEnv
from replaybench.envs.registry import make_plant
from replaybench.replay.storage.schema import BufferFacts
from replaybench.runtime.configuration import build
from tests.helpers.refusals import refuses

T = 0.02


def commands(steps: int, members: int = 1, actions: int = 1) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, (steps, members, actions)).astype(np.float32)


def rollout(env: PopulationEnv, given: np.ndarray) -> dict[str, np.ndarray]:
    first, infos = env.reset()
    found: dict[str, list[Any]] = {"observation": [first], "state": [infos["true_state"]], "reward": []}
    for action in given:
        observation, reward, _, _, infos = env.step(action)
        for name, value in (("observation", observation), ("state", infos["true_state"]), ("reward", reward)):
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.parametrize(("plant", "n"), [("Pendulum", 1), ("Magman", 3)])
def test_a_delay_of_whole_periods_is_a_queue(plant: str, n: int) -> None:
    made = make_plant(plant)
    neutral = made.normalise_action(made.zero_action).astype(np.float32)
    given = commands(12, 2, len(neutral))
    queued = np.concatenate([np.tile(neutral, (n, 2, 1)), given[:-n]])
    noise = {"sensor_noise": 0.02, "seed": 3}
    delayed = rollout(PopulationEnv(plant, 2, channel=Channel(delay=n * T), **noise), given)  # type: ignore[arg-type]
    expected = rollout(PopulationEnv(plant, 2, **noise), queued)  # type: ignore[arg-type]
    np.testing.assert_array_equal(delayed["state"], expected["state"])
    np.testing.assert_array_equal(delayed["observation"], expected["observation"])


def test_the_reward_is_that_of_the_command_given_now() -> None:
    given, plant = commands(6), Pendulum()
    found = rollout(PopulationEnv(plant, channel=Channel(delay=1.5 * T, dead_zone=0.2)), given)
    x = plant.denormalise_state(found["state"][:, 0])
    u, p = plant.denormalise_action(given[:, 0]), plant.params()
    by_hand = [plant.reward(x[k], u[k], x[k + 1], 0, p) for k in range(6)]
    np.testing.assert_allclose(found["reward"][:, 0], by_hand, rtol=1e-6)


@pytest.mark.parametrize("delay", [0.3 * T, 1.7 * T])
def test_pieces_of_a_step_agree_with_solve_ivp(delay: float) -> None:
    class Fine(Pendulum):
        max_substep = 1e-4

    plant, given = Fine(), commands(6)
    found = rollout(PopulationEnv(plant, channel=Channel(delay=delay)), given)
    # A command k acts from kT + delay on. Before the first one, the voltage is 0.
    ends = [delay, *(k * T + delay for k in range(1, 7))]
    volts = [0.0, *plant.denormalise_action(given[:, 0, 0]).tolist()]
    x, now = np.array(plant.initial_state), 0.0
    for k in range(6):
        while now < (k + 1) * T - 1e-12:
            piece = next(i for i, end in enumerate(ends) if now < end - 1e-12)
            until = min(ends[piece], (k + 1) * T)
            u = np.array([volts[piece]])
            solution = solve_ivp(
                lambda _, y, u=u: plant.rhs(y, u, plant.params()), (now, until), x, rtol=1e-12, atol=1e-12
            )
            x, now = solution.y[:, -1], until
        env_state = found["state"][k + 1, 0] * np.array(plant.state_scale)
        np.testing.assert_allclose(env_state, x, atol=2e-7 * 30)  # float32 observations
    env = PopulationEnv(plant, channel=Channel(delay=delay))
    env.reset()
    for action in given:
        env.step(action)
    np.testing.assert_allclose(env.get_state()["observed"][0], x, atol=1e-9)


def test_a_fraction_of_a_period_lies_between_its_neighbours() -> None:
    given = np.ones((10, 1, 1), np.float32)
    last = [
        rollout(PopulationEnv("Pendulum", channel=Channel(delay=d * T)), given)["state"][-1, 0] for d in (0, 0.3, 1)
    ]
    assert (np.abs(last[0]) > np.abs(last[1])).all()
    assert (np.abs(last[1]) > np.abs(last[2])).all()


def test_a_sensor_delay_is_that_of_gymnasium() -> None:
    given = commands(9)[:, 0]
    wrapped: Any = DelayObservation(SingleEnv("Pendulum"), delay=3)
    own = SingleEnv("Pendulum", channel=Channel(sensor_delay=3 * T))
    wrapped.reset(seed=0)
    start, _ = own.reset(seed=0)
    for k, action in enumerate(given):
        theirs, mine = wrapped.step(action)[0], own.step(action)[0]
        np.testing.assert_array_equal(mine, theirs if k >= 3 else start)  # Gymnasium begins with zeros


def test_resolution_and_differences_by_hand() -> None:
    step, plant = 2 * math.pi / 200, Pendulum()
    channel = Channel(resolution={"angle": step}, differentiate=("angular velocity",))
    found = rollout(PopulationEnv(plant, channel=channel), np.ones((10, 1, 1)))
    angle = np.rint(plant.denormalise_state(found["state"][:, 0])[:, 0] / step) * step
    reading = plant.denormalise_state(found["observation"][:, 0])
    np.testing.assert_allclose(reading[:, 0], angle, atol=1e-6)
    np.testing.assert_allclose(reading[1:, 1], np.diff(angle) / T, atol=1e-4)
    assert reading[0, 1] == 0.0
    assert len(np.unique(angle)) > 3


def test_differences_of_angles_take_the_short_way() -> None:
    env = PopulationEnv("Pendulum", channel=Channel(differentiate=("angular velocity",)))
    env.reset()
    state = env.get_state()
    state["observed"][:], state["last_reading"][:] = [[math.pi - 0.01, 5.0]], [[1 - 0.01 / math.pi, 0.0]]
    env.set_state(state)
    observation, *_ = env.step(np.zeros((1, 1)))
    assert observation[0, 0] < -0.9  # beyond π, where the angle jumps to −π
    assert 4 < observation[0, 1] * 30 < 5


def test_dead_zone_and_rate_limit_by_hand() -> None:
    given = np.array([0.05, 0.5, 1.0, -1.0, -0.3], np.float32)[:, None, None]
    env = PopulationEnv("Pendulum", channel=Channel(dead_zone=0.1, rate_limit=30))  # 0.6 of the range in a step
    env.reset()
    acting = []
    for action in given:
        env.step(action)
        acting.append(env.get_state()["commands_acting"][0, 0])
    np.testing.assert_allclose(acting, [0.0, 0.4, 0.9, 0.3, -0.2], atol=1e-6)


def test_a_disturbance_holds_and_stays_in_its_range() -> None:
    env = PopulationEnv("Pendulum", 200, channel=Channel(disturbance=0.3, hold=3 * T))
    env.reset()
    biases = []
    for _ in range(6):
        env.step(np.zeros((200, 1)))
        biases.append(env.get_state()["bias"][:, 0])
    np.testing.assert_array_equal(biases[:3], [biases[0]] * 3)
    assert (biases[3] != biases[2]).all()
    assert 0.28 < np.abs(biases).max() < 0.3


def test_jitter_keeps_the_order_of_commands() -> None:
    """With a jitter of a period, commands fall between those of the smallest and the largest delay."""
    env = PopulationEnv("Pendulum", 300, channel=Channel(delay=T, jitter=T))
    env.reset()
    seconds = []
    for _ in range(20):
        env.step(np.ones((300, 1)))
        due, signals = env.get_state()["commands_due"], env._signals
        assert (np.diff(due, axis=1) <= 1e-12).all()  # the newest is due last
        seconds.append(signals._seconds.copy())  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.sum(seconds, axis=1), T)
    drawn = np.array(seconds)
    assert (drawn >= 0).all()
    assert (drawn > 1e-4).all(axis=1).any()  # in some steps three commands act


def test_history_has_the_newest_command_first() -> None:
    env = PopulationEnv("Magman", 2, channel=Channel(history=2))
    given = commands(3, 2, 4)
    found = rollout(env, given)["observation"]
    assert env.single_observation_space.shape == (10,)
    np.testing.assert_array_equal(found[0, :, 2:], -np.ones((2, 8)))  # no current before the first command
    np.testing.assert_array_equal(found[3, :, 2:], np.concatenate([given[2], given[1]], axis=1))
    assert PopulationEnv("Magman", observe=["velocity"], channel=Channel(history=1)).observation_space.shape == (1, 5)


EVERYTHING = Channel(
    delay=0.3 * T, jitter=0.5 * T, sensor_delay=T, resolution={"angle": 0.01}, differentiate=("angular velocity",),
    dead_zone=0.05, rate_limit=40.0, disturbance=0.2, hold=0.05, history=3,
)  # fmt: skip


def test_everything_resumes_bit_for_bit_and_does_not_depend_on_other_members() -> None:
    common: dict[str, Any] = {"sensor_noise": 0.02, "actuator_noise": 0.02, "channel": EVERYTHING}
    count = BLOCK + 3
    given = commands(12, count)
    env = PopulationEnv("Pendulum", count, **common)
    whole = rollout(env, given)["observation"]
    alone = rollout(PopulationEnv("Pendulum", members=[count - 1], **common), given[:, -1:])["observation"]
    np.testing.assert_array_equal(alone, whole[:, -1:])
    first = PopulationEnv("Pendulum", count, **common)
    rollout(first, given[:5])
    second = PopulationEnv("Pendulum", count, **common)
    second.set_state(first.get_state())
    for k in range(5, 12):
        np.testing.assert_array_equal(second.step(given[k])[0], whole[k + 1])


def test_a_reset_member_has_an_empty_channel() -> None:
    env = PopulationEnv("Pendulum", 2, channel=Channel(delay=2 * T, sensor_delay=T, history=1))
    fresh = rollout(env, commands(6, 2))["observation"]
    env.reset(options={"reset_mask": np.array([False, True])})
    for k, action in enumerate(commands(6, 2)):
        observation = env.step(action)[0]
        np.testing.assert_array_equal(observation[1], fresh[k + 1, 1])


def test_a_plant_with_a_channel_is_made_again_from_its_settings() -> None:
    plant = make_plant("Pendulum:delay=0.01", channel={"history": 2}, discount=0.9, mass=0.06)
    assert plant.channel == Channel(delay=0.01, history=2)
    again = make_plant("Pendulum", **plant.settings())
    assert again.fingerprint() == plant.fingerprint() != Pendulum(mass=0.06).fingerprint()
    off = plant.through(Channel())
    assert off.settings() == {**Pendulum(mass=0.06).settings(), "discount": 0.9}
    assert off.discount == 0.9
    assert Pendulum().through(EVERYTHING).through(Channel()).fingerprint() == Pendulum().fingerprint()


def test_the_metadata_of_buffers_may_have_a_channel() -> None:
    channel = {"resolution": {"angle": 0.1}, "differentiate": ["angular velocity"]}
    plant = make_plant("Pendulum:delay=0.01", channel=channel)
    stored = json.loads(json.dumps({"fields": {"reward": 1}, "parameters": plant.settings()}))
    facts = build(BufferFacts, stored, "the facts")
    assert make_plant("Pendulum", **facts.parameters).fingerprint() == plant.fingerprint()


def test_simulators_take_whole_periods() -> None:
    given = commands(4)
    delayed = rollout(PopulationEnv("gymnasium:Pendulum-v1", channel=Channel(delay=0.1)), given)["state"]
    queued = np.concatenate([np.zeros((2, 1, 1)), given[:-2]])
    np.testing.assert_array_equal(delayed, rollout(PopulationEnv("gymnasium:Pendulum-v1"), queued)["state"])
    wrong = r"whole control periods of 0\.05 s; use 0\.05 or 0\.1 s instead of 0\.07 s$"
    refuses(wrong, PopulationEnv, "gymnasium:Pendulum-v1", channel=Channel(delay=0.07))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay": 4.0}, r"delay = 4 s is as long as an episode of Pendulum, 4 s; lower it"),
        ({"sensor_delay": 0.03}, r"sensor_delay must be whole control periods of 0\.02 s; use 0\.02 or 0\.04 s"),
        ({"resolution": {"angel": 0.1}}, r"did you mean angle\?"),
        ({"noise": {"angel": 0.1}}, r"state of Pendulum in noise.* did you mean angle\?"),
        (
            {"noise": {"angular velocity": 0.1}, "differentiate": ["angular velocity"]},
            "angular velocity of Pendulum is computed from its position",
        ),
        ({"differentiate": ["angle"]}, r"no state of Pendulum has angle as its time derivative"),
        ({"rate_limit": 0.1}, r"move by only 0\.4 of ±1 in an episode; raise it to more than 0\.25"),
        ({"disturbance": 0.1, "hold": 0.01}, r"hold = 0\.01 s is shorter than a control period"),
    ],
)
def test_settings_that_do_not_fit_the_plant_are_refused(settings: dict[str, Any], message: str) -> None:
    plant: Plant = make_plant("Pendulum", channel=settings)
    refuses(message, PopulationEnv, plant)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay": -0.01}, "delay must be at least 0"),
        ({"delay": math.nan}, "delay must be at least 0"),
        ({"disturbance": 0.1}, "disturbance and hold go together"),
        ({"deley": 0.1}, "did you mean delay"),
        ({"noise": {"angle": -0.1}}, "noise.* must be at least 0"),
        ({"noise": 0.1}, "noise must be"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    refuses(message, make_plant, "Pendulum", channel=settings)
    refuses("the delay in Pendulum:delay=soon is not a number", make_plant, "Pendulum:delay=soon")
