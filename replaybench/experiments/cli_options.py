"""Options that the command line's parser does not know by itself: plant parameters, and what was mistyped."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Sequence

from replaybench.data.errors import UserError, unknown


def take_plant_parameters(words: list[str]) -> list[str]:
    """Turn options that are parameters of the plant named in `words` into entries of `--parameters`."""
    if words[:1] not in (["baseline"], ["import"]):
        return words
    plain = [word for before, word in itertools.pairwise(words) if not {before[:1], word[:1]} & {"-"}]
    plain += [word for word in words[1:2] if not word.startswith("-")]
    named = [after for word, after in itertools.pairwise(words) if word == "--plant"]
    named += [word.partition("=")[2] for word in words if word.startswith("--plant=")]
    names = plain if words[0] == "baseline" else named
    if not names:
        return words
    from replaybench.envs.registry import plant_class

    fields = {f"--{field.name.replace('_', '-')}": field.name for field in dataclasses.fields(plant_class(names[-1]))}
    kept: list[str] = []
    taken: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = fields.get(option.replace("_", "-"))
        if name is None:
            kept.append(word)
        else:
            taken.append(f"{name}={value if equals else next(rest, '')}")
    return [*kept, "--parameters", *taken] if taken else kept


def check_options(words: Sequence[str], command: Callable[..., int]) -> None:
    """Refuse an option that the command does not have, naming the nearest."""
    valid = {"--help"}
    for name in inspect.signature(command).parameters:
        option = f"--{name.replace('_', '-')}"
        valid |= {option, f"--no-{name.replace('_', '-')}"}
    for word in words[1:]:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in valid:
            raise unknown(f"option of {words[0]}:", option, valid)


def parameter_values(parameters: Sequence[str]) -> dict[str, float]:
    """Parse NAME=VALUE entries; raises `UserError` where a value is no number."""
    values = {}
    for entry in parameters:
        name, _, value = entry.partition("=")
        try:
            values[name.replace("-", "_")] = float(value)
        except ValueError:
            raise UserError(f"plant parameter {name} needs a number, not {value!r}") from None
    return values
