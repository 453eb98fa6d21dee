"""The run of one cell of a study, from the start or from a checkpoint, and the files that the run writes.

A cell is one combination of a study's settings, with seeds that run together. A running cell writes `checkpoint.h5`.
At the end, it writes `buffer.h5`, `policy.safetensors`, `snapshots.h5`, and last `scores.h5`, which marks a complete
cell. Every file is written atomically, so a cell can be killed at any time. The continued run yields the same numbers
as an uninterrupted run.
"""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.baselines.controllers import run_episode
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.learner import Learner
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.data.record import Record, open_record, write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.measures import MEASURES
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.device_cell import DeviceCell, Parts
from replaybench.experiments.loop import LiveEpisodes, PlantModel, training_episode, training_steps, update_phase
from replaybench.experiments.progress import Report, Round
from replaybench.experiments.recorded_buffer import read_mixed
from replaybench.experiments.schedule import make_task, updates_after, with_phases
from replaybench.experiments.snapshots import MOST_MEMBERS, Snapshots, stored_by_age
from replaybench.experiments.study import Buffers, Cell, last_episodes
from replaybench.experiments.study_record import read_sessions
from replaybench.replay.buffer import Replay, spread_sample, step_fields
from replaybench.replay.buffer_file import RecordArrays, replay_arrays, replay_facts
from replaybench.replay.storage.replayed import REPLAYED, ReplayTally
from replaybench.replay.storage.slots import Unit
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.arrays import Floats
from replaybench.runtime.configuration import NonNegativeInt, build
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import ComputeSession, Stopwatch, session_facts
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.version import VERSION

SAMPLE = 256
"""Number of stored experiences over which the metrics of a learner are averaged."""


@dataclass(frozen=True)
class _CheckpointFacts:
    id: str
    episode: NonNegativeInt


class CellRun:
    """A running cell, which trains M members (runs with different seeds) together.

    Training proceeds in E rounds. A round is one episode of every member if updates follow episodes. If updates follow
    a number of steps, a round is an iteration. An iteration has as many steps as the longest episode, so at least one
    episode of each member ends in it.

    Attributes:
        episode: Number of finished rounds.
        reward: Mean score of the training episodes that ended in each round; float64, shape `[M, E]`. NaN marks failed
            members and rounds that have not run yet.
        episode_steps: Mean length of the training episodes that ended in each round; float64, shape `[M, E]`.
        reward_greedy: Score of an episode without exploration, run after every `greedy_every` rounds; float64, shape
            `[M, E // greedy_every]`.
        reward_evaluation: Mean score of each of V evaluations without exploration; float64, shape `[M, V]`.
        metrics: Metrics of the learner by name, each an array with the shape of `reward_greedy`.
        replayed: Recency and entropy of the replayed experiences, in arrays of the same shape (`ReplayTally`).
        measures: Mean measures of the signals over the training episodes of final scores; float64, shape `[M, 8]`. NaN
            on a GPU.
        measures_greedy: The same of the episodes without exploration.
        device: The part of the cell that runs on a GPU; None on the CPU.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        plant = cell.make_plant()
        common: dict[str, Any] = {
            "frequency": cell.frequency, "seed": cell.root_seed, "members": cell.seeds, "sensor_noise": cell.noise,
            "actuator_noise": cell.noise, "observe": cell.observe, "nan_actions": "fail",
        }  # fmt: skip
        self.env = PopulationEnv(plant, cell.members, **common)
        self.evaluation = PopulationEnv(plant, cell.members, role="evaluation", **common)
        self.agent = make_agent(cell, plant)
        steps, schedule = self.env.steps_per_episode, self.agent.schedule
        self.strategy = with_phases(parse(cell.strategy).at(cell.frequency), schedule, steps, cell.update_every)
        longest = -(-steps // schedule.segment) * schedule.segment
        fields = {**stored_fields(plant, cell.replayed_noise, cell.observe), **self.agent.fields}
        capacity = cell.capacity if self.strategy.retention.bounded else longest * cell.episodes
        fixed = None
        if (mix := self.strategy.mix) is not None:
            fixed = read_mixed(mix, cell.plant, plant, cell.frequency, cell.observe, cell.mixed).fixed()
        self.replay = Replay(
            self.strategy,
            fields,
            capacity,
            cell.root_seed,
            cell.seeds,
            schedule.batch_size,
            Unit(schedule.segment),
            PlantModel(self.env, self.agent),
            self.agent.traces,
            schedule.window,
            schedule.n_step,
            self.agent.task.discount,
            fixed,
        )
        phases = steps * cell.episodes // cell.update_every if cell.update_every else cell.episodes
        steps_apart = cell.update_every or steps
        self.horizon = cell.horizon_steps / steps_apart if cell.horizon_steps else float(phases)
        self.updates_per_phase = updates_after(steps_apart, steps, self.strategy, schedule)
        self.episodes = LiveEpisodes(self.env, self.strategy.sampling.needs_state)
        self.snapshots = Snapshots(plant, cell.frequency, self.agent, cell.members, cell.episodes, cell.observe)
        self.episode = 0
        self.reward, self.episode_steps = (np.full((cell.members, cell.episodes), np.nan) for _ in range(2))
        self.reward_greedy = np.full((cell.members, cell.episodes // cell.greedy_every), np.nan)
        self.reward_evaluation = np.full((cell.members, cell.evaluations), np.nan)
        self.measures, self.measures_greedy = (np.full((cell.members, len(MEASURES)), np.nan) for _ in range(2))
        self.metrics = {name: np.full_like(self.reward_greedy, np.nan) for name in self.agent.metric_names}
        self.replayed = {name: np.full_like(self.reward_greedy, np.nan) for name in REPLAYED if cell.device == "cpu"}
        self.device: DeviceCell | None = None
        if cell.device != "cpu":
            few = dataclasses.replace(cell, members=min(cell.members, MOST_MEMBERS))
            self.device = DeviceCell(cell, self.parts(), make_agent(few, plant))

    def parts(self) -> Parts:
        """Return the plant, learner, replay buffers and schedules for the generation of a GPU program."""
        return Parts(self.env.plant, self.agent, self.replay, self.updates_per_phase, self.horizon)

    def advance(self) -> None:
        """Run the next training episode or iteration with its updates (on a GPU, several episodes)."""
        if self.device is not None:
            self._advance_on_device(self.device)
            return
        cell, episode = self.cell, self.episode
        self.agent.warming_up = episode < self.agent.schedule.warmup_episodes
        if every := cell.update_every:  # update phases continue across rounds
            steps = self.env.steps_per_episode
            done, end = episode * steps, (episode + 1) * steps
            while done < end:
                count = min(every - done % every, end - done)
                training_steps(self.agent, self.replay, self.episodes, count, episode)
                done += count
                if done % every == 0:
                    self._learn(done // every - 1, last=done + every > end)
        else:
            self.episodes = training_episode(self.env, self.agent, self.replay, episode)
            self._learn(episode, last=True)
        self.reward[:, episode], self.episode_steps[:, episode] = self.episodes.reward, self.episodes.steps
        self._average(self.measures, self.episodes.measures, 1)
        self.episodes.forget_scores()
        if (episode + 1) % cell.greedy_every == 0:
            index = episode // cell.greedy_every
            self.reward_greedy[:, index] = run_episode(self.agent.greedy().act, self.evaluation)
            self._average(self.measures_greedy, self.evaluation.measures(), cell.greedy_every)
            if self.metrics:
                measured = self.agent.metrics(spread_sample(self.replay, SAMPLE))
                for name, values in self.metrics.items():
                    values[:, index] = measured[name]
        self.episode += 1
        self._evaluate()
        by_age = partial(stored_by_age, self.replay)
        self.snapshots.take(self.episode, self.agent, self.replay.collected, by_age)

    def _advance_on_device(self, device: DeviceCell) -> None:
        rounds, first, every = device.advance(), self.episode, self.cell.greedy_every
        self.episode += rounds.reward.shape[1]
        self.reward[:, first : self.episode], self.episode_steps[:, first : self.episode] = rounds.reward, rounds.steps
        indices = range(first // every, self.episode // every)
        for index in indices:
            self.reward_greedy[:, index] = rounds.reward_greedy[:, (index + 1) * every - 1 - first]
        if self.metrics and indices:  # the CPU computes metrics: a launch ends where they are due
            measured = self.agent.metrics({})
            for name, values in self.metrics.items():
                values[:, indices[-1]] = measured[name]
        self.snapshots.take(self.episode, device.shown, self.replay.collected, device.stored_by_age)

    def _evaluate(self) -> None:
        every, steps = self.cell.evaluate_every_steps, self.env.steps_per_episode
        done = self.episode * steps
        if every and done // every > (done - steps) // every:
            episodes = range(self.cell.evaluation_episodes)
            scores = [run_episode(self.agent.greedy().act, self.evaluation) for _ in episodes]
            self.reward_evaluation[:, done // every - 1] = np.mean(scores, axis=0)

    def act(self, steps: int) -> int:
        """Run training steps without updates to measure the speed, and return the number of steps of each member.

        If updates follow each episode, a whole episode is run instead of `steps` steps.
        """
        if self.cell.update_every:
            training_steps(self.agent, self.replay, self.episodes, steps, self.episode)
            return steps
        self.episodes = training_episode(self.env, self.agent, self.replay, self.episode)
        return self.env.steps_per_episode

    def learn(self, updates: int) -> int:
        """Update every member at most `updates` times to measure the speed, and return the number of updates."""
        at_once = min(updates, max(1, int(self.updates_per_phase)))
        for _ in range(updates // at_once):
            update_phase(self.agent, self.replay, at_once, 0.0, self.episodes)
        return updates // at_once * at_once

    def summary(self) -> Round:
        """Summarise the last training episode or iteration for progress displays."""
        latest = self.reward[:, self.episode - 1]
        reward = _sound_mean(latest)
        steps = float(self.episode * self.env.steps_per_episode)
        if not self.cell.update_every:
            steps = float(np.nansum(self.episode_steps[:, : self.episode], axis=1).mean())
        index = self.episode // self.cell.greedy_every - 1
        measured = {"reward_greedy": self.reward_greedy, **_prefixed("metric_", self.metrics)} if index >= 0 else {}
        means = ((name, _sound_mean(values[:, index])) for name, values in measured.items())
        known = tuple((name, mean) for name, mean in means if np.isfinite(mean))
        return Round(self.episode, reward, int((~np.isfinite(latest)).sum()), steps, known)

    def _average(self, mean: Floats, measured: Floats, every: int) -> None:
        """Add the measures of a round `[M, 8]` to their mean over each `every`-th round of final scores."""
        last = last_episodes(self.cell.episodes, bool(self.cell.update_every))
        rounds = range(every - 1, self.cell.episodes, every)
        final = [episode for episode in rounds if episode >= self.cell.episodes - last] or [*rounds][-1:]
        if self.episode == final[0]:
            mean[:] = 0.0
        if self.episode in final:
            mean += measured / len(final)

    def _learn(self, phase: int, last: bool) -> None:
        """Do the updates of update phase number `phase`, counted from 0, except during warm-up.

        In the last phase before an evaluation without exploration, recency and entropy of the replayed experiences are
        measured.
        """
        # Fractions of an update are carried over, so that the number of replays is exact.
        due = int((phase + 1) * self.updates_per_phase) - int(phase * self.updates_per_phase)
        if not self.agent.warming_up:
            progress = min(1.0, phase / max(1.0, self.horizon - 1))
            replay, every = self.replay, self.cell.greedy_every
            replay.tally = ReplayTally() if last and (self.episode + 1) % every == 0 else None
            update_phase(self.agent, replay, due, progress, self.episodes)
            if replay.tally is not None:
                measured = replay.tally.measure(replay.columns.serial, replay.collected, replay.count)
                for name, values in measured.items():
                    self.replayed[name][:, self.episode // every] = values
                replay.tally = None
        self.episodes.forget_observations()

    def close(self) -> None:
        """Close the plants, and free the GPU's memory."""
        self.env.close()
        self.evaluation.close()
        if self.device is not None:
            self.device.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run for a checkpoint, as arrays with names such as `replay.reward`.

        Arrays of the replay buffers are views, not copies.
        """
        parts: dict[str, Mapping[str, Any]] = {"history": self.history(), "snapshots": self.snapshots.arrays()}
        if self.device is not None:
            self.device.fetch()
            parts["device"] = self.device.state_dict()
        else:
            parts |= {"agent": self.agent.state_dict(), "replay": self.replay.state_dict(lazy=True)}
            parts |= {"env": self.env.get_state(), "evaluation": self.evaluation.get_state()}
            if self.cell.update_every:  # otherwise no episode is running here
                parts["episodes"] = self.episodes.state_dict()
        return {name: array for part, arrays in parts.items() for name, array in _prefixed(f"{part}.", arrays).items()}

    def load_state_dict(self, record: Record, episode: int) -> None:
        """Restore a checkpoint that was written after `episode` episodes or iterations."""
        if self.device is not None:
            self.device.load_state_dict(RecordArrays(record, "device."))
        else:
            self.agent.load_state_dict(dict(RecordArrays(record, "agent.")))
            self.replay.load_state_dict(RecordArrays(record, "replay."))
            self.env.set_state(dict(RecordArrays(record, "env.")))
            self.evaluation.set_state(dict(RecordArrays(record, "evaluation.")))
            if self.cell.update_every:
                self.episodes.load_state_dict(RecordArrays(record, "episodes."))
        for part, arrays in (("history", self.history()), ("snapshots", self.snapshots.arrays())):
            known = RecordArrays(record, f"{part}.")
            for name, array in arrays.items():
                array[:] = known[name]
        self.episode = episode

    def history(self) -> dict[str, Floats]:
        """Return a dictionary of scores, episode lengths, and metrics of the learner under keys `metric_…`."""
        measured = {"reward": self.reward, "reward_greedy": self.reward_greedy, "episode_steps": self.episode_steps}
        measured |= {"measures": self.measures, "measures_greedy": self.measures_greedy}
        if self.reward_evaluation.size:
            measured["reward_evaluation"] = self.reward_evaluation
        return {**measured, **self.replayed, **_prefixed("metric_", self.metrics)}


def _sound_mean(values: Floats) -> float:
    sound = values[np.isfinite(values)]
    return float(sound.mean()) if sound.size else np.nan


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def stored_fields(plant: Plant, noise: bool = False, observe: Sequence[str] = ()) -> dict[str, int]:
    """Return the fields of a stored experience, with the number of values in each field.

    Args:
        noise: Whether experiences contain the noise that was added to sensors and actuators.
        observe: Names of the observed states; all states by default.
    """
    states, actions = len(observe or plant.state_names), len(plant.action_names)
    measured = {"sensor_noise": states, "actuator_noise": actions} if noise else {}
    return {**step_fields(plant.observation_size(observe), actions), "exploration": 1, **measured}


def make_agent(cell: Cell, plant: Plant) -> Learner:
    """Build the learner of a cell, with stored initial weights if the study names them."""
    learner, config = load_learner(cell.learner)
    task = make_task(plant, cell.frequency, cell.discount, cell.observe)
    settings = build(config, cell.settings, f"settings of {cell.learner}")
    strategy = parse(cell.strategy)
    if made_of(learner, *map(type, strategy.terms)) != cell.sources:
        raise UserError(f"the source of {cell.learner} or {strategy} has changed since this cell was planned")
    setting = LearnerSetting(task, cell.root_seed, cell.seeds, cell.frequency, refer=strategy.refer)
    agent: Learner = learner(settings, setting)
    if cell.start is not None:
        cell.start.load_into(agent, cell.seeds)
    return agent


def run_cell(
    cell: Cell, folder: Path, buffers: Buffers, checkpoint_seconds: float = 60.0, report: Report = lambda _: True
) -> bool:
    """Run a cell from its start or checkpoint to its end, and write its files.

    Args:
        buffers: How the replay buffers are stored at the end: "final", "compressed" or "none".
        checkpoint_seconds: Interval between checkpoints in seconds.
        report: Called after each episode or iteration. If it returns False, the cell stops after writing a checkpoint.

    Returns:
        True if the cell is complete, False if `report` stopped it.
    """
    if (folder / "scores.h5").is_file():
        return True
    facts: dict[str, Any] = {"id": cell.id, "cell": dataclasses.asdict(cell), "version": VERSION}
    checkpoint = folder / "checkpoint.h5"
    with contextlib.closing(CellRun(cell)) as run:
        watch = Stopwatch(_restored(run, checkpoint), "" if run.device is None else run.device.name)
        saved = time.monotonic()
        while run.episode < cell.episodes:
            run.advance()
            wanted = report(run.summary())
            if (time.monotonic() - saved > checkpoint_seconds or not wanted) and run.episode < cell.episodes:
                progress = {"episode": run.episode, **session_facts(watch.sessions())}
                write_record(checkpoint, "checkpoint", {**facts, **progress}, run.state_dict())
                saved = time.monotonic()
                if not wanted:
                    return False
        origin = session_facts(watch.sessions())
        if buffers != "none":
            write_buffer(folder / "buffer.h5", run, compressed=buffers == "compressed")
        policy = policy_facts(cell.learner, run.agent, cell.frequency)
        write_policy(folder / "policy.safetensors", run.agent.weights(), {**facts, "policy": policy})
        run.snapshots.write(folder / "snapshots.h5", {**facts, **origin}, run.reward, cell.first_member)
        scores = run.history()
        if run.replay.noise is not None:
            scores["replayed_noise"] = run.replay.noise.mean()
        write_record(folder / "scores.h5", "scores", {**facts, **origin}, scores)
        checkpoint.unlink(missing_ok=True)
    return True


def _restored(run: CellRun, checkpoint: Path) -> Sequence[ComputeSession]:
    if not checkpoint.exists():
        return ()
    try:
        with open_record(checkpoint, "checkpoint") as record:
            known = build(_CheckpointFacts, record.header.facts, f"the facts of {checkpoint}", others=True)
            if known.id != run.cell.id or known.episode >= run.cell.episodes:
                raise UserError(f"{checkpoint} is the checkpoint of another cell")
            record.verify()
            run.load_state_dict(record, known.episode)
            return read_sessions(checkpoint, record.header.facts)
    except (UserError, ValueError, LookupError) as error:
        raise UserError(f"{error}: remove {checkpoint} to run this cell from its start") from None


def write_buffer(path: Path, run: CellRun, compressed: bool = False) -> None:
    """Write the replay buffers of a running cell to a file, with the metadata that offline replay needs."""
    cell, replay = run.cell, run.replay
    if run.device is not None:
        run.device.complete_buffers(run.episode_steps)
    facts = {
        "source": "sweep",
        "plant": cell.plant,
        "parameters": cell.parameters,
        "plant_fingerprint": cell.fingerprint,
        "frequency": cell.frequency,
        "noise": cell.noise,
        "observe": cell.observe,
        **cell.make_plant().described_signals(cell.observe),
        **replay_facts(replay),
        "cell": dataclasses.asdict(cell),
        "reward_final": run.reward[:, -last_episodes(cell.episodes, cell.update_every > 0) :].mean(axis=1).tolist(),
        "reward_greedy": run.reward_greedy[:, -1].tolist() if run.reward_greedy.size else [],
        "version": VERSION,
    }
    write_record(path, "buffer", facts, replay_arrays(replay), "gzip" if compressed else None)
