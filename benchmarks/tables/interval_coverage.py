"""Coverage of intervals and errors of tests of few runs, from `benchmarks/evidence/interval_coverage.py`."""

from typing import Any

from benchmarks.tables.stored import facts
from benchmarks.tables.text import captioned, number, table

NOMINAL = 0.95
NEAR = 0.02
"""Distance from nominal that is not marked; the standard error of a share is 0.007."""

_COLUMNS = {
    "mean": "mean",
    "interquartile mean": "IQM",
    "paired difference": "paired difference",
    "improvement": "P(better)",
    "worst run": "worst run",
    "90 % reach": "90 % reach",
}
_TESTS = {
    "flipped signs, wrongly": "sign-flip test, equal",
    "flipped signs, rightly": "half an sd apart",
    "apart, wrongly": "intervals apart, equal",
    "apart, rightly": "half an sd apart",
    "surpassed, wrongly": "wrongly more",
    "fallen short of, wrongly": "wrongly less",
}


def texts() -> dict[str, str]:
    told = facts("coverage.json")
    rows: list[dict[str, Any]] = told["rows"]
    caption = (
        f"{told['repetitions']:,} samples of each size. Left: share of 95 % intervals and bounds that contain the "
        f"truth, bold where it is less than {NOMINAL - NEAR:.2f} (P(better): of 200 samples); right, how often two "
        f"strategies on shared seeds (correlation {told['shared']:g}) are called different, where they are equal and "
        "where one is half a standard deviation better: by paired sign-flip tests (p < 0.05), and by "
        "intervals that do not overlap. Last, how often the difference to another learner, of normal scores, is called "
        "larger, or smaller, than it is, by one-sided tests (p < 0.05) as `claims` uses them."
    )
    headings = ("scores", "runs", *_COLUMNS.values(), *_TESTS.values())
    shown = [
        [
            row["scores"],
            str(row["runs"]),
            *(_share(row.get(name)) for name in _COLUMNS),
            *(f"{row[t]:.2f}" for t in _TESTS),
        ]
        for row in rows
    ]
    dead = {row["runs"]: row for row in rows if row["scores"] == "dead seeds"}
    return {
        "coverage": captioned(caption, table(headings, shown)),
        "coverage.five": number(dead[5]["mean"], 2),
        "coverage.ten": number(dead[10]["paired difference"], 2),
        "coverage.fifty": number(min(row["paired difference"] for row in rows if row["runs"] == 50), 2),
        "coverage.middle": number(min(row["interquartile mean"] for row in rows if row["runs"] >= 10), 2),
        "coverage.flipped": number(max(row["flipped signs, wrongly"] for row in rows), 3),
        "coverage.bound": number(
            max(max(row["surpassed, wrongly"], row["fallen short of, wrongly"]) for row in rows if row["runs"] >= 25), 2
        ),
        "coverage.verdicts": _verdicts(told["verdicts"]),
        "coverage.apart": number(max(row["apart, wrongly"] for row in rows), 3),
    }


def _verdicts(rows: list[dict[str, Any]]) -> str:
    """Show how often a verdict would be wrong, and decided, by means and by interquartile means."""
    ways, told = ("interquartile mean", "mean"), ("more, wrongly", "less, wrongly", "decided")
    shown = [
        [row["scores"], str(row["runs"]), *(f"{row[f'{way}: {name}']:.2f}" for way in ways for name in told)]
        for row in rows
    ]
    caption = (
        "500 samples of each size. How often test and interval together call an effect larger, or smaller, than it is, "
        "and how often a claim of more is reproduced whose effect is one standard deviation of a typical difference, "
        "and twice the smallest effect of interest. One claim alone; with many claims of a paper, errors are rarer "
        "still."
    )
    headings = ("scores", "seeds", *(f"{way}: {name.split(',')[0]}" for way in ways for name in told))
    return captioned(caption, table(headings, shown))


def _share(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.2f}" if share >= NOMINAL - NEAR else f"**{share:.2f}**"
