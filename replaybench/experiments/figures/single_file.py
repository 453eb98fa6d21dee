"""A figure as a file: which files can be drawn into, and how one is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = (".png", ".svg", ".pdf")
"""How the names of files end that figures are written as."""
_DATES: Final[dict[str, str]] = {".svg": "Date", ".pdf": "CreationDate"}


def check_figure(path: Path) -> None:
    """Refuse a file that cannot be drawn or is there already, before anything is computed.

    Raises:
        UserError: it is one of these.
    """
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--figure must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}, not be {str(path)!r}")
    if path.exists():
        raise UserError(f"{path} exists already; remove it or choose another --figure")


def write_figure(figure: Figure, path: Path, dpi: int = 150, description: str = "") -> None:
    """Write a figure in the format that its file's name ends in, atomically.

    Equal figures give equal bytes: no dates are written.

    Args:
        dpi: dots per inch where a format has them.
        description: what is written into a PNG beside the picture, if anything.
    """
    kind = path.suffix.lower()
    metadata: dict[str, Any] = {_DATES[kind]: None} if kind in _DATES else {}
    if description:
        metadata["Description"] = description
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind[1:], dpi=dpi, metadata=metadata)
