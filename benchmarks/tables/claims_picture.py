"""Pictures of the claims that stored runs decide, one a paper. Each carries in itself what it was drawn from."""

from pathlib import Path
from typing import Final

from PIL import Image

from benchmarks.tables import claims
from replaybench.reports.figures.claims import claims_figure
from replaybench.reports.figures.style import style, write_figure

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs/images"


def outdated() -> list[str]:
    """Return the papers whose picture does not show what the table says, or is there without a table."""
    drawn = {path.stem.removeprefix("claims-") for path in IMAGES.glob("claims-*.png")}
    return sorted(name for name in drawn | _decided() if _shown(name) != _description(name))


def draw() -> None:
    """Draw anew those that are outdated."""
    for name in outdated():
        if name not in _decided():
            _path(name).unlink()
            continue
        family, found = claims.judged_papers()[name]
        with style():
            figure = claims_figure([(family, [verdict for verdict, _ in found])])
            write_figure(figure, _path(name), 110, _description(name))


def _decided() -> set[str]:
    """Return the papers of which at least one claim was run."""
    return {name for name, (_, found) in claims.judged_papers().items() if any(each.effect.n for each, _ in found)}


def _path(name: str) -> Path:
    return IMAGES / f"claims-{name}.png"


def _shown(name: str) -> str:
    if not _path(name).is_file():
        return ""
    with Image.open(_path(name)) as picture:
        return str(picture.info.get("Description"))


def _description(name: str) -> str:
    return " ".join(claims.texts().get(f"claims.{name}", "nothing").split())
