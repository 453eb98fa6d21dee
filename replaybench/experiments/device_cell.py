"""The part of a running cell that a GPU computes: plant, exploration, replay and updates of all members.

Members are independent runs with different seeds. One launch computes several episodes or iterations. The whole state
of a member is contiguous in the GPU's memory. The state is copied to the host when a file or a snapshot needs it.
"""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.device.buffers import STATE, DeviceBuffers, check_strategy
from replaybench.device.gpu import GPU
from replaybench.device.learners import check as check_learner
from replaybench.device.plants import DevicePlant
from replaybench.device.program import Program, Rounds, Schedule
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.snapshots import snapshot_rounds
from replaybench.experiments.study import Cell
from replaybench.replay.buffer import Replay
from replaybench.replay.storage.traces import NONE
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.errors import UserError

LAUNCH_SECONDS: Final = 1.0
"""Approximate duration of one launch of the GPU, in seconds. After each launch, the sweep can report and stop."""

DEVICE_CELLS: Final = 8
"""Largest number of worker processes that share a GPU. One computes on the CPU while another uses the GPU."""


class Parts(NamedTuple):
    """The components of a running cell that are moved to a GPU.

    Attributes:
        updates: Mean number of updates in an update phase.
        phases: Number of update phases over which schedules run from their first to their last value.
    """

    plant: Plant
    agent: Learner
    replay: Replay
    updates: float
    phases: float


def device_program(cell: Cell, parts: Parts) -> Program:
    """Generate the GPU program of a cell.

    Raises:
        UserError: The GPU does not support a setting of the cell. The message names alternatives.
    """
    plant, agent, replay, updates, phases = parts
    check_learner(type(agent), agent.config, agent.setting.refer is not None)
    check_strategy(replay.strategy)
    if not isinstance(plant, OdePlant) or type(plant).engine is not OdePlant.engine or plant.random_episodes:
        which = "given by equations (OdePlant), without own engine, random starts, spread or exogenous states"
        raise UserError(f'{plant.name} runs on the CPU only; with device = "cuda" use plants that are {which}')
    if not plant.channel.is_off:
        raise UserError('delay and channel are for the CPU only; leave them out, or set device = "cpu"')
    for key, given in (("evaluate_every_steps", cell.evaluate_every_steps), ("replayed_noise", cell.replayed_noise)):
        if given:
            raise UserError(
                f'{key} is for the CPU only; leave it out (greedy_every is possible), or set device = "cpu"'
            )
    buffers = DeviceBuffers(replay.strategy, replay.columns.fields, replay.slots, agent.schedule.batch_size)
    schedule = Schedule(updates, phases, cell.update_every, cell.greedy_every)
    return Program(DevicePlant(plant, cell.frequency, cell.noise, cell.observe), agent, buffers, schedule)


class DeviceCell:
    """The part of a running cell that a GPU computes.

    Args:
        parts: Components of the cell. The arrays of the replay buffers become views of a copy of the GPU's memory.
        shown: A learner for the first members. The networks of these members are copied into it for snapshots.

    Attributes:
        name: Name of the GPU.
    """

    def __init__(self, cell: Cell, parts: Parts, shown: Learner) -> None:
        self.cell, self.parts, self.shown = cell, parts, shown
        self.program = device_program(cell, parts)
        self._runner = GPU(self.program, int(cell.device.partition(":")[2] or 0))
        self.name: str = self._runner.name
        self._buffers, self._memory = self.program.buffers, self.program.part("replay")
        columns, view = parts.replay.columns, self._buffers.view
        columns.rows, columns.serial = view(self._memory, "rows"), view(self._memory, "serial")
        self._ends = snapshot_rounds(cell.episodes)
        self._at_once = 1

    def advance(self) -> Rounds:
        """Run the next training episodes or iterations on the GPU, for about a second, and return their scores.

        The call ends earlier if a snapshot or metrics of the learner are due, because these need the CPU.
        """
        done = self.program.rounds
        ends = [end for end in self._ends if end > done]
        if self.parts.agent.metric_names:
            ends.append((done // self.cell.greedy_every + 1) * self.cell.greedy_every)
        count, began = min(self._at_once, min(ends) - done), time.perf_counter()
        results = self._runner.advance(count)
        each = (time.perf_counter() - began) / count
        self._at_once = int(min(2 * count, max(1.0, LAUNCH_SECONDS / each)))
        if done + count in self._ends:
            self._fetch_shown()
        if done + count in ends and (self.parts.agent.metric_names or done + count == self.cell.episodes):
            self._runner.fetch(*map(self.program.place, ("hot", "cold")))
            self.program.fetch()
        return results

    def _fetch_shown(self) -> None:
        members, start = len(self.shown.setting.members), self.program.place("replay").start
        self._runner.fetch(*map(self.program.place, ("hot", "cold")), members=members)
        self.program.fetch(self.shown)
        self._runner.fetch(slice(start, start + STATE.itemsize))
        self._count()

    def _count(self) -> None:
        replay, counters = self.parts.replay, self._buffers.state(self._memory)
        for name in ("collected", "offers", "count"):
            getattr(replay, name)[:] = counters[name]
        replay.updates = int(counters["updates"].max())

    def stored_by_age(self, ends: Integers) -> Floats:
        """Return what the buffers contain, as `snapshots.stored_by_age` does, without a copy of their experiences."""
        return self._runner.describe(ends.astype(np.uint32))

    def fetch(self) -> None:
        """Copy the state of all learners and replay buffers from the GPU to the objects on the host."""
        self._runner.fetch()
        self.program.fetch()
        self._count()

    def complete_buffers(self, lengths: Floats) -> None:
        """Copy all data of a buffer file from the GPU to the host.

        Args:
            lengths: Mean number of steps of each member's episodes in each of E rounds (episodes or iterations);
                float64, `[M, E]`.
        """
        self.fetch()
        replay, counters = self.parts.replay, self._buffers.state(self._memory)
        stored = int(replay.count.max())
        own = {
            name: self._buffers.view(self._memory, name)[:, :stored]
            for name in self._buffers.arrays
            if "sums" not in name
        }
        for name, order in replay.orders.items():
            order.load_keys(own[f"{'td' if name == 'td_error' else name}_bits"].view(np.float32), own["serial"])
        if "priority" in own:
            known = {"priority": own["priority"], "priority_largest": counters["largest"]}
            replay.sampling.load_state_dict(replay.sampling.state_dict(stored) | known)
        if "replays" in own and replay.weighting is not None:
            before = np.stack([counters["offers_before"], counters["updates_before"]], axis=1)
            replay.weighting.load_state_dict(
                {"replays": own["replays"], "replays_before": before, "offers": replay.offers}
            )
        starts = self._starts(lengths)
        begins = np.ones(len(starts), np.uint8)
        replay.episodes.load_state_dict({"episode_starts": starts, "episode_begins": begins})

    def _starts(self, lengths: Floats) -> NDArray[np.uint32]:
        """Return the serial numbers of the experiences with which episodes begin, counted from 1 for each member.

        If an iteration may contain several episodes, their starts are found in the stored experiences.
        """
        if not self.cell.update_every or (lengths == self.cell.steps_per_episode).all():
            before = np.cumsum(lengths, axis=1) - lengths
            return (1 + before).astype(np.uint32)
        replay, begins = self.parts.replay, []
        observation, successor = (replay.columns.column(name) for name in ("observation", "next_observation"))
        for m, count in enumerate(replay.count):
            serial = replay.columns.serial[m, :count]
            order = np.argsort(serial)
            cut = (successor[m, order[:-1]] != observation[m, order[1:]]).any(axis=1) | (np.diff(serial[order]) > 1)
            begins.append(serial[order][np.concatenate([[True], cut])[:count]])
        starts = np.full((len(begins), max(map(len, begins))), NONE, np.uint32)
        for row, own in zip(starts, begins, strict=True):
            row[: len(own)] = own
        return starts

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the GPU's memory as arrays by name, as copied by the last call of `fetch`."""
        return self.program.state()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state_dict` returned, so that the run continues as if uninterrupted.

        Raises:
            ValueError: Counters of the state do not fit the buffers. The GPU itself does not check counters.
        """
        self.program.load_state(dict(state))
        counters = self._buffers.state(self._memory)
        heads = np.stack([counters["td_head"], counters["exploration_head"]])
        most = self._buffers.capacity
        if (counters["count"] > most).any() or (heads < 0).any() or (heads[..., 0] > 1).any() or (heads > most).any():
            raise ValueError(f"its counts do not fit buffers of {most} experiences")
        self._runner.push()
        self.fetch()

    def close(self) -> None:
        """Free the memory of the GPU."""
        self._runner.close()
