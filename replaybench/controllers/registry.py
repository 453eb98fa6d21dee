"""Registry of learners by name, and descriptions of their settings."""

import dataclasses
import sys
from typing import Any, Final

from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import Registry

LEARNERS: Final = Registry(
    kind="learner",
    own={
        "DDPG": "replaybench.controllers.algorithms.ddpg:DDPG",
        "TD3": "replaybench.controllers.algorithms.td3:TD3",
        "TD3+BC": "replaybench.controllers.algorithms.td3:TD3BC",
        "SAC": "replaybench.controllers.algorithms.sac:SAC",
        "DQN": "replaybench.controllers.algorithms.dqn:DQN",
        "ACER": "replaybench.controllers.algorithms.acer:ACER",
        "ACER-discrete": "replaybench.controllers.algorithms.acer_discrete:ACERDiscrete",
        "NAF": "replaybench.controllers.algorithms.naf:NAF",
        "V-RACER": "replaybench.controllers.algorithms.vracer:VRACER",
    },
    base="replaybench.controllers.learner:Learner",
    group="replaybench.learners",
)
"""Registered learners. The module of a learner also contains the class of its settings, `<class name>Config`."""


_SB3: Final = {"batch_size": 256, "replays_per_experience": 256.0, "tau": 0.005}
_SB3_NETWORKS: Final[dict[str, Any]] = {
    "actor_hidden": [400, 300],
    "critic_hidden": [400, 300],
    "actor_rate": 1e-3,
    "critic_rate": 1e-3,
    "exploration": {"form": "gaussian", "sigma": 0.1, "clip": True},
}
SB3: Final[dict[str, dict[str, Any]]] = {
    "DDPG": {**_SB3, **_SB3_NETWORKS, "action_layer": 0},
    "TD3": {**_SB3, **_SB3_NETWORKS},
    "SAC": {
        **_SB3,
        "actor_hidden": [256, 256],
        "critic_hidden": [256, 256],
        "actor_rate": 3e-4,
        "critic_rate": 3e-4,
        "temperature_rate": 3e-4,
    },
}
"""Settings of `DDPG:sb3`, `TD3:sb3` and `SAC:sb3`: the defaults of Stable-Baselines3, with one update per step."""


def variant_settings(name: str) -> dict[str, Any]:
    """Return the settings of a predefined variant, such as `SAC:sb3`, or none for any other name.

    Raises:
        UserError: The label is `sb3`, but the learner has no such variant.
    """
    algorithm = algorithm_of(name)
    if name[len(algorithm) :] != ":sb3" or algorithm.endswith(".py"):
        return {}
    if algorithm not in SB3:
        raise UserError(f"{algorithm} has no variant sb3, which {', '.join(SB3)} have; choose another label")
    return SB3[algorithm]


def algorithm_of(name: str) -> str:
    """Return the name of a learner without the label of a variant.

    For example, `DDPG:decay` gives `DDPG`, and `own.py:Mine:decay` gives `own.py:Mine`.
    """
    path, separator, rest = name.partition(".py:")
    if separator:
        return f"{path}{separator}{rest.partition(':')[0]}"
    return LEARNERS.spelled(name.partition(":")[0])


def spelled(name: str) -> str:
    """Return the name of a learner in its registered spelling, with the label of a variant unchanged."""
    algorithm = algorithm_of(name)
    return algorithm + name[len(algorithm) :]


def load_learner(name: str) -> tuple[Any, Any]:
    """Return the class of a learner and the class of its settings.

    A label after a colon names a variant of the settings. For example, `DDPG:decay` gives the classes of `DDPG`.

    Raises:
        UserError: There is no such learner, or its module contains no settings class.
    """
    learner = LEARNERS.load(algorithm_of(name))
    config = getattr(sys.modules[learner.__module__], f"{learner.__name__}Config", None)
    if not dataclasses.is_dataclass(config):
        raise UserError(f"learner {name} needs settings in its module: a frozen dataclass {learner.__name__}Config")
    return learner, config


def name_of(kind: type) -> str:
    """Return the name of a learner's class in studies, or the class's own name if it is not registered."""
    return next((name for name, path in LEARNERS.own.items() if path.endswith(f":{kind.__name__}")), kind.__name__)


SETTING_WORDS: Final = {
    "action_layer": "hidden layer of the critic that the action joins; 0: with the observation",
    "activation": "of the hidden layers",
    "actor_hidden": "units of the actor's hidden layers",
    "actor_rate": "learning rate of the actor",
    "advantage_hidden": "units of the advantage network's hidden layers",
    "alpha": "weight of the critic against imitation; towards 0 the actor copies the recording",
    "average": "weight α of the old average policy when it follows the policy",
    "batch_size": "experiences (ACER: segments) of an update",
    "betas": "Adam's decay rates of the first and second moment",
    "bounded": "whether tanh bounds the policy's mean",
    "clip": "largest norm of a gradient; null: not clipped",
    "copy_every": "updates between copies of the network into its target network",
    "critic_hidden": "units of the critic's hidden layers",
    "critic_rate": "learning rate of the critic",
    "decay_episodes": "episodes, or iterations, over which the random share falls",
    "delta": "δ of the trust region: bound on the step away from the average policy",
    "diagonal": "function that makes the diagonal of L positive",
    "double": "whether the network chooses the successor's action and the target network values it",
    "dueling": "whether the critic is a stochastic dueling network; false: Q in addition to V",
    "entropy": "weight of the policy's entropy",
    "epsilon": "Adam's ε",
    "exploration.decay_episodes": "episodes, or iterations, over which the amplitude falls",
    "exploration.diffusion": "standard deviation of the process noise's steps",
    "exploration.first_amplitude": "amplitude of the noise at first, in halves of the action's range",
    "exploration.form": "process (correlated) or gaussian (white)",
    "exploration.friction": "share of the process noise's state that is lost in a step",
    "exploration.last_amplitude": "amplitude of the noise from decay_episodes on",
    "exploration.per_second": "whether diffusion and friction hold at 50 Hz and are converted to the control rate",
    "first_random": "share of random actions at first",
    "first_sigma": "standard deviation of the policy at first",
    "first_temperature": "weight of the entropy at first, where it is learned",
    "half": "whether the quadratic advantage has the factor ½",
    "hidden": "units of the hidden layers",
    "huber": "TD error beyond which the loss is linear; null: quadratic",
    "l2": "weight decay of the critic",
    "l2_form": "coupled (in Adam's gradient), decoupled, or weights (no biases)",
    "last_random": "share of random actions from decay_episodes on",
    "layer_norm": "whether hidden layers are normalised before their activation",
    "learning_rate": "learning rate of the network",
    "levels": "values of each action dimension; null: the plant's choices, else 15",
    "log_ratio_bound": "bound on the logarithm of importance weights",
    "memory": "LSTM before the layers, a table (layers, units, window, start, burn_in, forget_bias); null: none",
    "normalise.clip": "bound of normalised observations; null: none",
    "normalise.observations": "whether observations are standardised by their running mean and deviation",
    "normalise.rewards": "whether rewards are divided by their running root mean square",
    "on_policy": "whether each episode is followed by an update on the newest segments",
    "output_bound": "bound of the last layers' first weights; null: by their inputs",
    "output_scale": "factor on the last layers' first weights",
    "policy_delay": "critic updates for each update of the actor",
    "policy_hidden": "units of the policy's hidden layers",
    "policy_rate": "learning rate of the policy",
    "policy_return": "return that the policy follows: opc (traces of 1) or ret (Retrace)",
    "rate": "learning rate of the network",
    "replays_per_experience": "how often each experience is replayed on average; batch_size: one update a step",
    "retrace": "whether returns are Retrace's; false: importance sampling",
    "samples": "sampled actions of the dueling network",
    "segment": "steps of a segment",
    "sigma": "standard deviation of the policy; V-RACER: free, fixed, or an output of the network",
    "smoothing": "standard deviation of the noise in the target's action",
    "smoothing_clip": "bound of that noise",
    "tau": "share of the network that its target network takes over in an update",
    "temperature": "weight of the entropy; null: learned",
    "temperature_rate": "learning rate of the temperature",
    "trajectory_weights": "whether returns are weighted along the segment (TIS)",
    "truncate_at": "c, at which importance weights are truncated",
    "truncation": "whether importance weights are truncated; false: c = ∞",
    "trust_region": "whether gradients are projected into the trust region",
    "value_hidden": "units of the value network's hidden layers",
    "version": "present, or first: with a value network and a fixed temperature",
    "warmup_episodes": "episodes, or iterations, before the first update",
}
