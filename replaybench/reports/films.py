"""The command `show`: animate a plant, in a film or in a window."""

import contextlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.controllers import RandomController
from replaybench.controllers.policies.policy import load_policy
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.exchange.policy_export import best_member, origin_of
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.atomic import atomic_path, refuse_existing
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import called

Predict = Callable[[Floats32, Any], tuple[Floats32, Any]]
"""Maps an observation float32 `[1, S]` and the policy's state (None at first) to an action `[1, A]` and a new state."""


class Scene(NamedTuple):
    """Conditions of a film of at most `steps` steps; another episode begins if one ends before `least` steps."""

    plant: Plant
    frequency: float
    noise: float
    observe: Sequence[str]
    seed: int
    steps: int
    least: int = 0


class Shot(NamedTuple):
    """A picture uint8 `[height, width, 3]`, the reward since the previous one, and whether it ends an episode."""

    picture: NDArray[np.uint8]
    reward: float
    last: bool


def random_actions(scene: Scene) -> Predict:
    """Return a controller that acts at random, with one random stream for all episodes."""
    controller = RandomController(scene.plant, [0], scene.seed)
    return lambda observation, _: (controller.act(observation), None)


def shots(scene: Scene, predict: Predict, every: int = 1) -> Iterator[Shot]:
    """Yield pictures of episodes: of the start, then after each `every` steps, and of the end."""
    noise: dict[str, Any] = {"sensor_noise": scene.noise, "actuator_noise": scene.noise, "observe": scene.observe}
    settings: dict[str, Any] = {"frequency": scene.frequency, "seed": scene.seed, "role": "evaluation", **noise}
    env = PopulationEnv(scene.plant, 1, render_mode="rgb_array", **settings)
    with contextlib.closing(env):
        steps = 0
        while steps < max(1, min(scene.least, scene.steps)):
            observation, _ = env.reset()
            yield Shot(_picture(env), 0.0, False)
            begun, done, gained, state = steps, False, 0.0, None
            while not done:
                action, state = predict(observation, state)
                observation, reward, terminated, truncated, _ = env.step(action)
                steps, gained = steps + 1, gained + float(reward[0])
                done = bool(terminated[0] or truncated[0]) or steps >= scene.steps
                if done or (steps - begun) % every == 0:
                    yield Shot(_picture(env), gained, done)
                    gained = 0.0


def _picture(env: PopulationEnv) -> NDArray[np.uint8]:
    pictures = env.render()
    assert pictures is not None
    return pictures[0]


Pictures = Iterable[NDArray[np.uint8]]
_MOST_PER_SECOND: Final = {".gif": 25, ".mp4": 50, "": 25}
"""Largest number of pictures per second, by suffix; "" is a window."""
_LEAST_PER_SECOND: Final = 10
"""Plants with a lower control rate are shown in fast motion."""
_MOST: Final = 500
"""Default limit of the number of pictures in a film."""
_LEAST_SECONDS: Final = 3.0
"""Default minimum length of a film, which shows several episodes if they are short."""
_LAST_SECONDS: Final = 0.7
"""Duration of the last picture, before a film repeats."""


def show(
    plant: str,
    output: Path | None = None,
    policy: tuple[Path, int | None] | None = None,
    learner: str | None = None,
    noise: float | None = None,
    frequency: float | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> None:
    """Show an episode of a plant in a window, or write it as a film; noise and rate default to the policy's or plant's.

    Args:
        policy: policy file, and index of the member in it.
        learner: the policy's learner, if it is in a Python file.
    """
    suffix = "" if output is None else output.suffix.lower()
    check_output(output)
    if output is not None:
        refuse_existing(output)
    scene, predict, label = _scene(plant, policy, learner, noise, frequency, seed)
    every = max(1, -(-round(scene.frequency) // _MOST_PER_SECOND[suffix]))
    whole = scene.plant.steps_per_episode(scene.frequency)
    steps = _MOST * every if seconds is None else round(min(seconds * scene.frequency, whole))
    speed = max(scene.frequency / every, _LEAST_PER_SECOND)
    least = min(whole, round(_LEAST_SECONDS * speed) * every) if seconds is None else steps
    if (times := speed * every / scene.frequency) > 1.001:
        label += f", {times:.3g} times as fast"
    rewards, ends = list[float](), list[bool]()

    def counted(taken: Iterator[Shot]) -> Iterator[NDArray[np.uint8]]:
        for shot in taken:
            rewards.append(shot.reward)
            ends.append(shot.last)
            yield shot.picture

    pictures = counted(shots(scene._replace(steps=steps, least=least), predict, every))
    if output is None:
        show_window(pictures, speed, scene.plant.name)
    else:
        with atomic_path(output) as temporary:
            (write_gif if suffix == ".gif" else write_mp4)(temporary, pictures, speed)
        size, length = output.stat().st_size / 1e6, (len(rewards) - 1) / speed
        print(f"film     {output} ({len(rewards)} pictures, {length:.1f} s, {size:.1f} MB)")
    several = f" over {sum(ends)} episodes" if sum(ends) > 1 else ""
    print(f"shown    {label}; rewards add up to {sum(rewards):.4g}{several}")


def check_output(output: Path | None) -> None:
    """Raise `UserError`, before anything is computed, if no film can be written or no window opened."""
    if output is None:
        from matplotlib import pyplot

        if pyplot.get_backend().lower() == "agg":
            raise UserError("there is no display for a window here; --output film.gif or film.mp4 writes a film")
    elif output.suffix.lower() not in (".gif", ".mp4"):
        raise UserError(f"--output must end in .gif or .mp4, not be {str(output)!r}")
    elif output.suffix.lower() == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("MP4 needs imageio-ffmpeg; pip install 'replaybench[film]', or --output film.gif")


def _scene(
    name: str, policy: tuple[Path, int | None] | None, learner: str | None, noise: float | None,
    frequency: float | None, seed: int,
) -> tuple[Scene, Predict, str]:  # fmt: skip
    """Return the conditions, the controller, and a label that names both."""
    if policy is None:
        plant = make_plant(name)
        scene = Scene(plant, frequency or plant.frequency, noise or 0.0, (), seed, 0)
        return scene, random_actions(scene), f"{plant.name} under random actions"
    path, member = policy
    why = ""
    if member is None:
        member, why = best_member(path)
    learned = load_policy(path, member, learner)
    origin, facts = origin_of(path, learned), learned.facts["policy"]
    if called(origin.plant) != called(name):
        raise UserError(f"{path} is a policy for {origin.plant or 'another plant'}, not for {name}")
    plant = make_plant(name, **origin.parameters)
    noise = origin.noise if noise is None else noise
    scene = Scene(plant, float(facts["frequency"]), noise, origin.observe, seed, 0)
    label = f"{origin.learner or facts['learner']} {origin.strategy}".strip()
    return scene, learned.predict, f"{plant.name} under {label}, member {member}{f' ({why})' if why else ''}"


def write_gif(path: Path, pictures: Pictures, speed: float) -> None:
    """Write pictures at `speed` [1/s] as a GIF that repeats."""
    from PIL import Image

    images = [Image.fromarray(picture).quantize(128, dither=Image.Dither.NONE) for picture in pictures]
    ends = [10 * round(100 * number / speed) for number in range(len(images) + 1)]  # durations are multiples of 10 ms
    durations = [end - start for start, end in itertools.pairwise(ends)]
    durations[-1] = max(durations[-1], round(1000 * _LAST_SECONDS))
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)


def write_mp4(path: Path, pictures: Pictures, speed: float) -> None:
    """Write pictures at `speed` [1/s] as H.264."""
    import imageio_ffmpeg

    remaining = iter(pictures)
    first = next(remaining)
    # The container must be named, because the temporary file has another suffix.
    settings: dict[str, Any] = {"fps": speed, "codec": "libx264", "macro_block_size": 2, "output_params": ["-f", "mp4"]}
    writer = imageio_ffmpeg.write_frames(str(path), first.shape[1::-1], **settings)
    writer.send(None)
    try:
        for picture in (first, *remaining):
            writer.send(np.ascontiguousarray(picture))
    finally:
        writer.close()


def show_window(pictures: Pictures, speed: float, title: str) -> None:
    """Show pictures at `speed` [1/s] in a window until they end or the user closes it."""
    from matplotlib import pyplot

    figure = pyplot.figure(num=title, figsize=(5, 5))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    image: Any = None
    begun = time.perf_counter()
    for number, picture in enumerate(pictures):
        image = image or axes.imshow(picture)
        if not pyplot.fignum_exists(figure.number):
            return
        image.set_data(picture)
        pyplot.pause(max(0.001, begun + number / speed - time.perf_counter()))
    if sys.stdin.isatty():
        pyplot.show()
