"""Contract checks of learners, and of a plant, strategy or learner by name."""

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from replaybench.controllers.interface.noise import Explored
from replaybench.controllers.learner import Learner
from replaybench.controllers.policies.policy import load_policy
from replaybench.controllers.registry import LEARNERS, algorithm_of
from replaybench.data.policy_file import read_policy
from replaybench.data.record import read_record
from replaybench.envs.registry import GYMNASIUM, PLANTS, make_plant
from replaybench.evidence.contracts import PLANT, STRATEGY, Case, Promises, checked, difference, rows
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.study import Cell, Study
from replaybench.replay.strategies.notation import RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import IN_FILE, Registry, import_file, in_file, without_class

_MEMBERS: Final = 3
_STEPS: Final = 20


def learner_cell(
    learner: str, strategy: str = "FULL[PER]", settings: Mapping[str, Any] | None = None, updating: int = 2
) -> Cell:
    """Return a cell for tests: a short training of a learner on the pendulum, with a few seeds.

    `updating` is the number of episodes with updates, which follow the learner's warm-up episodes.
    """

    def cell(episodes: int) -> Cell:
        return Study(
            name="check", plants=("PendulumDCSC",), learners=(learner,), strategies=(strategy,), noise=(0.02,),
            seeds=_MEMBERS, episodes=episodes, capacity=700, greedy_every=episodes,
            learner={learner: dict(settings)} if settings else {},
        ).cells()[0]  # fmt: skip

    with contextlib.closing(CellRun(cell(2))) as run:
        return cell(run.agent.schedule.warmup_episodes + updating)


@contextlib.contextmanager
def _advanced(cell: Cell, ill: int | None = None) -> Iterator[CellRun]:
    """Yield a finished run of a cell. If `ill` is given, all initial weights of the member `ill` are NaN."""
    with contextlib.closing(CellRun(cell)) as run:
        if ill is not None:
            for array in run.agent.weights().values():
                if array.dtype.kind == "f":  # integer arrays count experiences
                    array[ill] = np.nan
        for _ in range(cell.episodes):
            run.advance()
        yield run


def _states(agent: Learner, cell: Cell) -> Floats32:
    shape = (cell.members, 50, agent.task.observation_size)
    return np.random.Generator(np.random.PCG64(0)).normal(size=shape).astype(np.float32)


def _learns(cell: Cell) -> str:
    with contextlib.closing(CellRun(cell)) as fresh, _advanced(cell) as run:
        before, after = fresh.agent.weights(), run.agent.weights()
        # `observation.bound` is infinite if observations are not clipped.
        if not all(np.isfinite(array).all() for name, array in after.items() if name != "observation.bound"):
            return "weights are not finite"
        return "" if difference(before, after) else "no weight has changed after two episodes"


def _bounded(cell: Cell) -> str:
    with _advanced(cell) as run:
        agent, states = run.agent, _states(run.agent, cell)
        actions, values, shape = agent.policy(states), agent.value(states), states.shape[:2]
        if actions.shape != (*shape, agent.task.action_size) or actions.dtype != np.float32:
            return f"policy returns {actions.dtype} of shape {actions.shape} for observations of shape {states.shape}"
        if not np.array_equal(agent.act(states[:, 0]), agent.policy(states[:, :1])[:, 0]):
            return "act returns another action than policy"
        if values.shape != shape or not np.isfinite(values).all():
            return f"value returns shape {values.shape}; finite numbers of shape {shape} are needed"
        return "" if np.abs(actions).max() <= 1 else f"a greedy action is {np.abs(actions).max():.3g}"


def _annotations(cell: Cell) -> str:
    with _advanced(cell) as run:
        annotations = run.agent.update(run.replay.sample())
        shape = (cell.members, run.agent.schedule.batch_size)
        if "td_error" not in annotations:
            return "update returns no td_error"
        for name, array in annotations.items():
            if array.shape[:2] != shape or not np.isfinite(array).all():
                return f"update returns {name} of shape {array.shape}; finite numbers of shape {shape} are needed"
    return ""


def _explores_again(cell: Cell) -> str:
    def copied(explored: Explored) -> dict[str, np.ndarray]:
        named = {"action": explored.action, "deviation": explored.deviation, **explored.extras}
        return {name: np.array(array) for name, array in named.items()}

    with contextlib.closing(CellRun(cell)) as run:
        agent, active = run.agent, np.ones(cell.members, np.bool_)
        observation = np.full((cell.members, agent.task.observation_size), 0.1, np.float32)
        agent.start_episode(0, active)
        first = copied(agent.explore(observation, active))
        before = {name: np.array(array) for name, array in agent.state_dict().items()}
        agent.perturb(-observation)
        again = copied(agent.perturb(observation))
        if wrong := difference(before, agent.state_dict()):
            return f"{wrong}: perturb draws random numbers"
        stored = {**agent.fields, **dict.fromkeys(agent.traces.names if agent.traces else (), 1)}
        widths = {name: array.shape for name, array in first.items() if name != "deviation"}
        needed = {name: (cell.members, stored.get(name, agent.task.action_size)) for name in widths}
        if widths != needed or first["deviation"].shape != (cell.members,):
            return f"explore returns shapes {widths}; {needed} are needed"
        return "" if not difference(first, again) else "perturb and explore return different actions"


def _waits(cell: Cell) -> str:
    """Test that the exploration of a member does not change if the member is first inactive for some steps."""
    with contextlib.closing(CellRun(cell)) as run, contextlib.closing(CellRun(cell)) as straight:
        active = np.ones(cell.members, np.bool_)
        without_one = active.copy()
        without_one[1] = False
        observation = np.full((cell.members, run.agent.task.observation_size), 0.1, np.float32)
        for agent in (run.agent, straight.agent):
            agent.start_episode(0, active)
        for _ in range(_STEPS):
            run.agent.explore(observation, without_one)
        for _ in range(_STEPS):  # several steps, because some learners clip most exploration
            waited, expected = (agent.explore(observation, active).action[1] for agent in (run.agent, straight.agent))
            if not np.array_equal(waited, expected):
                return "explore draws random numbers for an inactive member"
        return ""


def _equal_in_any_population(cell: Cell) -> str:
    with _advanced(cell) as run, _advanced(dataclasses.replace(cell, first_member=2, members=1)) as single:
        together, alone = ({**each.agent.weights(), **each.history()} for each in (run, single))
        return difference(rows(together, [2]), alone)


def _resumed(cell: Cell) -> str:
    def arrays(folder: Path) -> dict[str, Any]:
        files = {name: read_record(folder / f"{name}.h5")[1] for name in ("scores", "buffer", "snapshots")}
        files["policy"] = read_policy(folder / "policy.safetensors")[1]
        return {f"{file}/{name}": array for file, content in files.items() for name, array in content.items()}

    with tempfile.TemporaryDirectory() as place:
        whole, parts = Path(place) / "whole", Path(place) / "parts"
        run_cell(cell, whole, "final")
        run_cell(cell, parts, "final", report=lambda progress: progress.done < cell.episodes - 1)
        run_cell(cell, parts, "final")
        return difference(arrays(whole), arrays(parts))


def _fails_alone(cell: Cell) -> str:
    with _advanced(cell) as healthy, _advanced(cell, ill=1) as ill:
        before, after = ({**run.agent.weights(), **run.history()} for run in (healthy, ill))
        if wrong := difference(rows(before, [0, 2]), rows(after, [0, 2])):
            return f"{wrong} in other members"
        failed = np.isnan(ill.agent.policy(_states(ill.agent, cell))).all(axis=(1, 2))
        if not np.isnan(ill.reward[1, -1]) or failed.tolist() != [False, True, False]:
            return "a member whose weights are NaN does not fail"
    return ""


def _policy_file(cell: Cell) -> str:
    with tempfile.TemporaryDirectory() as place, _advanced(cell) as run, contextlib.closing(CellRun(cell)) as fresh:
        run_cell(cell, Path(place), "none")
        path = Path(place) / "policy.safetensors"
        fresh.agent.load_weights(read_policy(path)[1])
        states = _states(run.agent, cell)
        expected, loaded = run.agent.policy(states), fresh.agent.policy(states)
        single = load_policy(path, 1, learner=cell.learner).predict(states[1])[0]
    same = np.array_equal(expected, loaded) and np.array_equal(expected[1], single)
    return "" if same else "the loaded policy returns other actions"


LEARNER: Final[Promises[Cell]] = {
    "weights change, and stay finite": _learns,
    "greedy actions lie in [−1, 1]": _bounded,
    "updates return a TD error of each sample": _annotations,
    "exploration can be recomputed": _explores_again,
    "inactive members draw no random numbers": _waits,
    "a member is the same bit for bit in any population": _equal_in_any_population,
    "a resumed run equals an uninterrupted one": _resumed,
    "a failed member fails alone and visibly": _fails_alone,
    "a policy file acts as the learner did": _policy_file,
}


_OWN: Final = re.compile(r"(.+\.py:\w+)\s*(?:\(.*\))?\Z")
"""Pattern of a class in a user's file, such as `own.py:Newest(0.5)`; the parameters are optional."""


def check(name: str) -> tuple[str, Iterator[tuple[str, str]]]:
    """Return "plant", "strategy" or "learner", and the tests of the named one with their results.

    `name` may also be a retention, sampling or weighting rule of a strategy, or a class in a user's file, such as
    `own.py:MyPlant`. A result is empty for a test that passed, and otherwise describes the problem. It begins with
    `TOO_WEAK` if the case decides nothing.
    """
    if strategy := name if name.endswith("]") else with_rule(name):
        return "strategy", checked(STRATEGY, Case(parse(strategy).at(50.0)))
    if _is_in(PLANTS, name) or name.startswith(GYMNASIUM):
        return "plant", checked(PLANT, make_plant(name))
    if _is_in(LEARNERS, algorithm_of(name)):
        return "learner", checked(LEARNER, learner_cell(name))
    if in_file(name):
        raise UserError(f"{name} is no plant, no learner, and no retention, sampling or weighting of a strategy")
    if name.endswith(".py"):
        raise without_class(name, "class")
    known = [*PLANTS, *RETENTIONS, *SAMPLINGS, *WEIGHTINGS, *LEARNERS]
    raise unknown("plant, strategy or learner", name, known, [IN_FILE])


def with_rule(name: str, retention: str = "FIFO") -> str:
    """Return the simplest strategy that contains the rule `name`, or an empty text if there is no such rule.

    `retention` is the retention of a strategy with a sampling or weighting rule.
    """
    own = _OWN.match(name)
    bare = own[1] if own else name.partition("(")[0]
    wholes = ((RETENTIONS, "{}[Uniform]"), (SAMPLINGS, f"{retention}[{{}}]"), (WEIGHTINGS, f"{retention}[PER+{{}}]"))
    return next((whole.format(name) for registry, whole in wholes if _is_in(registry, bare)), "")


def _is_in(registry: Registry, name: str) -> bool:
    if (place := in_file(name)) is None:
        return name in registry
    module = import_file(place.path, "Python", name)  # "Python": the class may be of any category
    contents = vars(module)
    if place.class_name not in contents:
        classes = {each: value for each, value in contents.items() if isinstance(value, type)}
        own = [each for each, value in classes.items() if value.__module__ == module.__name__]
        if not own:
            raise UserError(f"{place.path} defines no class; it must define {place.class_name}")
        raise unknown(f"class in {place.path}", place.class_name, own)
    named = contents[place.class_name]
    return isinstance(named, type) and issubclass(named, registry.base_class)
