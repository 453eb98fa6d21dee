"""The console that commands print to: harmless whatever is printed, and of full width into a file."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from replaybench.experiments.terminal import printable

_WIDTH = 120


def make_console(quiet: bool = False) -> Console:
    """Return a console that passes no commands on to a terminal; into a file or pipe it writes lines of full width.

    Args:
        quiet: whether it prints nothing at all.
    """
    console = Console(quiet=quiet, emoji=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, quiet=quiet, emoji=False)
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
