"""Text for terminals: no control characters from files or names, and only characters that the stream can encode."""

from __future__ import annotations

import io
import sys


def printable(text: str, keep: str = "") -> str:
    """Return text with escapes for everything that is not printable, except the characters to `keep`."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def prepare_streams() -> None:
    """Print escapes for characters that an output stream cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
