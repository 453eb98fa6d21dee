"""Coverage of intervals and errors of tests of few runs, from `benchmarks/evidence`."""

from typing import Any

from benchmarks.tables.stored import facts
from benchmarks.tables.text import captioned, number, table

ERRORS = "verdict_errors.json"
_REFUTED = ("contradicted", "smaller than relevant")
_JUDGED = ("false reproduced", "false contradicted", "power", "hangs on one")
NOMINAL = 0.95
NEAR = 0.02
"""Distance from nominal that is not marked; the standard error of a share is 0.007."""

_SCORES = {"dead seeds": "15 % collapsed"}
"""Names of distributions in the table that differ from those in the file."""
_COLUMNS = {
    "mean": "mean",
    "interquartile mean": "IQM",
    "paired difference": "paired difference",
    "improvement": "P(better)",
    "worst run": "worst-run bound",
    "90 % reach": "90 % bound",
}
_TESTS = {
    "flipped signs, wrongly": "sign-flip test: false positives",
    "flipped signs, rightly": "sign-flip test: power",
    "apart, wrongly": "overlap: false positives",
    "apart, rightly": "overlap: power",
    "surpassed, wrongly": "one-sided test: wrongly larger",
    "fallen short of, wrongly": "one-sided test: wrongly smaller",
}


def texts() -> dict[str, str]:
    told = facts("coverage.json")
    rows: list[dict[str, Any]] = told["rows"]
    caption = (
        f"Each row summarises {told['repetitions']:,} simulated samples. The columns *mean* to *90 % bound* give "
        "coverage: the share of samples whose 95 % interval or bound contains the true value. A share below "
        f"{NOMINAL - NEAR:.2f} is bold. P(better) is the probability that a run of one strategy is better than a run "
        "of another; its column uses 200 samples. The worst-run bound is a lower bound on the probability that a "
        "further run is better than the worst run of the sample. The 90 % bound is a score that 90 % of further runs "
        f"exceed. The next four columns compare two strategies on shared seeds (correlation {told['shared']:g}). They "
        "give the share of samples in which the strategies are called different: false positives if both are equal, "
        "power if one is half a standard deviation better. The sign-flip test is paired (p < 0.05). The overlap rule "
        "calls strategies different if their intervals do not overlap. The last two columns compare a strategy with "
        "another one whose scores are normal. They give the share of one-sided sign-flip tests (p < 0.05) that wrongly "
        "find the difference larger (smaller) than it is. All tests are of means, as `claims` compares final scores."
    )
    headings = ("scores", "runs", *_COLUMNS.values(), *_TESTS.values())
    shown = [
        [
            _SCORES.get(row["scores"], row["scores"]),
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
        "verdict_errors": _errors(),
        "verdict_errors.false": number(max(_false()), 3),
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
        "Each row summarises 500 simulated samples. The first column names the distributions of the two scores whose "
        "difference is tested. The columns *more* and *less* give the share of samples in which test and interval both "
        "wrongly find the effect larger (*more*) or smaller (*less*) than it is. The column *decided* gives the share "
        "of samples in which a true claim of a gain is reproduced. The true gain is one standard deviation of a "
        "typical difference, and twice the smallest effect of interest. Each claim is tested alone. If a paper has "
        "many claims, Holm's correction makes errors rarer."
    )
    headings = ("scores", "seeds", *(f"{way}: {name.split(',')[0]}" for way in ways for name in told))
    return captioned(caption, table(headings, shown))


def _false() -> list[float]:
    """Return the share of false verdicts in each setting with no effect, or with the smallest effect of interest."""
    words = {"no effect": ("reproduced",), "smallest effect": _REFUTED}
    rows = [row for row in facts(ERRORS)["settings"] if row["effect"] in words]
    return [sum(row["verdicts"].get(word, 0.0) for word in words[row["effect"]]) for row in rows]


def _errors() -> str:
    """Show how often the rule that judges claims is wrong, and how often it decides rightly."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in facts(ERRORS)["settings"]:
        tails = "t with 3 degrees of freedom" if row["tails"] == "t3" else "normal"
        runs = f"{tails}, {100 * row['share']:g} % collapse in {row['collapses']}" if row["share"] else tails
        found.setdefault((runs, f"{row['pairs']}"), {})[row["effect"]] = row["verdicts"]
    shown = [
        [
            *setting,
            f"{verdicts['no effect'].get('reproduced', 0):.2f}",
            f"{sum(verdicts['smallest effect'].get(word, 0) for word in _REFUTED):.2f}",
            f"{verdicts['large effect'].get('reproduced', 0):.2f}",
            f"{verdicts['large effect'].get('hangs on one', 0):.2f}",
        ]
        for setting, verdicts in found.items()
    ]
    caption = (
        f"Each share is of {facts(ERRORS)['repetitions']} simulated claims that expect a higher mean, tested alone "
        "with looks at 50, 100 and 200 pairs. *False reproduced*: the true mean difference is 0, and one-sided "
        "collapses make a long tail in the claimed direction. *False contradicted*: it is the smallest effect of "
        "interest, with the tail in the other direction; this effect is half a standard deviation of typical "
        "differences. *Power*: it is twice as large, and the claim is reproduced. *Hangs on one*: the same, and the "
        "claim is undecided for one run."
    )
    return captioned(caption, table(("runs", "pairs", *_JUDGED), shown))


def _share(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.2f}" if share >= NOMINAL - NEAR else f"**{share:.2f}**"
