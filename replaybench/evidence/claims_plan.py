"""Plan of the further seeds that undecided claims need, in the order of decisions per core hour.

A cell is one combination of plant, learner, strategy, noise and control rate, with all its seeds.
"""

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from replaybench.envs.registry import DELAY
from replaybench.evidence.claim import LOOKS, Verdict, chance_to_decide
from replaybench.evidence.claims_evidence import Evidence, Finding
from replaybench.experiments.dataset import AXES
from replaybench.experiments.study import GAMMA, VOLUME, Cell


class Part(NamedTuple):
    """A range of seeds of a stored run, for one plant and one learner, which one command computes."""

    run: str
    study: str
    plant: str
    learner: str
    first: int
    seeds: int


@dataclass(frozen=True)
class Step:
    """A command, its core hours, and the claims whose seeds are complete after it.

    Attributes:
        points: Core hours of each cell to compute, by strategy, noise and control rate.
        claims: Names of the claims, with the chance that the new seeds decide them.
    """

    part: Part
    points: dict[tuple[str, float, float], float]
    claims: dict[str, float] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        """The core hours of the command."""
        return sum(self.points.values())

    @property
    def command(self) -> str:
        """The command that computes the seeds into a new run folder."""
        part = self.part
        strategies, noise, frequency = (sorted(set(values)) for values in zip(*self.points, strict=True))
        short = (re.sub(r"\W+", "", name) for name in (part.plant, part.learner))
        plant, learner, changed = part.plant, part.learner, [f"first_seed={part.first}"]
        for axis in (VOLUME, GAMMA):  # values of axes in the name of the learner
            learner, _, value = learner.partition(axis)
            changed += [f"{axis[1:]}[{value}]"] if value else []
        plant, _, delay = plant.partition(DELAY)
        changed += [f"{DELAY[1:]}[{delay}]"] if delay else []
        name = "-".join((part.run, *short, f"seeds{part.first}", f"{part.first + part.seeds - 1}"))
        return shlex.join([
            "replaybench", "sweep", part.study, "--plant", plant, "--learner", learner,
            "--strategy", *strategies, "--noise", *map(repr, noise), "--frequency", *map(repr, frequency),
            "--seeds", f"{part.seeds}", "--set", *changed, "--output", f"runs/{name}",
        ])  # fmt: skip


def plan_seeds(judged: Sequence[tuple[Verdict, Finding | None]], runs: Sequence[Evidence]) -> list[Step]:
    """Plan the seeds of undecided claims, the most decisions per core hour first.

    A claim gets the seeds up to the look with the highest chance of a decision per further seed. Claims that this look
    would decide with a chance below a tenth are left out. Cells that several claims compare are computed once. The
    hours are those that the stored seeds of the same cells took.
    """
    steps: dict[Part, Step] = {}
    needs: dict[str, tuple[float, set[Part]]] = {}
    for verdict, finding in judged:
        if finding is None or verdict.word != "undecided":
            continue
        ends = [finding.effect.n]
        chance, most = 0.0, finding.effect.n
        for pairs, look in _further_looks(verdict, finding):
            ends.append(pairs)
            found = chance_to_decide(verdict, pairs, look)
            if found / (pairs - ends[0]) > chance / max(most - ends[0], 1):
                chance, most = found, pairs
        if chance < 0.1:
            continue
        parts = set()
        more = [end - begin for begin, end in itertools.pairwise(ends) if end <= most]
        chosen = [run for run in runs if run.path.name in finding.runs]
        for cell in (cell for side in verdict.claim.cells() for cell in side):
            for part, seconds in _parts(cell, chosen, more):
                step = steps.setdefault(part, Step(part, {}))
                step.points.setdefault((cell.strategy, cell.noise, cell.frequency), seconds * part.seeds / 3600)
                parts.add(part)
        needs[verdict.claim.id] = chance, parts
    return list(_by_value(steps, needs))


def _further_looks(verdict: Verdict, finding: Finding) -> Iterator[tuple[int, int]]:
    """Yield number of pairs and number of each look for which there are not enough pairs yet."""
    for look in range(1, LOOKS + 1):
        pairs = verdict.claim.first_look * 2 ** (look - 1)
        if pairs > finding.effect.n:
            yield pairs, look


def _parts(cell: Cell, runs: Sequence[Evidence], more: Sequence[int]) -> Iterator[tuple[Part, float]]:
    """Yield the parts that add the seeds of each look to a cell, and the seconds that a seed of this cell took."""
    holding = [run for run in runs if run.holds(cell)]
    first = min(holding, key=lambda run: (run.root_seed, int(run.data["seed"][0])))
    same = [run for run in holding if (run.root_seed, run.episodes) == (first.root_seed, first.episodes)]
    place = {axis: getattr(cell, axis) for axis in AXES}
    there = [run.data["seed"][run.data["reward"].sel(place).notnull().any("episode").values] for run in same]
    behind = max(int(each.max()) for each in there) + 1
    seconds = float(np.nansum(first.data["seconds"].sel(place))) / there[same.index(first)].size
    for seeds in more:
        yield Part(first.path.name, f"{first.path / 'study.toml'}", cell.plant, cell.learner, behind, seeds), seconds
        behind += seeds


def _by_value(steps: dict[Part, Step], needs: dict[str, tuple[float, set[Part]]]) -> Iterator[Step]:
    """Yield steps so that those which complete the most likely decisions per hour come first."""
    left, done = dict(needs), set[Part]()

    def decided(parts: set[Part]) -> dict[str, float]:
        return {claim: chance for claim, (chance, own) in left.items() if own <= done | parts}

    while left:
        groups = [own - done for _, own in left.values()]
        best = max(groups, key=lambda parts: sum(decided(parts).values()) / max(_hours(steps, parts), 1e-9))
        claims = decided(best)
        ordered = sorted(best, key=lambda part: steps[part].hours)
        steps[ordered[-1]].claims.update(claims)
        yield from (steps[part] for part in ordered)
        done |= best
        left = {claim: each for claim, each in left.items() if claim not in claims}


def _hours(steps: dict[Part, Step], parts: set[Part]) -> float:
    return sum(steps[part].hours for part in parts)
