"""Advise on a plant: run FULL[Uniform], measure traits, try a few strategies, propose one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from rich.console import Console

from replaybench.data.errors import UserError, unknown
from replaybench.data.formats.documents import read_toml
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.user_code.user_file import imports_only
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import make_plant, stored_plant
from replaybench.experiments.advice.ninety_percent import Capacity, improves, ninety_percent, rounded
from replaybench.experiments.advice.probes import LEAST_EPISODES, Question, condition, experiences, planned, run
from replaybench.experiments.advice.proposal import Advice, Probe, cautions_of, changes_of, choose, probes_of, scores_of
from replaybench.experiments.advice.rules import RETENTIONS, SAMPLINGS, Candidate, candidates
from replaybench.experiments.advice.traits import Traits, authority_of, decay_of, symmetry_of
from replaybench.experiments.results.dataset import runs_there
from replaybench.experiments.results.references import no_learning
from replaybench.experiments.results.results_file import read_results
from replaybench.replay.strategies.notation import parse

FULL: Final = "FULL[Uniform]"
_ROOM: Final = 10_000


def advise(question: Question, folder: Path, workers: int, console: Console) -> Advice:
    """Advise by runs in a folder; what is finished there is not run again.

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
    length = int(collected.sel(strategy=FULL).sum("episode").median())
    capacity = _capacity(here, collected)
    asked = rounded(capacity.steps if capacity is not None else length // 2)
    traits = Traits(
        noise=question.noise,
        authority=authority_of(plant, question.frequency),
        decay=decay_of(settings, budget.episodes),
        symmetry=symmetry_of(plant, question.frequency),
        memory=question.memory / asked if question.memory else float("inf"),
    )
    room = room_of(asked, length, batch, question.memory)
    most = _most(collected)
    useful = {True: not question.memory or question.memory >= most, False: room < most}  # FULL, and others
    ranked = [each for each in candidates(traits) if each.strategy() != FULL and useful[each.retention == "FULL"]]
    picked = ranked[: budget.probes]
    say(f"2 of 3: {', '.join(each.strategy(room) for each in picked)}")
    names = [FULL, *(each.strategy(room) for each in picked)]

    def concluded(name: str) -> Advice:
        data = run(question.study(names, budget.episodes, _ROOM), folder / name, workers, console)
        return _conclude(question, plant, budget.episodes, data, traits, capacity, _tried(names, None))

    advice = concluded("2-probes")
    bounded = [each for each in advice.probes if each.candidate.retention != "FULL"]
    if bounded and len(picked) == budget.probes > 1 and room // 2 >= batch:
        half = bounded[0].candidate.strategy(room // 2)
        say(f"3 of 3: half the capacity, {half}")
        names.append(half)
        advice = concluded("3-capacity")
    return advice


def advise_from(
    path: Path, plant: str | None, memory: int, frequency: float | None, noise: float | None
) -> list[Advice]:
    """Advise by the results of a run folder, for each plant, learner, noise and rate that ran FULL[Uniform].

    Args:
        plant: the only plant to advise on; one in a Python file is loaded only if it is named here.

    Raises:
        UserError: it holds no results, or none of FULL[Uniform].
    """
    folder = RunFolder(path)
    if not folder.results.is_file():
        inner = sorted(path.glob("*/results.nc"))  # in a folder of `advise` the last holds all strategies
        hint = f"name {inner[-1].parent}" if inner else "name a run folder of `sweep`, or ask with --plant"
        raise UserError(f"{path} holds no results.nc; {hint}")
    data = read_results(folder.results)
    table = dict(read_toml(folder.study)) if folder.study.is_file() else {}
    if "episode_steps" not in data:
        raise UserError(f"{folder.results}, of an older version, does not say how long episodes were; sweep again")
    if plant is not None and plant not in data["plant"].values:
        raise unknown("plant of this run:", plant, map(str, data["plant"].values))
    found = []
    if FULL in data["strategy"].values:
        axes = ("plant", "learner", "noise", "frequency")
        there = data["reward"].sel(strategy=FULL).notnull().any(["seed", "episode"]).transpose(*axes)
        for place in np.argwhere(there.values):
            name, learner, level, rate = (there[axis].values[i].item() for axis, i in zip(axes, place, strict=True))
            if noise in (None, level) and frequency in (None, rate) and plant in (None, name):
                known = stored_plant(name, plant, _part(table, "plant", name))
                found.append(_advise_stored(data, table, memory, known, name, learner, level, rate))
    if not found:
        raise UserError(
            f"{path} holds no finished {FULL} there, from whose curve advice begins; run it, or use --plant"
        )
    return found


def _batch(question: Question) -> int:
    settings = question.study([FULL], question.episodes or LEAST_EPISODES, _ROOM).cells()[0].settings
    return int(settings["batch_size"]) * int(settings.get("segment", 1))


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
    for name in names:
        found = table.get(name)
        table = found if isinstance(found, dict) else {}
    return table


def _capacity(here: xr.Dataset, collected: xr.DataArray | None) -> Capacity | None:
    """Apply the 90 % rule to the curve of FULL[Uniform].

    None where it is not known what was `collected`, or nothing was learned: all runs collapsed or, without μ_r, do not
    significantly improve.
    """
    if collected is None:
        return None
    there = runs_there(here).sel(strategy=FULL).values
    curves = here["reward"].sel(strategy=FULL), collected.sel(strategy=FULL)
    rewards, steps = (curve.transpose("seed", "episode").values[there] for curve in curves)
    has_scores = np.isfinite(here["mu_final"].sel(strategy=FULL)).any()
    learned = int(here["dead"].sel(strategy=FULL)) < there.sum() if has_scores else improves(rewards)
    if not learned:
        return None
    start = float(here["reference_random"])
    if not np.isfinite(start):
        start = float(np.nanmean(rewards[:, : max(1, rewards.shape[1] // 20)]))
    return ninety_percent(rewards, steps, start)


def _tried(names: Sequence[str], room: int | None) -> list[tuple[str, str, str, int | None]]:
    """Return the strategies that rules know: retention, sampling, name and capacity."""
    found = []
    for name in names:
        try:
            with imports_only():
                strategy = parse(name)
        except UserError:  # in a user's file, which must not run here, or unknown
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
    """Compare what was tried, and propose one that fits into the memory, or none if none beats random control."""
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
    place: dict[str, Any] = {
        "learner": [question.learner],
        "noise": [question.noise],
        "frequency": [question.frequency],
    }
    headline, causes = no_learning(data.sel(plant=question.plant, **place))
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
    """Return whether a buffer of this capacity had room for all that each run collected."""
    return capacity is not None and capacity >= float(collected.sel(strategy=name).sum("episode").max())


def _about_capacities(capacity: Capacity | None, probes: Sequence[Probe], never: Sequence[str]) -> list[str]:
    """Return which runs are not judged, because no experience was overwritten, and which capacity was tried."""
    said = []
    if never:
        said.append(
            f"not judged, because their capacity holds the whole run, as FULL does: {', '.join(never)}; "
            "run them longer, or with a smaller capacity"
        )
    sizes = sorted({each.capacity for each in probes if each.capacity is not None})
    if sizes and (capacity is None or rounded(capacity.steps) > sizes[-1]):
        asked = "gives none" if capacity is None else f"asks for {rounded(capacity.steps)}"
        said.append(f"bounded retentions were tried with {sizes[-1]} experiences; the 90 % rule {asked}")
    return said


def room_of(asked: int, collected: int, batch: int, memory: int) -> int:
    """Return a capacity at which a run of so many `collected` experiences overwrites some.

    It is what is `asked` for, or half of the run; at most the memory, at least a batch.
    """
    room = asked if asked < collected else rounded(collected // 2)
    return max(batch, min(room, memory or room))


def _most(collected: xr.DataArray | None) -> float:
    """Return how many experiences a run collected at most, which FULL keeps; ∞ where that is not known."""
    return float("inf") if collected is None else float(collected.sum("episode").max())
