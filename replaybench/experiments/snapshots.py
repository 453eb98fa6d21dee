"""Snapshots of replay buffers and policies during training.

Snapshots use no random numbers, so a run with snapshots has equal results.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.baselines.grid_choice import Rule, reference_solution
from replaybench.controllers.learner import Learner
from replaybench.data.record import open_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.study import FINAL_EPISODES
from replaybench.replay.buffer import Replay
from replaybench.runtime.arrays import Floats, Floats32, Integers
from replaybench.runtime.errors import UserError

TENTHS: Final = 10
_EARLY: Final = (0.01, 0.03, 0.06)


def snapshot_rounds(rounds: int) -> list[int]:
    """Return the numbers of the training episodes after which snapshots are taken, counted from 1.

    Snapshots are taken at the end of each tenth of a run with `rounds` episodes, and at 1, 3 and 6 % of the run.
    """
    return sorted({math.ceil(share * rounds - 1e-9) for share in _EARLY} | set(tenth_ends(rounds)))


def tenth_ends(rounds: int) -> list[int]:
    """Return the last training episode of each tenth of a run with `rounds` episodes, counted from 1."""
    return [math.ceil(tenth * rounds / TENTHS - 1e-9) for tenth in range(1, TENTHS + 1)]


PIXELS: Final = 41
MOST_MEMBERS: Final = 50
"""Largest number of members whose policies are recorded. At the end, the policy of the median run is stored."""


class Paths(NamedTuple):
    """The trajectories of noise-free episodes of M members, of which the longest has T steps.

    Attributes:
        states: States in physical units; float64, shape `[M, T + 1, S]`. The last state of a shorter episode is
            repeated.
        reward: Mean reward per step of each episode; float64, shape `[M]`.
    """

    states: Floats
    reward: Floats


def has_surfaces(plant: Plant) -> bool:
    """Return whether policies of a plant can be drawn as surfaces over two states.

    The plant must have two states and a grid for dynamic programming, and score episodes by the mean reward. No past
    commands are observed.
    """
    grid = isinstance(plant, OdePlant) and bool(plant.grid_nodes) and not plant.channel.history
    return grid and len(plant.state_names) == 2 and plant.episode_metric == "mean reward"


def pixel_states(plant: OdePlant, pixels: int) -> Floats:
    """Return the normalised state at the centre of each pixel of an image of a plant's state space, `[X, Y, 2]`."""
    shares = (np.arange(pixels) + 0.5) / pixels
    along = [low + shares * (high - low) for low, high in zip(plant.grid_low, plant.grid_high, strict=True)]
    return plant.normalise_state(np.stack(np.meshgrid(*along, indexing="ij"), axis=-1))


def follow(plant: OdePlant, frequency: float, members: int, policy: Callable[[Floats32], np.ndarray]) -> Paths:
    """Simulate one noise-free episode of each member, with a policy that maps observations to normalised actions."""
    env = PopulationEnv(plant, members, frequency=frequency, nan_actions="fail")
    observation, infos = env.reset()
    states, total = [infos["true_state"].copy()], np.zeros(members)
    steps, running = np.zeros(members), np.ones(members, np.bool_)
    while running.any():
        observation, reward, terminated, truncated, infos = env.step(policy(observation))
        states.append(np.where(running[:, None], infos["true_state"], states[-1]))
        total += np.where(running, reward, 0.0)
        steps += running
        running = running & ~(terminated | truncated)
    return Paths(plant.denormalise_state(np.stack(states, axis=1)), total / np.maximum(steps, 1))


def stored_by_age(replay: Replay, ends: Integers) -> Floats:
    """Return what the replay buffers of M members contain.

    Args:
        ends: Serial number of the last experience of each of K groups, from the oldest; int64, shape `[M, K]`. The last
            group ends with the last experience that was collected.

    Returns:
        The number of stored experiences in each group, and then the sum of ‖a − π(s)‖₁ over all stored experiences;
        float64, shape `[M, K + 1]`.
    """
    exploration, groups = replay.columns.column("exploration"), ends.shape[1]
    found = np.zeros((len(ends), groups + 1))
    for m, count in enumerate(replay.count):
        weight = None if replay.assembly is None else replay.assembly.length[m, :count]
        group = np.searchsorted(ends[m], replay.columns.serial[m, :count], side="left")
        found[m, :-1] = np.bincount(group, weights=weight, minlength=groups)
        found[m, -1] = exploration[m, :count].sum(dtype=np.float64)  # padding of units is 0
    return found


class Snapshots:
    """The K snapshots of replay buffers and policies that are taken in a run of M members.

    Policies are recorded if the plant has two states that are both observed. The learner must have a value function,
    and its greedy action must depend on the state only. A resumed run writes into the same arrays.

    Args:
        rounds: Number of training episodes (or iterations) of the run.
        observe: Names of the observed states; all states by default.

    Attributes:
        contents: Arrays that describe the buffers, by name.
            `collected`: Number of experiences collected by the end of each tenth of the run; int64, shape `[M, 10]`.
            `origin`: Number of stored experiences that were collected in each tenth; int64, shape `[M, K, 10]`.
            `exploration`: Mean of ‖a − π(s)‖₁ over the stored experiences, or NaN; float64, shape `[M, K]`.
        policies: Arrays of the greedy policies of the first m members, by name; empty if policies are not recorded.
            `value`: (1 − γ) times the unscaled value, at X × Y states; float32, shape `[m, K, X, Y]`.
            `action`: Action at these states in physical units; float32, shape `[m, K, X, Y, A]`.
            `path`: States in an episode of at most T steps without noise, then NaN; float32, shape `[m, K, T + 1, 2]`.
            `greedy`: Mean reward per step of this episode; float64, shape `[m, K]`.
    """

    def __init__(
        self, plant: Plant, frequency: float, agent: Learner, members: int, rounds: int, observe: Sequence[str] = ()
    ) -> None:
        self._rounds, self._ends, self._frequency = snapshot_rounds(rounds), tenth_ends(rounds), frequency
        count = len(self._rounds)
        self.contents: dict[str, np.ndarray] = {
            "collected": np.zeros((members, TENTHS), np.int64),
            "origin": np.zeros((members, count, TENTHS), np.int64),
            "exploration": np.full((members, count), np.nan),
        }
        self.policies: dict[str, np.ndarray] = {}
        self.plant = plant if isinstance(plant, OdePlant) and has_surfaces(plant) else None
        seen = tuple(observe or plant.state_names) == plant.state_names
        if self.plant is not None and agent.greedy() is agent and seen:
            self._states = pixel_states(self.plant, PIXELS).reshape(1, -1, 2).astype(np.float32)
            square, steps = (PIXELS, PIXELS), plant.steps_per_episode(frequency)
            shapes = {"value": square, "action": (*square, len(plant.action_names)), "path": (steps + 1, 2)}
            run = min(members, MOST_MEMBERS), count
            self.policies = {name: np.full((*run, *shape), np.nan, np.float32) for name, shape in shapes.items()}
            self.policies["greedy"] = np.full(run, np.nan)

    def take(self, done: int, agent: Learner, collected: Integers, by_age: Callable[[Integers], Floats]) -> None:
        """Take a snapshot if a snapshot is due after `done` episodes.

        Args:
            agent: Policies are recorded for the members of this learner, which may be the first members only.
            collected: Number of experiences that each member has collected; int64, shape `[M]`.
            by_age: Function that describes the buffers (see `stored_by_age`).
        """
        for tenth, end in enumerate(self._ends):
            if end >= done:
                self.contents["collected"][:, tenth] = collected
        if done not in self._rounds:
            return
        place = self._rounds.index(done)
        with np.errstate(over="ignore", invalid="ignore"):  # from failed members
            counts, total = np.split(by_age(self.contents["collected"]), [TENTHS], axis=1)
            self.contents["origin"][:, place] = counts
            self.contents["exploration"][:, place] = total[:, 0] / counts.sum(axis=1)  # NaN for an empty buffer
            if self.policies:
                self._describe_policies(place, agent)

    def _describe_policies(self, place: int, agent: Learner) -> None:
        assert self.plant is not None
        policies, kept, members = self.policies, len(self.policies["value"]), len(agent.setting.members)
        states = np.repeat(self._states, members, axis=0)
        value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[:kept]
        policies["value"][:, place] = value.reshape(kept, PIXELS, PIXELS)
        action = self.plant.denormalise_action(np.clip(agent.policy(states)[:kept], -1, 1))
        policies["action"][:, place] = action.reshape(kept, PIXELS, PIXELS, -1)
        paths = follow(self.plant, self._frequency, members, agent.act)
        policies["path"][:, place, : paths.states.shape[1]] = paths.states[:kept]
        policies["greedy"][:, place] = paths.reward[:kept]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays of the snapshots by name, for a checkpoint."""
        return self.contents | self.policies

    def write(self, path: Path, facts: Mapping[str, Any], reward: Floats, first: int) -> None:
        """Write a file with the snapshots of all buffers, and of the policy with the median final reward.

        Args:
            facts: Further metadata to store.
            reward: Rewards of all members in E training episodes; float64, shape `[M, E]`.
            first: Seed of the first member.
        """
        header, arrays = {**facts, "rounds": self._rounds}, dict(self.contents)
        if self.policies and self.plant is not None:
            chosen = median_seed(reward[: len(self.policies["value"])])
            if chosen is not None:
                header |= asdict(_facts_of(self.plant, first + chosen))
                arrays |= {name: array[chosen : chosen + 1] for name, array in self.policies.items()}
        write_record(path, "snapshots", header, arrays)


@dataclass(frozen=True)
class ActionAxis:
    """The name, unit and physical range of one action."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class StateAxis(ActionAxis):
    """The name, unit and physical range of one state, with its initial and its reference value."""

    periodic: bool
    initial: float
    reference: float


@dataclass(frozen=True)
class SnapshotFacts:
    """The metadata about the policy in a file of snapshots, which is that of the run with seed number `seed`."""

    seed: int
    states: tuple[StateAxis, ...]
    actions: tuple[ActionAxis, ...]


def _facts_of(plant: OdePlant, seed: int) -> SnapshotFacts:
    ends = (map(float, each) for each in (plant.grid_low, plant.grid_high))
    points = (map(float, each) for each in (plant.initial_state, plant.reference_state))
    states = zip(plant.state_names, plant.state_units, *ends, map(bool, plant.periodic), *points, strict=True)
    limits = (map(float, each) for each in (plant.action_low, plant.action_high))
    actions = zip(plant.action_names, plant.action_units, *limits, strict=True)
    return SnapshotFacts(seed, tuple(StateAxis(*each) for each in states), tuple(ActionAxis(*each) for each in actions))


def median_seed(rewards: Floats) -> int | None:
    """Return the index of the run with the median final reward, or None if all runs have failed.

    Args:
        rewards: Rewards of n runs in E training episodes; float64, shape `[n, E]`.
    """
    final = rewards[:, -FINAL_EPISODES:].mean(axis=1)
    ranked = np.argsort(final)[: np.isfinite(final).sum()]  # NaN is sorted to the end
    return int(ranked[(len(ranked) - 1) // 2]) if len(ranked) else None


_KIND: Final = "solved"


class Solved(NamedTuple):
    """The greedy policy of dynamic programming for a plant with two states, at X × Y states.

    Attributes:
        value: (1 − γ) times the value; float64, shape `[X, Y]`.
        action: Actions in physical units; float64, shape `[X, Y, A]`.
        path: States of a noise-free episode of T steps in physical units; float64, shape `[T + 1, 2]`.
        reward: Mean reward per step of this episode.
    """

    value: Floats
    action: Floats
    path: Floats
    reward: float


def solved_surfaces(plant: Plant, frequency: float, rule: Rule | None, pixels: int = PIXELS) -> Solved | None:
    """Return the greedy policy of dynamic programming for a plant with two states, or None for other plants."""
    if not isinstance(plant, OdePlant) or not has_surfaces(plant):
        return None
    solution = reference_solution(plant, frequency, rule).solution
    states = pixel_states(plant, pixels).reshape(-1, 2)
    paths = follow(plant, frequency, 1, solution.greedy)
    action = plant.denormalise_action(solution.greedy(states)).reshape(pixels, pixels, -1)
    value = (1 - solution.discount) * solution.value(states).reshape(pixels, pixels)
    return Solved(value, action, paths.states[0], float(paths.reward[0]))


def write_solved(folder: RunFolder, fingerprint: str, frequency: float, solved: Solved) -> None:
    """Store the greedy policy of dynamic programming for a plant's fingerprint and control rate in a run folder."""
    arrays: dict[str, Any] = {"value": solved.value, "action": solved.action, "path": solved.path}
    write_record(_place(folder, fingerprint, frequency), _KIND, {"reward": solved.reward}, arrays)


def read_solved(folder: RunFolder, fingerprint: str, frequency: float) -> Solved | None:
    """Read the greedy policy of dynamic programming for a plant and control rate, or None if it is not stored."""
    path = _place(folder, fingerprint, frequency)
    if not fingerprint.isalnum() or not path.is_file():
        return None
    with open_record(path, _KIND) as record:
        shapes, reward = record.header.shapes, record.header.facts.get("reward")
        path_shape, action_shape = shapes.get("path", ()), shapes.get("action", ())
        due = {"value": (PIXELS, PIXELS), "action": (PIXELS, PIXELS, *action_shape[2:3]), "path": (*path_shape[:1], 2)}
        if not isinstance(reward, float) or shapes != due or not all(map(all, due.values())):
            raise UserError(f"{path} does not hold a policy over two states; run the sweep again to rewrite it")
        value, action, path_states = (record.read(name).astype(np.float64) for name in ("value", "action", "path"))
    return Solved(value, action, path_states, reward)


def _place(folder: RunFolder, fingerprint: str, frequency: float) -> Path:
    return folder.path / "solved" / f"{fingerprint[:16]}-{frequency:g}Hz.h5"
