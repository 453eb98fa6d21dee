"""The contract of plants that are given by equations: the registered ones, and the examples a user would start from."""

import math
from pathlib import Path

import numpy as np
import pytest

from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_class, plant_names

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"
OWN = [name for name in plant_names() if not missing(name) and issubclass(plant_class(name), OdePlant)]
NAMES = (*OWN, f"{EXAMPLES / 'cart_pole.py'}:CartPole")


@pytest.fixture(params=NAMES, ids=lambda name: name.rpartition(":")[2])
def plant(request: pytest.FixtureRequest) -> OdePlant:
    made = make_plant(request.param)
    assert isinstance(made, OdePlant)
    return made


def test_start_and_reference_are_states_that_can_be_observed(plant: OdePlant) -> None:
    for vector in (plant.initial_state, plant.reference_state):
        np.testing.assert_allclose(plant.denormalise_state(plant.normalise_state(vector)), vector, atol=1e-15)
        assert (abs(plant.normalise_state(vector)) <= plant.observation_limit).all()


def test_the_grid_has_a_node_on_the_reference(plant: OdePlant) -> None:
    if not plant.grid_nodes:
        pytest.skip("declares no grid")
    for axis, nodes in enumerate(plant.grid_nodes):
        low, high = plant.grid_low[axis], plant.grid_high[axis]
        grid = np.linspace(low, high, nodes, endpoint=not plant.periodic[axis])
        distance = abs(grid - plant.reference_state[axis])
        if plant.periodic[axis]:
            assert high - low == pytest.approx(2 * math.pi)
            distance = np.minimum(distance, 2 * math.pi - distance)
        assert distance.min() < 1e-12
    assert math.prod(plant.action_levels) <= 100


def test_simulate_is_the_step_without_noise(plant: OdePlant) -> None:
    env = PopulationEnv(plant, 4)
    env.reset()
    rng = np.random.Generator(np.random.PCG64(7))
    for action in rng.uniform(-1, 1, (20, *env.action_space.shape)).astype(np.float32):
        state = plant.normalise_state(env.get_state()["observed"])
        _, reward, _, _, _ = env.step(action)
        after, expected = env.simulate(state, action)
        np.testing.assert_allclose(plant.normalise_state(env.get_state()["observed"]), after, rtol=0, atol=1e-12)
        np.testing.assert_allclose(reward, expected, rtol=1e-9)


def test_terminated_and_truncated_are_told_apart(plant: OdePlant) -> None:
    env = PopulationEnv(plant, 2)
    env.reset()
    full = np.ones((env.steps_per_episode, *env.action_space.shape), np.float32)
    full[:, 1] = plant.normalise_action(plant.zero_action)
    _, reward, terminated, truncated = (
        np.array(column) for column in zip(*(env.step(action)[:4] for action in full), strict=True)
    )
    assert not truncated[:-1].any()
    assert truncated[-1, 1]
    assert not terminated[:, 1].any()
    if plant.name == "CartPole":  # pushed off its track long before the end, and frozen there
        last = int(np.argmax(terminated[:, 0]))
        assert 0 < last < len(full) - 1
        assert terminated[last:, 0].all()
        assert not truncated[:, 0].any()
        assert (reward[last + 1 :, 0] == 0).all()
    else:
        assert not terminated.any()
