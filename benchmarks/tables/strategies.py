"""Ranks and scores of all strategies on the protocol of `card` and on further plants, and their cards."""

from typing import Final

import numpy as np

from benchmarks.tables.stored import cells, results
from benchmarks.tables.text import between, captioned, difference, listed, number, spread, table
from replaybench.evidence.card import BASELINE, Card, protocol_standings, stored_learners, stored_standings
from replaybench.experiments.effects import family_p, improvements, p_text, paired
from replaybench.experiments.statistics import DEAD_LEVEL
from replaybench.experiments.study import VOLUME
from replaybench.experiments.text_table import Collector
from replaybench.runtime.arrays import Floats

_SEEDS: Final = 24
_CHEETAH: Final = "strategies-cheetah"
_NOISE: Final = {"DDPG": "without noise, on the first three also with noise 0.02", "SAC": "without noise"}


def texts() -> dict[str, str]:
    cards = {learner: Card(BASELINE, *stored_standings(learner), "") for learner in stored_learners()}
    return {
        **{f"strategies.{learner}": _table(card, learner) for learner, card in cards.items()},
        **{f"strategies.{learner}.plants": _by_plant(card) for learner, card in cards.items()},
        **{key: text for learner, card in cards.items() for key, text in _attention(card, learner).items()},
        "strategies.cheetah": _cheetah(),
        "cards": "\n\n".join(map(_card, _order(Card(BASELINE, *protocol_standings(), "")))),
    }


def _order(card: Card) -> list[str]:
    """Return the strategies of a card by mean rank, the best first."""
    ranks = [card.ranks(volume) for volume in card.by_volume()]
    return sorted(card.standings, key=lambda name: sum(rank[name].mean for rank in ranks))


def _table(card: Card, learner: str) -> str:
    standings = card.standings
    ranks = {volume: card.ranks(volume) for volume in card.by_volume()}
    rows = []
    for name in _order(card):
        own, cells = standings[name], list[str]()
        for volume, part in card.by_volume().items():
            rank, baseline = ranks[volume][name], standings[BASELINE].final[part].mean(axis=0)
            gain = "–" if name == BASELINE else difference(own.final[part].mean(axis=0), baseline, 3)[0]
            chance = "–" if name == BASELINE else _better(own.final[part], standings[BASELINE].final[part])
            cells += [between(rank.mean, rank.low, rank.high, 1), spread(own.final[part].mean(axis=0), 2), gain, chance]
        rows.append([name, *cells, number(int((own.final < DEAD_LEVEL).sum()), 0)])
    plants = listed([*dict.fromkeys(condition.plant for condition in card.conditions)])
    caption = (
        f"{learner}, {_SEEDS} seeds × 150 episodes on {plants} {_NOISE[learner]} (300 shorter episodes on "
        "MujocoReacher). On CartPole and MujocoReacher, which have no solution by dynamic programming, a score of 1 is "
        "a cost of zero. A "
        "rank is by mean final score in one condition; the table shows means over the conditions of a volume, with "
        "95 % bootstrap intervals over seeds. Scores are means over the same conditions. *Gain* is the score minus "
        f"that of {BASELINE}, as a mean over paired seeds with its 95 % BCa interval. *P(better)* is the probability "
        f"that a run ends higher than a run of {BASELINE} in the same condition, as a mean over conditions with its "
        f"95 % bootstrap interval over seeds. *Collapsed* counts runs of all {standings[BASELINE].final.size} with a "
        f"final score below {DEAD_LEVEL}."
    )
    per = [f"{part}, volume {volume:g}" for volume in ranks for part in ("rank", "score", "gain", "P(better)")]
    assert all(np.isfinite(each.final).all() for each in standings.values())
    return captioned(caption, table(("strategy", *per, "collapsed"), rows))


def _by_plant(card: Card) -> str:
    """Return the gain of each strategy on each plant at each volume."""
    parts: dict[tuple[str, float], list[int]] = {}
    for volume, places in card.by_volume().items():
        for place in places:
            parts.setdefault((card.conditions[place].plant, volume), []).append(place)
    baseline = card.standings[BASELINE].final
    rows = [[f"score of {BASELINE}", *(number(float(baseline[part].mean())) for part in parts.values())]]
    for name in _order(card):
        cells = []
        for part in parts.values() if name != BASELINE else ():
            effect = paired([card.standings[name].final[part].mean(axis=0)], [baseline[part].mean(axis=0)])
            low, high = effect.interval()
            cells.append(number(effect.estimate) + ("*" if low > 0 or high < 0 else ""))
        if cells:
            rows.append([name, *cells])
    caption = (
        f"Mean final score minus that of {BASELINE} on each plant, over all noise levels. A star marks a 95 % BCa "
        "interval of paired seeds without zero."
    )
    return captioned(caption, table(("strategy", *(f"{plant}, {volume:g}" for plant, volume in parts)), rows))


def _cheetah() -> str:
    """Return the returns of the strategies that the page advises on the half-cheetah."""
    rows = []
    for condition in map(str, results(_CHEETAH)["learner"].values):
        finals = {each.strategy: each.final for each in cells(_CHEETAH) if each.learner == condition}
        effects = {name: paired([own], [finals[BASELINE]]) for name, own in finals.items() if name != BASELINE}
        p = dict(zip(effects, map(p_text, family_p([*effects.values()])), strict=True))
        for name, own in finals.items():
            gain = "–" if name == BASELINE else difference(own, finals[BASELINE], 0)[0]
            rows.append([*condition.split(VOLUME), name, spread(own, 0), gain, p.get(name, "–")])
    caption = (
        f"MujocoHalfCheetah, {results(_CHEETAH).sizes['seed']} seeds × 100,000 steps. *Return* is a mean over the "
        f"training episodes of the last 10,000 steps. *Gain* is the difference from {BASELINE}, as a mean over paired "
        "seeds with its 95 % BCa interval; p is that of a sign-flip test with Holm's correction for the differences "
        "of a learner at a volume."
    )
    headings = ("learner", "volume", "strategy", "return [95 %]", "gain [95 %]", "p")
    return captioned(caption, table(headings, rows))


def _attention(card: Card, learner: str) -> dict[str, str]:
    """Return the gain of attentive replay over uniform replay with the same learning rates at each volume."""
    ours, control = (card.standings[f"FULL[{name}]"].final for name in ("AER", "Annealed"))
    return {
        f"strategies.{learner}.attention-{volume:g}": difference(
            ours[part].mean(axis=0), control[part].mean(axis=0), 3
        )[0]
        for volume, part in card.by_volume().items()
    }


def _better(final: Floats, baseline: Floats) -> str:
    """Return the probability that a run of the first is better, for final scores `[C, n]` in C conditions."""
    better = (np.sign(final[:, :, None] - baseline[:, None, :]) + 1) / 2
    low, high = np.quantile(improvements(better).mean(axis=0), [0.025, 0.975])
    return between(float(better.mean()), float(low), float(high), 2)


def _card(name: str) -> str:
    """Return the card of a strategy as Markdown that a reader can unfold."""
    tables = Collector()
    for part in Card(name, *protocol_standings(), "").tables():
        tables.print(part)
    return (
        f'<details markdown="1">\n<summary><code>{name}</code></summary>\n\n{tables.text("md").strip()}\n\n</details>'
    )
