"""Reference controllers under a delay: prediction, and an oracle on the grid of state and last command."""

import dataclasses

import numpy as np
import pytest

from replaybench.baselines import references
from replaybench.baselines.controllers import (
    PredictingController,
    RandomController,
    linear_quadratic_regulator,
    run_episode,
    unaware,
    zero_control,
)
from replaybench.baselines.fuzzy_q_iteration import action_grid, solve
from replaybench.baselines.grid import plant_grid
from replaybench.baselines.grid_choice import reference_solution
from replaybench.baselines.references import reference
from replaybench.envs.interface.channel import Channel
from replaybench.envs.ode import rk4
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.arrays import Floats, Floats32
from tests.helpers.refusals import refuses

T = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coarse(Pendulum):
    name = "Coarse"
    grid_nodes, action_levels, refine_grid = (80, 81), (7,), False
    reference_episodes = 40


@pytest.mark.parametrize(
    "channel",
    [
        Channel(delay=2 * T, history=1),
        Channel(delay=T, sensor_delay=2 * T),
        Channel(delay=1.3 * T, sensor_delay=T, dead_zone=0.1, rate_limit=30.0),
    ],
)
@pytest.mark.parametrize("observer", [False, True])
def test_predicted_states_are_those_in_which_commands_begin_to_act(channel: Channel, observer: bool) -> None:
    """The states that the policy gets, beside those at the same times in runs with a hundredth of the period."""
    rng, given, predicted = np.random.default_rng(2), list[Floats32](), list[Floats]()

    def policy(state: Floats | Floats32) -> Floats32:
        predicted.append(np.array(state[0], np.float64))
        given.append(rng.uniform(-1, 1, (1, 1)).astype(np.float32))
        return given[-1]

    plant = Pendulum().through(channel)
    run_episode(PredictingController(plant, 50, policy, observer).act, PopulationEnv(plant))
    acting, moved = [0.0] * (round(channel.delay / T * 100)), 0.0
    for action in given:
        wanted = float(action[0, 0])
        wanted = np.sign(wanted) * max(0.0, abs(wanted) - channel.dead_zone)
        most = np.inf if channel.rate_limit is None else channel.rate_limit * T
        moved = min(max(wanted, moved - most), moved + most)
        acting += [moved] * 100
    x, course = np.array([plant.initial_state]), []
    for command in acting:
        course.append(plant.normalise_state(x)[0])
        x, _, _ = rk4.simulate(plant, x, plant.denormalise_action([[command]]), T / 100)
    expected = np.array(course)[round(channel.delay / T * 100) :: 100][: len(predicted)]
    first = round(channel.sensor_delay / T)
    error = np.array(predicted)[: 60 + first] - expected[: 60 + first]
    error -= 2 * np.round(error / 2) * np.array(plant.periodic)
    assert np.abs(expected[:60]).max() > 0.05
    assert np.abs(error).max() < 2e-4


def test_dynamic_programming_with_prediction_is_optimal_on_the_grid_of_state_and_last_command() -> None:
    """Fuzzy Q-iteration on the augmented grid: with a delay of a period, the last command is part of the state."""
    plant = Coarse()
    grid, actions, gamma, (u,) = plant_grid(plant), action_grid(plant), plant.discount, plant.action_levels
    volts = plant.denormalise_action(actions)
    theta, cell, weight, cost = np.zeros((u, grid.size, u)), [], [], []
    for b in range(u):
        after, _, _ = rk4.simulate(plant, grid.points(), volts[b], T)
        cost.append(50 * (np.pi - np.abs(after[:, :1])) + np.abs(after[:, 1:]) + 10 * np.abs(volts.T))
        where = grid.memberships(after)
        cell.append(grid.corners[where[0]])
        weight.append(where[1][:, :, None])
    for _ in range(250):
        best = theta.max(axis=2).T  # of each next state, by the command that acts there
        theta = np.stack([-cost[b] + gamma * (best[cell[b]] * weight[b]).sum(axis=1) for b in range(u)])

    last = u // 2

    def oracle(observation: Floats32) -> Floats32:
        nonlocal last
        values = grid.interpolate(theta[last], plant.denormalise_state(observation))
        last = int(values[0].argmax())
        return np.asarray(actions[last][None], np.float32)

    delayed = plant.through(Channel(delay=T))
    solution = solve(plant)
    env = PopulationEnv(delayed)
    best_found = run_episode(oracle, env).item()
    predicting = run_episode(PredictingController(delayed, 50, solution.greedy).act, env).item()
    blind = run_episode(unaware(delayed, solution.greedy), env).item()
    undelayed = run_episode(solution.greedy, PopulationEnv(plant)).item()
    assert predicting == pytest.approx(best_found, rel=0.02)
    assert blind < min(predicting, best_found) < undelayed


def test_prediction_is_the_reference_and_unaware_controllers_are_rows() -> None:
    plant = Coarse().through(Channel(delay=2.5 * T, history=1))
    found, without = reference(plant), reference(Coarse())
    assert found.dp_from == "reading"
    assert found.random < found.dp_unaware < found.dp < without.dp
    assert found.dp == found.dp_mean
    assert np.isfinite(found.lqr_predicted)
    assert np.isnan([without.dp_unaware, without.lqr_predicted]).all()
    assert without.dp_from == ""


def test_under_noise_the_better_start_of_the_prediction_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "REPETITIONS", 2)
    monkeypatch.setattr(PendulumDCSC, "reference_episodes", 100)
    found = reference(PendulumDCSC().through(Channel(delay=T)), noise=0.05, rule="paper")
    assert found.dp_from == "observer"
    assert found.dp_mean == pytest.approx(found.dp_observer, rel=0.1)
    assert found.dp_mean > found.dp_unaware


def test_noise_of_single_states_is_noise_for_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "REPETITIONS", 2)
    monkeypatch.setattr(Coarse, "reference_episodes", 20)
    scale = np.array(Coarse.state_scale)
    named = Channel(noise=dict(zip(Coarse.state_names, (0.05 * scale).tolist(), strict=True)))
    found, expected = reference(Coarse().through(named)), reference(Coarse(), noise=0.05)
    assert found.dp_averaged == pytest.approx(expected.dp_averaged, rel=0.05)  # here without noise on actions
    assert found.dp > found.dp_mean > found.random


def test_a_delay_as_long_as_an_episode_is_refused_before_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_measure", None)
    plant = Coarse().through(Channel(delay=4.0))
    refuses("delay = 4 s is as long as an episode of Coarse, 4 s; lower it", reference, plant)


def test_neutral_commands_are_those_at_rest() -> None:
    plant = Magman().through(Channel(delay=3 * T))
    solution = solve(plant)
    assert solution.plant.channel.is_off
    controller = PredictingController(plant, 50, solution.greedy)
    observation, _ = PopulationEnv(plant).reset()
    controller.act(observation)
    assert [command[0].tolist() for command in controller._sent[1:]] == [[0.0] * 4] * 4


def test_references_of_a_spread_plant_are_nominal_controllers_on_drawn_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Coarse, "reference_episodes", 20)
    plant = Coarse.with_spread({"mass": 0.5})()
    found, nominal = reference(plant), reference(Coarse())
    env = PopulationEnv(plant, 20, seed=2018, role="evaluation")
    random = run_episode(RandomController(plant, env.members, 2018).act, env)
    assert found.random == random.mean() != nominal.random
    run_episode(zero_control(plant), env)
    regulator = linear_quadratic_regulator(Coarse(), 50.0)
    assert found.lqr == run_episode(regulator.act, env).mean()
    assert found.dp == run_episode(reference_solution(Coarse(), 50.0).solution.greedy, env).mean() != nominal.dp
