"""Exploration: process noise, Gaussian noise, parameter noise, random actions."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, truncnorm

from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3Config
from replaybench.controllers.interface import exploration as forms
from replaybench.controllers.interface import noise as noises
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.interface.exploration import ExplorationConfig, ParameterNoise, RunningParameterNoise
from replaybench.controllers.interface.noise import Exploration, GaussianNoise, ProcessNoise, RunningGaussian
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream
from tests.helpers import buffers

S, A = 3, 2
TASK = Task(S, A, 0.95, 1.0)
FORMS = [
    ProcessNoise(),
    GaussianNoise(last_sigma=0.1),
    GaussianNoise(last_sigma=0.1, truncate=3.0, clip=True),
    ParameterNoise(recent=8),
]
each_form = pytest.mark.parametrize("config", FORMS, ids=lambda config: config.form)


def small_actor(members: range) -> PopulationMLP:
    actor = PopulationMLP(Shape((S, 16, 16, A), tanh=True), len(members))
    actor.initialise(Stream(0, members, "initialisation"))
    return actor


def start(config: ExplorationConfig, members: range) -> Exploration:
    return forms.make_exploration(config, LearnerSetting(TASK, 7, members), small_actor(members))


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
    """Test a sample against a distribution in cells of equal probability."""
    cells = np.minimum((distribution.cdf(sample) * bins).astype(int), bins - 1)
    buffers.chi_square(np.bincount(cells.ravel(), minlength=bins), np.full(bins, sample.size / bins))


def gaussian_sample(config: GaussianNoise, steps: int = 200) -> np.ndarray:
    return run(RunningGaussian(config, 0, range(200), A), range(200), 1, steps)


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
    ends = noises.truncated_normal(np.array([0.0, 2.0**-53, 0.5, 1 - 2.0**-53]), bound)
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
    everyone, policy = np.ones(200, np.bool_), np.full((200, A), 0.9, np.float32)
    exploration, clipped = (
        RunningGaussian(config, 0, range(200), A)
        for config in (GaussianNoise(sigma=0.4, last_sigma=0.2, decay_episodes=2), GaussianNoise(sigma=3.0, clip=True))
    )
    exploration.start_episode(1, everyone)
    for each in (exploration, clipped):
        each.advance(policy, everyone)
    explored, bounded = (each.disturb(policy, policy) for each in (exploration, clipped))
    assert explored.action.max() > 1.0
    np.testing.assert_array_equal(explored.extras["behaviour_mean"], policy)
    np.testing.assert_allclose(explored.extras["behaviour_log_sigma"], np.log(0.2), rtol=1e-6)
    z = (explored.action - policy) / np.exp(explored.extras["behaviour_log_sigma"])
    np.testing.assert_allclose(z, exploration.noise, atol=1e-5)
    np.testing.assert_allclose(explored.deviation, np.abs(explored.action - policy).sum(axis=1), rtol=1e-6)
    assert np.abs(bounded.action).max() == 1.0
    assert not bounded.extras


@each_form
def test_a_member_explores_the_same_in_any_population_and_draws_nothing_while_idle(config: ExplorationConfig) -> None:
    together, alone = start(config, range(3)), start(config, range(1, 2))
    for observation in observations(range(3), 5):
        together.advance(observation, np.array([True, False, True]))
    found = run(together, range(3))
    np.testing.assert_array_equal(found[:, 1:2], run(alone, range(1, 2)))
    assert np.abs(found).min() > 0


@each_form
def test_an_episode_that_begins_leaves_the_others_as_they_are(config: ExplorationConfig) -> None:
    """And draws nothing of theirs, in whatever round it begins."""
    exploration, other = start(config, range(3)), start(config, range(3))
    for one in (exploration, other):
        run(one, range(3))
    exploration.start_episode(7, np.array([True, False, True]))
    own = exploration.state_dict()
    for name, array in other.state_dict().items():
        np.testing.assert_array_equal(own[name][1], array[1], err_msg=name)
    assert any(not np.array_equal(own[name][0], array[0]) for name, array in other.state_dict().items())


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


def test_sigma_is_adapted_to_each_members_own_distance() -> None:
    """Against NumPy on the latest observations; a member that has seen nothing keeps its σ."""
    members = range(3)
    noise, seen = ParameterNoise(target=0.2, factor=1.5, recent=4), observations(members, 6)
    exploration = RunningParameterNoise(noise, 0, members, small_actor(members))
    for observation in seen:
        exploration.advance(observation, np.array([True, False, True]))
    exploration.sigma[:] = 1e-3, 0.1, 3.0
    exploration.start_episode(1, np.ones(3, np.bool_))
    latest = seen[-4:].transpose(1, 0, 2)
    difference = exploration.actor(latest) - exploration.disturbed(latest)
    expected = np.sqrt((difference.astype(np.float64) ** 2).mean(axis=(1, 2)))
    np.testing.assert_allclose(exploration.distance[[0, 2]], expected[[0, 2]], rtol=1e-6)
    assert expected[0] < 0.2 < expected[2]
    np.testing.assert_allclose(exploration.sigma, [1.5e-3, 0.1, 2.0])


def test_sigma_is_adapted_as_often_as_asked_in_one_start_with_weights_drawn_anew() -> None:
    """Three adaptations are three starts of an episode: the same σ, distance and policy, by the same draws."""
    members = range(3)
    once, thrice = (
        RunningParameterNoise(ParameterNoise(recent=4, adaptations=n), 0, members, small_actor(members)) for n in (1, 3)
    )
    for observation in observations(members, 6):
        for exploration in (once, thrice):
            exploration.advance(observation, np.ones(3, np.bool_))
    for episode in range(3):
        once.start_episode(episode, np.array([True, True, False]))
    thrice.start_episode(0, np.array([True, True, False]))
    for name, state in once.state_dict().items():
        np.testing.assert_array_equal(thrice.state_dict()[name], state, err_msg=name)


def test_only_weights_and_biases_are_disturbed() -> None:
    """Not gains and shifts of layer normalisation."""
    actor = PopulationMLP(Shape((S, 16, 16, A), layer_norm=True), 2)
    actor.parameters[0] = forms.noisy_parameters(actor)
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
            noises.draw_normal(twin.state, everyone, normal)
            u += 5.14 * normal - 0.3 * u
            exploration.advance(observation, everyone)
            explored = exploration.disturb(np.zeros((3, A), np.float32), observation)
            np.testing.assert_allclose(explored.action, amplitude * np.clip(u, -1, 1), rtol=1e-6)
        assert np.abs(u).max() > 1


def test_constants_of_the_process_per_second() -> None:
    """At four times the rate: the same friction in four samples, and in the long run the same spread."""
    slow, fast, sample, free = (
        noises.RunningProcess(ProcessNoise(per_second=second, friction=friction), 0, [0], A, rate)
        for second, friction, rate in ((True, 0.3, 50.0), (True, 0.3, 200.0), (False, 0.3, 200.0), (True, 0.0, 200.0))
    )
    for one in (slow, sample):
        assert (one.diffusion, one.friction) == (5.14, pytest.approx(0.3))
    spreads = [one.diffusion / np.sqrt(1 - (1 - one.friction) ** 2) for one in (slow, fast)]
    assert spreads[1] == pytest.approx(spreads[0])
    assert (1 - fast.friction) ** 4 == pytest.approx(0.7)
    assert free.diffusion == pytest.approx(5.14 / 2), "a random walk spreads by the root of time"


@pytest.mark.parametrize(
    ("form", "name", "value"),
    [
        (ProcessNoise, "diffusion", float("nan")),
        (ProcessNoise, "friction", 1.1),
        (GaussianNoise, "sigma", 0.0),
        (GaussianNoise, "truncate", float("inf")),
        (ParameterNoise, "factor", 0.99),
    ],
)
def test_settings_that_mean_nothing_are_refused(form: Any, name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} must be"):
        form(**{name: value})


@pytest.mark.parametrize(("learner", "config"), [(SAC, SACConfig()), (TD3, TD3Config())])
def test_random_actions_have_a_stream_of_their_own(learner: Any, config: Any) -> None:
    """Without warm-up it stays as it was; what is explored afterwards is as if there had been none."""
    observation, everyone, found = observations(range(5), 1)[0], np.ones(5, np.bool_), []
    for warm_up in (True, False):
        agent = learner(config, LearnerSetting(TASK, 0, range(5)))
        agent.start_episode(0, everyone)
        before = agent.state_dict()["warm_up_stream"].copy()
        for step in range(6):
            agent.warming_up = warm_up and step < 3
            found.append(agent.explore(observation, everyone).action)
        assert np.array_equal(agent.state_dict()["warm_up_stream"], before) != warm_up
    # TD3's process goes on underneath, SAC's noise of a step is drawn for that step only.
    np.testing.assert_array_equal(found[3:6], found[9:] if learner is TD3 else found[6:9])
