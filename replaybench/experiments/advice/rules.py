"""The paper's recommendations as data: which trait favours which retention or sampling, and why."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from replaybench.data.configuration import build
from replaybench.data.formats.documents import read_json, read_toml
from replaybench.experiments.advice.traits import Traits

FOLDER: Final = Path(__file__).parent
RETENTIONS: Final = ("FULL", "Resv", "Expl", "TDE", "FIFO")
SAMPLINGS: Final = ("Uniform", "PER", "PER+IS")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One recommendation.

    Attributes:
        id: its name.
        trait: field of `Traits`.
        least, most: range of the trait, inclusive, in which it holds.
        for_, against: retentions and samplings that it favours, and advises against.
        because: the reason.
        section: section of the paper.
        claims: ids of the paper's claims behind it.
        evidence: names of contrasts in evidence.json.
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
        """Return the value of its trait."""
        found: float | None = getattr(traits, self.trait)
        return found

    def holds(self, traits: Traits) -> bool:
        """Return whether its trait is known and within its bounds."""
        value = self.value(traits)
        return value is not None and self.least <= value <= self.most

    def ends(self) -> str:
        """Describe the range in which the rule holds."""
        if self.least > float("-inf"):
            return f"at least {self.least:g}"
        return f"at most {self.most:g}"


class Candidate(NamedTuple):
    """A strategy with the rules that speak for it, and against."""

    retention: str
    sampling: str
    for_: tuple[Rule, ...]
    against: tuple[Rule, ...]

    @property
    def votes(self) -> int:
        """Number of rules for it less those against."""
        return len(self.for_) - len(self.against)

    def strategy(self, capacity: int | None = None) -> str:
        """Return its notation, with a capacity if one is given."""
        if capacity is None or self.retention == "FULL":
            return f"{self.retention}[{self.sampling}]"
        inner = f"capacity={capacity}" if self.retention in ("TDE", "Expl") else f"{capacity}"
        return f"{self.retention}({inner})[{self.sampling}]"


def candidates(traits: Traits) -> list[Candidate]:
    """Return all strategies that are advised on, those with most votes first, then in the paper's order."""
    holding = [rule for rule in rules() if rule.holds(traits)]
    found = []
    for retention in RETENTIONS:
        for sampling in SAMPLINGS:
            parts = {retention, sampling}
            pro = tuple(rule for rule in holding if parts & set(rule.for_))
            contra = tuple(rule for rule in holding if parts & set(rule.against))
            found.append(Candidate(retention, sampling, pro, contra))
    return sorted(found, key=lambda candidate: -candidate.votes)


@functools.cache
def rules() -> Sequence[Rule]:
    """Return the rules of this package."""
    path = FOLDER / "rules.toml"
    tables: list[dict[str, Any]] = read_toml(path)["rule"]
    named = [{("for_" if key == "for" else key): value for key, value in table.items()} for table in tables]
    return [build(Rule, table, str(path)) for table in named]


@functools.cache
def stored_evidence() -> dict[str, dict[str, Any]]:
    """Return contrasts of stored results by name: effect, number of seeds, and file."""
    found: dict[str, dict[str, Any]] = read_json(FOLDER / "evidence.json")
    return found
