"""The exception for mistakes that a user can correct, the warning, and functions for their messages.

A message is one line that names the fault and the remedy. The command line prints the message without a traceback and
exits with status 2.
"""

import contextlib
import difflib
import importlib.util
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

_NEAR: Final = 0.62
"""Smallest similarity at which a name is suggested. `rate` and `format` have 0.6, which must not be enough."""
_WORSE: Final = 0.2
"""Largest difference to the highest similarity at which a further name is suggested."""
_SWAPPED: Final = 0.9
"""Similarity that names with the same letters in another order have at least."""
_PART: Final = 4
"""Smallest number of letters with which a part of a name matches the whole name."""


_LONGEST: Final = 500
"""Largest number of characters in a line of a message."""
_END: Final = 150
"""Number of characters at the end of a longer line that are kept, because the remedy is there."""


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - _END - 3]} … {line[-_END:]}"


class UserError(ValueError):
    """An error that the user can correct, such as a wrong name, value or file.

    Each argument is one line of the message. The line states what is wrong, and what to do instead. A line of more than
    500 characters, as with a forged name, loses its middle.
    """

    def __init__(self, *lines: object) -> None:
        super().__init__(*map(_cut, map(str, lines)))

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    def _render_traceback_(self) -> list[str]:  # what IPython prints for the error
        return [f"{type(self).__name__}: {self}"]


class ReplaybenchWarning(UserWarning):
    """A warning about a study, a buffer or results. The command line prints the message as one line."""


def need(package: str, refusal: str) -> None:
    """Raise `UserError` with the text `refusal` if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UserError(refusal)


class Problems(list[str]):
    """A list of one-line error messages about one file, which are reported together."""

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Catch a `UserError` in the `with` block, and add the message of the error to the list."""
        try:
            yield
        except UserError as error:
            self += [line for line in map(str, error.args) if line not in self]

    def raise_any(self, path: Path, notes: Iterable[str] = ()) -> None:
        """Raise one `UserError` about a file, with all messages and then the notes, unless the list is empty."""
        notes = [f"  note: {note}" for note in notes]
        if len(self) == 1:
            raise UserError(f"{path}: {self[0]}", *notes)
        if self:
            raise UserError(f"{path} has {len(self)} problems:", *(f"  {line}" for line in self), *notes)


def unknown(kind: str, name: str, valid: Iterable[str], forms: Iterable[str] = ()) -> UserError:
    """Return the error for an unknown name.

    The message suggests similar valid names. If no valid name is similar, the message lists all valid names.

    Args:
        kind: What the name stands for, such as "learner".
        forms: Further forms of valid names, such as `path/to/file.py:ClassName`. These are shown only in a list of all
            valid names.
    """
    names = sorted(valid)
    near = nearest(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join([*names, *forms])}"
    return UserError(f"unknown {kind} {name!r}; {hint}")


def nearest(name: str, valid: Iterable[str]) -> list[str]:
    """Return up to three valid names that are similar to `name`, the most similar first.

    Case and leading dashes are ignored. Two names are also similar if they have the same letters in another order, or
    if one contains the other and the shorter one has at least four letters.
    """
    wanted = name.casefold().lstrip("-")
    scores = {}
    for candidate in sorted(valid):
        name = candidate.casefold().lstrip("-")
        short, long = sorted((wanted, name), key=len)
        swapped, part = sorted(wanted) == sorted(name), len(short) >= _PART and short in long
        ratio = difflib.SequenceMatcher(None, wanted, name).ratio()
        scores[candidate] = max(ratio, _SWAPPED * swapped, _NEAR * part)
    best = max(scores.values(), default=0.0)
    near = [candidate for candidate, score in scores.items() if score >= max(_NEAR, best - _WORSE)]
    return sorted(near, key=lambda candidate: -scores[candidate])[:3]


def no_such_file(path: Path) -> UserError:
    """Return the error for a missing file, with similar names from the deepest existing folder of the path."""
    if path.is_dir():
        return UserError(f"{path} is a folder; name a file")
    folder = next(above for above in path.parents if above.is_dir())
    wanted = path.relative_to(folder).parts[0]
    names = [other.name for other in folder.iterdir()]
    near = difflib.get_close_matches(wanted, names, n=3)
    where = "this folder" if folder == Path() else folder
    hint = f"did you mean {' or '.join(str(folder / name) for name in near)}?" if near else f"{where} has no {wanted!r}"
    return UserError(f"no such file: {path}; {hint}")


_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 80, 80, 40


def shown(value: Any) -> str:
    """Return any value as one line of text, with long and deeply nested values abbreviated."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a number of about {round(value.bit_length() * 0.30103)} digits"
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # a huge number inside
        return f"a {type(value).__name__}"
