"""Export of replay buffers as Minari datasets and as tables of steps."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.references import reference
from replaybench.data.logs.minari_dataset import Episode, dataset_folder, write_dataset
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import plant_names
from replaybench.experiments.recorded_buffer import Recording, read_recording
from replaybench.replay.storage.traces import episode_and_step
from replaybench.runtime.arrays import Integers
from replaybench.runtime.atomic import new_path
from replaybench.runtime.errors import UserError, need
from replaybench.runtime.version import VERSION

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

Slots = Integers

CARRIED: Final = ("exploration",)
"""Arrays of a buffer that the dataset stores as infos of each episode."""


def whole_episodes(recording: Recording, index: int, limit: int | None) -> Iterator[tuple[int, Slots]]:
    """Yield the complete episodes of a learner, each as the learner's index in the file and the steps' buffer indices.

    An episode is complete if no step is missing, if each step begins in the state in which the previous one ended, and
    if the episode ended by termination, by the time limit, or with its log.

    Args:
        recording: The buffer file.
        index: Index of the learner in `recording.members`.
        limit: Largest number of steps of an episode; None for no time limit.
    """
    arrays, member = recording.arrays, recording.members[index]
    slots = recording.orders[index]
    episode, step = _places(recording, member, slots)
    order = np.lexsort((step, episode))
    slots, episode, step = slots[order], episode[order], step[order]
    recorded_elsewhere = recording.facts.source == "import"
    cuts = np.flatnonzero(np.diff(episode)) + 1
    for piece, place in zip(np.split(slots, cuts), np.split(step, cuts), strict=True):
        observation, follows = arrays["observation"][member, piece], arrays["next_observation"][member, piece]
        terminated = arrays["terminated"][member, piece, 0] != 0
        ended = bool(terminated[-1]) or len(piece) == limit or recorded_elsewhere
        in_order = np.array_equal(place, np.arange(len(piece))) and not terminated[:-1].any()
        if ended and in_order and np.array_equal(observation[1:], follows[:-1]):
            yield member, piece


def step_columns(recording: Recording, indices: Sequence[int]) -> dict[str, list[Any]]:
    """Return the steps of some learners in the order of collection, as columns of a table in physical units.

    `indices` are indices of learners in `recording.members`. The result is a dictionary from the title of a column to
    its values.
    """
    plant, arrays = recording.plant, recording.arrays
    seen = seen_states(plant.name, plant.state_names, recording.facts.observe)
    center, scale = (np.array(values, np.float64)[seen] for values in (plant.state_center, plant.state_scale))
    columns: dict[str, list[Any]] = {}
    for index in indices:
        member, slots = recording.members[index], recording.orders[index]
        episode, step = _places(recording, member, slots)
        rows: dict[str, Any] = {
            "recording": np.full(len(slots), member),
            "serial": arrays["serial"][member, slots],
            "episode": episode,
            "step": step,
            "time [s]": step / recording.frequency,
        }
        for prefix, name in (("", "observation"), ("next ", "next_observation")):
            states = center + scale * arrays[name][member, slots, : len(seen)]  # without past commands
            rows |= {
                f"{prefix}{plant.state_names[place]} [{plant.state_units[place]}]": states[:, column]
                for column, place in enumerate(seen)
            }
        actions = plant.denormalise_action(arrays["action"][member, slots])
        names = zip(plant.action_names, plant.action_units, strict=True)
        rows |= {f"{name} [{unit}]": actions[:, column] for column, (name, unit) in enumerate(names)}
        rows |= {name: arrays[name][member, slots, 0] for name in ("reward", "terminated")}
        for name, values in rows.items():
            columns.setdefault(name, []).extend(values.tolist())
    return columns


def _places(recording: Recording, member: int, slots: Slots) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    arrays = recording.arrays
    serial, starts = arrays["serial"], arrays.get("episode_starts")
    if all(name in arrays and arrays[name].shape == serial.shape for name in ("episode", "step")):
        return arrays["episode"][member, slots], arrays["step"][member, slots]
    if starts is None or starts.ndim != 2 or len(starts) != len(serial) or not starts.size:
        raise UserError(f"{recording.path} does not hold the episode and step of each experience; run the sweep again")
    return episode_and_step(starts[member], serial[member, slots])


def as_episode(recording: Recording, member: int, slots: Slots, limit: int | None) -> Episode:
    """Return the steps at the buffer indices `slots` of one learner as a Minari episode.

    The episode is marked as truncated if its last step did not terminate, or if it has `limit` steps.
    """
    arrays = recording.arrays
    rows = {name: arrays[name][member, slots] for name in ("observation", "action", "reward", "terminated")}
    terminated = rows["terminated"][:, 0] != 0
    truncated = np.zeros(len(slots), np.bool_)
    truncated[-1] = not terminated[-1] or len(slots) == limit
    carried = {name: arrays[name][member, slots] for name in CARRIED if name in arrays}
    return Episode(
        observations=np.concatenate([rows["observation"], arrays["next_observation"][member, slots[-1:]]]),
        actions=np.clip(rows["action"], -1.0, 1.0),  # as the plant clips samples of an unbounded policy
        rewards=rows["reward"][:, 0],
        terminations=terminated,
        truncations=truncated,
        infos={name: np.concatenate([np.zeros_like(row[:1]), row]) for name, row in carried.items()},
    )


@dataclass(frozen=True)
class Exported:
    """The result of an export to a Minari dataset.

    Attributes:
        left_out: Number of stored steps that belong to incomplete episodes.
        low, high: Returns of random control and of dynamic programming; None if they are not known.
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
    """Write the complete episodes of a buffer file as a Minari dataset.

    Args:
        dataset_id: Name of the dataset with its version, for example `pendulum/full-v0`.
        member: Index of the only learner whose experiences are exported; all learners by default.
        plant_name: Name of the plant, which is needed if the plant is defined in a user's Python file.
        root: Folder of the Minari datasets; Minari's own folder by default.
        progress: Function that is called with the number of written episodes and the number of all episodes.
    """
    folder = dataset_folder(dataset_id, root)
    need("minari", "Minari datasets need the extra: pip install 'replaybench[minari]'")
    place = new_path(folder, "remove it or choose another id, the next version for example")
    recording = read_recording(path, plant_name)
    if recording.facts.observe:
        seen = ", ".join(recording.facts.observe)
        raise UserError(f"{path} holds {seen} only; a dataset of {recording.plant.name} needs all states")
    chosen = chosen_recordings(recording, member)
    limit: int | None = None
    with contextlib.suppress(UserError):  # a log may have a rate that the plant does not support
        limit = recording.plant.steps_per_episode(recording.frequency)
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

    # The spaces do not depend on the rate, and a log's rate may not divide the episode into whole samples.
    rate = 1 / recording.plant.episode_seconds if limit is None else recording.frequency
    space = PopulationEnv(recording.plant, frequency=rate, sensor_noise=recording.noise)
    spaces = space.single_observation_space, space.single_action_space
    about = _env_spec(recording, limit), _metadata(recording, len(chosen), low, high)
    write_dataset(place, dataset_id, episodes(), *spaces, *about)
    return Exported(folder, len(whole), steps, stored - steps, low, high)


def chosen_recordings(recording: Recording, member: int | None) -> list[int]:
    """Return the indices in `recording.members` of all learners, or of the one with index `member` in the file.

    `UserError` is raised if the file does not contain this learner, or if the learner's experiences are not finite.
    """
    if member is None:
        return list(range(len(recording.members)))
    count = len(recording.members) + recording.failed
    if not 0 <= member < count:
        raise UserError(f"--member must be 0 … {count - 1}, not {member}: {recording.path} holds {count} recordings")
    if member not in recording.members:
        raise UserError(f"recording {member} of {recording.path} holds NaN or infinity; choose another --member")
    return [recording.members.index(member)]


def _scores(recording: Recording, steps: int | None, lengths: set[int]) -> tuple[float | None, float | None]:
    """Return the episode returns of random control and of dynamic programming, which scale scores to 0 and 1.

    The returns are None if they are not known or do not hold for episodes of the given `lengths`. Episodes must not be
    longer than `steps`. If the plant scores episodes by mean reward, all episodes must have exactly `steps` steps.
    """
    by_return = recording.plant.episode_metric == "return"
    if steps is None or max(lengths) > steps or (not by_return and lengths != {steps}):
        return None, None
    scores = reference(recording.plant, recording.frequency, recording.noise)
    per_episode = 1 if by_return else steps
    both = (scores.random * per_episode, scores.dp * per_episode)
    return both if scores.usable and np.isfinite(both).all() else (None, None)


def _env_spec(recording: Recording, limit: int | None) -> EnvSpec | None:
    """Return the Gymnasium specification of the recorded plant, or None if the plant is not registered."""
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
            **{name: getattr(facts, name) for name in ("plant", "noise", "strategy", "source", "version")},
            "parameters": dataclasses.asdict(plant),
            "plant_fingerprint": plant.fingerprint(),
            "frequency": recording.frequency,
        },
    }
    if low is not None:
        metadata |= {"ref_min_score": low, "ref_max_score": high}
        metadata |= {"num_episodes_average_score": plant.reference_episodes}
    return metadata
