"""One kind of thing by name: the package's own classes, those that installed packages offer, and those in users' files.

Plants, strategies and learners are all found in this way. Making a registry, and asking it for names, imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from replaybench.data.errors import UserError, unknown
from replaybench.data.user_file import IN_FILE, class_in_file, in_file


@dataclass(frozen=True)
class Registry:
    """Classes of one kind.

    Attributes:
        kind: what they are, for people: "learner".
        own: name → `module:Class` of those that come with the package.
        base: `module:Class` from which all of them derive.
        group: entry points under which installed packages offer more; the package's own names come first.
        derive_from: what users are told to derive their own from; the name of `base` if empty.
        also_named: further forms of names that are told to a user who missed.
    """

    kind: str
    own: Mapping[str, str]
    base: str
    group: str
    derive_from: str = ""
    also_named: tuple[str, ...] = (IN_FILE,)

    @cached_property
    def offered(self) -> dict[str, EntryPoint]:
        """What other installed packages offer, by name."""
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self.own}

    def names(self) -> tuple[str, ...]:
        """Return all names, of the package's own and of offered ones."""
        return (*self.own, *self.offered)

    def spelled(self, name: str) -> str:
        """Return a name as it is registered, whatever its letters' case; an unknown one as it is."""
        return {known.casefold(): known for known in self.names()}.get(name.casefold(), name)

    def load(self, name: str) -> type[Any]:
        """Return the class of that name, or the one in `path/to/file.py:ClassName`.

        Raises:
            UserError: there is none, or it cannot be imported.
        """
        if name in self.own:
            return _imported(self.own[name])
        if place := in_file(name):
            return class_in_file(place, self.kind, _imported(self.base), self.derive_from)
        if name in self.offered:
            return self._offered(self.offered[name])
        if name.endswith(".py"):
            raise UserError(f"{name!r} names no {self.kind} in the file; write {name}:ClassName")
        raise unknown(self.kind, name, [*self.names(), *self.also_named])

    def _offered(self, entry: EntryPoint) -> type[Any]:
        try:
            found = entry.load()
        except Exception as error:
            raise UserError(f"{self.kind} {entry.name}, which an installed package offers, fails: {error}") from error
        if not (isinstance(found, type) and issubclass(found, _imported(self.base))):
            raise UserError(f"{entry.value}, which an installed package offers as {self.kind} {entry.name}, is none")
        return found


def _imported(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found
