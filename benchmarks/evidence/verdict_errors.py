"""Error rates of the rule that judges claims, and its power: python -m benchmarks.evidence.verdict_errors

Pairs of runs are simulated in which a share of the runs collapses. `judge` then tests one claim that expects a higher
mean, with a smallest effect of interest of half a standard deviation of the differences of typical runs. The true mean
difference is known, so that each verdict is right or false:

- at 0, "reproduced" is false. With one-sided collapses, runs of the second cell collapse, and the typical run of the
  first cell is worse, so that the mean difference is 0 with a long tail in the claimed direction.
- at the smallest effect of interest, "contradicted" and "smaller than relevant" are false. The tail then lies in the
  other direction.
- at twice the smallest effect of interest, "reproduced" is right, and its rate is the power.

The result is `benchmarks/results/verdict_errors.json`.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Final

import numpy as np
import tyro

from benchmarks.tables.stored import RESULTS
from replaybench.evidence.claim import Claim, judge
from replaybench.experiments.effects import Effect

CLAIM: Final = Claim(
    id="simulated", source="", statement="", preset="debruin2018/fig12", plus=(), expects="more", relevance=0.05
)
"""A claim with looks at 50, 100 and 200 pairs."""
DEPTH: Final = 0.8
"""Loss of score of a collapsed run, in units in which typical differences have a standard deviation of 0.1."""
PAIRS: Final = (8, 32, 50, 200)
RUNS: Final = (
    *((tails, 0.0, "both cells") for tails in ("normal", "t3")),
    *(("normal", share, where) for share in (0.02, 0.1, 0.3) for where in ("both cells", "one cell")),
)
"""Distribution of typical differences, share of collapsed runs, and where runs collapse."""
STORED: Final = RESULTS / "verdict_errors.json"
MEANS: Final = {"no effect": 0.0, "smallest effect": 0.05, "large effect": 0.1}


def differences(
    rng: np.random.Generator, pairs: int, tails: str, share: float, collapses: str, mean: float, side: int
) -> np.ndarray:
    """Draw paired differences with a true mean. `side` is the sign of the differences of one-sided collapses."""
    typical = rng.normal(size=pairs) if tails == "normal" else rng.standard_t(3, size=pairs) / np.sqrt(3)
    collapsed = rng.random((2, pairs)) < share
    if collapses == "both cells":
        jumps, expected = DEPTH * (collapsed[0] * 1.0 - collapsed[1]), 0.0
    else:
        jumps, expected = DEPTH * side * collapsed[0], DEPTH * side * share
    drawn: np.ndarray = mean + 0.1 * typical + jumps - expected
    return drawn


def rates(repetitions: int, pairs: int, tails: str, share: float, collapses: str, effect: str) -> dict[str, float]:
    """Return how often each verdict was given in one setting."""
    rng = np.random.Generator(np.random.PCG64([pairs, round(100 * share), len(tails), len(collapses), len(effect)]))
    side = -1 if effect == "smallest effect" else 1
    words = []
    for _ in range(repetitions):
        drawn = differences(rng, pairs, tails, share, collapses, MEANS[effect], side)
        [verdict] = judge([CLAIM], [Effect(drawn)])
        words.append("hangs on one" if verdict.hangs_on_one else verdict.word)
    return {word: words.count(word) / repetitions for word in sorted(set(words))}


def settings() -> Iterator[tuple[int, str, float, str, str]]:
    """Yield pairs, tails, share of collapses, where they happen, and effect of each setting."""
    for pairs, (tails, share, collapses), effect in itertools.product(PAIRS, RUNS, MEANS):
        yield pairs, tails, share, collapses, effect


def main(repetitions: int = 400) -> None:
    """Simulate all settings and store how often each verdict was given. It takes seven minutes of a core.

    Args:
        repetitions: simulated claims per setting.
    """
    names = ("pairs", "tails", "share", "collapses", "effect")
    rows = [
        {**dict(zip(names, setting, strict=True)), "verdicts": rates(repetitions, *setting)} for setting in settings()
    ]
    told = {"depth": DEPTH, "relevance": CLAIM.relevance, "repetitions": repetitions, "settings": rows}
    STORED.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
