"""The command line: which commands there are, and how words become a call of one. Help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from replaybench.data.errors import UserError, unknown
from replaybench.data.user_code.user_file import imports_only
from replaybench.experiments.address_space import check_address_space
from replaybench.experiments.command_line.advising import advise
from replaybench.experiments.command_line.files import export, import_log, inspect
from replaybench.experiments.command_line.names import check, list_names
from replaybench.experiments.command_line.options import (
    check_options,
    plant_parameters,
    take_plant_parameters,
    together,
)
from replaybench.experiments.command_line.parser import parse
from replaybench.experiments.command_line.published import claims, reproduce
from replaybench.experiments.command_line.results import figures, report, show, table, watch
from replaybench.experiments.command_line.running import baseline, replay, sweep
from replaybench.experiments.command_line.taking import examples, export_policy
from replaybench.experiments.interruption import exit_status, stopping_raises
from replaybench.experiments.terminal import prepare_streams, printable

COMMANDS: dict[str, Callable[..., int]] = {
    "sweep": sweep,
    "baseline": baseline,
    "replay": replay,
    "import": import_log,
    "export": export,
    "export-policy": export_policy,
    "watch": watch,
    "report": report,
    "table": table,
    "figures": figures,
    "show": show,
    "reproduce": reproduce,
    "claims": claims,
    "advise": advise,
    "inspect": inspect,
    "list": list_names,
    "check": check,
    "examples": examples,
}

_RUNS_STUDIES = ("sweep", "reproduce")
"""Commands that may import whatever the study names that they are told to run."""
_NAMES = ("name", "plant", "learner", "strategy", "from_learner", "from_strategy")
"""Arguments by which a user names what other commands may import."""

DESCRIPTION = """Which experiences should a learning controller keep, and which should it replay?

To begin: replaybench sweep demo, then replaybench report runs/demo. What a command takes: replaybench COMMAND --help.

--version prints the version, --tyro-print-completion {bash,zsh} what completes commands and options there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        with stopping_raises(to_the_end=arguments is None):
            status = _run(words)
            sys.stdout.flush()
        sys.exit(status)
    except UserError as error:
        _fail(2, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(2, f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError as error:
        _fail(2, " ".join(f"not enough memory; ask for fewer seeds, episodes or slots. {error}".split()))
    except KeyboardInterrupt as interruption:
        _fail(exit_status(interruption), str(interruption) or "stopped")


def _fail(status: int, reason: str) -> NoReturn:
    print(f"replaybench: {printable(reason)}", file=sys.stderr)
    sys.exit(status)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        from replaybench import __version__

        print(f"replaybench {__version__}")
        return 0
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    if not words:
        words = ["--help"]
    parameters: dict[str, str] = {}
    if words[0] in COMMANDS:
        parameters = plant_parameters(words, COMMANDS[words[0]])
        words = take_plant_parameters(words, parameters)
        check_options(words, COMMANDS[words[0]], parameters)
        words = together(words, COMMANDS[words[0]])
    command = parse(words, COMMANDS, DESCRIPTION)
    check_address_space()
    if words[0] in _RUNS_STUDIES:
        return command()
    with imports_only(*(command.keywords.get(name) for name in _NAMES)):
        return command()


if __name__ == "__main__":
    main()
