"""Compare learners that normalise with learners that receive normalised numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from replaybench.controllers.interface.agent import NormaliseConfig

BOTH = NormaliseConfig(observations=True, clip=2.0, rewards=True)


def collect(agent: Any) -> None:
    """Let the agent collect steps whose observations and rewards are far from 0 and 1."""
    members, size = agent.normaliser.observations.mean.shape
    rng, everyone = np.random.Generator(np.random.PCG64(2)), np.ones(members, np.bool_)
    for _ in range(20):
        agent.explore(20.0 + 3.0 * rng.normal(size=(members, size)), everyone)
        successor = np.zeros((members, size), np.float32)
        assert not agent.on_step(5.0 * rng.normal(size=members), successor, ~everyone, ~everyone, everyone)


def check_normalised(make: Callable[[NormaliseConfig], Any], draw: Callable[[int], Any], repeats: int = 1) -> None:
    """Compare updates, policies, values and metrics, in float64. Values have the task's units.

    `draw` returns a random batch for a seed. Its observations are then moved to the range of the collected ones.
    """
    agent, plain = make(BOTH), make(NormaliseConfig())
    collect(agent)
    scaler, factor = agent.normaliser.observations, agent.normaliser.rewards.factor / agent.task.reward_scale
    for seed in range(3):
        drawn, given = draw(seed), draw(seed)
        raw, scaled = (batch.columns if hasattr(batch, "columns") else vars(batch) for batch in (drawn, given))
        for name in ("observation", "next_observation"):
            raw[name] = 20 + 3 * raw[name]
            scaled[name] = scaler(raw[name])
        scaled["reward"] = (raw["reward"].T * factor).T
        np.testing.assert_allclose(agent.update(drawn)["td_error"], plain.update(given)["td_error"], rtol=1e-9)
    for name, network in agent.networks.items():
        np.testing.assert_allclose(network.gradient, plain.networks[name].gradient, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(network.parameters, plain.networks[name].parameters, rtol=1e-9, atol=1e-12)
        assert np.abs(network.gradient).max() > 0
    x = 20 + 4 * np.random.Generator(np.random.PCG64(3)).normal(size=(*scaler.mean.shape[:1], 50, scaler.mean.shape[1]))
    np.testing.assert_allclose(agent.policy(x), plain.policy(scaler(x)))
    np.testing.assert_allclose(agent.value(x), plain.value(scaler(x)) / factor[:, None])
    metrics, theirs = (
        each.metrics({name: np.repeat(array, repeats, axis=1) for name, array in columns.items() if np.ndim(array) > 2})
        for each, columns in ((agent, raw), (plain, scaled))
    )
    for name, values in metrics.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-6, err_msg=name)
