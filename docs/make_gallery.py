"""Make the gallery's films, docs/images/plants/*.webp: three seconds of every installed plant, under random actions.

Films of plants that have one already are left alone; remove those that are to be made anew. Some minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from replaybench.envs.registry import PLANTS, is_installed, make_plant
from replaybench.reports.films import Scene, random_actions, shots
from replaybench.runtime.atomic import atomic_path

FILMS = Path(__file__).parent / "images" / "plants"
PIXELS = 240
PER_SECOND = 12


def film(name: str) -> None:
    """Write the film of a plant: three seconds, or 36 samples of a slow plant, in small pictures."""
    plant = make_plant(name)
    every = max(1, round(plant.frequency / PER_SECOND))
    steps = 3 * PER_SECOND * every
    scene = Scene(plant, plant.frequency, 0.0, (), 0, steps, steps)
    pictures = (Image.fromarray(shot.picture) for shot in shots(scene, random_actions(scene), every))
    small = [picture.resize((PIXELS * picture.width // picture.height, PIXELS)) for picture in pictures]
    duration = round(1000 / (min(plant.frequency / every, PER_SECOND) or 1))
    with atomic_path(FILMS / f"{name}.webp") as temporary:
        small[0].save(
            temporary, "WEBP", save_all=True, append_images=small[1:], duration=duration, loop=0, quality=50, method=6
        )


if __name__ == "__main__":
    FILMS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or PLANTS.own:
        path = FILMS / f"{name}.webp"
        if is_installed(name) and not path.exists():
            film(name)
            print(f"{path} {path.stat().st_size / 1e3:.0f} kB", flush=True)
