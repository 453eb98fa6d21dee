"""A figure that a command draws into the one file that a user named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS: Final = (".png", ".svg", ".pdf")


def check_figure(path: Path) -> None:
    """Refuse a file that cannot be drawn or is there already, before anything is computed.

    Raises:
        UserError: it is one of these.
    """
    if path.suffix.lower() not in _KINDS:
        raise UserError(f"--figure must end in {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, not be {str(path)!r}")
    if path.exists():
        raise UserError(f"{path} exists already; remove it or choose another --figure")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that its file's name ends in, atomically; equal figures give equal bytes."""
    kind = path.suffix.lower()[1:]
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=150, metadata=dates.get(kind))
