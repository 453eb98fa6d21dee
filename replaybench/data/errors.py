"""The one exception for mistakes that a user can mend: one line that names the thing and the remedy.

The command line prints it without a traceback and exits with status 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A wrong name, value or file. The message is one line: what is wrong, and what to do instead."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """Return the error for an unknown `name`, offering the nearest valid ones (all of them if none is near)."""
    names = sorted(valid)
    folded = {candidate.casefold(): candidate for candidate in names}
    near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names)}"
    return UserError(f"unknown {kind} {name!r}; {hint}")
