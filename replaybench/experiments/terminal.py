"""What reaches a terminal: text that its encoding can carry, and of files and names nothing that a terminal obeys.

Names, labels and facts come from files, and files from strangers: an escape sequence in one could move the cursor,
rename the window or hide what was printed before.
"""

from __future__ import annotations

import io
import sys

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

_WIDTH = 120


def printable(text: str, keep: str = "") -> str:
    """Return text with everything that is not to be seen, but for the characters to `keep`, written as escapes."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def prepare_streams() -> None:
    """Let what an output stream cannot encode (Greek letters in ASCII, names that are no text) appear as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def make_console(quiet: bool = False) -> Console:
    """Return a console that passes no commands on to a terminal; into a file or pipe it writes lines of full width.

    Args:
        quiet: whether it prints nothing at all.
    """
    console = Console(quiet=quiet)
    if not console.is_terminal:
        console = Console(width=_WIDTH, quiet=quiet)
    console.push_render_hook(_Harmless())
    return console


class _Harmless(RenderHook):
    """Makes all that is printed harmless, whatever it was built from."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(renderable) for renderable in renderables]


class _Cleaned:
    """Renders something, then escapes control characters in its text; rich's own control codes are kept."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)
