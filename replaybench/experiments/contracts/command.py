"""`replaybench check`: find a plant, strategy or learner by its name, and print a line for each promise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from replaybench.controllers.registry import LEARNERS, algorithm_of
from replaybench.data.errors import UserError, unknown
from replaybench.data.registry import Registry
from replaybench.data.user_code.user_file import IN_FILE, import_file, in_file, without_class
from replaybench.envs.registry import GYMNASIUM, PLANTS, make_plant
from replaybench.experiments.contracts.promises import checked
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.registry import RETENTIONS, SAMPLINGS, WEIGHTINGS

_WHOLE = {RETENTIONS.kind: "{}[Uniform]", SAMPLINGS.kind: "FIFO[{}]", WEIGHTINGS.kind: "FIFO[PER+{}]"}
"""How a part of a strategy becomes a whole one."""

_OWN: Final = re.compile(r"(.+\.py:\w+)\s*(?:\(.*\))?\Z")
"""A class in a user's file, with its parameters if it is a part of a strategy."""


def show_check(console: Console, name: str) -> int:
    """Print a line for every promise of a plant, strategy or learner; return 1 if any is broken, else 0.

    Raises:
        UserError: there is nothing of that name.
    """
    kind, results = contract_of(name)
    console.print(f"{kind} {name}", style="bold", highlight=False, markup=False)
    broken = 0
    for promise, problem in results:
        broken += bool(problem)
        line = f"  broken  {promise}: {problem}" if problem else f"  ok      {promise}"
        console.print(line, style="red" if problem else "", highlight=False, markup=False, soft_wrap=True)
    return int(broken > 0)


def contract_of(name: str) -> tuple[str, Iterator[tuple[str, str]]]:
    """Return the category of a name, and its promises with problems, each checked when it is asked for.

    Raises:
        UserError: there is nothing of that name.
    """
    strategy = name if name.endswith("]") else _part(name)
    if strategy:
        from replaybench.experiments.contracts.strategy import STRATEGY, Case

        return "strategy", checked(STRATEGY, Case(parse(strategy).at(50.0)))
    if _is_in(PLANTS, name) or name.startswith(GYMNASIUM):
        from replaybench.experiments.contracts.plant import PLANT

        return "plant", checked(PLANT, make_plant(name))
    if _is_in(LEARNERS, algorithm_of(name)):
        from replaybench.experiments.contracts.learner import LEARNER, learner_cell

        return "learner", checked(LEARNER, learner_cell(name))
    if in_file(name):
        raise UserError(f"{name} is no plant, learner, or retention, sampling or weighting of a strategy")
    if name.endswith(".py"):
        raise without_class(name, "class")
    known = [*PLANTS, *RETENTIONS, *SAMPLINGS, *WEIGHTINGS, *LEARNERS]
    raise unknown("plant, strategy or learner", name, known, [IN_FILE])


def _part(name: str) -> str:
    """Return the strategy that consists of a part and the plainest others; empty if the name is no part's."""
    own = _OWN.match(name)
    bare = own[1] if own else name.partition("(")[0]
    for registry in (RETENTIONS, SAMPLINGS, WEIGHTINGS):
        if _is_in(registry, bare):
            return _WHOLE[registry.kind].format(name)
    return ""


def _is_in(registry: Registry, name: str) -> bool:
    """Tell whether a name is of this kind.

    Raises:
        UserError: it names a file that cannot be imported, or that has nothing of that name.
    """
    if (place := in_file(name)) is None:
        return name in registry
    module = import_file(place.path, "Python", name)  # of whatever kind
    found = vars(module)
    if place.class_name not in found:
        classes = {each: value for each, value in found.items() if isinstance(value, type)}
        mine = [each for each, value in classes.items() if value.__module__ == module.__name__]
        if not mine:
            raise UserError(f"{place.path} defines no class; {place.class_name} must be one in it")
        raise unknown(f"class in {place.path}", place.class_name, mine)
    kind = found[place.class_name]
    return isinstance(kind, type) and issubclass(kind, registry.base_class)
