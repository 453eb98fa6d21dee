"""Measured traits of a plant, such as its noise, and the rules of advice that depend on them."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.data.documents import read_json, read_toml
from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.channel_of_plant import periods_under_way
from replaybench.envs.interface.plant import Plant
from replaybench.envs.interface.signals import short_way
from replaybench.envs.ode.plant import OdePlant, state_range
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.arrays import Floats
from replaybench.runtime.configuration import build

_MEMBERS: Final = 16
_STEPS: Final = 4000
_RENEWED: Final = 0.2
_TRIED: Final = 256
_LARGEST: Final = 1e9
"""Amplitude of exploration above which a setting is ignored."""


@dataclass(frozen=True)
class Traits:
    """Measured properties of a control problem, on which the rules of advice depend. Unknown properties are None.

    Attributes:
        noise: Standard deviation of the normalised sensor and actuator noise.
        authority: Root mean square change of a normalised state by one random action, for the state that changes most.
        decay: Ratio of the first to the last amplitude of exploration; 1 without decay.
        symmetry: Largest deviation of the plant from mirror symmetry. In a symmetric plant, mirrored states and actions
            lead to mirrored next states and equal rewards.
        late: Delay of commands in control periods, minus the number of past commands that learners observe; 0 at least.
        memory: Ratio of the allowed number of experiences to the capacity by the 90 % rule (de Bruin et al., 2018,
            section 9.1); infinite if one of these numbers is missing.
    """

    noise: float
    authority: float | None
    decay: float | None
    symmetry: float | None
    memory: float
    late: float | None = 0.0


def traits_of(
    plant: Plant | None, frequency: float, noise: float, decay: float | None, memory: int, asked: int | None
) -> Traits:
    """Measure the authority and the symmetry of a plant at a control rate in Hz, and return all traits.

    `noise` and `decay` are stored unchanged. `memory` is the largest number of experiences in a buffer, or 0 for no
    limit. `asked` is the capacity by the 90 % rule (de Bruin et al., 2018, section 9.1).
    """
    late = None if plant is None else max(0.0, periods_under_way(plant, frequency) - plant.channel.history)
    plant = None if plant is None else plant.through(Channel())  # of the plant itself, without its delay
    return Traits(
        noise=noise,
        authority=None if plant is None else authority_of(plant, frequency),
        decay=decay,
        symmetry=None if plant is None else symmetry_of(plant, frequency),
        memory=memory / asked if memory and asked is not None else float("inf"),
        late=late,
    )


def authority_of(plant: Plant, frequency: float) -> float:
    """Return the effect of one random action on the plant's normalised states, at the states of random episodes.

    The result is a root mean square, for the state that changes most. For plants with equations, steps with a random
    action are compared with steps with the zero action. For other plants, the effect is estimated by regression.
    """
    states, actions, after = _random_steps(plant, frequency)
    if not isinstance(plant, OdePlant):
        return authority(states, actions, short_way(after - states, plant.periodic, plant.state_scale))
    env = PopulationEnv(plant, 1, frequency=frequency)
    idle = np.broadcast_to(plant.normalise_action(np.array(plant.zero_action)), actions.shape)
    moved, rested = env.simulate(states, actions)[0], env.simulate(states, idle)[0]
    env.close()
    return _largest(short_way(moved - rested, plant.periodic, plant.state_scale))


def _random_steps(plant: Plant, frequency: float) -> tuple[Floats, Floats, Floats]:
    env = PopulationEnv(plant, _MEMBERS, frequency=frequency)
    rng = np.random.Generator(np.random.PCG64(0))
    steps = []
    state = env.reset()[0].astype(np.float64)
    running = np.ones(_MEMBERS, bool)
    action = np.zeros((_MEMBERS, len(plant.action_names)))
    for _ in range(min(_STEPS // _MEMBERS, plant.steps_per_episode(frequency))):
        renewed = rng.random(_MEMBERS) < _RENEWED
        action[renewed] = rng.uniform(-1, 1, action[renewed].shape)
        observation, _, terminated, truncated, _ = env.step(action.astype(np.float32))
        after = observation.astype(np.float64)
        steps.append((state[running], action[running].copy(), after[running]))
        running = ~(terminated | truncated)
        if not running.any():
            break
        state = after
    env.close()
    states, actions, nexts = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    return states, actions, nexts


def authority(states: Floats, actions: Floats, changes: Floats) -> float:
    """Estimate by linear regression how much actions change the states, from N recorded steps.

    The regressors are states, actions, and products of a state and an action. The result is the root mean square of the
    terms that contain actions, for the state that changes most. The arguments are normalised states `[N, S]`,
    normalised actions `[N, A]`, and the changes of the normalised states in each step `[N, S]`.
    """
    products = (states[:, :, None] * actions[:, None, :]).reshape(len(states), -1)
    free = np.column_stack([np.ones(len(states)), states])
    forced = np.column_stack([actions, products])
    weights, *_ = np.linalg.lstsq(np.column_stack([free, forced]), changes, rcond=None)
    return _largest(forced @ weights[free.shape[1] :])


def _largest(moved: Floats) -> float:
    return float(np.sqrt((moved**2).mean(axis=0)).max())


def symmetry_of(plant: Plant, frequency: float) -> float | None:
    """Return the largest deviation of a plant from mirror symmetry about its initial state, or None without equations.

    Random states and actions are mirrored. One deviation is the distance of next states of mirrored steps from mirrored
    next states. The other is the change of the reward, relative to the range of rewards. The larger one is returned.
    """
    if not isinstance(plant, OdePlant):
        return None
    env = PopulationEnv(plant, 1, frequency=frequency)
    rng = np.random.Generator(np.random.PCG64(0))
    low, high = (plant.normalise_state(end) for end in state_range(plant))
    middle = plant.normalise_state(np.array(plant.initial_state))
    states = rng.uniform(low, high, (_TRIED, len(low)))
    actions = rng.uniform(-1, 1, (_TRIED, len(plant.action_names)))
    idle = plant.normalise_action(np.array(plant.zero_action))
    after, reward = env.simulate(states, actions)
    mirrored, mirrored_reward = env.simulate(2 * middle - states, np.clip(2 * idle - actions, -1, 1))
    env.close()
    gap = short_way(2 * middle - mirrored - after, plant.periodic, plant.state_scale)
    inside = (np.abs(2 * idle - actions) <= 1).all(axis=1)
    if not inside.any():
        return float("inf")
    scale = float(np.ptp(reward)) or 1.0
    return float(max(np.abs(gap[inside]).max(), np.abs(reward - mirrored_reward)[inside].max() / scale))


def decay_of(settings: Mapping[str, Any], episodes: int) -> float:
    """Return the ratio of the first to the last amplitude of exploration in a run with the given learner settings."""
    exploration = settings.get("exploration")
    if not isinstance(exploration, Mapping):
        return 1.0
    first, last, decays = (exploration.get(name) for name in ("first_amplitude", "last_amplitude", "decay_episodes"))
    amplitudes = [float(each) for each in (first, last) if isinstance(each, int | float) and abs(each) < _LARGEST]
    if len(amplitudes) < 2:
        return 1.0
    first, last = amplitudes
    along = min(1.0, episodes / max(1, decays if isinstance(decays, int) else 1))
    now = first + along * (last - first)
    return first / now if now > 0 else float("inf")


FOLDER: Final = Path(__file__).parent
RETENTIONS: Final = ("FULL", "Resv", "Expl", "TDE", "FIFO")
SAMPLINGS: Final = ("Uniform", "PER", "PER+IS")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A recommendation for or against retention and sampling rules, valid in a range of one trait (measured property).

    Attributes:
        trait: Name of the trait, which is an attribute of `Traits`.
        least, most: Range of the trait in which the rule holds, including its ends.
        for_: Retention and sampling rules that are recommended.
        against: Retention and sampling rules that are advised against.
        section: Section of de Bruin et al. (2018), or "none" and the page with the results on which the rule depends.
        claims: Ids of the paper's claims that support the rule.
        evidence: Keys of stored results in `evidence.json`.
    """

    id: str
    trait: str
    least: float = float("-inf")
    most: float = float("inf")
    for_: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    because: str
    section: str
    claims: tuple[str, ...]
    evidence: tuple[str, ...]

    def value(self, traits: Traits) -> float | None:
        """Return the value of the trait (measured property of the plant) on which the rule depends."""
        return vars(traits)[self.trait]  # type: ignore[no-any-return]

    def holds(self, traits: Traits) -> bool:
        """Return whether the trait (measured property of the plant) is known and in the range of the rule."""
        value = self.value(traits)
        return value is not None and self.least <= value <= self.most

    def ends(self) -> str:
        """Describe the range in which the rule holds, for example "at least 0.03"."""
        if self.least > float("-inf"):
            return f"at least {self.least:g}"
        return f"at most {self.most:g}"


class Candidate(NamedTuple):
    """A replay strategy, with the rules of advice for and against this strategy."""

    retention: str
    sampling: str
    for_: tuple[Rule, ...]
    against: tuple[Rule, ...]

    @property
    def votes(self) -> int:
        """Number of rules for the strategy minus the number of rules against it."""
        return len(self.for_) - len(self.against)

    def rules(self) -> list[tuple[bool, Rule]]:
        """Return the rules for the strategy, each paired with True, and the rules against it, paired with False."""
        return [(favours, rule) for favours in (True, False) for rule in (self.for_ if favours else self.against)]

    def strategy(self, capacity: int | None = None) -> str:
        """Return the notation of the strategy, for example `FIFO(1000)[PER]` with a capacity of 1000."""
        if capacity is None or self.retention == "FULL":
            return f"{self.retention}[{self.sampling}]"
        inner = f"capacity={capacity}" if self.retention in ("TDE", "Expl") else f"{capacity}"
        return f"{self.retention}({inner})[{self.sampling}]"


def candidates(traits: Traits) -> list[Candidate]:
    """Return all strategies that rules cover, sorted by votes (rules for a strategy minus rules against it)."""
    strategies = [candidate(traits, *parts) for parts in itertools.product(RETENTIONS, SAMPLINGS)]
    return sorted(strategies, key=lambda candidate: -candidate.votes)


def candidate(traits: Traits, retention: str, sampling: str) -> Candidate:
    """Return a strategy with the rules for and against its retention and sampling."""
    parts, holding = {retention, sampling}, [rule for rule in rules() if rule.holds(traits)]
    pro, contra = (tuple(rule for rule in holding if parts & {*getattr(rule, side)}) for side in ("for_", "against"))
    return Candidate(retention, sampling, pro, contra)


@functools.cache
def rules() -> Sequence[Rule]:
    """Read the rules of advice from `rules.toml`."""
    path = FOLDER / "rules.toml"
    tables: list[dict[str, Any]] = read_toml(path)["rule"]
    named = [{("for_" if key == "for" else key): value for key, value in table.items()} for table in tables]
    return [build(Rule, table, str(path)) for table in named]


@functools.cache
def stored_evidence() -> dict[str, dict[str, Any]]:
    """Read the stored results that support rules of advice, as a dictionary by name.

    Each result consists of an effect, an interval, a number of seeds, and the name of a file.
    """
    contrasts: dict[str, dict[str, Any]] = read_json(FOLDER / "evidence.json")
    return contrasts
