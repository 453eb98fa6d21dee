"""The replay buffer of a population, `Replay`, which executes one strategy for all members.

A population is a set of M independent learners that are trained together. `Replay` owns the stored columns, the rank
orders and the traces. Traces are values that a learner maintains for each stored step. Only `Replay` writes to these
arrays. Strategies read the arrays and do not depend on each other. Learners do not depend on the strategy. A learner
returns annotations, such as TD errors, for the samples that it receives.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import CriticLoss, ReplayBatch, TraceRule, network_weights
from replaybench.replay.orders.rank_order import RankOrder, order_arrive_all, order_update_all
from replaybench.replay.storage.columns import Columns, Indices, gather, write
from replaybench.replay.storage.replayed import ReplayTally
from replaybench.replay.storage.slots import FIELDS, STEP, Assembly, NoiseTally, Unit, mean_over_steps
from replaybench.replay.storage.traces import EpisodeStarts, Traces, n_step_returns, windows
from replaybench.replay.strategies.entry import Model, RunningDrop, RunningSynth
from replaybench.replay.strategies.interface import BufferView, Context, Draws, Usage
from replaybench.replay.strategies.mixed import FixedExperiences, RunningMix
from replaybench.replay.strategies.strategy import (
    Strategy,
    check_drawn,
    check_feedback,
    check_fits,
    check_state_dict,
    choose_slots,
    is_built_in,
)
from replaybench.runtime.arrays import Bools, Floats32, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel

_CHUNK_BYTES: Final = 1 << 20  # size of the batches that one call draws, so that they stay in the CPU cache until used


def step_fields(observation_size: int, action_size: int) -> dict[str, int]:
    """Return the size of each field that an experience (s, a, r, s′, terminated) has, by name."""
    return {
        "observation": observation_size,
        "action": action_size,
        "reward": 1,
        "next_observation": observation_size,
        "terminated": 1,
    }


class _BatchArrays:
    """Preallocated arrays for the batches of U successive updates, each with B samples.

    Row m·U + u of an array belongs to update u of member m, that is the m-th of M independent learners.

    Attributes:
        draws: Buffer slots and probabilities, shape `[M·U, B]`, and learning-rate factors, shape `[M·U]`.
        joint: The arrays of `draws`, with slots and probabilities viewed as `[M, U·B]`.
        serial: Serial number of each sampled experience, shape `[M·U, B]`.
        weight: Weight of each sample in the loss, shape `[M·U, B]`.
        actor_weight: Weight of each sample in the actor's loss if the strategy weights only the critic's; shape
            `[M·U, B]`.
        constant: Weights that the sampling gives to samples in the critic's and the actor's loss, shape `[B]` each.
        columns: Sampled values of each field, as views of shape `[M·U, B, width]`.
        zeroed: Whether some weights and learning-rate factors are 0, because a member's buffer is empty.
    """

    def __init__(self, columns: Columns, batch: int, updates: int, loss: CriticLoss) -> None:
        members, shape = len(columns.serial), (len(columns.serial) * updates, batch)
        self.batch, self.updates, self.zeroed, wide = batch, updates, False, (members, updates * batch)
        self.draws = Draws(np.zeros(shape, np.int64), np.ones(shape), np.ones(shape[0], np.float32))
        self.joint = Draws(self.draws.idx.reshape(wide), self.draws.probability.reshape(wide), self.draws.rate_factor)
        self.constant, self.serial = network_weights(loss, batch), np.zeros(shape, np.uint32)
        self.weight, self.actor_weight = (np.tile(each, (shape[0], 1)) for each in self.constant)
        rows = np.zeros((*shape, columns.rows.shape[2]), np.float32)
        self.columns, self._wide = columns.views(rows), (rows.reshape(*wide, -1), self.serial.reshape(wide))

    def fetch(self, columns: Columns) -> None:
        gather(columns.rows, columns.serial, self.joint.idx, *self._wide)


class Replay:
    """The replay buffers of M members, which use the same replay strategy.

    Args:
        strategy: Strategy that decides which experiences are stored, sampled and weighted.
        fields: Number of values (width) of each stored field, by name.
        capacity: Number of steps that each member's buffer can hold. With `FULL` retention, the buffer needs space for
            all steps of the run. Every unit takes the space of the longest unit.
        root: Root seed of the study.
        members: Numbers of the M members. The random numbers of a member depend only on `root` and its own number.
        batch_size: Number of samples B per member and update.
        unit: Whether steps, segments or episodes are stored, ranked, evicted and sampled as a whole.
        model: Model of plant and policy, from which strategies with `Synth` compute synthetic experiences.
        traces: Rule by which the learner maintains values for each stored step, or None. Traces need units of one step.
        window: Largest number of successive steps that a batch contains for each sample, up to and including the
            sampled step. Values above 1 need units of one step.
        n_step: Largest number of steps over which a batch sums the rewards of each sample, from the sampled step on.
            Values above 1 need units of one step.
        discount: Discount γ of a control step in these sums.
        fixed: Experiences of a file, from which strategies with `Mix` take a share of each batch.

    Attributes:
        slots: Number of buffer slots of each member. A slot holds one unit.
        collected: Number of experiences that each member has collected; int64, shape `[M]`.
        offers: Number of units of each member so far, without those that `Drop` discarded; int64, shape `[M]`.
        count: Number of units that each member's buffer holds; int64, shape `[M]`.
        newest: Slot of the unit that was stored last; int64, shape `[M]`.
        tally: Statistics to which `sample` adds its draws, or None.

    Raises:
        UserError: The strategy does not support `fields` or `unit`, or it needs a `model` or `fixed` experiences.
    """

    def __init__(
        self,
        strategy: Strategy,
        fields: Mapping[str, int],
        capacity: int,
        root: int,
        members: Sequence[int],
        batch_size: int,
        unit: Unit = STEP,
        model: Model | None = None,
        traces: TraceRule | None = None,
        window: int = 1,
        n_step: int = 1,
        discount: float = 1.0,
        fixed: FixedExperiences | None = None,
    ) -> None:
        if capacity < unit.steps:
            least = f"{unit.steps}, the steps of its unit" if unit.steps > 1 else "1"
            raise UserError(f"replay capacity must be at least {least}, not {capacity}")
        if capacity > strategy.capacity_or(capacity):
            raise UserError(f"{strategy} has room for {strategy.capacity_or(capacity)} experiences, not {capacity}")
        if not isinstance(n_step, int) or n_step < 1:
            raise UserError(f"n_step must be a whole number of at least 1, not {n_step}")
        if traces is None and max(window, n_step) > 1:
            traces = TraceRule()
        check_fits(strategy, fields, unit, traces, window)
        m = len(members)
        self.root, self.members = root, tuple(members)
        self.strategy, self.slots, self.unit, self.window = strategy, capacity // unit.steps, unit, window
        self.n_step, self.discount = n_step, discount
        self.columns = Columns(m, self.slots, fields, unit.steps)
        self.collected, self.offers, self.count, self.newest = (np.zeros(m, np.int64) for _ in range(4))
        self.episodes = EpisodeStarts(m)
        self.updates = 0
        self.orders = {name: RankOrder(m, self.slots, name in strategy.retention.orders) for name in strategy.orders}
        bounded = strategy.retention.bounded
        self.traces = Traces(traces, m, self.slots) if traces is not None else None
        view = BufferView(
            root, members, self.slots, bounded, strategy.in_turn, self.columns, self.orders, self.episodes, self.traces
        )
        self.assembly = Assembly(unit, m, self.slots, self.columns.width) if unit.steps > 1 else None
        self.drop = RunningDrop(strategy.drop, view) if strategy.drop else None
        self.synth = RunningSynth(strategy.synth, view, model) if strategy.synth else None
        self.mix = RunningMix(strategy.mix, view, fixed, n_step, discount) if strategy.mix else None
        self.retention = strategy.retention.start(view)
        self.sampling = strategy.sampling.start(view)
        check_feedback(strategy.sampling, self.sampling)
        self.weighting = strategy.weights.start(view) if strategy.weights else None
        self._user_sampling = not is_built_in(self.sampling)
        noise = [fields[name] for name in FIELDS if name in fields]
        self.tally: ReplayTally | None = None
        self.noise = NoiseTally(m, *noise) if len(noise) == len(FIELDS) and self.assembly is None else None
        self.batch_size = batch_size

    @property
    def uses_feedback(self) -> bool:
        """Whether the strategy or the traces depend on values that the learner returns, such as TD errors."""
        return self.strategy.by_td_error or self.traces is not None

    @property
    def batch_size(self) -> int:
        """Number of samples in the batch of each member. The number can be changed between calls of `sample`."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, b: int) -> None:
        if b < 1:
            raise UserError(f"batch size must be at least 1, not {b}")
        self._batch_size = b
        self._allocate(b, 1)

    def _allocate(self, batch: int, updates: int) -> None:
        self._arrays = _BatchArrays(self.columns, batch, updates, self.strategy.sampling.critic_loss)

    @property
    def max_chunk(self) -> int:
        """Largest number of updates per call of `sample`: 1 if samples depend on earlier updates or have weights."""
        if not self.strategy.sampling.independent or self.weighting is not None or self.uses_feedback:
            return 1
        row_bytes = 4 * int(self.columns.rows.shape[2]) + 28
        return max(1, _CHUNK_BYTES // (len(self.members) * self.batch_size * row_bytes))

    def add(self, experience: Mapping[str, np.ndarray], active: Bools, ended: Bools | None = None) -> None:
        """Add one new experience of each active member, unless the strategy discards it.

        Args:
            experience: Values of each field, shape `[M, width]`. If |δ| is known, `td_error` contains it, shape
                `[M, 1]`. The mapping can also contain initial values of the learner's traces, shape `[M, 1]`.
            active: Whether each member has collected an experience; bool, shape `[M]`.
            ended: Whether each member's episode ended with this step, by termination or truncation; bool, shape `[M]`.
                By default no episode ended.
        """
        row = np.concatenate([experience[name] for name in self.columns.fields], axis=1, dtype=np.float32)
        ended = np.zeros(len(active), np.bool_) if ended is None else ended
        self.episodes.step(self.collected, active, ended)
        if self.traces is not None:
            self.traces.follow(experience, active)
        offered, serials = active.copy(), self.collected
        if self.assembly is not None:
            offered = self.assembly.extend(row, active, ended)
            row, serials = self.assembly.rows, self.collected - self.assembly.filled + 1
            complete = offered.copy()
        if self.drop is not None:
            self.drop.filter(offered)
        slots = np.empty_like(self.count)
        if offer(offered, self.count, self.slots, self.offers, slots):
            choose_slots(self.retention, self.offers, self.slots, slots)
        if self.synth is not None:
            self.synth.alter(row, slots, slots == self.count)
        if self.traces is not None:
            self.traces.evict(np.where(slots == self.count, -1, slots))
        write(self.columns.rows, self.columns.serial, slots, serials, row, self.count)
        np.copyto(self.newest, slots, where=slots >= 0)
        for metric, order in self.orders.items():
            order_arrive_all(order.state, slots, _arriving_keys(metric, experience, row, self.columns, self.assembly))
        self.retention.stored(slots)
        self.sampling.stored(slots)
        if self.weighting is not None:
            self.weighting.stored(slots)
        if self.assembly is not None:
            self.assembly.finish(complete, slots)
        if self.traces is not None:
            self.traces.store(experience, slots, active, ended)

    def sample(self, context: Context | None = None, updates: int = 1) -> ReplayBatch:
        """Sample one batch of each member's experiences for each of `updates` successive updates.

        Arrays of the batch have the shape `[M·U, B, …]` for M members, U updates and B samples.
        Row m·U + u belongs to update u of member m. If a member's buffer is empty, the member's samples, weights and
        learning-rate factor are 0. The next call overwrites the arrays.

        Args:
            context: Progress of the run and, if the sampling needs them, recent observations of the agents.
            updates: Number of updates U, at most `max_chunk`.
        """
        context, weights = context or Context(), self.strategy.weights
        if self._user_sampling or "phase" in self.strategy.sampling.feedback:
            context = context._replace(updates_before=self.updates)
        from_file = 0 if self.mix is None else self.mix.rule.samples(self.batch_size, context.progress)
        own = self.batch_size - from_file
        if (max(1, own), updates) != (self._arrays.batch, self._arrays.updates):
            self._allocate(max(1, own), updates)
        arrays, empty = self._arrays, self.count == 0
        stored, any_empty = np.maximum(self.count, 1), bool(empty.any())
        self.sampling.draw(context, stored, self.offers, arrays.joint)
        if self._user_sampling:
            check_drawn(self.sampling, arrays.joint.idx, stored)
        if self.strategy.newest is not None:
            arrays.draws.idx[:, -1] = np.repeat(self.newest, updates)
            arrays.draws.probability[:, -1] = np.repeat(1 / stored, updates)
        if any_empty:
            arrays.joint.idx[empty] = 0
        self.updates += updates
        if self.weighting is not None:
            self.weighting.weigh(context, self._usage(context, stored), arrays.draws, arrays.weight)
            arrays.weight *= arrays.constant[0]
        arrays.fetch(self.columns)
        if any_empty or arrays.zeroed or self._user_sampling:
            self._zero_weights(np.repeat(empty, updates))
        if self.tally is not None and own:
            self.tally.count(arrays.joint.idx, arrays.joint.probability)
        if self.noise is not None and own:
            sensor_noise, actuator_noise = (arrays.columns[name] for name in FIELDS)
            self.noise.count(sensor_noise, actuator_noise, ~empty)
        idx, traces = arrays.draws.idx, self.traces
        columns, steps = arrays.columns, None
        if self.n_step > 1 and traces is not None:
            sums, steps = n_step_returns(self.columns, traces.next, idx, self.n_step, self.discount)
            columns = {**columns, **sums}
        batch = ReplayBatch(
            columns=columns,
            idx=idx,
            serial=arrays.serial,
            probability=arrays.draws.probability,
            weight=arrays.weight,
            actor_weight=arrays.weight if weights is not None and weights.all_networks else arrays.actor_weight,
            rate_factor=arrays.draws.rate_factor,
            length=None if self.assembly is None else self.assembly.lengths(idx),
            traces=traces.of(idx) if traces is not None and traces.rule.names else None,
            window=None if traces is None or self.window == 1 else windows(self.columns, traces, idx, self.window),
            update=context.update,
            updates_in_phase=context.updates_in_phase,
            critic_loss=self.strategy.sampling.critic_loss,
            steps=steps,
        )
        return batch if self.mix is None or not from_file else self.mix.join(batch, own, from_file)

    def _usage(self, context: Context, stored: Indices) -> Usage:
        phase_end = self.updates - 1 - context.update + context.updates_in_phase
        return Usage(self.updates, phase_end, np.maximum(self.offers, 1), stored)

    def _zero_weights(self, empty: Bools) -> None:
        """Set weights and learning-rate factors to 0 in `empty` rows, and restore constant ones in other rows."""
        arrays = self._arrays
        for array, constant, value in (
            (arrays.weight, self.weighting is None, arrays.constant[0]),
            (arrays.actor_weight, True, arrays.constant[1]),
            (arrays.draws.rate_factor, "rate" not in self.strategy.sampling.feedback, 1),
        ):
            if constant:
                array[:] = value
            array[empty] = 0
        arrays.zeroed = bool(empty.any())

    def annotate(self, batch: ReplayBatch, annotations: Mapping[str, Floats32]) -> None:
        """Update priorities and traces with the values that a learner returned for a batch.

        Samples whose experience has been overwritten since the draw are skipped. If a batch contains an experience
        twice, the value of the last sample is used.

        Args:
            batch: A batch that `sample` returned.
            annotations: Values of the samples, by name. `td_error` contains TD errors, shape `[M, B]` for B samples of
                each member. If samples are segments of steps, the shape is `[M, B, steps]`. The priority of a segment
                is the mean of |δ| over its steps.

        Raises:
            ValueError: The strategy needs TD errors, and `annotations` has none.
        """
        td_error = annotations.get("td_error")
        if td_error is None and self.strategy.by_td_error:
            raise ValueError(f"{self.strategy} needs td_error from the learner")
        live = np.empty_like(batch.idx)
        _mask_evicted(self.columns.serial, batch.idx, batch.serial, live)
        if self.traces is not None:
            self.traces.annotate(live, annotations)
        if td_error is None:
            return
        size = np.abs(td_error, dtype=np.float32)
        if batch.length is not None and size.ndim == 3:
            size = mean_over_steps(size, batch.length)
        if "td_error" in self.orders:
            order_update_all(self.orders["td_error"].state, live, size)
        if "td_error" in self.strategy.sampling.feedback:
            self.sampling.annotate(live, size)

    def forget_errors(self) -> None:
        """Set every |δ| in the rank order to infinity, so that another learner can use the buffer."""
        if "td_error" in self.orders:
            order = self.orders["td_error"]
            order.load_keys(np.where(np.isnan(order.keys()), np.nan, np.inf), self.columns.serial)

    def state_dict(self, lazy: bool = False) -> dict[str, Any]:
        """Return all arrays of the buffer by name, so that the buffer can be restored.

        The first axis of each array is that of the M members. Stored fields are views of shape `[M, n, width]`, for n
        buffer slots in use.

        Args:
            lazy: Whether the sort keys of experiences are returned as objects that compute their parts on request.
                This saves memory when a file is written. Otherwise, the keys are copies.
        """
        stored = int(self.count.max(initial=0))
        state: dict[str, Any] = {
            **{name: self.columns.column(name)[:, :stored] for name in self.columns.fields},
            "serial": self.columns.serial[:, :stored],
            "collected": self.collected,
            "offers": self.offers,
            "count": self.count,
            "updates": np.full(len(self.count), self.updates),
            **self.episodes.state_dict(),
            **{
                name: order.column(stored) if lazy else order.keys(stored)
                for name, order in self.orders.items()
                if name not in self.columns.fields
            },
        }
        for part in self._stateful_parts():
            own = part.state_dict(stored)
            check_state_dict(part, own, state, len(self.count))
            state.update(own)
        return state

    def _stateful_parts(self) -> list[Any]:
        entry = self.drop, self.assembly, self.synth, self.mix
        parts = self.retention, self.sampling, *entry, self.weighting, self.noise, self.traces
        return [part for part in parts if part]

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state_dict` returned, so that the buffer draws the same samples as the saved one.

        Raises:
            ValueError: The arrays are inconsistent. The check is needed because compiled functions do not check bounds.
        """
        serial, count, offers = state["serial"], state["count"], state["offers"]
        members, stored = serial.shape
        if members != len(self.members) or (count < 0).any() or (count > stored).any() or (offers < count).any():
            raise ValueError(f"its counts do not fit {stored} slots of each of {len(self.members)} members")
        if self.strategy.in_turn and (count != np.minimum(offers, self.slots)).any():
            raise ValueError(f"its {self.slots} slots were not filled in turn, or it had another number of them")
        self.columns.serial[:] = 0
        self.columns.serial[:, :stored] = serial
        self.newest[:] = self.columns.serial.argmax(axis=1)
        for name in self.columns.fields:
            self.columns.column(name)[:, :stored] = state[name]
        self.collected[:], self.offers[:], self.count[:] = state["collected"], offers, count
        self.updates = int(state["updates"][0])
        self.episodes.load_state_dict(state)
        for part in self._stateful_parts():
            part.load_state_dict(state)
        for name, order in self.orders.items():
            keys = _stored_keys(name, state, self.columns, self.assembly, self.count)
            if ((~np.isnan(keys)).sum(axis=1) != self.count).any():
                raise ValueError(f"its {name} does not rank as many experiences as it stores")
            order.load_keys(keys, serial)


@kernel
def offer(offered: Bools, count: Indices, capacity: int, offers: Indices, slots: Indices) -> bool:
    """Count the new experiences of all members, and assign a buffer slot to each new experience.

    `offered[m]` is whether the m-th buffer receives an experience. If so, `offers[m]` increases by 1. `slots[m]`
    becomes the next free slot, −2 if the buffer is full, or −1 without an experience.

    Returns:
        Whether any slot became −2. The caller then replaces each −2 by the slot to overwrite.
    """
    full = False
    for m in range(slots.size):
        offers[m] += offered[m]
        slots[m] = -1 if not offered[m] else count[m] if count[m] < capacity else -2
        full |= slots[m] == -2
    return full


@kernel
def _mask_evicted(serial: NDArray[np.uint32], idx: Indices, drawn: NDArray[np.uint32], live: Indices) -> None:
    """Write sampled slots `idx` to `live`, or −1 where the experience has been overwritten since the draw."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            live[m, b] = idx[m, b] if serial[m, idx[m, b]] == drawn[m, b] > 0 else -1


def _arriving_keys(
    metric: str, experience: Mapping[str, np.ndarray], row: Floats32, columns: Columns, assembly: Assembly | None
) -> Floats32:
    """Return the sort key of each member's new experience by a metric, shape `[M]`. Unknown keys are infinite."""
    if metric not in columns.spans:
        given = experience.get(metric)
        return np.full(len(row), np.inf, np.float32) if given is None else np.asarray(given[:, 0], np.float32)
    steps = row.reshape(len(row), -1, columns.width)[:, :, columns.spans[metric].start]
    if assembly is None:
        return np.ascontiguousarray(steps[:, 0])
    return mean_over_steps(steps[:, None], assembly.filled[:, None].astype(np.uint16))[:, 0]


def _stored_keys(
    metric: str, state: Mapping[str, np.ndarray], columns: Columns, assembly: Assembly | None, count: Integers
) -> Floats32:
    """Return the sort keys of n saved experiences by a metric, shape `[M, n]`. Unused slots have the key NaN."""
    keys = np.asarray(state[metric], np.float32)
    if metric in columns.fields:
        steps = keys[..., 0]
        keys = steps if assembly is None else mean_over_steps(steps, np.asarray(state["length"]))
        keys = np.where(np.isnan(keys), np.inf, keys)
        keys = np.where(np.arange(keys.shape[1]) < count[:, None], keys, np.nan).astype(np.float32)
    return keys


def newest_batch(replay: Replay) -> ReplayBatch:
    """Return a batch with the B newest experiences in each buffer, the newest first.

    B is the batch size. An experience can be a step, a segment or an episode. If a buffer stores fewer than B
    experiences, the remaining samples have weight 0 and length 0. Means over steps then exclude the remaining samples.
    """
    columns, batch = replay.columns, replay.batch_size
    members = len(columns.serial)
    order = np.argsort(-columns.serial.astype(np.int64), axis=1, kind="stable")[:, :batch]
    idx = np.zeros((members, batch), np.int64)
    idx[:, : order.shape[1]] = order
    rows = np.zeros((members, batch, columns.rows.shape[2]), np.float32)
    serial = np.zeros((members, batch), np.uint32)
    gather(columns.rows, columns.serial, idx, rows, serial)
    there = np.arange(batch) < replay.count[:, None]
    weight = there.astype(np.float32)
    length = np.ones(idx.shape, np.uint16) if replay.assembly is None else replay.assembly.lengths(idx)
    return ReplayBatch(
        columns=columns.views(rows),
        idx=idx,
        serial=serial,
        probability=np.full(idx.shape, np.nan),
        weight=weight,
        actor_weight=weight.copy(),
        rate_factor=(replay.count > 0).astype(np.float32),
        length=there * length,
    )


def spread_sample(replay: Replay, count: int) -> Mapping[str, Floats32]:
    """Return the fields `[M, count, width]` of `count` experiences in each of M buffers, at evenly spaced slots."""
    idx = np.arange(count) * replay.count[:, None] // count
    return replay.columns.views(np.take_along_axis(replay.columns.rows, idx[:, :, None], axis=1))
