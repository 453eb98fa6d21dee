"""Untrained policies for tests of exports."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.controllers.policies.policy import Policy, policy_facts
from replaybench.controllers.registry import LEARNERS, load_learner

SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {} for name in LEARNERS.own},
    "DDPG, normalised": {"normalise": NormaliseConfig(observations=True, clip=1.5), "layer_norm": True},
    "DDPG, remembering": {"memory": MemoryConfig(layers=2, units=7)},
    "V-RACER, remembering": {"memory": MemoryConfig(layers=1, units=8), "hidden": (9,)},
    "NAF, bounded": {"bounded": True},
}
"""Settings by case, which is the name of a learner and, after a comma, what differs from its defaults."""


def policy_of(case: str, choices: tuple[int, ...] = ()) -> Policy:
    """Return a policy with larger weights than initially, and with statistics of observations."""
    learner = case.partition(",")[0]
    kind, config = load_learner(learner)
    agent = kind(config(**SETTINGS[case]), LearnerSetting(Task(3, 2, 0.95, 1.0, choices), 0, range(1), 50.0))
    for array in agent.weights().values():
        if array.dtype == np.float32:
            array *= 2
            array += np.linspace(-0.02, 0.02, array.size, dtype=np.float32).reshape(array.shape)
    seen = np.random.Generator(np.random.PCG64(1)).normal(0.3, 0.4, (1, 50, 3)).astype(np.float32)
    agent.normaliser.observations.update(seen, np.ones(1, np.bool_))
    return Policy(agent, {"policy": policy_facts(learner, agent, 50.0)})


def predicted(policy: Policy, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the actions `[T, N, A]` for observations `[T, N, S]`, step by step if the policy is recurrent."""
    if not policy.agent.memory.size:
        return policy.predict(observations.reshape(-1, 3))[0].reshape(*observations.shape[:2], -1)
    state, found = None, []
    for observation in observations:
        action, state = policy.predict(observation, state)
        found.append(action)
    return np.array(found)
