"""Registry of learners by name, and descriptions of their settings."""

import sys
from typing import Any, Final

from replaybench.controllers.interface.agent import LearnerConfig
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
"""The learners by name. The module of a learner also contains the class of its settings, `<class name>Config`."""


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
"""Settings of the learners DDPG, TD3 and SAC in their variant `sb3`, for example `SAC:sb3`.

They are the defaults of Stable-Baselines3, with one update per step.
"""


def variant_settings(name: str) -> dict[str, Any]:
    """Return the settings of a predefined variant of a learner, such as `SAC:sb3`.

    For any other name, the result is empty.

    Raises:
        UserError: The label after the colon is `sb3`, but the learner has no such variant.
    """
    algorithm = algorithm_of(name)
    if name[len(algorithm) :] != ":sb3" or algorithm.endswith(".py"):
        return {}
    if algorithm not in SB3:
        raise UserError(f"{algorithm} has no variant sb3, which {', '.join(SB3)} have; choose another label")
    return SB3[algorithm]


def algorithm_of(name: str) -> str:
    """Return the name of a learner without the label that names a variant of its settings.

    For example, `DDPG:decay` gives `DDPG`, and `own.py:Mine:decay` gives `own.py:Mine`.
    """
    path, separator, rest = name.partition(".py:")
    if separator:
        return f"{path}{separator}{rest.partition(':')[0]}"
    return LEARNERS.spelled(name.partition(":")[0])


def spelled(name: str) -> str:
    """Return the name of a learner in its registered spelling, such as `DDPG:decay` for `ddpg:decay`."""
    algorithm = algorithm_of(name)
    return algorithm + name[len(algorithm) :]


def load_learner(name: str) -> tuple[type[Any], type[Any]]:
    """Return the class of a learner and the class of its settings.

    A label after a colon names a variant of the settings. For example, `DDPG:decay` gives the classes of `DDPG`.

    Raises:
        UserError: There is no such learner, or its module contains no settings class.
    """
    learner = LEARNERS.load(algorithm_of(name))
    config = vars(sys.modules[learner.__module__]).get(f"{learner.__name__}Config")
    if not (isinstance(config, type) and issubclass(config, LearnerConfig)):
        raise UserError(
            f"learner {name} needs settings in its module: a frozen dataclass {learner.__name__}Config that derives "
            "from LearnerConfig"
        )
    return learner, config


def name_of(kind: type) -> str:
    """Return the name by which study files select a learner's class. An unregistered class has its own name."""
    return next((name for name, path in LEARNERS.own.items() if path.endswith(f":{kind.__name__}")), kind.__name__)


SETTING_WORDS: Final = {
    "action_layer": "number of the critic's hidden layer that receives the action; 0: the action joins the observation",
    "activation": "activation function of the hidden layers",
    "actor_hidden": "numbers of units in the actor's hidden layers",
    "actor_rate": "learning rate of the actor",
    "advantage_hidden": "numbers of units in the advantage network's hidden layers",
    "alpha": "weight of the critic compared with imitation; with α near 0 the actor copies the recorded actions",
    "average": "α in the update of the average policy, θ_a ← α θ_a + (1 − α) θ",
    "batch_size": "number of experiences (ACER: segments) in a batch",
    "betas": "Adam's decay rates of the first and second moments",
    "bounded": "whether tanh bounds the mean of the policy",
    "clip": "largest norm of a gradient; null: gradients are not clipped",
    "copy_every": "number of updates between copies of the network into its target network",
    "critic_hidden": "numbers of units in the critic's hidden layers",
    "critic_rate": "learning rate of the critic",
    "decay_episodes": "number of episodes, or iterations, over which the probability of random actions falls",
    "delta": "δ of the trust region: bound on the step away from the average policy",
    "diagonal": "function that makes the diagonal of L positive (exp or softplus)",
    "double": "whether double Q-learning is used: the network chooses the next action, the target network evaluates it",
    "dueling": "whether the critic is a stochastic dueling network; false: a network Q in addition to V",
    "entropy": "weight of the policy's entropy",
    "epsilon": "Adam's ε",
    "exploration.decay_episodes": "number of episodes, or iterations, over which the amplitude of the noise falls",
    "exploration.diffusion": "standard deviation of the steps of the noise process",
    "exploration.first_amplitude": "amplitude of the noise in the first episode, in halves of the action's range",
    "exploration.form": "process (correlated), gaussian (white) or parameter (noise on the actor's weights)",
    "exploration.friction": "share of its state that the noise process loses in each step",
    "exploration.last_amplitude": "amplitude of the noise from episode decay_episodes on",
    "exploration.per_second": "whether diffusion and friction hold at 50 Hz and are converted to the control rate",
    "first_random": "probability of a random action in the first episode",
    "first_sigma": "initial standard deviation of the policy",
    "first_temperature": "initial weight of the entropy, if this weight is learned",
    "half": "whether the quadratic advantage has the factor ½",
    "hidden": "numbers of units in the hidden layers",
    "huber": "TD error above which the loss is linear (null: quadratic everywhere); not with `LAP` and `PAL`",
    "l2": "weight decay of the critic",
    "l2_form": "coupled (through Adam's gradient), decoupled, or weights (through Adam's gradient, without biases)",
    "last_random": "probability of a random action from episode decay_episodes on",
    "layer_norm": "whether hidden layers are normalised before their activation",
    "learning_rate": "learning rate of the network",
    "levels": "number of values of each action dimension; null: the plant's choices, or 15 if it has none",
    "log_ratio_bound": "bound on the logarithm of importance weights",
    "memory": "table of the LSTM layers (layers, units, window, start, burn_in, forget_bias); null: no LSTM",
    "normalise.clip": "bound of normalised observations; null: no bound",
    "normalise.observations": "whether observations are standardised by their running mean and standard deviation",
    "normalise.rewards": "whether rewards are divided by their running root mean square",
    "on_policy": "whether an update on the newest segments follows each episode",
    "output_bound": "bound of the initial weights of the last layers; null: the bound depends on the number of inputs",
    "output_scale": "factor on the initial weights of the last layers",
    "policy_delay": "number of critic updates for each update of the actor",
    "policy_hidden": "numbers of units in the policy's hidden layers",
    "policy_rate": "learning rate of the policy",
    "n_step": "largest number of steps whose rewards the target of a value sums",
    "policy_return": "return in the policy gradient: opc (traces of 1) or ret (Retrace)",
    "rate": "learning rate of the network",
    "replays_per_experience": "mean number of replays of an experience; equal to the batch size: one update per step",
    "retrace": "whether returns are computed by Retrace; false: by importance sampling",
    "samples": "number of sampled actions of the dueling network",
    "segment": "number of steps in a segment",
    "sigma": "standard deviation of the policy; for V-RACER free, fixed or network (an output of the network)",
    "smoothing": "standard deviation of the noise on the target's action",
    "smoothing_clip": "bound of the noise on the target's action",
    "tau": "τ in the update of the target network, θ⁻ ← τ θ + (1 − τ) θ⁻",
    "temperature": "weight of the entropy; null: this weight is learned",
    "temperature_rate": "learning rate of the temperature",
    "trajectory_weights": "whether returns are weighted along the segment (TIS)",
    "truncate_at": "c, the value at which importance weights are truncated",
    "truncation": "whether importance weights are truncated; false: c = ∞",
    "trust_region": "whether gradients are projected into the trust region",
    "value_hidden": "numbers of units in the value network's hidden layers",
    "version": "present, or first (with a value network and a fixed temperature)",
    "warmup_episodes": "number of episodes, or iterations, before the first update",
}
