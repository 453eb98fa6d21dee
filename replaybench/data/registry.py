"""One kind of thing by name: the package's own classes, those that installed packages offer, and those in users' files.

Plants, strategies and learners are all found in this way. Making a registry, and asking it for names, imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from replaybench.data.errors import UserError, unknown
from replaybench.data.user_code.user_file import IN_FILE, class_here, class_in_file, in_file, without_class


@dataclass(frozen=True, eq=False)
class Registry(Mapping[str, type[Any]]):
    """Classes of one kind by name; one is imported when it is asked for.

    Attributes:
        kind: what they are, for people: "learner".
        own: name → `module:Class` of those that come with the package.
        base: `module:Class` from which all of them derive.
        group: entry points under which installed packages offer more; the package's own names come first.
        derive_from: the name that users shall derive their own from; the name of `base` if empty.
        also_named: further forms of names for the error about an unknown one.
    """

    kind: str
    own: Mapping[str, str]
    base: str
    group: str
    derive_from: str = ""
    also_named: tuple[str, ...] = (IN_FILE,)

    @cached_property
    def offered(self) -> dict[str, EntryPoint]:
        """What other installed packages offer of this kind, by name."""
        return {entry.name: entry for entry in entry_points(group=self.group) if self._is_new(entry)}

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self.offered))

    def __len__(self) -> int:
        return len(self.own) + len(self.offered)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.offered

    def __getitem__(self, name: str) -> type[Any]:
        if name not in self:
            raise KeyError(name)
        return self.load(name)

    def spelled(self, name: str) -> str:
        """Return a name as it is registered, whatever its letters' case; an unknown one as it is."""
        return name if name in self.own else {known.casefold(): known for known in self}.get(name.casefold(), name)

    def load(self, name: str) -> type[Any]:
        """Return the class of that name, or the one in `path/to/file.py:ClassName`.

        Raises:
            UserError: there is none, or it cannot be imported.
        """
        self.check(name)
        if name in self.own:
            return _imported(self.own[name])
        if place := in_file(name):
            return class_in_file(place, self.kind, self.base_class, self.derive_from)
        return self._offered(self.offered[name])

    def check(self, name: str) -> None:
        """Raise `UserError` for a name that can be none of these; a class in a user's file may be missing there."""
        if name in self.own or in_file(name) or name in self.offered:
            return
        if name.endswith(".py"):
            raise without_class(name, self.kind)
        if there := class_here(name):
            raise UserError(f"unknown {self.kind} {name!r}; did you mean {there}?")
        raise unknown(self.kind, name, self, self.also_named)

    @property
    def base_class(self) -> type[Any]:
        """The class from which all derive."""
        return _imported(self.base)

    def _is_new(self, entry: EntryPoint) -> bool:
        """Tell whether an entry point of the group is of this kind; one that cannot be imported may be."""
        if entry.name in self.own:
            return False
        try:
            found = entry.load()
        except Exception:
            return True
        return isinstance(found, type) and issubclass(found, self.base_class)

    def _offered(self, entry: EntryPoint) -> type[Any]:
        try:
            found: type[Any] = entry.load()
        except Exception as error:
            raise UserError(f"{self.kind} {entry.name}, which an installed package offers, fails: {error}") from error
        return found


def _imported(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found
