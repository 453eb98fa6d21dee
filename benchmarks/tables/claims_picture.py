"""The picture of all claims that stored runs decide. It carries in itself what it was drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from PIL import Image

from benchmarks.tables import claims
from replaybench.experiments.claims.forest import claims_figure
from replaybench.experiments.figures.single_file import write_figure
from replaybench.experiments.figures.style import style

PICTURE: Final = Path(__file__).resolve().parents[2] / "docs/images/claims.png"


def is_current() -> bool:
    """Tell whether the picture shows what the table says."""
    if not PICTURE.is_file():
        return False
    with Image.open(PICTURE) as picture:
        said: object = picture.info.get("Description")
    return said == _description()


def draw() -> None:
    """Draw it anew."""
    with style():
        write_figure(claims_figure(claims.judged_families()), PICTURE, 110, _description())


def _description() -> str:
    return " ".join(claims.texts()["claims"].split())
