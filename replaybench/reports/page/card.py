"""The card of a strategy as an HTML page, and the figure with the mean ranks of all strategies."""

from collections.abc import Sequence

from replaybench.evidence.card import Card
from replaybench.experiments.text_table import FittedTable
from replaybench.reports.figures.style import PALETTE
from replaybench.reports.page import theme
from replaybench.reports.page.report import Page, render
from replaybench.reports.page.summary import Conclusion, Summary, listed
from replaybench.reports.page.theme import Panel, Row, Section, Table


def card_page(card: Card) -> str:
    """Return the card of a strategy as HTML."""
    measures, scores = card.tables()
    plants = list(dict.fromkeys(each.plant for each in card.conditions))
    seeds = next(iter(card.standings.values())).final.shape[1]
    summary = Summary(
        f"{card.strategy} was compared with {len(card.standings) - 1} other strategies on {listed(plants)}, with and "
        f"without noise and at two replay volumes, with {seeds} seeds each. The learner is DDPG.",
        [Conclusion(f"replay volume {volume:g}", _headline(card, volume), []) for volume in card.by_volume()],
        measures.caption,
        "Intervals are 95 % bootstrap intervals over seeds. They do not hold for other plants or learners.",
    )
    panels = [_ranks_panel(card, volume) for volume in card.by_volume()]
    lead = ["Dots: mean ranks over the conditions by final score; 1 is best. Lines: 95 % intervals over seeds."]
    sections = [
        Section("card", "Card", [], tables=[_table(measures)]),
        Section("ranks", "Ranks", lead, panels),
        Section("scores", "Scores", [], tables=[_table(scores)]),
    ]
    return render(Page(measures.title, summary, [], sections, []))


def _headline(card: Card, volume: float) -> str:
    return f"mean rank {card.ranks(volume)[card.strategy].text(1)} of {len(card.standings)}"


def _table(table: FittedTable) -> Table:
    return Table(
        table.title, table.headings, [Row([str(cell) for cell in row], {}) for row in table.rows], 1, open=True
    )


def _ranks_panel(card: Card, volume: float) -> Panel:
    ranks = card.ranks(volume)
    order: Sequence[str] = sorted(ranks, key=lambda name: -ranks[name].mean)
    names = {name: theme.plain(name) for name in order}
    traces: list[theme.Trace] = []
    for name in order:
        rank = ranks[name]
        color = PALETTE[1] if name == card.strategy else PALETTE[0]
        ends = {
            "type": "data",
            "symmetric": False,
            "array": [rank.high - rank.mean],
            "arrayminus": [rank.mean - rank.low],
        }
        dot = {
            "type": "scatter",
            "mode": "markers",
            "x": [rank.mean],
            "y": [theme.plain(name)],
            "name": theme.plain(name),
        }
        style = {
            "marker": {"color": color, "size": 9},
            "error_x": ends | {"color": color, "thickness": 1.5, "width": 0},
        }
        traces.append(dot | style | {"hovertemplate": f"{names[name]}: {rank.text(1)}<extra></extra>"})
    figure = theme.new_figure(
        traces, "mean rank (1 is best)", "", height=76 + 22 * len(order), xaxis={"showgrid": True},
        yaxis={"type": "category", "showgrid": True, "categoryorder": "array", "categoryarray": [*names.values()]},
    )  # fmt: skip
    words = "; ".join(f"{name} {ranks[name].text(1)}" for name in reversed(order))
    return Panel(f"replay volume {volume:g}", f"Mean ranks at replay volume {volume:g}: {words}.", figure, {})
