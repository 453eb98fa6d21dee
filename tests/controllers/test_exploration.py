"""Exploration: process noise, Gaussian noise, parameter noise, random actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm, truncnorm

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.interface.exploration import (
    ExplorationConfig,
    ParameterNoise,
    RunningParameterNoise,
    make_exploration,
    noisy_parameters,
)
from replaybench.controllers.interface.noise import (
    Exploration,
    GaussianNoise,
    ProcessNoise,
    RunningGaussian,
    draw_normal,
    truncated_normal,
)
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

S, A = 3, 2
TASK = Task(S, A, 0.95, 1.0)


def small_actor(members: range) -> PopulationMLP:
    actor = PopulationMLP(Shape((S, 16, 16, A), tanh=True), len(members))
    actor.initialise(Stream(0, members, "initialisation"))
    return actor


def start(config: ExplorationConfig, members: range) -> Exploration:
    return make_exploration(config, LearnerSetting(TASK, 7, members), small_actor(members))


def observations(members: range, count: int) -> np.ndarray:
    """Return `[count, M, S]`, each member's own, whatever other members there are."""
    rows = [np.random.Generator(np.random.PCG64(m)).normal(size=(count, S)).astype(np.float32) for m in members]
    return np.stack(rows, axis=1)


def run(exploration: Exploration, members: range, episodes: int = 3, steps: int = 5) -> np.ndarray:
    """Return the actions `[episodes · steps, M, A]` that come of policy actions 0."""
    found = []
    for episode in range(episodes):
        exploration.start_episode(episode, np.ones(len(members), np.bool_))
        for observation in observations(members, steps):
            exploration.advance(observation, np.ones(len(members), np.bool_))
            found.append(exploration.disturb(np.zeros((len(members), A), np.float32), observation).action)
    return np.array(found)


def chi_square(sample: np.ndarray, distribution: Any, bins: int = 50) -> None:
    """Test a sample against a distribution in cells of equal probability; false-alarm rate 1e-6."""
    cells = np.minimum((distribution.cdf(sample) * bins).astype(int), bins - 1)
    counts = np.bincount(cells.ravel(), minlength=bins)
    expected = sample.size / bins
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, bins - 1)


def gaussian_sample(config: GaussianNoise, steps: int = 200) -> np.ndarray:
    members = range(200)
    exploration = RunningGaussian(config, 0, members, A)
    return run(exploration, members, 1, steps)


def test_gaussian_noise_is_gaussian_in_every_sample_and_dimension() -> None:
    sample = gaussian_sample(GaussianNoise(sigma=0.3))
    chi_square(sample, norm(scale=0.3))
    for one, other in ((sample[1:], sample[:-1]), (sample[..., 0], sample[..., 1]), (sample[:, 1:], sample[:, :-1])):
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) * np.sqrt(one.size) < norm.isf(1e-6)


def test_truncated_noise_has_the_truncated_distribution_and_keeps_its_bound() -> None:
    sample = gaussian_sample(GaussianNoise(sigma=0.3, truncate=1.5))
    chi_square(sample, truncnorm(-1.5, 1.5, scale=0.3))
    assert 1.49 * 0.3 < np.abs(sample).max() <= np.float32(1.5 * 0.3)


@pytest.mark.parametrize("bound", [0.01, 3.0, 9.0, 40.0])
def test_truncation_holds_at_the_ends_of_what_is_drawn(bound: float) -> None:
    ends = truncated_normal(np.array([0.0, 2.0**-53, 0.5, 1 - 2.0**-53]), bound)
    assert np.isfinite(ends).all()
    np.testing.assert_allclose(ends[0], max(-bound, norm.ppf(norm.cdf(-bound))), rtol=1e-12)
    assert ends[0] >= -bound
    assert ends[0] <= ends[1] < ends[2] < ends[3]
    assert ends[3] <= bound
    np.testing.assert_allclose(ends[2], 0, atol=1e-15)


def test_the_noise_decays_linearly_and_stays() -> None:
    exploration = RunningGaussian(GaussianNoise(sigma=0.5, last_sigma=0.1, decay_episodes=5), 0, range(2), A)
    found = []
    for episode in range(8):
        exploration.start_episode(episode, np.array([True, episode < 2]))
        found.append(exploration.sigma[:, 0].copy())
    np.testing.assert_allclose([first for first, _ in found], [0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1])
    np.testing.assert_allclose([second for _, second in found], [0.5, *[0.4] * 7])
    constant = RunningGaussian(GaussianNoise(sigma=0.5), 0, range(2), A)
    constant.start_episode(499, np.ones(2, np.bool_))
    assert (constant.sigma == 0.5).all()


def test_gaussian_noise_tells_its_density() -> None:
    """Actions pass ±1 unclipped, and their standardised form, by what is stored, is the noise that was drawn."""
    members = range(200)
    exploration = RunningGaussian(GaussianNoise(sigma=0.4, last_sigma=0.2, decay_episodes=2), 0, members, A)
    exploration.start_episode(1, np.ones(200, np.bool_))
    observation, policy = observations(members, 1)[0], np.full((200, A), 0.9, np.float32)
    exploration.advance(observation, np.ones(200, np.bool_))
    explored = exploration.disturb(policy, observation)
    assert explored.action.max() > 1.0
    np.testing.assert_array_equal(explored.extras["behaviour_mean"], policy)
    np.testing.assert_allclose(explored.extras["behaviour_log_sigma"], np.log(0.2), rtol=1e-6)
    z = (explored.action - explored.extras["behaviour_mean"]) / np.exp(explored.extras["behaviour_log_sigma"])
    np.testing.assert_allclose(z, exploration.noise, atol=1e-5)
    np.testing.assert_allclose(explored.deviation, np.abs(explored.action - policy).sum(axis=1), rtol=1e-6)
    clipped = RunningGaussian(GaussianNoise(sigma=3.0, clip=True), 0, members, A)
    clipped.advance(observation, np.ones(200, np.bool_))
    explored = clipped.disturb(policy, observation)
    assert np.abs(explored.action).max() == 1.0
    assert not explored.extras


def test_weights_are_disturbed_by_sigma_and_drawn_anew_each_episode() -> None:
    """χ² on (π̃ − π) / σ with a false-alarm rate of 1e-6; the noise of two episodes is uncorrelated."""
    members = range(50)
    actor = small_actor(members)
    exploration = RunningParameterNoise(ParameterNoise(initial=0.3), 0, members, actor)
    np.testing.assert_array_equal(exploration.disturbed.parameters, actor.parameters)
    drawn = []
    for episode in range(2):
        exploration.start_episode(episode, np.ones(50, np.bool_))
        drawn.append((exploration.disturbed.parameters - actor.parameters) / 0.3)
    chi_square(drawn[0], norm)
    correlation = np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]
    assert abs(correlation) * np.sqrt(drawn[0].size) < norm.isf(1e-6)
    assert np.isnan(exploration.distance).all()
    np.testing.assert_array_equal(exploration.sigma, 0.3)


def test_only_weights_and_biases_are_disturbed() -> None:
    """Not gains and shifts of layer normalisation."""
    actor = PopulationMLP(Shape((S, 16, 16, A), layer_norm=True), 2)
    actor.parameters[0] = noisy_parameters(actor)
    for name, array in actor.named_weights("n").items():
        assert (array[0] == name.endswith(("weight", "bias"))).all(), name


def test_the_process_is_the_papers() -> None:
    """u ← u + 5.14 N − 0.3 u from rest, clipped to ±1 as it leaves; the amplitude is 1 first and 0.1 at episode 500."""
    members, everyone = range(3), np.ones(3, np.bool_)
    exploration, normal = start(ProcessNoise(), members), np.zeros((3, A))
    twin, u = Stream(7, members, "exploration"), np.zeros((3, A))
    for episode, amplitude in ((0, 1.0), (100, 1 - 0.9 * 100 / 499), (499, 0.1), (900, 0.1)):
        exploration.start_episode(episode, everyone)
        u[:] = 0.0
        for observation in observations(members, 4):
            draw_normal(twin.state, everyone, normal)
            u += 5.14 * normal - 0.3 * u
            exploration.advance(observation, everyone)
            explored = exploration.disturb(np.zeros((3, A), np.float32), observation)
            np.testing.assert_allclose(explored.action, amplitude * np.clip(u, -1, 1), rtol=1e-6)
        assert np.abs(u).max() > 1


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ProcessNoise(diffusion=float("nan")), "diffusion"),
        (lambda: ProcessNoise(friction=1.1), "friction"),
        (lambda: GaussianNoise(sigma=0.0), "sigma"),
        (lambda: GaussianNoise(truncate=float("inf")), "truncate"),
        (lambda: ParameterNoise(factor=0.99), "factor"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be"):
        make()
