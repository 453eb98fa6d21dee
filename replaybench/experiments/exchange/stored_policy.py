"""The origin of a stored policy, and the best member of a policy file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.controllers.policies.policy import Policy
from replaybench.data.bounds import Name
from replaybench.data.configuration import build
from replaybench.data.formats.policy_file import read_policy
from replaybench.data.records.record import read_record


@dataclasses.dataclass(frozen=True)
class Origin:
    """The cell of a policy, or the buffer that it was learned from, by its file."""

    plant: Name = ""
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    observe: tuple[Name, ...] = ()
    learner: Name = ""
    strategy: Name = ""
    noise: float = 0.0
    first_member: int = 0


def best_member(path: Path) -> tuple[int, str]:
    """Return the member with the best last greedy episode, by the scores next to a policy file, and the reason."""
    scores = path.with_name("scores.h5")
    if scores.is_file():
        kind = "offline scores" if "buffer" in read_policy(path)[0] else "scores"
        reward = np.asarray(read_record(scores, kind)[1]["reward_greedy"])
        if reward.ndim == 2 and reward.shape[1] and np.isfinite(reward[:, -1]).any():
            best = int(np.nanargmax(reward[:, -1]))
            return best, f"the best of {len(reward)} in its last greedy episode: {reward[best, -1]:.4g}"
        return 0, "the first; there are no greedy episodes to compare"
    return 0, "the first; there are no scores next to the file"


def origin_of(path: Path, policy: Policy) -> Origin:
    """Return the origin of a policy."""
    table = policy.facts.get("cell", policy.facts)
    table = table if isinstance(table, dict) else {}
    known = {field.name: table[field.name] for field in dataclasses.fields(Origin) if table.get(field.name) is not None}
    return build(Origin, known, f"the facts of {path}")
