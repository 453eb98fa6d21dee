"""Learned policies without their learners, in the convention of Stable-Baselines3.

A policy file names its learner and settings; the learner is rebuilt as a population of one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.controllers.agent import Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.registry import load_learner
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.bounds import Hertz, Name
from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.formats.policy_file import read_policy, take_members
from replaybench.data.user_code.user_file import imports_only

Float32Array = NDArray[np.float32]


def policy_facts(learner: str, agent: Learner, frequency: float) -> dict[str, Any]:
    """Return the facts of a policy file from which `load_policy` rebuilds its learner."""
    settings = dataclasses.asdict(agent.config)
    return {"learner": learner, "settings": settings, "task": agent.task._asdict(), "frequency": frequency}


@dataclass(frozen=True)
class StoredPolicy:
    """The learner of a policy file."""

    learner: Name
    settings: dict[str, Any]
    task: Task
    frequency: Hertz

    def __post_init__(self) -> None:
        choices, actions = self.task.action_choices, self.task.action_size
        if choices and len(choices) != actions:
            raise UserError(f"action_choices are those of {len(choices)} actions, not {actions}")


@dataclass(frozen=True)
class PolicyFacts:
    """The facts of a policy file that `load_policy` needs."""

    policy: StoredPolicy


class Policy:
    """One member's policy; observations are normalised states, actions lie in [−1, 1].

    Attributes:
        facts: where it comes from: plant, cell, version.
        agent: the learner as a population of one.
    """

    def __init__(self, agent: Learner, facts: dict[str, Any]) -> None:
        self.agent, self.facts = agent, facts

    def predict(
        self,
        observation: ArrayLike,
        state: Float32Array | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Float32Array, Float32Array | None]:
        """Return actions float32 `[A]` or `[N, A]` for an observation `[S]` or several `[N, S]`, and the next state.

        Args:
            observation: normalised observations.
            state: of a recurrent policy, `[N, width]`, as the last call returned it; None at the start.
            episode_start: bool `[N]`, where an episode begins and the state is reset.
            deterministic: whether to act greedily; otherwise a stochastic policy samples.

        Raises:
            UserError: the observation, or the state, does not fit.
        """
        seen = np.asarray(observation, np.float32)
        size = self.agent.task.observation_size
        if seen.ndim not in (1, 2) or seen.shape[-1] != size:
            raise UserError(f"an observation of this policy holds {size} numbers, not an array of shape {seen.shape}")
        rows = np.atleast_2d(seen)
        chosen, after = self._choose(rows[None], state, episode_start, deterministic)
        action = np.clip(chosen[0], -1.0, 1.0)
        return (action if seen.ndim == 2 else action[0]), after

    def _choose(
        self, rows: Float32Array, state: Float32Array | None, episode_start: ArrayLike | None, deterministic: bool
    ) -> tuple[Float32Array, Float32Array | None]:
        """Return actions `[1, N, A]` for observations `[1, N, S]`, and what a recurrent policy remembers then."""
        agent = self.agent
        if not agent.memory.size:
            return (agent.policy if deterministic else agent.sample)(rows), None
        choose = agent.policy if deterministic else agent.sample
        before = np.zeros((rows.shape[1], agent.memory.size), np.float32)
        if state is not None:
            if np.shape(state) != before.shape:
                raise UserError(f"what this policy remembers has shape {before.shape} here, not {np.shape(state)}")
            going_on = True if episode_start is None else ~np.atleast_1d(np.asarray(episode_start, np.bool_))[:, None]
            before = np.where(going_on, state, before)
        return choose(rows, before[None]), agent.remember(rows, before[None])[0]


def load_policy(path: Path | str, member: int = 0, learner: str | None = None) -> Policy:
    """Load one member's policy from a file that `sweep` or `replay` wrote.

    Args:
        path: a policy file (`.safetensors`).
        member: place of the member in the file, from 0.
        learner: the file's, where it lies in a Python file (`path/to/file.py:ClassName`); a file's word is not enough
            to run one.

    Raises:
        UserError: the file is missing, damaged or foreign, has no such member, or its learner is in a Python file that
            was not named.
    """
    path = Path(path)
    facts, weights = read_policy(path)
    known = build(PolicyFacts, facts, f"the facts of {path}", others=True).policy
    chosen = take_members(path, weights, [member])
    try:
        with imports_only(learner):
            kind, config = load_learner(learner or known.learner)
        setting = LearnerSetting(known.task, 0, [member], known.frequency)
        agent: Learner = kind(build(config, known.settings, "its settings"), setting)
        agent.load_weights(chosen)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return Policy(agent, facts)
