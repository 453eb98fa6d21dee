"""Animations of a plant, as a film file or in a window (command `show`)."""

import contextlib
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
from replaybench.runtime.atomic import atomic_path, new_path
from replaybench.runtime.errors import UserError, need
from replaybench.runtime.user_file import called

Predict = Callable[[Floats32, Any], tuple[Floats32, Any]]
"""A controller, which maps an observation and a policy's state to an action and the policy's next state.

The observation is float32 `[1, S]`, and the action is float32 `[1, A]`. The state is None at the start of an episode.
"""


class Scene(NamedTuple):
    """The conditions under which a film shows a plant.

    Attributes:
        frequency: Control rate [Hz].
        noise: Standard deviation of sensor and actuator noise, in normalised units.
        observe: Names of the observed states; all states if empty.
        steps: Largest number of control steps in the film.
        least: Smallest number of control steps. If an episode ends earlier, another episode follows.
    """

    plant: Plant
    frequency: float
    noise: float
    observe: Sequence[str]
    seed: int
    steps: int
    least: int = 0


class Shot(NamedTuple):
    """One picture of a film.

    Attributes:
        picture: Pixels; uint8, shape `[height, width, 3]`.
        reward: Sum of the rewards since the previous picture.
        last: Whether the picture is the last one of its episode.
    """

    picture: NDArray[np.uint8]
    reward: float
    last: bool


def random_actions(scene: Scene) -> Predict:
    """Return a controller that draws random actions, with one random stream for all episodes."""
    controller = RandomController(scene.plant, [0], scene.seed)
    return lambda observation, _: (controller.act(observation), None)


def shots(scene: Scene, predict: Predict, every: int = 1) -> Iterator[Shot]:
    """Yield pictures of one or more episodes.

    Each episode yields a picture of its start, one after every `every` control steps, and one of its end.
    """
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
"""Largest number of pictures per second, by the suffix of the film. The empty suffix stands for a window."""
_LEAST_PER_SECOND: Final = 10
"""Smallest number of pictures per second. Plants with a lower control rate are shown in fast motion."""
_MOST: Final = 500
"""Largest number of pictures in a film whose length is not given."""
_LEAST_SECONDS: Final = 3.0
"""Smallest length [s] of a film whose length is not given. The film shows several episodes if episodes are short."""
_LAST_SECONDS: Final = 0.7
"""Smallest duration of the last picture of a GIF [s], before the GIF repeats."""


def show(
    plant: str,
    output: Path | None = None,
    policy: tuple[Path, int | None] | None = None,
    learner: str | None = None,
    noise: float | None = None,
    frequency: float | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> list[str]:
    """Show episodes of a plant in a window, or write them as a film, and return lines that describe what was shown.

    Args:
        output: Film to write (.gif or .mp4). If None, a window opens.
        policy: Path of a policy file, and index of a policy or None for that of `best_member`. If `policy` is None,
            actions are random.
        learner: Name of the policy's learner, needed only if the learner is in a Python file.
        noise: Standard deviation of the noise, in normalised units. By default, it is that of the policy's training, or
            0 without a policy.
        frequency: Control rate without a policy [Hz]. A policy runs at the control rate of its training.
        seconds: Length in the plant's time [s]. By default, the film ends with the first episode that ends after three
            seconds, or after 500 pictures.
    """
    suffix = "" if output is None else output.suffix.lower()
    check_output(output)
    place = None if output is None else new_path(output)
    scene, predict, label = scene_of(plant, policy, learner, noise, frequency, seed)
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

    lines, pictures = list[str](), counted(shots(scene._replace(steps=steps, least=least), predict, every))
    if output is None or place is None:
        show_window(pictures, speed, scene.plant.name)
    else:
        with atomic_path(place) as temporary:
            (write_gif if suffix == ".gif" else write_mp4)(temporary, pictures, speed)
        size, length = place.stat().st_size / 1e6, (len(rewards) - 1) / speed
        lines.append(f"film     {output} ({len(rewards)} pictures, {length:.1f} s, {size:.1f} MB)")
    several = f" over {sum(ends)} episodes" if sum(ends) > 1 else ""
    return [*lines, f"shown    {label}; rewards add up to {sum(rewards):.4g}{several}"]


def check_output(output: Path | None) -> None:
    """Raise `UserError` if a film cannot be written or, if `output` is None, if a window cannot be opened."""
    if output is None:
        from matplotlib import pyplot

        if pyplot.get_backend().lower() == "agg":
            raise UserError("there is no display for a window here; --output film.gif or film.mp4 writes a film")
    elif output.suffix.lower() not in (".gif", ".mp4"):
        raise UserError(f"--output must end in .gif or .mp4, not be {str(output)!r}")
    elif output.suffix.lower() == ".mp4":
        need("imageio_ffmpeg", "MP4 needs imageio-ffmpeg; pip install 'replaybench[film]', or --output film.gif")


def scene_of(
    name: str, policy: tuple[Path, int | None] | None, learner: str | None, noise: float | None,
    frequency: float | None, seed: int,
) -> tuple[Scene, Predict, str]:  # fmt: skip
    """Return the conditions of a film, its controller, and a label that names plant and controller."""
    if policy is None:
        plant = make_plant(name)
        scene = Scene(plant, frequency or plant.frequency, noise or 0.0, (), seed, 0)
        return scene, random_actions(scene), f"{plant.name} under random actions"
    path, member = policy
    origin, why = origin_of(path), ""
    if called(origin.plant) != called(name):
        raise UserError(f"{path} is a policy for {origin.plant or 'another plant'}, not for {name}")
    plant = make_plant(name, **origin.parameters)
    if member is None:
        member, why = best_member(path, plant, origin, learner)
    learned = load_policy(path, member, learner)
    facts = learned.facts["policy"]
    noise = origin.noise if noise is None else noise
    scene = Scene(plant, float(facts["frequency"]), noise, origin.observe, seed, 0)
    label = f"{origin.learner or facts['learner']} {origin.strategy}".strip()
    return scene, learned.predict, f"{plant.name} under {label}, member {member}{f' ({why})' if why else ''}"


def write_gif(path: Path, pictures: Pictures, speed: float) -> None:
    """Write pictures as a GIF that repeats, with `speed` pictures per second."""
    from PIL import Image

    images = [Image.fromarray(picture).quantize(128, dither=Image.Dither.NONE) for picture in pictures]
    ends = [10 * round(100 * number / speed) for number in range(len(images) + 1)]  # durations are multiples of 10 ms
    durations = [end - start for start, end in itertools.pairwise(ends)]
    durations[-1] = max(durations[-1], round(1000 * _LAST_SECONDS))
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)


def write_mp4(path: Path, pictures: Pictures, speed: float) -> None:
    """Write pictures as an MP4 film with the codec H.264, with `speed` pictures per second."""
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
    """Show `speed` pictures per second in a window.

    If the program runs in a terminal, the last picture is shown until the user closes the window.
    """
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
