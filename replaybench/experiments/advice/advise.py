"""The procedure: FULL[Uniform] first, what its curve and the plant's traits say, short probes, then a proposal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console

from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.user_code.user_file import imports_only
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import make_plant, stored_plant
from replaybench.experiments.advice.ninety_percent import Capacity, ninety_percent, rounded, surely_improves
from replaybench.experiments.advice.probes import (
    LEAST_EPISODES,
    Question,
    condition,
    experiences,
    planned,
    run,
    stored_study,
)
from replaybench.experiments.advice.proposal import Advice, Probe, cautions_of, changes_of, choose, probes_of, scores_of
from replaybench.experiments.advice.rules import RETENTIONS, SAMPLINGS, Candidate, candidates
from replaybench.experiments.advice.show import as_record, print_advice
from replaybench.experiments.advice.traits import Traits, authority_of, decay_of, symmetry_of
from replaybench.experiments.results.dataset import runs_there
from replaybench.experiments.results.references import no_learning
from replaybench.experiments.results.results_file import read_results
from replaybench.replay.strategies.notation import parse

FULL: Final = "FULL[Uniform]"
_ROOM: Final = 10_000


def advise(question: Question, folder: Path, workers: int, console: Console) -> Advice:
    """Answer a question by runs in a folder; what is finished there is not run again.

    Raises:
        UserError: a batch does not fit into the memory.
    """
    plant, batch = make_plant(question.plant), _batch(question)
    if question.memory and question.memory < batch:
        raise UserError(f"--memory {question.memory} is smaller than a batch of {batch}; ask for {batch} or more")
    budget = planned(question, folder, workers)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    say(f"1 of 3: {FULL}, {question.seeds} seeds × {budget.episodes} episodes")
    study = question.study([FULL], budget.episodes, _ROOM)
    settings = study.cells()[0].settings
    first = run(study, folder / "1-full", workers, console)
    here = condition(first, question.plant, question.learner, question.noise, question.frequency)
    collected = experiences(here, plant)
    assert collected is not None
    length, capacity = _run_length(collected), _capacity(here, collected)
    asked = rounded(capacity.steps if capacity is not None else length // 2)
    traits = Traits(
        noise=question.noise,
        authority=authority_of(plant, question.frequency),
        decay=decay_of(settings, budget.episodes),
        symmetry=symmetry_of(plant, question.frequency),
        memory=question.memory / asked if question.memory else float("inf"),
    )
    room = room_of(asked, length, batch, question.memory)
    ranked = [each for each in candidates(traits) if each.strategy() != FULL]
    ranked = [each for each in ranked if each.retention == "FULL" or room < _most(collected)]
    if question.memory:
        ranked = [each for each in ranked if each.retention != "FULL" or question.memory >= _most(collected)]
    picked = ranked[: budget.probes]
    say(f"2 of 3: {', '.join(each.strategy(room) for each in picked)}")
    names = [FULL, *(each.strategy(room) for each in picked)]
    second = run(question.study(names, budget.episodes, _ROOM), folder / "2-probes", workers, console)
    tried = _tried(names, None)
    advice = _conclude(question, plant, budget.episodes, second, traits, capacity, tried)
    bounded = [each for each in advice.probes if each.candidate.retention != "FULL"]
    if bounded and len(picked) == budget.probes > 1 and room // 2 >= batch:
        half = bounded[0].candidate.strategy(room // 2)
        say(f"3 of 3: half the capacity, {half}")
        names.append(half)
        third = run(question.study(names, budget.episodes, _ROOM), folder / "3-capacity", workers, console)
        advice = _conclude(question, plant, budget.episodes, third, traits, capacity, _tried(names, None))
    return advice


def advise_from(
    path: Path, plant: str | None, memory: int, frequency: float | None, noise: float | None
) -> list[Advice]:
    """Advise by what a run folder holds already, for each plant, learner, noise and rate that ran FULL[Uniform].

    Args:
        plant: the only plant to advise on. One of a user's file is loaded only if it is named here.

    Raises:
        UserError: it holds no results, or none of FULL[Uniform].
    """
    folder = RunFolder(path)
    if not folder.results.is_file():
        inner = sorted(path.glob("*/results.nc"))  # of what `advise` wrote, the last holds all that was tried
        hint = f"name {inner[-1].parent}" if inner else "name a run folder of `sweep`, or ask with --plant"
        raise UserError(f"{path} holds no results.nc; {hint}")
    data, table = read_results(folder.results), stored_study(folder)
    if "episode_steps" not in data:
        raise UserError(f"{folder.results}, of an older version, does not say how long episodes were; sweep again")
    if plant is not None and plant not in data["plant"].values:
        raise unknown("plant of this run:", plant, map(str, data["plant"].values))
    found = []
    if FULL in data["strategy"].values:
        run = data["reward"].sel(strategy=FULL).notnull().any(["seed", "episode"])
        for name, learner, level, rate in _places(run):
            if noise in (None, level) and frequency in (None, rate) and plant in (None, name):
                known = stored_plant(name, plant, _part(table, "plant", name))
                found.append(_advise_stored(data, table, memory, known, name, learner, level, rate))
    if not found:
        raise UserError(
            f"{path} holds no finished {FULL} there, from whose curve advice begins; run it, or use --plant"
        )
    return found


def _batch(question: Question) -> int:
    """Return the experiences that are replayed at once: single ones, or segments of them."""
    settings = question.study([FULL], question.episodes or LEAST_EPISODES, _ROOM).cells()[0].settings
    return int(settings["batch_size"]) * int(settings.get("segment", 1))


def _places(run: xr.DataArray) -> list[tuple[str, str, float, float]]:
    axes = ("plant", "learner", "noise", "frequency")
    places = np.argwhere(run.transpose(*axes).values)
    return [tuple(run[axis].values[i].item() for axis, i in zip(axes, place, strict=True)) for place in places]


def _advise_stored(
    data: xr.Dataset,
    table: dict[str, Any],
    memory: int,
    known: Plant | None,
    plant: str,
    learner: str,
    noise: float,
    rate: float,
) -> Advice:
    """Advise by one condition of stored results."""
    here = condition(data, plant, learner, noise, rate)
    capacity = _capacity(here, experiences(here, known))
    settings = _part(table, "learner", learner)
    traits = Traits(
        noise=noise,
        authority=None if known is None else authority_of(known, rate),
        decay=decay_of(settings, data.sizes["episode"]) if settings else None,
        symmetry=None if known is None else symmetry_of(known, rate),
        memory=memory / rounded(capacity.steps) if memory and capacity is not None else float("inf"),
    )
    room = table.get("capacity")
    done = runs_there(here)
    names = [str(name) for name in here["strategy"].values if done.sel(strategy=name).any()]
    seeds = int(done.sel(strategy=FULL).sum())
    question = Question(
        plant=plant, learner=learner, frequency=rate, noise=noise, seeds=seeds, root_seed=0, memory=memory, minutes=0.0
    )
    tried = _tried(names, room if isinstance(room, int) else None)
    return _conclude(question, known, data.sizes["episode"], data, traits, capacity, tried)


def _part(table: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return what a study that lies beside results says of something; nothing where it is no table."""
    for name in names:
        found = table.get(name)
        table = found if isinstance(found, dict) else {}
    return table


def _capacity(here: xr.Dataset, collected: xr.DataArray | None) -> Capacity | None:
    """Apply the 90 % rule to the curve of FULL[Uniform].

    None where it is not known what was `collected`, or nothing was learned: all runs are dead or, where there is no
    μ_r, do not surely improve. Doing nothing is often a little better than random control.
    """
    if collected is None:
        return None
    there = runs_there(here).sel(strategy=FULL).values
    curves = here["reward"].sel(strategy=FULL), collected.sel(strategy=FULL)
    rewards, steps = (curve.transpose("seed", "episode").values[there] for curve in curves)
    has_scores = np.isfinite(here["mu_final"].sel(strategy=FULL)).any()
    learned = int(here["dead"].sel(strategy=FULL)) < there.sum() if has_scores else surely_improves(rewards)
    if not learned:
        return None
    start = float(here["reference_random"])
    if not np.isfinite(start):
        start = float(np.nanmean(rewards[:, : max(1, rewards.shape[1] // 20)]))
    return ninety_percent(rewards, steps, start)


def _tried(names: Sequence[str], room: int | None) -> list[tuple[str, str, str, int | None]]:
    """Return those strategies that are advised on: retention, sampling, name and capacity."""
    found = []
    for name in names:
        try:
            with imports_only():
                strategy = parse(name)
        except UserError:  # of a user's file, which looking at results must not run, or not known here
            continue
        whole, own = str(strategy), strategy.retention.capacity
        retention = whole.partition("[")[0].partition("(")[0]
        sampling = whole.partition("[")[2].removesuffix("]")
        kept = Candidate(retention, sampling, (), ())
        plain = kept.strategy() if own is None else kept.strategy(own)
        if retention in RETENTIONS and sampling in SAMPLINGS and str(parse(plain)) == whole:
            found.append((retention, sampling, name, None if retention == "FULL" else own or room))
    return found


def _conclude(
    question: Question,
    plant: Plant | None,
    episodes: int,
    data: xr.Dataset,
    traits: Traits,
    capacity: Capacity | None,
    tried: Sequence[tuple[str, str, str, int | None]],
) -> Advice:
    """Compare what was tried, and propose one that fits into the memory, or none if none beats random control.

    Without the `plant` less is known.

    Raises:
        UserError: none fits.
    """
    here = condition(data, question.plant, question.learner, question.noise, question.frequency)
    scores, known, unit = scores_of(here)
    judged = {(each.retention, each.sampling): each for each in candidates(traits)}
    done, collected = runs_there(here), experiences(here, plant)
    missing = {name: int((~done.sel(strategy=name)).sum()) for name in scores}
    never = [each for each in tried if collected is not None and _never_full(collected, *each[2:])]
    others = [each for each in tried if each not in never]
    probes = probes_of(scores, missing, [(judged[kept, drawn], name, room) for kept, drawn, name, room in others])
    sizes = {each.name: each.capacity or _most(collected) for each in probes}
    affordable = [each for each in probes if not question.memory or sizes[each.name] <= question.memory]
    if not affordable:
        raise UserError(
            f"nothing that was run on {question.plant} fits into --memory {question.memory}, the least keeps "
            f"{min(sizes.values()):.0f}; raise it, or run FIFO({question.memory})[Uniform] there too"
        )
    headline, causes = no_learning(
        data.sel(
            plant=question.plant,
            learner=[question.learner],
            noise=[question.noise],
            frequency=[question.frequency],
        )
    )
    chosen = None if headline else choose(affordable)
    return Advice(
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
        changes=[] if chosen is None else changes_of(traits, probes, affordable, chosen, capacity),
        cautions=[
            *cautions_of(capacity, chosen, question.seeds, episodes, traits, counted=collected is not None),
            *_about_capacities(capacity, probes, [name for _, _, name, _ in never]),
        ],
        known=known,
        headline=headline,
        causes=causes,
    )


def _never_full(collected: xr.DataArray, name: str, capacity: int | None) -> bool:
    """Return whether a buffer of this capacity had room for all that each run of a strategy collected."""
    return capacity is not None and capacity >= float(collected.sel(strategy=name).sum("episode").max())


def _about_capacities(capacity: Capacity | None, probes: Sequence[Probe], never: Sequence[str]) -> list[str]:
    """Say which runs are not judged because they forgot nothing, and where a capacity is not the 90 % rule's."""
    said = []
    if never:
        said.append(
            f"not judged, because their capacity holds the whole run, as FULL does: {', '.join(never)}; "
            "run them longer, or with a smaller capacity"
        )
    sizes = sorted({each.capacity for each in probes if each.capacity is not None})
    if sizes and (capacity is None or rounded(capacity.steps) > sizes[-1]):
        asked = "gives none" if capacity is None else f"asks for {rounded(capacity.steps)}"
        said.append(f"retentions that forget were tried with {sizes[-1]} experiences; the 90 % rule {asked}")
    return said


def room_of(asked: int, collected: int, batch: int, memory: int) -> int:
    """Return a capacity at which a run of so many `collected` experiences overwrites some.

    That is what is `asked` for, half of the run where that would keep everything; within the memory, but a batch.
    """
    room = asked if asked < collected else rounded(collected // 2)
    return max(batch, min(room, memory or room))


def _run_length(collected: xr.DataArray) -> int:
    """Return how many experiences a run of FULL[Uniform] collects, the median of seeds."""
    return int(collected.sel(strategy=FULL).sum("episode").median())


def _most(collected: xr.DataArray | None) -> float:
    """Return how many experiences a whole run collected at most, which is what FULL keeps; ∞ where nobody knows."""
    return float("inf") if collected is None else float(collected.sum("episode").max())


def show(advices: Advice | Sequence[Advice], form: str, console: Console) -> None:
    """Print advice, as text or as JSON: an object, of several a list, however many they are."""
    if form == "json":
        record = as_record(advices) if isinstance(advices, Advice) else [as_record(each) for each in advices]
        print(json.dumps(record, ensure_ascii=False, indent=1))
        return
    for each in [advices] if isinstance(advices, Advice) else advices:
        print_advice(console, each)
