"""Consoles that print text, or tables as JSON, CSV, Markdown or LaTeX."""

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from replaybench.experiments.interruption import printable

_WIDTH = 120


def make_console(quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console for text on stdout or stderr, which prints nothing if `quiet`."""
    console = Console(quiet=quiet, stderr=stderr, emoji=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, quiet=quiet, stderr=stderr, emoji=False)
    console.push_render_hook(_Escaping())
    return console


class _Escaping(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    """An object that is printed with escapes for the control characters in its text, but not for those of rich."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)


@contextlib.contextmanager
def printing(form: str) -> Iterator[Console]:
    """Yield a console that prints in the format "text", "json", "csv", "md" or "latex".

    In the format "text", everything is printed to stdout. Otherwise, tables go to stdout and all other lines to stderr.
    """
    if form == "text":
        yield make_console()
        return
    from replaybench.experiments.text_table import Collector

    collector = Collector()
    with contextlib.redirect_stdout(sys.stderr):
        yield collector
    print(collector.text(form), end="")
