"""Offline training from a stored buffer with its files, and the table of its scores."""

import json
import time
from pathlib import Path
from warnings import warn

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from replaybench.baselines.grid_choice import check_effort
from replaybench.baselines.references import Reference, reference
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import spelled
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.run_folder import claim
from replaybench.exchange.offline import Changes, replay_offline
from replaybench.exchange.offline_scores import OfflineScores, extrapolation
from replaybench.experiments.progress import plain_lines, shows_bars
from replaybench.experiments.recorded_buffer import read_recording, recorded_rewards
from replaybench.replay.strategies.notation import parse
from replaybench.reports.figures.all_figures import draw_offline
from replaybench.reports.figures.style import check_saved
from replaybench.runtime.atomic import new_path
from replaybench.runtime.errors import ReplaybenchWarning, UserError
from replaybench.runtime.quantities import duration
from replaybench.runtime.user_file import one_line_errors
from replaybench.runtime.version import VERSION

_LEAST_LEARNERS = 8


def score_table(first: str, title: str) -> Table:
    """Return an empty table of rewards and normalised scores, whose first column has the heading `first`."""
    numbers = (Column(heading, justify="right") for heading in ("reward", "μ_r"))
    return Table(first, *numbers, title=Text(title), box=box.SIMPLE_HEAD)


def run_replay(
    console: Console, path: Path, output: Path | None, strategy_text: str, learner: str, *, plant: str | None,
    stream: bool, updates: int, capacity: int | None, seeds: int | None, root_seed: int, member: int | None,
    changes: Changes,
) -> tuple[OfflineScores, dict[str, Path]]:  # fmt: skip
    """Train learners offline from a buffer file, and return their scores and the files that were written.

    The console shows the progress.
    """
    strategy, learner = parse(strategy_text), spelled(learner)
    if stream and (capacity is not None or str(strategy) != "FULL[Uniform]"):
        raise UserError("--stream draws from the whole file, block by block; leave --strategy and --capacity out")
    if capacity is not None and not strategy.retention.bounded:
        raise UserError(f"--capacity bounds the buffer, but {strategy} keeps everything; use FIFO or Resv")
    if capacity is not None and strategy.retention.capacity not in (None, capacity):
        raise UserError(f"--capacity {capacity}, but {strategy} names another capacity; leave one out")
    label = f"{learner}, {'streamed' if stream else strategy}"
    where = f"{path.parent.name}-{path.stem}" if path.stem == "buffer" else path.stem
    folder = output or Path("runs") / f"replay-{where}-{file_name(label)}-{updates}"
    place = folder.absolute()
    policy, scores = place / "policy.safetensors", place / "scores.h5"
    new_path(folder / scores.name)
    recording = read_recording(path, plant, whole=not stream, member=member)
    noise = recording.noise if changes.noise is None else changes.noise
    for line in recording.warnings:
        warn(line, ReplaybenchWarning, stacklevel=3)
    about = {
        "buffer": str(path),
        "strategy": "streamed" if stream else str(strategy),
        "learner": learner,
        "updates": updates,
        "plant": recording.facts.plant,
        "parameters": recording.facts.parameters,
        "frequency": recording.frequency,
        "noise": noise,
        "recording": member,
        "settings": dict(changes.settings),
        "discount": changes.discount,
        "root_seed": root_seed,
        "version": VERSION,
    }
    if policy.exists():  # replaced only if the same command wrote it and was stopped before its end
        facts, _ = read_policy(policy)
        if {name: facts.get(name) for name in about} != json.loads(json.dumps(about)):
            new_path(folder / policy.name)
    check_effort(recording.plant, recording.frequency, noise)
    claim(place)
    check_saved(place, "offline")
    learners = seeds or max(len(recording.members), _LEAST_LEARNERS)
    begin, done = time.monotonic(), 0

    def stage() -> str:
        if done == updates:
            return "references"
        seconds = time.monotonic() - begin
        left = f", {duration(seconds * (updates - done) / done)} left" if done else ""
        return f"{done} of {updates} updates{left}"

    def advance(count: int) -> None:
        nonlocal done
        done = count
        progress.update(task, completed=count)

    with (
        Progress(console=console, disable=not shows_bars(console), transient=True) as progress,
        plain_lines(console, stage),
    ):
        task = progress.add_task(f"{escape(label)} offline, {learners} learners", total=updates)
        try:
            with one_line_errors(f"{label} offline"):
                outcome = replay_offline(
                    recording, strategy, updates=updates, learner=learner, learners=learners, capacity=capacity,
                    root_seed=root_seed, progress=advance, changes=changes,
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            raise type(stop)("stopped; nothing was written, the same command starts again from 0") from stop
        progress.update(task, description="references")
        references = reference(recording.plant, recording.frequency, noise)
    online = {}
    if noise == recording.noise:  # under another noise, μ_r has another scale
        chosen = slice(None) if member is None else slice(member, member + 1)
        stored = {"online": recording.facts.reward_greedy, "online, exploring": recording.facts.reward_final}
        online = {f"{how}: {recording.facts.strategy}": rewards[chosen] for how, rewards in stored.items() if rewards}
    offline = OfflineScores(about, outcome.updates, outcome.reward, recorded_rewards(recording), online, references)
    beyond = extrapolation(recording, outcome.agent, learners, updates)
    described = {"policy": policy_facts(learner, outcome.agent, recording.frequency)}
    write_policy(policy, outcome.agent.weights(), {**about, **described})
    figure = draw_offline(offline, place)
    offline.write(scores)  # last, because this file marks a complete replay
    written = {"figure": figure, "policy": policy, "scores": scores}
    if beyond:
        warn(beyond.words(learner, bool(recording.plant.action_choices)), ReplaybenchWarning, stacklevel=3)
    return offline, {name: folder / path.name for name, path in written.items()}


def metric_words(known: Reference) -> str:
    """Return how the episodes of a plant are scored, "return" or "mean reward per step"."""
    return "return" if known.episode_metric == "return" else "mean reward per step"


def offline_parts(scores: OfflineScores) -> list[Table | Text]:
    """Return the scores of learners trained offline, of recorded data and of reference controllers, with warnings."""
    known = scores.reference
    title = f"{known.plant}, {known.frequency:g} Hz: {metric_words(known)}, mean over learners [95 %]"
    table = score_table("", title)
    for name, reward, score in scores.rows():
        table.add_row(escape(name), reward, score)
    return [table, *(Text(f"warning: {line[0].lower()}{line[1:]}", "yellow") for line in scores.headlines())]


def file_name(text: str) -> str:
    """Return a text as the name of a file, with underscores in place of characters that some systems refuse."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in text).strip("_")
