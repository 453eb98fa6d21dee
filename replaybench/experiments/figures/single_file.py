"""Write a figure to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = (".png", ".svg", ".pdf")
"""Suffixes of figure files."""
_DATES: Final[dict[str, str]] = {".svg": "Date", ".pdf": "CreationDate"}


def check_figure(path: Path) -> None:
    """Check that a figure can be written to a path, before anything is computed.

    Raises:
        UserError: the suffix is not one of `KINDS`, or the file exists already.
    """
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--figure must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}, not be {str(path)!r}")
    if path.exists():
        raise UserError(f"{path} exists already; remove it or choose another --figure")


def write_figure(figure: Figure, path: Path, dpi: int = 150, description: str = "") -> None:
    """Write a figure atomically in the format of the path's suffix; equal figures give equal bytes.

    Args:
        dpi: dots per inch of pixel formats.
        description: text to write into a PNG's metadata.
    """
    suffix = path.suffix.lower()
    metadata: dict[str, Any] = {_DATES[suffix]: None} if suffix in _DATES else {}
    if description:
        metadata["Description"] = description
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=suffix[1:], dpi=dpi, metadata=metadata)
