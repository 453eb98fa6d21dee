"""What reaches a terminal: text that its encoding can carry, and of files and names nothing that a terminal obeys.

Names, labels and facts come from files, and files from strangers: an escape sequence in one could move the cursor,
rename the window or hide what was printed before.
"""

from __future__ import annotations

import io
import sys


def printable(text: str, keep: str = "") -> str:
    """Return text with everything that is not to be seen, but for the characters to `keep`, written as escapes."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def prepare_streams() -> None:
    """Let what an output stream cannot encode (Greek letters in ASCII, names that are no text) appear as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
