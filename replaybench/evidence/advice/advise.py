"""Advice on a plant, whose strategy is chosen by measurements of the plant and by trying some replay strategies."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console

from replaybench.data.documents import json_value, read_toml
from replaybench.data.run_folder import RunFolder, claim
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import make_plant, stored_plant, without_delay
from replaybench.evidence.advice import proposal, rules
from replaybench.evidence.advice.probes import LEAST_EPISODES, Question, condition, experiences, planned, run
from replaybench.evidence.card import BASELINE, above_baseline
from replaybench.experiments.comparison import no_learning
from replaybench.experiments.dataset import runs_there
from replaybench.experiments.recorded_buffer import Recording, curves, read_recording
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import VOLUME, without_axes
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import merged
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.user_file import imports_only


def as_record(advice: proposal.Advice) -> dict[str, Any]:
    """Convert advice to a dictionary for JSON, in which unknown and infinite values are None."""

    def tried(probe: proposal.Probe) -> dict[str, Any]:
        row: dict[str, Any] = {"strategy": probe.name, "capacity": probe.capacity, "votes": probe.candidate.votes}
        row |= {"score": probe.mean, "scores": [json_value(value) for value in probe.scores.tolist()]}
        if probe.beyond is not None and probe.beyond.n:
            ends = probe.beyond.interval()
            row |= {"beyond_full": probe.beyond.estimate, "interval": list(ends) if math.isfinite(ends[0]) else None}
            row |= {"n": probe.beyond.n, "p": probe.chance}
        return row

    chosen, capacity = advice.chosen, advice.capacity
    return {
        **{name: getattr(advice, name) for name in ("plant", "frequency", "noise", "learner", "episodes", "seeds")},
        "strategy": None if chosen is None else chosen.name,
        "capacity": None if chosen is None else chosen.capacity,
        "headline": advice.headline,
        "causes": list(advice.causes),
        "ninety_percent": None if capacity is None else {key: json_value(each) for key, each in vars(capacity).items()},
        "traits": {name: json_value(value) for name, value in vars(advice.traits).items()},
        "reasons": [
            {
                "rule": rule.id,
                "for": favours,
                "because": rule.because,
                "trait": rule.trait,
                "measured": json_value(rule.value(advice.traits)),
                "holds": rule.ends(),
                "section": rule.section,
                "claims": list(rule.claims),
                "evidence": {name: rules.stored_evidence()[name] for name in rule.evidence},
            }
            for favours, rule in (chosen.candidate.rules() if chosen else ())
        ],
        "unit": advice.unit,
        "references": dict(advice.known),
        "tried": [tried(probe) for probe in advice.probes],
        "ranked": [{"strategy": each.name, "votes": each.candidate.votes} for each in advice.ranked],
        "by_volume": None if advice.volume is None else _by_volume(advice.volume, advice.learner),
        "changes": list(advice.changes),
        "cautions": list(advice.cautions),
    }


def _by_volume(volume: float, learner: str) -> dict[str, Any]:
    stored_learner, nearest, above = above_baseline(volume, learner)
    rows = [
        {"strategy": name, "beyond_full": effect.estimate, "interval": list(effect.interval()), "n": effect.n, "p": p}
        for name, (effect, p) in above.items()
    ]
    return {"volume": volume, "stored_volume": nearest, "stored_learner": stored_learner, "strategies": rows}


FULL: Final = BASELINE
_ROOM: Final = 10_000


def advise(question: Question, folder: Path, workers: int, console: Console) -> proposal.Advice:
    """Train with several replay strategies, and propose the strategy and the capacity that work best.

    The first runs use FULL[Uniform] (all experiences, sampled uniformly). Their learning curve gives a capacity by the
    90 % rule (de Bruin et al., 2018, section 9.1). Then the strategies that most rules of advice recommend are tried.
    Finished runs in `folder` are reused. `workers` is the number of worker processes.
    """
    plant = make_plant(question.plant)
    settings = question.study([FULL], question.episodes or LEAST_EPISODES, _ROOM).cells()[0].settings
    batch = int(settings["batch_size"]) * int(settings.get("segment", 1))
    if question.memory and question.memory < batch:
        raise UserError(f"--memory {question.memory} is smaller than a batch of {batch}; ask for {batch} or more")
    folder = claim(folder)
    budget = planned(question, folder, workers)

    def announce(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    announce(f"1 of 3: {FULL}, {question.seeds} seeds × {budget.episodes} episodes")
    study = question.study([FULL], budget.episodes, _ROOM)
    settings = study.cells()[0].settings
    first = run(study, folder / "1-full", workers, console)
    here = condition(first, question)
    collected = experiences(here, plant)
    assert collected is not None
    length = int(collected.sel(strategy=FULL).sum("episode").median())
    capacity = _capacity(here, collected)
    asked = proposal.rounded(capacity.steps if capacity is not None else length // 2)
    decay = rules.decay_of(settings, budget.episodes)
    traits = rules.traits_of(plant, question.frequency, question.noise, decay, question.memory, asked)
    room = room_of(asked, length, batch, question.memory)
    most = _most(collected)
    useful = {True: not question.memory or question.memory >= most, False: room < most}  # FULL, and others
    ranked = [each for each in rules.candidates(traits) if each.strategy() != FULL and useful[each.retention == "FULL"]]
    picked = ranked[: budget.probes]
    announce(f"2 of 3: {', '.join(each.strategy(room) for each in picked)}")
    names = [FULL, *(each.strategy(room) for each in picked)]

    def concluded(name: str) -> proposal.Advice:
        data = run(question.study(names, budget.episodes, _ROOM), folder / name, workers, console)
        tried = _tried(names, None)
        return _conclude(question, plant, budget.episodes, data, traits, capacity, tried, _volume(settings))

    advice = concluded("2-probes")
    bounded = [each for each in advice.probes if each.candidate.retention != "FULL"]
    if bounded and len(picked) == budget.probes > 1 and room // 2 >= batch:
        half = bounded[0].candidate.strategy(room // 2)
        announce(f"3 of 3: half the capacity, {half}")
        names.append(half)
        advice = concluded("3-capacity")
    return advice


def advise_from(
    path: Path, plant: str | None, memory: int, frequency: float | None, noise: float | None
) -> list[proposal.Advice]:
    """Propose a strategy for each plant, learner, noise and control rate from the results of a study.

    Conditions without results of FULL[Uniform] (all experiences, sampled uniformly) are left out.

    Args:
        path: Run folder of the study.
        plant: Name of the only plant to advise on; all plants if None. A plant in a user's Python file is only loaded
            if this argument names it.
        memory: Largest number of experiences in a buffer; 0 for no limit.
        frequency: The only control rate in Hz to advise on; all control rates if None.
        noise: The only noise to advise on; all noises if None.
    """
    folder = RunFolder(path)
    if not folder.results.is_file():
        inner = sorted(path.glob("*/results.nc"))  # in a folder of `advise` the last holds all strategies
        hint = f"name {inner[-1].parent}" if inner else "name a run folder of `sweep`, or ask with --plant"
        raise UserError(f"{path} holds no results.nc; {hint}")
    data = read_results(folder.results)
    table = dict(read_toml(folder.study)) if folder.study.is_file() else {}
    if plant is not None and plant not in data["plant"].values:
        raise unknown("plant of this run:", plant, map(str, data["plant"].values))
    advices = []
    if FULL in data["strategy"].values:
        axes = ("plant", "learner", "noise", "frequency")
        there = data["reward"].sel(strategy=FULL).notnull().any(["seed", "episode"]).transpose(*axes)
        for place in np.argwhere(there.values):
            name, learner, level, rate = (there[axis].values[i].item() for axis, i in zip(axes, place, strict=True))
            if noise in (None, level) and frequency in (None, rate) and plant in (None, name):
                own = _part(table, "plant", without_delay(name)[0])
                channel = merged(_part(table, "channel"), _part(own, "channel"))
                known = stored_plant(name, plant, {**own, "channel": channel} if channel else own)
                question = Question(
                    plant=name, learner=learner, frequency=rate, noise=level, seeds=0, root_seed=0, memory=memory,
                    minutes=0.0,
                )  # fmt: skip
                advices.append(_advise_stored(data, table, question, known))
    if not advices:
        raise UserError(f"{path} holds no finished runs of {FULL} there, which advice needs; run it, or use --plant")
    return advices


def _advise_stored(data: xr.Dataset, table: dict[str, Any], question: Question, plant: Plant | None) -> proposal.Advice:
    here = condition(data, question)
    capacity = _capacity(here, experiences(here, plant))
    settings = _part(table, "learner", without_axes(question.learner))
    decay = rules.decay_of(settings, data.sizes["episode"]) if settings else None
    asked = None if capacity is None else proposal.rounded(capacity.steps)
    traits = rules.traits_of(plant, question.frequency, question.noise, decay, question.memory, asked)
    room, done = table.get("capacity"), runs_there(here)
    names = [str(name) for name in here["strategy"].values if done.sel(strategy=name).any()]
    question = dataclasses.replace(question, seeds=int(done.sel(strategy=FULL).sum()))
    tried = _tried(names, room if isinstance(room, int) else None)
    stated = question.learner.rpartition(VOLUME)[2] if VOLUME in question.learner else None
    volume = _volume(settings) if stated is None else float(stated)
    return _conclude(question, plant, data.sizes["episode"], data, traits, capacity, tried, volume)


def _volume(settings: Mapping[str, Any]) -> float | None:
    """Return the number of replays for each experience in the settings of a learner, or None if it is unknown."""
    volume = settings.get("replays_per_experience")
    return float(volume) if isinstance(volume, int | float) and volume > 0 else None


def _part(table: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = table.get(name)
        table = inner if isinstance(inner, dict) else {}
    return table


def _capacity(here: xr.Dataset, collected: xr.DataArray | None) -> proposal.Capacity | None:
    """Apply the 90 % rule (de Bruin et al., 2018, section 9.1) to the learning curve of FULL[Uniform].

    Return None if the number of `collected` experiences is not known, or if nothing was learned. Nothing was learned if
    all runs collapsed (final μ_r below 0.2) or, where μ_r is not defined, if rewards do not improve significantly.
    """
    if collected is None:
        return None
    there = runs_there(here).sel(strategy=FULL).values
    curves = here["reward"].sel(strategy=FULL), collected.sel(strategy=FULL)
    rewards, steps = (curve.transpose("seed", "episode").values[there] for curve in curves)
    has_scores = np.isfinite(here["mu_final"].sel(strategy=FULL)).any()
    learned = int(here["dead"].sel(strategy=FULL)) < there.sum() if has_scores else proposal.improves(rewards)
    if not learned:
        return None
    start = float(here["reference_random"])
    if not np.isfinite(start):
        start = float(np.nanmean(rewards[:, : max(1, rewards.shape[1] // 20)]))
    return proposal.ninety_percent(rewards, steps, start)


def _tried(names: Sequence[str], room: int | None) -> list[tuple[str, str, str, int | None]]:
    """Return retention, sampling, name and capacity of those strategies in `names` whose retention the rules cover.

    The capacity is `room` for strategies that state no capacity, and None for FULL.
    """
    covered = []
    for name in names:
        with contextlib.suppress(UserError), imports_only():  # unknown, or in a user's file, which must not run here
            strategy = parse(name)
            own = strategy.retention.capacity
            sampling = str(strategy).partition("[")[2].removesuffix("]")
            for retention in rules.RETENTIONS:
                if str(parse(rules.Candidate(retention, sampling, (), ()).strategy(own))) == str(strategy):
                    covered.append((retention, sampling, name, None if retention == "FULL" else own or room))
    return covered


def _conclude(
    question: Question,
    plant: Plant | None,
    episodes: int,
    data: xr.Dataset,
    traits: rules.Traits,
    capacity: proposal.Capacity | None,
    tried: Sequence[tuple[str, str, str, int | None]],
    volume: float | None,
) -> proposal.Advice:
    here = condition(data, question)
    scores, known, unit = proposal.scores_of(here)
    done, collected = runs_there(here), experiences(here, plant)
    missing = {name: int((~done.sel(strategy=name)).sum()) for name in scores}
    never = [  # their buffers hold all experiences of each run
        each
        for each in tried
        if collected is not None and each[3] is not None and each[3] >= _most(collected.sel(strategy=each[2]))
    ]
    overwriting = [(rules.candidate(traits, *each[:2]), *each[2:]) for each in tried if each not in never]
    probes = proposal.probes_of(scores, missing, overwriting)
    sizes = {each.name: each.capacity or _most(collected) for each in probes}
    affordable = [each for each in probes if not question.memory or sizes[each.name] <= question.memory]
    if not affordable:
        raise UserError(
            f"no strategy that was run on {question.plant} fits into --memory {question.memory}, the smallest needs "
            f"{min(sizes.values()):.0f}; raise it, or run FIFO({question.memory})[Uniform] there too"
        )
    place: dict[str, Any] = {axis: [getattr(question, axis)] for axis in ("learner", "noise", "frequency")}
    headline, causes = no_learning(data.sel(plant=question.plant, **place))
    chosen = None if headline else proposal.choose(affordable)
    return proposal.Advice(
        plant=question.plant,
        frequency=question.frequency,
        noise=question.noise,
        learner=question.learner,
        episodes=episodes,
        seeds=question.seeds,
        unit=unit,
        traits=traits,
        capacity=capacity,
        probes=probes,
        chosen=chosen,
        changes=[] if chosen is None else proposal.changes_of(traits, probes, affordable, chosen, capacity),
        cautions=[
            *proposal.cautions_of(capacity, chosen, question.seeds, episodes, traits, counted=collected is not None),
            *proposal.about_capacities(capacity, probes, [name for _, _, name, _ in never]),
        ],
        known=known,
        headline=headline,
        causes=causes,
        volume=volume,
    )


def room_of(asked: int, collected: int, batch: int, memory: int) -> int:
    """Return a buffer capacity at which some experiences of a run are overwritten.

    The capacity is `asked`, which results from the 90 % rule (de Bruin et al., 2018, section 9.1). If the number of
    experiences of a run, `collected`, is at most `asked`, the capacity is half of `collected`. The capacity is at most
    `memory` (0 for no limit), and at least one batch.
    """
    room = asked if asked < collected else proposal.rounded(collected // 2)
    return max(batch, min(room, memory or room))


def _most(collected: xr.DataArray | None) -> float:
    """Return the largest number of experiences that a run collected, or ∞ if the number is not known."""
    return float("inf") if collected is None else float(collected.sum("episode").max())


_START = 20
"""Number of equal parts of a recording. The learning curve starts at the mean reward of the first part."""


def advise_on_buffer(path: Path, plant: str | None, memory: int, noise: float | None) -> proposal.Advice:
    """Propose a strategy and a capacity from a buffer file and the rules of advice, without new runs.

    Args:
        plant: Name of the plant. Required if the plant is in a user's Python file, because opening a buffer file never
            executes code that the file names.
        memory: Largest number of experiences in a buffer; 0 for no limit.
        noise: Standard deviation of the normalised sensor and actuator noise. If None, the value in the file, or 0.
    """
    recording = read_recording(path, plant)
    batch = (recording.facts.batch_size or 1) * recording.facts.unit.steps
    if memory and memory < batch:
        raise UserError(f"--memory {memory} is smaller than a batch of {batch}; ask for {batch} or more")
    rewards, steps = curves(recording)
    capacity = None  # for fewer than 20 episodes, or where they do not significantly improve
    if rewards.shape[1] >= proposal.LEAST_EPISODES and proposal.improves(rewards):
        start = float(rewards[:, : rewards.shape[1] // _START].mean())
        capacity = proposal.ninety_percent(rewards, steps.astype(np.float64), start)
    asked = None if capacity is None else proposal.rounded(capacity.steps)
    level, decay = recording.noise if noise is None else noise, _decay(recording)
    try:
        traits = rules.traits_of(recording.plant, recording.frequency, level, decay, memory, asked)
    except UserError:  # the plant may not support a dataset's rate
        traits = rules.traits_of(None, recording.frequency, level, decay, memory, asked)
    collected = int(recording.arrays["collected"][recording.members].max())
    room = max(batch, min(size for size in (asked, memory, collected) if size))
    ranked = [
        proposal.Probe(each, each.strategy(room), None if each.retention == "FULL" else room, np.empty(0), None, 1.0)
        for each in rules.candidates(traits)
        if (not memory or memory >= collected if each.retention == "FULL" else room < collected)
    ]
    return proposal.Advice(
        plant=recording.plant.name,
        frequency=recording.frequency,
        noise=recording.facts.noise if noise is None else noise,
        learner=recording.facts.cell.learner if recording.facts.cell else "a recording",
        episodes=rewards.shape[1],
        seeds=len(recording.members),
        unit="",
        traits=traits,
        capacity=capacity,
        probes=(),
        ranked=ranked,
        chosen=ranked[0],
        changes=[*proposal.edges_of(traits, ranked[0].candidate), *proposal.capacity_change(capacity)],
        cautions=[
            f"nothing was tried; `replaybench advise --plant {plant or recording.facts.plant}` tries them",
            *_buffer_cautions(recording, noise, rewards.shape[1], collected, room, asked, traits),
        ],
        volume=_volume(recording.facts.cell.settings) if recording.facts.cell else None,
    )


def _decay(recording: Recording) -> float | None:
    arrays = recording.arrays
    if recording.facts.cell is not None and "episode" in arrays:
        return rules.decay_of(recording.facts.cell.settings, int(arrays["episode"].max()) + 1)
    if "exploration" not in arrays:
        return None
    ends = []
    for m, order in zip(recording.members, recording.orders, strict=True):
        values, tenth = arrays["exploration"][m, order, 0].astype(np.float64), max(1, len(order) // 10)
        ends.append((values[:tenth].mean(), values[-tenth:].mean()))
    first, last = np.mean(ends, axis=0).tolist()
    return 1.0 if first == last else float("inf") if last == 0 else first / last


def _buffer_cautions(
    recording: Recording, noise: float | None, episodes: int, collected: int, room: int, asked: int | None,
    traits: rules.Traits,
) -> Iterator[str]:  # fmt: skip
    if recording.changed:
        yield f"{recording.plant.name} has changed since this buffer was filled"
    if recording.failed:
        yield f"{recording.failed} recording(s) hold NaN or infinity and are left out"
    if noise is None and recording.facts.noise is None:
        yield "the plant's noise is not known and taken as 0; set it with --noise"
    if asked is None:
        turns = zip(recording.members, recording.orders, strict=True)
        if "episode" not in recording.arrays:
            why = "the file does not say where episodes begin"
        elif any(len(order) < recording.arrays["collected"][m] for m, order in turns):
            why = "some collected experiences are not stored, so there is no learning curve"
        elif episodes < proposal.LEAST_EPISODES:
            why = f"{episodes} whole episodes are too few"
        else:
            why = "its episodes do not significantly improve"
        yield f"the 90 % rule gives no capacity: {why}"
    if room >= collected:
        why = "gives no capacity" if asked is None else f"asks for {asked}"
        kept = f"bounded retentions are left out: the 90 % rule {why}, and all {collected} experiences are kept"
        yield f"{kept}; with --memory below {collected} they are ranked, too"
    if traits.authority is None:
        yield "how far single actions move the plant was not measured: it cannot have the recording's rate"
    elif traits.symmetry is None:
        yield "whether the plant is its own mirror image is not known: it has no equations"
    if traits.decay is None:
        yield "which part of its actions was exploration is not known"
