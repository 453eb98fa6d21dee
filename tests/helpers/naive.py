"""One member's replay buffer as the papers tell it: lists, sorting, sums from scratch, a few lines per strategy.

The oracle of the tests. Its random numbers are NumPy's own generators on the documented seeds, its binomials SciPy's;
it shares no code with `replaybench.replay` but the descriptions of strategies. Where a
strategy draws by cumulative priority, a draw whose target lies within rounding error of the boundary of two experiences
may give either (`Prediction.allowed`).
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import binom

from replaybench.replay.strategies.actor_critic import LA3P
from replaybench.replay.strategies.coverage import Cover
from replaybench.replay.strategies.entry import Synth
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.prioritised import LAP, PERprop
from replaybench.replay.strategies.recent import ERE, EREPER
from replaybench.replay.strategies.reliable import ReaPER
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.weighting import FIS, IS
from replaybench.runtime.streams import PURPOSES

Step = Mapping[str, np.ndarray]
ROUNDING = 1e-12


class Random:
    """The numbers in [0, 1) of one member and purpose."""

    def __init__(self, root: int, member: int, purpose: str) -> None:
        seed = np.random.SeedSequence(root, spawn_key=(member, PURPOSES.index(purpose)))
        self.double = np.random.Generator(np.random.SFC64(seed)).random

    def below(self, n: int) -> int:
        return int(self.double() * n)


@dataclass
class Unit:
    """What a slot holds: steps of one episode, and what strategies know of it."""

    serial: int
    steps: list[dict[str, np.ndarray]]
    episode: int
    first_step: int
    arrived: int = 0
    error: float = math.inf
    priority: np.floating = np.float32(1)  # noqa: RUF009, immutable
    replays: int = 0
    synthetic: bool = False

    @property
    def exploration(self) -> float:
        return mean([step["exploration"][0] for step in self.steps])


def mean(values: Sequence[float]) -> float:
    with np.errstate(invalid="ignore"):
        value = np.float32(np.sum(np.asarray(values, np.float32))) / np.float32(len(values))
    return math.inf if np.isnan(value) else float(value)


@dataclass
class Prediction:
    """What a sample must be: for each draw the slots that are right, their probabilities, weights by draw."""

    allowed: list[set[int]]
    probability: dict[int, float]
    rate_factor: float = 1.0
    other: tuple["Prediction", ...] = ()
    """Further draws of the batch, which follow another law."""

    def probabilities(self, idx: Sequence[int]) -> list[float]:
        own = [self.probability.get(slot, math.nan) for slot in idx[: len(self.allowed)]]
        for part in self.other:
            own += part.probabilities(idx[len(own) : len(own) + len(part.allowed)])
        return own

    def slots(self) -> list[set[int]]:
        return [*self.allowed, *(slots for part in self.other for slots in part.slots())]


def rank_segments(alpha: float, count: int, segments: int) -> list[range]:
    """Cut ranks into no more segments of equal cumulative probability of rank^−α, each at least one rank wide."""
    cumulative = np.cumsum(np.arange(1, count + 1, dtype=float) ** -alpha)
    edges = [0]
    for b in range(1, segments):
        below = int((cumulative <= cumulative[-1] * b / segments).sum())
        edges.append(min(max(below, edges[-1] + 1), count - segments + b))
    edges.append(count)
    return [range(low, high) for low, high in itertools.pairwise(edges)]


class NaiveReplay:
    """The buffer of member `member`; `capacity` counts units."""

    def __init__(
        self,
        strategy: Strategy,
        capacity: int,
        root: int,
        member: int,
        batch: int,
        steps: int = 1,
        whole: bool = False,
        model: Any = None,
    ) -> None:
        self.strategy, self.capacity, self.batch = strategy, capacity, batch
        self.steps, self.whole, self.model = steps, whole, model
        self.slots: list[Unit] = []
        self.under_way: list[dict[str, np.ndarray]] = []
        self.collected = self.offers = self.arrivals = self.turn = self.updates = 0
        self.before: tuple[int, int] | None = None  # offers and updates when the first phase was over
        self.episode, self.step = 0, 0
        self.leaving: list[int] = []  # serial numbers that go next, under `FarPol`
        self.cells: dict[tuple[int, ...], list[int]] = {}  # slots, the oldest first; in the order of their last change
        self.largest = np.float32(1)
        self.accepted = [0.0, 0.0]  # by `ReaPER`
        self.random = {name: Random(root, member, name) for name in ("retention", "sampling", "drop", "synthesis")}

    def add(self, step: Step, ended: bool, td_error: float | None = None) -> None:
        """Collect a step; where it completes a unit, offer that."""
        self.collected += 1
        self.under_way.append({name: np.array(value, np.float32) for name, value in step.items()})
        length = len(self.under_way)
        if ended or (length == self.steps and not self.whole):
            new = Unit(self.collected - length + 1, self.under_way, self.episode, self.step - length + 1)
            self.under_way = []
            self._offer(new, td_error)
        self.step += 1
        if ended:
            self.episode, self.step = self.episode + 1, 0

    def _offer(self, new: Unit, td_error: float | None) -> None:
        drop = self.strategy.drop
        if drop is not None and self.random["drop"].double() < float(drop.probability):
            return
        self.offers += 1
        fresh = len(self.slots) < self.capacity
        slot = len(self.slots) if fresh else self._victim()
        if slot is None or (self.strategy.synth and not self._synthesise(new, slot, fresh, self.strategy.synth)):
            return
        self.arrivals += 1
        new.arrived, new.priority = self.arrivals, self.largest
        if td_error is not None:
            new.error = math.inf if math.isnan(td_error) else td_error
        if not fresh and isinstance(self.strategy.retention, Cover):
            self._move(self._cell(self.slots[slot]), self.cells[self._cell(self.slots[slot])][1:])
        if fresh:
            self.slots.append(new)
        else:
            self.slots[slot] = new
        if isinstance(self.strategy.retention, Cover):
            self._move(self._cell(new), [*self.cells.get(self._cell(new), []), slot])

    def _cell(self, unit: Unit) -> tuple[int, ...]:
        bins = self.strategy.retention.bins  # type: ignore[attr-defined]
        return tuple(np.clip((unit.steps[0]["observation"] + 1.0) / 2 * bins, 0, bins - 1).astype(int).tolist())

    def _move(self, cell: tuple[int, ...], slots: list[int]) -> None:
        self.cells.pop(cell, None)
        if slots:
            self.cells[cell] = slots

    def _synthesise(self, new: Unit, slot: int, fresh: bool, synth: Synth) -> bool:
        """Perhaps make a new experience synthetic; False where the slot is to be left as it is (`refresh`)."""
        random = self.random["synthesis"]
        chance = random.double()
        if synth.refresh < 1 and not fresh:
            if not self.slots[slot].synthetic:
                return True  # the share of synthetic slots stays
            if random.double() >= synth.refresh:
                return False
            chance *= synth.state + synth.action
        of_state = chance < synth.state
        if not of_state and chance >= synth.state + synth.action:
            return True
        step = new.steps[0]
        if of_state:
            step["observation"] = np.array([2 * random.double() - 1 for _ in step["observation"]], np.float32)
            action, deviation, _ = self.model.explore(step["observation"][None])
            step["action"] = np.asarray(action[0], np.float32)
        else:
            step["action"] = np.array([2 * random.double() - 1 for _ in step["action"]], np.float32)
            deviation = self.model.deviation(step["observation"][None], step["action"][None])
        successor, reward, terminated = self.model.simulate(step["observation"][None], step["action"][None])
        step["next_observation"] = np.asarray(successor[0], np.float32)
        step["reward"], step["terminated"] = np.array([reward[0]], np.float32), np.array([terminated[0]], np.float32)
        step["exploration"] = np.array([deviation[0]], np.float32)
        new.synthetic = True
        return True

    def _victim(self) -> int | None:
        """The slot that a new experience overwrites; None if it is not kept."""
        name, random = type(self.strategy.retention).__name__, self.random["retention"]
        if name == "FIFO":
            self.turn += 1
            return (self.turn - 1) % self.capacity
        if name == "Resv":  # enters with probability C/i in place of a uniform victim
            place = random.below(self.offers)
            return place if place < self.capacity else None
        if name == "FarPol":
            self.leaving = self.leaving or self._farthest()
            serial = self.leaving.pop(0)
            return next(slot for slot, unit in enumerate(self.slots) if unit.serial == serial)
        if name == "Cover":
            return next(slots[0] for slots in self.cells.values() if len(slots) == max(map(len, self.cells.values())))
        assert name in ("TDE", "Expl")
        metric = (lambda unit: unit.error) if name == "TDE" else (lambda unit: unit.exploration)
        ordered = sorted(range(self.capacity), key=lambda slot: (metric(self.slots[slot]), self.slots[slot].arrived))
        return ordered[self._victim_rank(self.strategy.retention, random.double())]

    def _farthest(self) -> list[int]:
        """The episode with the largest share of far steps, of several the oldest; that under way only if alone."""
        episodes = {unit.episode for unit in self.slots}
        candidates = episodes - {self.episode} or episodes
        far = {e: [int(unit.steps[0]["far"][0]) for unit in self.slots if unit.episode == e] for e in candidates}
        chosen = max(candidates, key=lambda e: (Fraction(sum(far[e]), len(far[e])), -e))
        return sorted(unit.serial for unit in self.slots if unit.episode == chosen)

    def _victim_rank(self, retention: Any, chance: float) -> int:
        if retention.segments is None:
            cumulative = np.cumsum(np.arange(1, self.capacity + 1, dtype=float) ** -retention.alpha)
            return min(int((cumulative <= chance * cumulative[-1]).sum()), self.capacity - 1)
        wanted = max(3, self.capacity // 500) if retention.segments == "authors" else retention.segments
        segments = rank_segments(retention.alpha, self.capacity, min(wanted, self.capacity))
        place = chance * len(segments)
        ranks = segments[int(place)]
        return ranks[int((place - int(place)) * len(ranks))]

    def sample(self, context: Context, attended: np.ndarray) -> Prediction:
        """Predict the next batch."""
        self.updates += 1
        sampling = self.strategy.sampling
        if not self.slots:
            for _ in range({"AER": 1, "ReaPER": 0}.get(type(sampling).__name__, self.batch)):
                self.random["sampling"].double()
            return Prediction([{0}] * self.batch, {}, 0.0)
        draw: Callable[[Any, Context, np.ndarray], Prediction] = getattr(self, f"_draw_{type(sampling).__name__}")
        return draw(sampling, context, attended)

    def _draw_Uniform(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        count = len(self.slots)
        drawn = [{self.random["sampling"].below(count)} for _ in range(self.batch)]
        return Prediction(drawn, dict.fromkeys(range(count), 1 / count))

    def _draw_Annealed(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        plain = self._draw_Uniform(sampling, context, attended)
        return Prediction(plain.allowed, plain.probability, self._widening(sampling, context))

    def _widening(self, sampling: Any, context: Context) -> float:
        return float(sampling.first + (1 - sampling.first) * min(1.0, context.progress / sampling.alpha))

    def _draw_PER(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        by_age = type(self.strategy.retention).__name__ == "TDE"  # whose order it shares, read from the other end
        tie = (lambda slot: -self.slots[slot].arrived) if by_age else (lambda slot: slot)
        ranked = sorted(range(len(self.slots)), key=lambda slot: (-self.slots[slot].error, tie(slot)))
        if len(ranked) < self.batch:
            law = np.arange(1, len(ranked) + 1, dtype=float) ** -sampling.alpha
            law /= law.sum()
            shares = [(b + self.random["sampling"].double()) / self.batch for b in range(self.batch)]
            drawn = [{ranked[min(int((np.cumsum(law) <= share).sum()), len(ranked) - 1)]} for share in shares]
            return Prediction(drawn, dict(zip(ranked, law, strict=True)))
        segments = rank_segments(sampling.alpha, len(ranked), self.batch)
        chance = dict.fromkeys(ranked, 0.0)
        for ranks in segments:
            for rank in ranks:
                chance[ranked[rank]] += 1 / len(ranks) / self.batch
        drawn = [{ranked[ranks[self.random["sampling"].below(len(ranks))]]} for ranks in segments]
        return Prediction(drawn, chance)

    def _draw_PERprop(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        return self._proportional(list(range(len(self.slots))))

    def _draw_LA3P(self, sampling: LA3P, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        alone, every = self.alone, list(range(len(self.slots)))
        critic = self._proportional(every, alone)
        actor = self._proportional(every, alone, inverse=True)
        both = [{self.random["sampling"].below(len(every))} for _ in range(self.batch - 2 * alone)]
        return Prediction([], {}, other=(critic, actor, Prediction(both, dict.fromkeys(every, 1 / len(every)))))

    @property
    def alone(self) -> int:
        """Number of samples of a batch for the critic only, and for the actor only."""
        sampling = self.strategy.sampling
        if not isinstance(sampling, LA3P):
            return 0
        return min(math.floor(self.batch * sampling.share / (1 + sampling.share) + 0.5), self.batch // 2)

    def network_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of samples in the losses of critic and actor."""
        both = [1.0] * (self.batch - 2 * self.alone)
        critic, actor = [1.0] * self.alone + [0.0] * self.alone + both, [0.0] * self.alone + [1.0] * self.alone + both
        return np.array(critic) / np.mean(critic), np.array(actor) / np.mean(actor)

    _draw_LAP = _draw_PERprop  # noqa: N815
    _draw_PAL = _draw_Uniform  # noqa: N815

    def _draw_TruncGeo(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        count = len(self.slots)
        p = 1 - math.exp(-sampling.decay / (self.capacity if self.strategy.retention.bounded else count))
        law = p * (1 - p) ** np.arange(count) / (1 - (1 - p) ** count)
        newest_first = sorted(range(count), key=lambda slot: -self.slots[slot].arrived)
        places = [int((np.cumsum(law) <= self.random["sampling"].double()).sum()) for _ in range(self.batch)]
        drawn = [{newest_first[min(place, count - 1)]} for place in places]
        return Prediction(drawn, dict(zip(newest_first, law, strict=True)))

    def _draw_ReaPER(self, sampling: ReaPER, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        """Draw by |δ|^α, one from each of equal parts, and accept with probability R^ω; draw for the others again."""
        chance = self.reliabilities() ** sampling.omega
        proposals = np.clip([float(unit.priority) ** sampling.alpha for unit in self.slots], 2.0**-120, 2.0**120)
        cumulative, random = np.cumsum(proposals.astype(np.float32).astype(float)), self.random["sampling"]
        drawn, left = [{0}] * self.batch, list(range(self.batch))
        while left:
            targets = [cumulative[-1] * (j + random.double()) / len(left) for j in range(len(left))]
            slots = [min(int((cumulative <= target).sum()), len(self.slots) - 1) for target in targets]
            self.accepted[0] += sum(chance[slot] for slot in slots)
            self.accepted[1] += len(slots)
            for b, slot in list(zip(left, slots, strict=True)):
                if random.double() < chance[slot]:
                    drawn[b] = {slot}
                    left.remove(b)
        law = np.diff(cumulative, prepend=0) / cumulative[-1] * chance
        return Prediction(drawn, dict(enumerate(law / (self.accepted[0] / self.accepted[1]))))

    def reliabilities(self) -> np.ndarray:
        """Return R of each slot, where `priority` is |δ|."""
        units = [(unit.episode, unit.serial, float(unit.priority)) for unit in self.slots]
        sums = {episode: sum(size for e, _, size in units if e == episode) for episode, _, _ in units}
        until = [sum(size for e, s, size in units if e == episode and s <= serial) for episode, serial, _ in units]
        whole = [max(sums.values()) if e == self.episode else sums[e] for e, _, _ in units]
        return np.minimum(np.array(until) / whole, 1.0)

    def _draw_ERE(self, sampling: ERE, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        count = len(self.slots)
        size = self.capacity if self.strategy.retention.bounded else count
        eta = sampling.eta + (sampling.last - sampling.eta) * context.progress
        k, phase = context.update + 1, context.updates_in_phase
        if sampling.phase is not None:
            k, phase = (self.updates - 1) % sampling.phase + 1, sampling.phase
        c_min = min(5000, size / 200) if sampling.c_min is None else sampling.c_min
        c_k = min(max(int(max(size * eta ** (k * 1000 / phase), c_min)), 1), count)
        newest_first = sorted(range(count), key=lambda slot: -self.slots[slot].arrived)[:c_k]
        if isinstance(sampling, EREPER):
            return self._proportional(newest_first[::-1])
        drawn = [{newest_first[self.random["sampling"].below(c_k)]} for _ in range(self.batch)]
        return Prediction(drawn, dict.fromkeys(newest_first, 1 / c_k))

    _draw_EREPER = _draw_ERE  # noqa: N815

    def _proportional(self, slots: list[int], batch: int | None = None, inverse: bool = False) -> Prediction:
        """One draw from each of B equal parts of the priority of these slots, or of its inverse, in this order."""
        priority = {slot: np.float64(self.slots[slot].priority) for slot in slots}
        if inverse:
            priority = {slot: np.float64(np.float32(1 / value)) for slot, value in priority.items()}
        cumulative = np.cumsum([priority[slot] for slot in slots])
        total, drawn, batch = cumulative[-1], [], self.batch if batch is None else batch
        for b in range(batch):
            target = total * (b + self.random["sampling"].double()) / batch
            spread = total * ROUNDING
            near = np.searchsorted(cumulative, [target - spread, target, target + spread], side="right")
            drawn.append({slots[min(int(place), len(slots) - 1)] for place in near})
        return Prediction(drawn, {slot: float(priority[slot]) / total for slot in slots})

    def _draw_AER(self, sampling: Any, context: Context, attended: np.ndarray) -> Prediction:  # noqa: N802
        widening = self._widening(sampling, context)
        candidates = self._distinct(min(math.ceil(widening * self.batch), len(self.slots)))
        likeness = {slot: cosine(self.slots[slot].steps[0]["observation"], attended) for slot in candidates}
        places = sorted(range(len(candidates)), key=lambda i: (-likeness[candidates[i]], i))[: self.batch]
        kept = [candidates[i] for i in sorted(places)]
        return Prediction([{kept[b % len(kept)]} for b in range(self.batch)], {}, widening)

    def _distinct(self, n: int) -> list[int]:
        """n distinct slots: drawn again where one repeats; where n is over half of them all, from a shrinking pool."""
        random, count = self.random["sampling"], len(self.slots)
        if count < 2 * n:
            pool = list(range(count))
            for i in range(n):
                j = i + random.below(count - i)
                pool[i], pool[j] = pool[j], pool[i]
            return pool[:n]
        drawn: list[int] = []
        while len(drawn) < n:
            slot = random.below(count)
            if slot not in drawn:
                drawn.append(slot)
        return drawn

    def weigh(self, context: Context, idx: Sequence[int], probability: dict[int, float]) -> np.ndarray:
        """Weights of a batch on the critic's loss; counts its replays."""
        phase_end = self.updates - 1 - context.update + context.updates_in_phase
        self.before = self.before or (max(self.offers, 1), phase_end)
        if not self.slots:
            return np.zeros(len(idx))
        weighting, sampling = self.strategy.weighting, self.strategy.sampling
        if weighting is None and isinstance(sampling, EREPER):
            weighting = IS(0.6, 0.6, normalise=True, all_networks=True)  # Wang and Ross 2019, Algorithm 2
        for_this = np.ones(len(idx))
        if isinstance(weighting, IS):
            beta = weighting.first + (weighting.last - weighting.first) * context.progress
            for_this = np.array([(1 / (len(self.slots) * probability[slot])) ** beta for slot in idx])
            return for_this / for_this.max() if weighting.normalise else for_this
        if weighting is None:
            return for_this
        assert isinstance(weighting, FIS)
        return self._replay_weights(weighting.beta, context, idx)

    def _replay_weights(self, beta: float, context: Context, idx: Sequence[int]) -> np.ndarray:
        counts = []
        for slot in idx:
            self.slots[slot].replays += 1
            counts.append(self.slots[slot].replays)
        assert self.before is not None
        phase_end = self.updates - 1 - context.update + context.updates_in_phase
        offers, updates = self.offers - self.before[0], phase_end - self.before[1]
        n, expected = self.updates, self.updates * self.batch / len(self.slots)
        if len(self.slots) == self.capacity and self.strategy.retention.bounded and min(offers, updates) > 0:
            lifetime = self.capacity * updates / offers
            if lifetime <= phase_end * (1 + 1e-9):  # else some that are stored came before the first update
                n, expected = max(1, round(lifetime)), self.batch * updates / offers
        if expected > 0.5 * n:  # one batch draws an experience several times: draws are counted, not updates
            n *= self.batch
        reached = binom(n, min(1.0, expected / n)).sf(np.arange(max(*counts, math.ceil(expected)) + 1) - 1)
        usual = reached[1 : math.ceil(expected) + 1].sum() / expected
        return np.asarray((reached[counts] / usual) ** beta)

    @property
    def weighs_all_networks(self) -> bool:
        sampling, weighting = self.strategy.sampling, self.strategy.weighting
        by_default = weighting is None and isinstance(sampling, EREPER)
        return by_default or (isinstance(weighting, IS) and weighting.all_networks)

    def annotate(self, idx: Sequence[int], serial: Sequence[int], errors: np.ndarray, far: np.ndarray) -> None:
        """Take δ `[B]`, or `[B, steps]`, and flags `[B]` of what was drawn, unless it is gone; later ones stand."""
        for b, (slot, number, error, flag) in enumerate(zip(idx, serial, np.abs(errors), far, strict=True)):
            if slot < len(self.slots) and self.slots[slot].serial == number:
                unit = self.slots[slot]
                unit.steps[0]["far"] = np.array([flag])
                own = np.atleast_1d(error)[: len(unit.steps)].tolist() if errors.ndim > 1 else [error]
                unit.error = mean(own)
                if not self.alone <= b < 2 * self.alone:  # those are for the actor only
                    self._prioritise(unit)

    def _prioritise(self, unit: Unit) -> None:
        sampling = self.strategy.sampling
        rule = sampling.priorities if isinstance(sampling, EREPER) else sampling
        if not isinstance(rule, PERprop | LAP | LA3P | ReaPER):
            return
        if not math.isfinite(unit.error):
            unit.priority = self.largest
            return
        if isinstance(rule, ReaPER):
            unit.priority = np.float32(max(unit.error, 2.0**-126))
        else:
            size = max(unit.error, 1.0) if isinstance(rule, LAP | LA3P) else unit.error + rule.epsilon
            unit.priority = np.float32(size**rule.alpha)
        self.largest = max(self.largest, unit.priority)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Cosine of the angle between two states; 0 with a zero vector."""
    pairs = [(float(a), float(b)) for a, b in zip(one, other, strict=True)]
    size = math.sqrt(sum(b * b for _, b in pairs) * sum(a * a for a, _ in pairs))
    return sum(a * b for a, b in pairs) / size if size > 0 else 0.0
