"""One episode of a controller over time, compared with reference controllers (command `show --plot`)."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replaybench.baselines.controllers import Controller, linear_quadratic_regulator, predicting
from replaybench.baselines.grid_choice import reference_solution
from replaybench.baselines.rivals import Rivals, controller
from replaybench.data.documents import COLUMN_SUFFIXES, check_columns_file, write_columns
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.comparison import LABELS, RIVAL, reference_label
from replaybench.reports.figures.style import (
    KINDS,
    PALETTE,
    add_legend,
    new_figure,
    reference_looks,
    style,
    write_figure,
)
from replaybench.reports.films import Predict, Scene, random_actions, scene_of
from replaybench.runtime.arrays import Floats
from replaybench.runtime.atomic import new_path
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals

_MOST_ROWS: Final = 6
_NEAR: Final = 1.0
"""Largest distance from the range of the policy at which a panel shows another controller whole, in such ranges."""
_NARROW: Final = 0.01
"""Smallest width of the range of a signal, as a fraction of its normalisation range."""


class Episode(NamedTuple):
    """One episode of T control steps, in physical units.

    Attributes:
        states: States without noise, `[T + 1, S]`. The first row is the initial state.
        actions: Commanded actions, `[T, A]`.
        rewards: Rewards, not scaled, `[T]`.
        shown: Whether the episode is that of the policy to show, not of a reference controller.
    """

    controller: str
    states: Floats
    actions: Floats
    rewards: Floats
    shown: bool = False


def run(scene: Scene, controller: str, predict: Predict) -> Episode:
    """Run one episode of a controller, with the noise of `scene`, for at most `scene.steps` control steps."""
    plant, states, actions, rewards = scene.plant, list[Floats](), list[Floats](), list[float]()
    env = PopulationEnv(
        plant, 1, frequency=scene.frequency, sensor_noise=scene.noise, actuator_noise=scene.noise, seed=scene.seed,
        role="evaluation", observe=scene.observe,
    )  # fmt: skip
    with contextlib.closing(env):
        observation, _ = env.reset()
        states.append(env.get_state()["observed"][0])
        ended, state = False, None
        while not ended and len(rewards) < scene.steps:
            action, state = predict(observation, state)
            observation, reward, terminated, truncated, _ = env.step(action)
            states.append(env.get_state()["observed"][0])
            actions.append(plant.denormalise_action(np.clip(action[0], -1.0, 1.0)))
            rewards.append(float(reward[0]))
            ended = bool(terminated[0] or truncated[0])
    return Episode(controller, np.array(states), np.array(actions), np.array(rewards))


def references(scene: Scene, rivals: Rivals | None) -> Iterator[tuple[str, Predict]]:
    """Yield the name of each reference controller of a plant, and the controller.

    With `rivals`, missing rivals such as a PID controller are tuned first.
    """
    yield LABELS["reference_random"], random_actions(scene)
    plant = scene.plant
    if not isinstance(plant, OdePlant):
        return
    with contextlib.suppress(UserError):  # not every plant can be linearised
        regulator = linear_quadratic_regulator(plant, scene.frequency)
        yield LABELS["reference_lqr"], _without_state(predicting(plant, scene.frequency, regulator.act))
    if plant.grid_nodes:
        solution = reference_solution(plant, scene.frequency).solution
        yield LABELS["reference_dp"], _without_state(predicting(plant, scene.frequency, solution.greedy))
    found = {} if rivals is None else rivals.scores(plant, scene.frequency, scene.noise)
    for name, rival in found.items():
        yield reference_label(RIVAL + name), _without_state(controller(plant, scene.frequency, name, rival, [0]))


def _without_state(controller: Controller) -> Predict:
    return lambda observation, _: (controller(observation), None)


def check_plot(path: Path) -> Path:
    """Return the absolute path, or raise `UserError` if neither a figure nor a table can be written to it."""
    suffix = path.suffix.lower()
    if suffix in COLUMN_SUFFIXES:
        return check_columns_file(path)
    if suffix not in KINDS:
        raise UserError(f"--plot must end in {', '.join(KINDS)} or {', '.join(COLUMN_SUFFIXES)}, not be {str(path)!r}")
    return new_path(path)


def write_episode(
    plant: str, path: Path, policy: tuple[Path, int | None] | None, learner: str | None, noise: float | None,
    frequency: float | None, seed: int, seconds: float | None, own: Sequence[str] | None = (),
) -> list[str]:  # fmt: skip
    """Write one episode of a plant over time, and episodes of reference controllers, as a figure or a table.

    Lines with the scores of the episodes are returned. The arguments are those of `replaybench.reports.films.show`,
    except for `path`, whose suffix selects the form, and for `own`, the names of users' controllers among the reference
    controllers. If it is None, there are no rivals among them, either.
    """
    place = check_plot(path)
    scene, predict, label = scene_of(plant, policy, learner, noise, frequency, seed)
    whole = scene.plant.steps_per_episode(scene.frequency)
    scene = scene._replace(steps=whole if seconds is None else max(1, round(min(seconds * scene.frequency, whole))))
    rivals = None if own is None else Rivals(tuple(own))
    episodes = [run(scene._replace(observe=()), *each) for each in references(scene, rivals)]
    if policy is not None:
        policy_episode = run(scene, label.partition(" under ")[2].partition(" (")[0], predict)
        episodes.insert(0, policy_episode._replace(shown=True))
    if path.suffix.lower() in KINDS:
        with style():
            write_figure(figure_of(scene, episodes), place)
    else:
        write_columns(place, columns_of(scene, episodes))
    totals, lengths = np.array([(one.rewards.sum(), len(one.rewards)) for one in episodes]).T
    scores = scene.plant.episode_score(totals, lengths.astype(np.int64))
    digits = decimals(scores)
    return [
        f"plot     {path}",
        *(
            f"shown    {one.controller}: {scene.plant.episode_metric} {score:.{digits}f} in {len(one.rewards)} steps"
            for one, score in zip(episodes, scores, strict=True)
        ),
    ]


def _titles(plant: Plant) -> tuple[list[str], list[str]]:
    pairs = ((plant.state_names, plant.state_units), (plant.action_names, plant.action_units))
    states, actions = ([f"{name} [{unit}]" for name, unit in zip(*pair, strict=True)] for pair in pairs)
    return states, actions


def _set_points(plant: OdePlant, one: Episode) -> Floats:
    """Return the set points of all states in an episode, `[T + 1, S]`, by default the reference state."""
    points = np.tile(np.array(plant.reference_state, np.float64), (len(one.states), 1))
    for state, point in plant.set_points.items():
        points[:, plant.state_names.index(state)] = one.states[:, plant.state_names.index(point)]
    return points


def columns_of(scene: Scene, episodes: Sequence[Episode]) -> dict[str, list[Any]]:
    """Return episodes as columns, with one row for each control step and one for the end of each episode.

    The last row of an episode has no action and no reward. Plants with equations have set points. A set point is the
    reference state, unless the plant declares another.
    """
    plant = scene.plant
    states, actions = _titles(plant)
    columns: dict[str, list[Any]] = {}
    for one in episodes:
        count = len(one.states)
        rows: dict[str, list[Any]] = {
            "controller": [one.controller] * count,
            "time [s]": (np.arange(count) / scene.frequency).tolist(),
            **dict(zip(states, one.states.T.tolist(), strict=True)),
        }
        if isinstance(plant, OdePlant):
            for i, points in enumerate(_set_points(plant, one).T[: plant.equations]):
                rows[f"set point of {states[i]}"] = points.tolist()
        rows |= {name: [*values, None] for name, values in zip(actions, one.actions.T.tolist(), strict=True)}
        rows["reward"] = [*one.rewards.tolist(), None]
        for name, values in rows.items():
            columns.setdefault(name, []).extend(values)
    return columns


def _held(values: Floats) -> Floats:
    """Return the course `[T + 1]` of an exogenous state without the value at the end, which no command follows."""
    return np.append(values[:-1], values[-2])


def _signals(one: Episode, equations: int) -> list[Floats]:
    """Return the values of an episode in each panel. States after the first `equations` ones are exogenous."""
    return [*one.states.T[:equations], *map(_held, one.states.T[equations:]), *one.actions.T, one.rewards]


def _fit(axes: Axes, own: Sequence[Floats], others: Sequence[Floats], narrow: float) -> None:
    """Set the range of a panel to the policy and its set points, and to those other controllers that stay near.

    `narrow` is the smallest width of the range, in the unit of the signal.
    """
    low, high = min(map(np.min, own)), max(map(np.max, own))
    width = max(high - low, narrow)
    if not 0 < width < np.inf:
        return
    middle = (low + high) / 2
    low, high = middle - width / 2, middle + width / 2
    ends = [(values.min(), values.max()) for values in others]
    near = [each for each in ends if low - _NEAR * width <= each[0] and each[1] <= high + _NEAR * width]
    low, high = min([low, *(each[0] for each in near)]), max([high, *(each[1] for each in near)])
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def figure_of(scene: Scene, episodes: Sequence[Episode]) -> Figure:
    """Return a figure with one panel for each state, each action and the reward, over time."""
    plant = scene.plant
    states, actions = _titles(plant)
    names = [*states, *actions, "reward"]
    across = 1 if len(names) <= _MOST_ROWS else 2
    down = -(-len(names) // across)
    caption = f"{scene.frequency:g} Hz, noise {scene.noise:g}. States are shown without noise."
    if isinstance(plant, OdePlant):
        caption += "\nDotted: set point (by default the reference state). Grey: reference controllers, same noise."
    if episodes[0].shown:
        caption += "\nPanels have the range of the policy and of the controllers near it; other lines are cut."
    figure = new_figure(6.4 * across**0.5, 1.15 * down + 0.5, f"{plant.name}: one episode", caption)
    panels: Any = figure.subplots(down, across, sharex=True, squeeze=False).T.ravel()
    lines, equations = [], plant.equations if isinstance(plant, OdePlant) else len(states)
    looks = reference_looks(one.controller for one in episodes if not one.shown)
    for one in reversed(episodes):
        look: dict[str, Any] = {"color": PALETTE[0], "linewidth": 1.6} if one.shown else looks[one.controller]
        time = np.arange(len(one.states)) / scene.frequency
        signals = _signals(one, equations)
        for axes, values, periodic in zip(panels, signals[:equations], plant.periodic, strict=False):
            jumps = np.flatnonzero(periodic & (np.abs(np.diff(values)) > np.pi)) + 1
            axes.plot(np.insert(time, jumps, np.nan), np.insert(values, jumps, np.nan), **look)
        for axes, values in zip(panels[equations:], signals[equations:], strict=False):
            (line,) = axes.step(time[: len(values)], values, where="post", label=one.controller, **look)
        lines.append(line)
    for axes, name in itertools.zip_longest(panels, names):
        axes.set_visible(name is not None)
        axes.set_title((name or "").removesuffix(" [1]"), loc="left", fontsize=8)
        axes.grid(True)
    levels: list[tuple[Floats, ...]] = [()] * len(names)
    if isinstance(plant, OdePlant):
        points = _set_points(plant, episodes[0])
        time = np.arange(len(points)) / scene.frequency
        for panel, (values, periodic) in enumerate(zip(points.T[:equations], plant.periodic, strict=False)):
            held = _held(values)
            levels[panel] = (held, -held) if periodic and abs(held[0]) == np.pi else (held,)  # one angle, drawn twice
            for level in levels[panel]:
                panels[panel].step(time, level, where="post", color="0.25", linewidth=0.9, linestyle=":")
    if episodes[0].shown:
        first, *others = (_signals(one, equations) for one in episodes)
        narrow = 2 * _NARROW * np.array([*plant.state_scale, *plant.action_range()[1], 0.0])
        for panel, axes in enumerate(panels[: len(names)]):
            _fit(axes, [first[panel], *levels[panel]], [one[panel] for one in others], narrow[panel])
    for axes in (panels[down - 1], panels[len(names) - 1]):
        axes.set_xlabel("time [s]")
        axes.tick_params(labelbottom=True)
    add_legend(figure, lines[::-1], below=True)
    return figure
