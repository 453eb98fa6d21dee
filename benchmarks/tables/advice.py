"""Quality of advice on plants for which its rules were not made."""

from typing import Any

from benchmarks.tables.stored import facts
from benchmarks.tables.text import between, captioned, listed, number, table


def texts() -> dict[str, str]:
    """Return the table of `benchmarks/evidence/advice.py`, and what one strategy for all would have done."""
    told = facts("advice.json")
    near = sum(row["near"] for row in told["rows"])
    caption = (
        f"Scores are means over {told['seeds']} seeds × {told['episodes']} episodes. The advice was computed on other "
        f"seeds than the scores. The advised strategy is within {told['near']:g} of the best of twelve on {near} of "
        f"{len(told['rows'])} plants. The best is chosen on the seeds that are shown, which favours it. If one "
        f"strategy is used on all plants, it is within {told['near']:g} on {listed(_always(told))}. The last column "
        "is the score of the best minus that of the advised strategy, as a mean over paired seeds."
    )
    headings = ("plant", "Hz", "noise", "advised", "score", "best of 12", "score", "difference [95 %]")
    rows = [
        [
            row["plant"],
            f"{row['frequency']:g}",
            f"{row['noise']:g}",
            row["advised"],
            number(row["score"], 3),
            row["best"],
            number(row["best_score"], 3),
            between(row["behind"], *row["interval"], 3),
        ]
        for row in told["rows"]
    ]
    return {"advice": captioned(caption, table(headings, rows))}


def _always(told: dict[str, Any]) -> list[str]:
    """Count on how many plants each of some strategies is as near the best as advice should be."""
    return [
        f"{sum(row['best_score'] - row['strategies'][name] <= told['near'] for row in told['rows'])} plants with {name}"
        for name in ("FIFO[Uniform]", "FULL[Uniform]", "FULL[PER]", "FULL[PER+IS]")
    ]
