"""Export a replay buffer as a Minari dataset: whole episodes, the plant, and the scores that normalise returns."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replaybench.baselines.references import reference
from replaybench.data.errors import UserError
from replaybench.data.formats.minari_dataset import Episode, dataset_folder, need_minari, write_dataset
from replaybench.data.numerics import VERSION
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import plant_names
from replaybench.experiments.exchange.whole_episodes import as_episode, whole_episodes
from replaybench.experiments.offline.recording import Recording, read_recording

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


@dataclass(frozen=True)
class Exported:
    """A written dataset; `left_out` steps belong to incomplete episodes.

    `low` and `high` are the returns of random control and dynamic programming, None where not known.
    """

    folder: Path
    episodes: int
    steps: int
    left_out: int
    low: float | None
    high: float | None


def export_buffer(
    path: Path,
    dataset_id: str,
    member: int | None = None,
    plant_name: str | None = None,
    root: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Exported:
    """Write the whole episodes of a buffer file as a Minari dataset, one recording after the other.

    Args:
        dataset_id: `namespace/name-v0`.
        member: the recording to write, from 0; None writes all of them.
        plant_name: the plant, in place of the one that the file names.
        root: folder of datasets, Minari's own if not given.
        progress: called with the number of episodes written, and of all.

    Raises:
        UserError: Minari is missing, the id is malformed or taken, the file is no buffer, or no episode is whole.
    """
    folder = dataset_folder(dataset_id, root)
    need_minari()
    if folder.exists():
        raise UserError(f"{folder} exists already; remove it or choose another id, the next version for example")
    recording = read_recording(path, plant_name)
    if recording.facts.observe:
        seen = ", ".join(recording.facts.observe)
        raise UserError(f"{path} holds {seen} only; a dataset of {recording.plant.name} needs all states")
    chosen = chosen_recordings(recording, member)
    limit = _limit(recording)
    whole = [pieces for index in chosen for pieces in whole_episodes(recording, index, limit)]
    stored = sum(len(recording.orders[index]) for index in chosen)
    if not whole:
        strategy = recording.facts.strategy or "its recording"
        raise UserError(
            f"{path} holds no whole episode: {strategy} kept {stored} steps, but of every episode some are missing or "
            "made up; export a FULL buffer, or a FIFO of more slots"
        )
    low, high = _scores(recording, limit, {len(slots) for _, slots in whole})
    steps = sum(len(slots) for _, slots in whole)

    def episodes() -> Iterator[Episode]:
        for done, (number, slots) in enumerate(whole):
            progress(done, len(whole))
            yield as_episode(recording, number, slots, limit)

    # The spaces depend on no rate; a log's own may cut the episode into no whole number of samples.
    rate = 1 / recording.plant.episode_seconds if limit is None else recording.frequency
    space = PopulationEnv(recording.plant, frequency=rate, sensor_noise=recording.noise)
    spaces = space.single_observation_space, space.single_action_space
    about = _env_spec(recording, limit), _metadata(recording, len(chosen), low, high)
    write_dataset(folder, dataset_id, episodes(), *spaces, *about)
    return Exported(folder, len(whole), steps, stored - steps, low, high)


def chosen_recordings(recording: Recording, member: int | None) -> list[int]:
    """Return places among the sound recordings."""
    if member is None:
        return list(range(len(recording.members)))
    count = len(recording.members) + recording.failed
    if not 0 <= member < count:
        raise UserError(f"--member must be 0 … {count - 1}, not {member}: {recording.path} holds {count} recordings")
    if member not in recording.members:
        raise UserError(f"recording {member} of {recording.path} holds NaN or infinity; choose another --member")
    return [recording.members.index(member)]


def _limit(recording: Recording) -> int | None:
    """Return the steps of an episode; None for a log whose rate the plant cannot have."""
    try:
        return recording.plant.steps_per_episode(recording.frequency)
    except UserError:
        return None


def _scores(recording: Recording, steps: int | None, lengths: set[int]) -> tuple[float | None, float | None]:
    """Return the episode returns of random control and dynamic programming (μ_r = 0 and 1).

    None without them, where an episode is longer than `steps` or, if μ_r is of mean rewards, shorter.
    """
    by_return = recording.plant.episode_metric == "return"
    if steps is None or max(lengths) > steps or (not by_return and lengths != {steps}):
        return None, None
    found = reference(recording.plant, recording.frequency, recording.noise)
    per_episode = 1 if by_return else steps
    both = (found.random * per_episode, found.dp * per_episode)
    return both if found.usable and np.isfinite(both).all() else (None, None)


def _env_spec(recording: Recording, limit: int | None) -> EnvSpec | None:
    """Return Gymnasium's specification of the plant as it was recorded; None for a plant in a user's file."""
    name, plant = recording.facts.plant, recording.plant
    if name not in plant_names() or limit is None:
        return None
    import gymnasium

    spec = copy.deepcopy(gymnasium.spec(f"replaybench/{name}-v0"))
    noise = {"sensor_noise": recording.noise, "actuator_noise": recording.noise}
    spec.kwargs |= {"frequency": recording.frequency, **noise}
    values = dataclasses.asdict(plant)
    defaults = {field.name: field.default for field in dataclasses.fields(plant)}
    if changed := {name: value for name, value in values.items() if value != defaults[name]}:
        spec.kwargs["parameters"] = changed
    return spec


def _metadata(recording: Recording, recordings: int, low: float | None, high: float | None) -> dict[str, Any]:
    facts, plant = recording.facts, recording.plant
    learner = facts.cell.learner if facts.cell else None
    signals = ", ".join(plant.state_names), ", ".join(plant.action_names)
    metadata: dict[str, Any] = {
        "description": (
            f"{recordings} recording(s) of {plant.name} at {recording.frequency:g} Hz. Observations are normalised "
            f"states ({signals[0]}), actions are normalised commands ({signals[1]}); rewards are unscaled."
        ),
        "algorithm_name": f"{learner}, {facts.strategy}" if learner else "recorded elsewhere",
        "requirements": [f"replaybench>={VERSION}"],
        "replaybench": {
            "plant": facts.plant,
            "parameters": dataclasses.asdict(plant),
            "plant_fingerprint": plant.fingerprint(),
            "frequency": recording.frequency,
            "noise": facts.noise,
            "strategy": facts.strategy,
            "source": facts.source,
            "version": facts.version,
        },
    }
    if low is not None:
        metadata |= {"ref_min_score": low, "ref_max_score": high}
        metadata |= {"num_episodes_average_score": plant.reference_episodes}
    return metadata
