"""Initial weights of learners from the stored policies that `[start.NAME]` tables of a study name."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.policies.policy import PolicyFacts, StoredPolicy
from replaybench.controllers.registry import algorithm_of, name_of
from replaybench.data.policy_file import digest, members_in, read_policy, take_members
from replaybench.runtime.configuration import Name, NonNegativeInt, build
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import located

Weights = dict[str, NDArray[np.generic]]

_MOST_DIFFERENCES: Final = 4
_OF_REWARDS: Final = ("discount", "reward_scale")
"""Settings that may differ between the stored policy and the learner, because the learner's values adapt."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A `[start.NAME]` table of a study, which names the stored policy from which learner NAME starts.

    All networks are loaded, including critics and normalisation. Optimisers and replay buffers start empty.

    Attributes:
        policy: Path of a policy file, of the file's folder, or of a run folder with one combination of plant, learner,
            strategy, noise and control rate.
        member: Index of the stored learner from which all seeds start. By default, seeds take the stored learners in
            turn.
        content: Checksum that the weights must have, as stored in the `study.toml` of a run. Empty for any weights.
    """

    policy: str
    member: NonNegativeInt | None = None
    content: str = ""

    def load_into(self, agent: Learner, seeds: Iterable[int]) -> None:
        """Load the stored weights into `agent`, which has one member for each of the seeds."""
        facts, stored = self._read()
        weights = self._take(stored, seeds)
        try:
            agent.load_weights(weights)
        except UserError as error:
            known = build(PolicyFacts, facts, f"the facts of {self.policy}", others=True).policy
            raise UserError(f"{self.policy}: {error}{_differences(known, agent)}") from None

    def _take(self, stored: Weights, seeds: Iterable[int]) -> Weights:
        path = Path(self.policy)
        members = 1 if self.member is not None else members_in(path, stored)
        return take_members(path, stored, [seed % members if self.member is None else self.member for seed in seeds])

    def checked(self, kind: type[Any], settings: Any, task: Task, frequency: float, seeds: int) -> Start:
        """Check that the stored weights fit a learner of class `kind`, and return a copy with the weights' checksum."""
        self.load_into(kind(settings, LearnerSetting(task, 0, [0], frequency)), [0])
        stored = self._read()[1]
        self._take(stored, range(seeds))
        return dataclasses.replace(self, content=digest("", stored))

    def _read(self) -> tuple[dict[str, Any], Weights]:
        path = located(Path(self.policy))
        path = own if (own := path / "policy.safetensors").is_file() else path
        parts = _blocks(path) if path.is_dir() else [read_policy(path)]
        try:
            weights = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
        except (LookupError, ValueError):
            raise UserError(f"{path} holds policies that do not belong together; name the file of one") from None
        if self.content and digest("", weights) != self.content:
            raise UserError(f"{path} holds another policy than when this run began; restore it, or leave content out")
        return parts[0][0], weights


@dataclass(frozen=True)
class _CellFacts:
    plant: Name
    learner: Name
    strategy: Name
    noise: float
    frequency: float
    first_member: NonNegativeInt


@dataclass(frozen=True)
class _BlockFacts:
    cell: _CellFacts


def _blocks(run: Path) -> list[tuple[dict[str, Any], Weights]]:
    """Return the metadata and weights of all policy files of a run, in the order of their seeds."""
    files = []
    for path in sorted(run.glob("cells/*/policy.safetensors")):
        facts, weights = read_policy(path)
        cell = build(_BlockFacts, facts, f"the facts of {path}", others=True).cell
        files.append((cell.first_member, dataclasses.replace(cell, first_member=0), path, facts, weights))
    points = {point: path for _, point, path, *_ in files}
    if not points:
        raise UserError(f"{run} holds no policies (cells/*/policy.safetensors); name a finished run, or a file")
    if len(points) > 1:
        one = next(iter(points))
        raise UserError(
            f"{run} holds policies of {len(points)} grid points; name the file of one, as {points[one]} for "
            f"{one.plant} {one.learner} {one.strategy}"
        )
    return [(facts, weights) for *_, facts, weights in sorted(files, key=operator.itemgetter(0))]


def _differences(known: StoredPolicy, agent: Learner) -> str:
    stored = {"learner": algorithm_of(known.learner), **known.task._asdict(), **known.settings}
    own = {"learner": name_of(type(agent)), **agent.task._asdict(), **dataclasses.asdict(agent.config)}
    there, here = ({key: json.dumps(each.get(key), sort_keys=True) for key in own} for each in (stored, own))
    unlike = [key for key in own if key not in _OF_REWARDS and there[key] != here[key]][:_MOST_DIFFERENCES]
    listed = "; ".join(f"{key} = {there[key]} there, {here[key]} here" for key in unlike)
    return f" ({listed})" if listed else ""
