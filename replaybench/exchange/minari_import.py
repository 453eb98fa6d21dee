"""Conversion of a Minari dataset to the replay buffer of one learner, with the episodes in their original order.

The command `export` writes observations and actions as normalised states and commands of the plant. The conversion
expects the same form. If the plant is a Gymnasium task and another program wrote the dataset, the values are normalised
first. Values outside the plant's bounds raise `UserError`.
"""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from replaybench.data.logs.minari_dataset import Episode, dataset_folder, read_dataset
from replaybench.envs.foreign.gymnasium_plant import GymnasiumPlant
from replaybench.envs.interface.plant import Plant
from replaybench.exchange.logs_to_buffer import ACTION_TOLERANCE, STATE_TOLERANCE
from replaybench.exchange.recording import Arrays, Summary, member_arrays, recording_facts, summarise
from replaybench.runtime.configuration import HERTZ, NOISE
from replaybench.runtime.errors import UserError, shown
from replaybench.runtime.quantities import shown_number
from replaybench.runtime.user_file import called

_NOISE_LIMIT = 9.0
"""Largest sensor noise that an observation may contain, in standard deviations; `PopulationEnv` uses the same limit."""


def convert_dataset(
    dataset_id: str,
    plant: Plant,
    frequency: float | None = None,
    plant_name: str | None = None,
    other_plant: bool = False,
    clip_actions: bool = False,
) -> tuple[Arrays, dict[str, Any], Summary]:
    """Convert a Minari dataset to the arrays and metadata of a buffer file, and return them with a summary.

    Args:
        dataset_id: Name of the dataset with its version, for example `pendulum/swing-up-v0`.
        frequency: Control rate in Hz. It is needed if neither the dataset nor a Gymnasium task determines the rate.
        plant_name: Name to store in the file; `plant.name` by default.
        other_plant: Whether to accept a dataset that names another environment than `plant`.
        clip_actions: Whether to clip actions beyond the plant's bounds. If False, such actions raise `UserError`.
    """
    metadata, episodes = read_dataset(dataset_folder(dataset_id))
    written = metadata.get("replaybench")
    own_facts = written if isinstance(written, dict) else {}
    _check_plant(dataset_id, own_facts, plant)
    if not own_facts and not other_plant:
        _check_environment(dataset_id, metadata, plant)
    foreign = not own_facts and isinstance(plant, GymnasiumPlant)
    if foreign:
        episodes = [_normalised(each, plant) for each in episodes]
        frequency = plant.frequency if frequency is None else frequency
    rate, noise = _rate(dataset_id, own_facts, frequency), own_facts.get("noise")
    plant.steps_per_episode(rate)  # raises `UserError` for a rate that the plant does not support
    if noise is not None and not (isinstance(noise, int | float) and NOISE.low <= noise <= NOISE.high):
        raise UserError(f"{dataset_id} is damaged: its noise is {shown(noise)}")
    clipped = 0
    if clip_actions:
        clipped = sum(int((np.abs(each.actions) > 1 + ACTION_TOLERANCE).any(axis=1).sum()) for each in episodes)
        episodes = [replace(each, actions=np.clip(each.actions, -1, 1)) for each in episodes]
    _check_episodes(dataset_id, episodes, plant, noise or 0.0, foreign)

    values = {
        "observation": np.concatenate([each.observations[:-1] for each in episodes]),
        "action": np.concatenate([each.actions for each in episodes]),
        "reward": np.concatenate([each.rewards for each in episodes]),
        "next_observation": np.concatenate([each.observations[1:] for each in episodes]),
        "terminated": np.concatenate([each.terminations for each in episodes]),
    }
    number = np.repeat(np.arange(len(episodes)), [len(each.rewards) for each in episodes])
    arrays = member_arrays(plant, values, number)
    facts = recording_facts(plant, plant_name, rate, noise, {"dataset": dataset_id})
    notes = [f"{clipped} actions were clipped to the plant's bounds"] if clipped else []
    if not own_facts:
        meant = "Gymnasium's task's own" if foreign else "normalised to [-1, 1]"
        notes += [f"replaybench did not write this dataset: its observations and actions are taken as {meant}"]
    x, x_next = (plant.denormalise_state(values[name]) for name in ("observation", "next_observation"))
    summary = summarise(
        plant, x, plant.denormalise_action(values["action"]), x_next, values["reward"].astype(np.float64), rate, notes,
        log=dataset_id, rows=len(number) + len(episodes), episodes=len(episodes), inferred=False, reward_from="rewards",
    )  # fmt: skip
    return arrays, facts, summary


def _normalised(episode: Episode, plant: Plant) -> Episode:
    observations, actions = episode.observations, episode.actions
    if observations.shape[1] == len(plant.state_names):  # `_check_episodes` refuses another width
        observations = plant.normalise_state(observations.astype(np.float64)).astype(np.float32)
    if actions.shape[1] == len(plant.action_names):
        actions = plant.normalise_action(actions.astype(np.float64)).astype(np.float32)
    return replace(episode, observations=observations, actions=actions)


def _check_plant(dataset_id: str, own_facts: dict[str, Any], plant: Plant) -> None:
    if not own_facts:
        return
    name, own, recorded = str(own_facts.get("plant")), asdict(plant), own_facts.get("parameters")
    if called(name) not in (called(plant.name), type(plant).__name__.casefold()):
        raise UserError(f"{dataset_id} was recorded on {name}, not on {plant.name}; import it with --plant {name}")
    stored = recorded if isinstance(recorded, dict) else {}
    if other := {key: value for key, value in stored.items() if own.get(key) != value}:
        options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in other.items())
        raise UserError(f"{dataset_id} was recorded with other parameters of {plant.name}; import it with {options}")


def _check_environment(dataset_id: str, metadata: dict[str, Any], plant: Plant) -> None:
    try:
        spec = json.loads(metadata.get("env_spec") or "{}")
        named = spec.get("id") if isinstance(spec, dict) else None
    except (TypeError, ValueError):
        raise UserError(f"{dataset_id} is damaged: its env_spec is {shown(metadata['env_spec'])}") from None
    task = plant.spec.id if isinstance(plant, GymnasiumPlant) else plant.name
    if named not in (None, task):
        raise UserError(
            f"{dataset_id} was recorded on {shown(named)}, not on {task}; import it with --plant gymnasium:{named}, or "
            "with --other-plant if both have the same states and actions"
        )


def _rate(dataset_id: str, own_facts: dict[str, Any], given: float | None) -> float:
    stored = own_facts.get("frequency")
    rate = stored if given is None else given
    if rate is None:
        raise UserError(f"{dataset_id} does not say at which rate it was recorded; give --frequency in Hz")
    if not (isinstance(rate, int | float) and 0 < rate <= HERTZ.high):
        raise UserError(f"the frequency of {dataset_id} must be a positive number of Hz, not {shown(rate)}")
    if stored is not None and rate != stored:
        raise UserError(f"{dataset_id} was recorded at {stored} Hz, not at {rate:g} Hz; leave --frequency out")
    return float(rate)


def _check_episodes(dataset_id: str, episodes: list[Episode], plant: Plant, noise: float, foreign: bool) -> None:
    limit = np.array(plant.observation_limit) * (1 + STATE_TOLERANCE) + _NOISE_LIMIT * noise
    for number, each in enumerate(episodes):
        for kind, array, names, bound in (
            ("observation", each.observations, plant.state_names, limit),
            ("action", each.actions, plant.action_names, np.full(len(plant.action_names), 1 + ACTION_TOLERANCE)),
        ):
            if array.shape[1] != len(names):
                raise UserError(
                    f"{dataset_id} has {kind}s of {array.shape[1]} numbers, {plant.name} of {len(names)} "
                    f"({', '.join(names)}): it belongs to another plant"
                )
            beyond = ~(np.abs(array.astype(np.float64)) <= bound)  # NaN too
            if beyond.any():
                row, column = np.argwhere(beyond)[0]
                if foreign:  # recorded in the task's own units, and normalised since
                    clip = "; if the task clips it, give --clip-actions" if kind == "action" else ""
                    physical = plant.denormalise_state if kind == "observation" else plant.denormalise_action
                    value, low, high = (physical(each)[column] for each in (array[row], -bound, bound))
                    raise UserError(
                        f"{dataset_id}, episode {number}, step {row}: {kind} {names[column]} is {shown_number(value)}, "
                        f"beyond the task's {low:.4g} … {high:.4g}; it was recorded on another version of the task, "
                        f"or is damaged{clip}"
                    )
                raise UserError(
                    f"{dataset_id}, episode {number}, step {row}: {kind} {names[column]} is "
                    f"{shown_number(array[row, column])}, beyond ±{bound[column]:.4g}; "
                    "observations and actions must be normalised as the plant's are"
                )
        if not (chosen := plant.is_choice(each.actions)).all():
            step, action = np.argwhere(~chosen)[0]
            name, half = plant.action_names[action], plant.action_range()[1][action]
            value = plant.action_low[action] + (each.actions[step, action] + 1) * half
            where = f"{dataset_id}, episode {number}, step {step}"
            raise UserError(f"{where}: {name} is {value:.6g}, none of its choices, {plant.choices(action)}")
        if not np.isfinite(each.rewards).all():
            raise UserError(f"{dataset_id}, episode {number}: a reward is not finite")
