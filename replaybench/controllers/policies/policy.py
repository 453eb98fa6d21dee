"""Stored policies, which are loaded and evaluated without training.

A policy file contains the name and settings of its learner. `load_policy` rebuilds the learner with a single member.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import PolicyHead
from replaybench.controllers.networks.recurrent import PopulationRecurrent
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import read_policy, take_members
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.configuration import Hertz, Name, build
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import imports_only


def policy_facts(learner: str, agent: Learner, frequency: float) -> dict[str, Any]:
    """Return the metadata that a policy file stores, so that `load_policy` can rebuild the learner."""
    settings = dataclasses.asdict(agent.config)
    return {"learner": learner, "settings": settings, "task": agent.task._asdict(), "frequency": frequency}


@dataclass(frozen=True)
class StoredPolicy:
    """The part of a policy file's metadata that describes the learner."""

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
    """The metadata of a policy file that `load_policy` needs."""

    policy: StoredPolicy


class Policy:
    """The trained policy of one run, which maps normalised observations to actions in [−1, 1].

    Attributes:
        facts: Metadata of the file from which the policy was loaded, such as plant and version.
        agent: The learner, with the networks of this run only.
    """

    def __init__(self, agent: Learner, facts: dict[str, Any]) -> None:
        self.agent, self.facts = agent, facts

    def predict(
        self,
        observation: ArrayLike,
        state: Floats32 | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Floats32, Floats32 | None]:
        """Return the actions for one or several observations, and the next state of a recurrent policy.

        Args:
            observation: Normalised observation `[S]`, or N observations `[N, S]`.
            state: State `[N, width]` of a recurrent policy, as the last call returned it. None at the start.
            episode_start: Whether each of the N episodes begins with this observation, so that its state is reset;
                bool, shape `[N]`.
            deterministic: Whether to act greedily. Otherwise, a stochastic policy draws the actions at random.

        Returns:
            Actions, float32 `[A]` or `[N, A]`, and the next state, which is None for a feed-forward policy.

        Raises:
            UserError: The shape of the observation or of the state is wrong.
        """
        array = np.asarray(observation, np.float32)
        size = self.agent.task.observation_size
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise UserError(f"an observation of this policy holds {size} numbers, not an array of shape {array.shape}")
        rows = np.atleast_2d(array)
        agent, after = self.agent, None
        choose = agent.policy if deterministic else agent.sample
        if not agent.memory.size:
            chosen = choose(rows[None])
        else:
            before = np.zeros((len(rows), agent.memory.size), np.float32)
            if state is not None and np.shape(state) != before.shape:
                raise UserError(f"the state of this policy has shape {before.shape} here, not {np.shape(state)}")
            if state is not None:
                starts = np.asarray(False if episode_start is None else episode_start, np.bool_)
                before = np.where(starts.reshape(-1, 1), before, state)
            chosen, after = choose(rows[None], before[None]), agent.remember(rows[None], before[None])[0]
        action = np.clip(chosen[0], -1.0, 1.0)
        return (action if array.ndim == 2 else action[0]), after


def load_policy(path: Path | str, member: int = 0, learner: str | None = None) -> Policy:
    """Load the policy of one of the members whose policies a file contains.

    The commands `sweep` and `replay` write policy files. If a user's Python file defines the learner, `learner` is
    required, because opening a policy file never executes code that it names.

    Args:
        path: Policy file (`.safetensors`).
        member: Index of the member in the file, from 0.
        learner: Name of the learner that trained the policy, for example `path/to/file.py:ClassName`.

    Raises:
        UserError: The file is missing, damaged or no policy file, it has no such member, or `learner` is required.
    """
    path = Path(path)
    facts, weights = read_policy(path)
    return Policy(stored_learner(path, facts, weights, [member], learner), facts)


def stored_learner(
    path: Path, facts: dict[str, Any], weights: dict[str, np.ndarray], members: Sequence[int], learner: str | None
) -> Learner:
    """Return a learner with the networks of the given members of a policy file, from its metadata and weights.

    The arguments and errors are those of `load_policy`.
    """
    known = build(PolicyFacts, facts, f"the facts of {path}", others=True).policy
    chosen = take_members(path, weights, members)
    try:
        with imports_only(learner):
            kind, config = load_learner(learner or known.learner)
        setting = LearnerSetting(known.task, 0, members, known.frequency)
        agent: Learner = kind(build(config, known.settings, "its settings"), setting)
        agent.load_weights(chosen)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return agent


class Statistics(NamedTuple):
    """The normalisation of observations by (s − mean) · scale, clipped to ±`bound`, with float64 arrays `[S]`."""

    mean: Floats
    scale: Floats
    bound: float


class Cost(NamedTuple):
    """The cost of computing one action.

    Attributes:
        parameters: Number of parameters.
        multiply_adds: Number of multiply-adds.
        functions: Number of evaluations of tanh, of other activations with a division, and of square roots.
        scratch: Number of float32 numbers on the stack.
    """

    parameters: int
    multiply_adds: int
    functions: int
    scratch: int


def statistics_of(agent: Learner) -> Statistics | None:
    """Return the statistics with which a learner normalises observations, or None if it does not normalise.

    The learner must have a single member.
    """
    normaliser = agent.normaliser.observations
    if not normaliser.on:
        return None
    return Statistics(normaliser.mean[0], normaliser.scale[0], float(normaliser.bound[0]))


def head_of(form: PolicyHead) -> Shape:
    """Return the shape of a policy's fully connected layers. In a recurrent policy, they follow the LSTM."""
    return form.network.shape.head if isinstance(form.network, PopulationRecurrent) else form.network.shape


def weights_of(form: PolicyHead) -> dict[str, np.ndarray]:
    """Return the weights of a policy's network by name, such as `trunk.0.weight`, for the first member only."""
    if isinstance(form.network, PopulationRecurrent):
        named = form.network.named_weights("net")
        return {name.removeprefix("net."): array[0] for name, array in named.items()}
    named = form.network.named_weights("head")
    return {name: array[0] for name, array in named.items()}


def memory_of(form: PolicyHead) -> int:
    """Return the size of a policy's recurrent state, or 0 for a feed-forward policy."""
    return form.network.shape.state_size if isinstance(form.network, PopulationRecurrent) else 0


def cost_of(form: PolicyHead) -> Cost:
    """Count the operations for one action, without comparisons, copies and the scaling of signals."""
    shape = head_of(form)
    hidden = [outputs for _, outputs in shape.layers[:-1]]
    costly = shape.activation != "relu"
    functions = sum(hidden) * costly + (shape.tanh * shape.sizes[-1]) + (form.squash == "tanh") * form.width
    products = sum(inputs * outputs for inputs, outputs in shape.layers)
    if shape.layer_norm:
        functions, products = functions + len(hidden), products + 3 * sum(hidden)
    scratch = 2 * max(max(pair) for pair in shape.layers)
    if isinstance(form.network, PopulationRecurrent):
        trunk = form.network.shape.trunk
        products += sum((inputs + trunk.units) * 4 * trunk.units + 3 * trunk.units for inputs in trunk.layer_inputs)
        functions += 5 * trunk.units * trunk.layers
        scratch += max(trunk.layer_inputs) + 5 * trunk.units
    return Cost(sum(array.size for array in weights_of(form).values()), products, functions, scratch)
