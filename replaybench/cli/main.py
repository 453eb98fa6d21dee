"""The command line with its commands, its help, and its exit statuses."""

import contextlib
import errno
import os
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn, TextIO

from replaybench.cli import options
from replaybench.cli.results import export, export_policy, figures, import_log, inspect, report, robustness, show, watch
from replaybench.cli.running import advise, baseline, card, claims, replay, reproduce, sweep, table
from replaybench.data.run_folder import unused_removed
from replaybench.experiments import interruption
from replaybench.runtime.errors import ReplaybenchWarning, UserError, unknown
from replaybench.runtime.user_file import imports_only

_GROUPS: Final[dict[str, dict[str, Callable[..., int]]]] = {
    "run": {"init": options.init, "sweep": sweep, "reproduce": reproduce, "baseline": baseline, "replay": replay},
    "look": {"watch": watch, "report": report, "figures": figures, "show": show, "inspect": inspect},
    "compare": {"table": table, "robustness": robustness, "claims": claims, "card": card, "advise": advise},
    "exchange": {"import": import_log, "export": export, "export-policy": export_policy},
    "extend": {"list": options.list_names, "check": options.check, "examples": options.examples},
}
COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}

_RUNS_STUDIES = ("sweep", "reproduce")
"""Commands that may import all Python files that their study names."""
_NAMES = ("name", "plant", "learner", "strategy", "from_learner", "from_strategy")
"""Arguments that may name Python files. Other commands may import only these files."""

_DESCRIPTION: Final = "Which experiences should a learning controller keep, and which should it replay?"
_CELLS: Final = (
    "A cell is one combination of plant, learner, strategy, noise level and control rate, and its members are the runs "
    "with different seeds. --plant, --learner, --strategy, --noise, --frequency and --seed mean the same everywhere: "
    "with a run folder they choose a cell, without one they set the conditions. With replay, --strategy and --learner "
    "are those of the new learners, and --from-strategy and --from-learner choose the cell."
)
_OPTIONS: Final = {
    "-h, --help": "Print this help.",
    "-V, --version": "Print the version.",
    "-v, --verbose": "With any command: print the traceback of an error, too.",
    "--tyro-print-completion {bash,zsh}": "Print a script that completes commands and options.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with the given arguments, or with those of the process if None.

    A mistake of the user is printed as one line to stderr, with exit status 2.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = [word for word in given if word not in ("-v", "--verbose")]
    interruption.prepare_streams()
    try:
        with interruption.stopping_raises(to_the_end=arguments is None), _one_line_warnings(), unused_removed():
            status = _run(words)
            sys.stdout.flush()
        sys.exit(status)
    except UserError as error:
        if words != given:
            traceback.print_exc()
        _fail(2, *map(str, error.args))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        remedy = "; raise the limit with ulimit -n 1024" if error.errno == errno.EMFILE else ""
        _fail(2, f"{error.filename or 'input or output'}: {error.strerror or error}{remedy}")
    except MemoryError as error:
        _fail(2, " ".join(f"not enough memory; ask for fewer seeds, episodes or slots. {error}".split()))
    except KeyboardInterrupt as stop:
        _fail(interruption.exit_status(stop), str(stop) or "stopped")


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print warnings of this package to stderr, without the place in the source, while the `with` block runs."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        if not issubclass(category, ReplaybenchWarning):
            python(message, category, filename, lineno, file, line)
            return
        from replaybench.cli.console import make_console

        make_console(stderr=True).print(f"warning: {message}", markup=False, highlight=False)

    with warnings.catch_warnings():
        warnings.simplefilter("always", ReplaybenchWarning)
        python, warnings.showwarning = warnings.showwarning, show
        yield


def _fail(status: int, *lines: str) -> NoReturn:
    print("replaybench:", "\n".join(map(interruption.printable, lines)), file=sys.stderr)
    sys.exit(status)


def _overview() -> str:
    width = shutil.get_terminal_size().columns

    def row(name: str, text: str) -> str:
        return textwrap.fill(f"{name:<15} {text}", width, initial_indent="  ", subsequent_indent=" " * 18)

    lines = [
        "usage: replaybench [OPTIONS] COMMAND [COMMAND'S OPTIONS]",
        "",
        textwrap.fill(_DESCRIPTION, width),
        textwrap.fill("To begin: replaybench sweep demo, then replaybench report runs/demo.", width),
        textwrap.fill("Options of a command: replaybench COMMAND --help.", width),
        textwrap.fill(_CELLS, width),
    ]
    for title, group in _GROUPS.items():
        first = {name: (command.__doc__ or "").partition("\n")[0] for name, command in group.items()}
        lines += ["", title, *(row(name, text) for name, text in first.items())]
    lines += ["", "options", *(row(option, text) for option, text in _OPTIONS.items())]
    return "\n".join(lines)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from replaybench import __version__

        print(f"replaybench {__version__}")
        return 0
    if words[:1] in ([], ["--help"], ["-h"]):
        print(_overview())
        return 0
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    if words[0] in COMMANDS:
        named = COMMANDS[words[0]]
        words = options.long_options(words, named)
        parameters = options.plant_parameters(words, named)
        words = options.merged_options(options.take_plant_parameters(words, parameters), named, parameters)
    command = options.parse(words, COMMANDS, _DESCRIPTION)
    interruption.check_address_space()
    if words[0] in _RUNS_STUDIES:
        return command()
    allowed = [command.keywords.get(name) for name in _NAMES]
    with imports_only(*allowed, *command.keywords.get("references", ())):
        return command()


if __name__ == "__main__":
    main()
