"""Settings read from tables, and quantities with units."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from replaybench.reports.page.theme import number
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals, duration, fixed


@dataclass(frozen=True, kw_only=True)
class Round:
    kind: Literal["scale", "none"] = "scale"
    form: Literal["round"] = "round"
    radius: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Oblong:
    form: Literal["oblong"] = "oblong"
    sides: tuple[float, float] = (1.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class Thing:
    shape: Round | Oblong = field(default_factory=Round)
    hole: Round | Oblong | None = None
    weight: float | None = None


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, Thing()),
        ({"shape": {"radius": 3}}, Thing(shape=Round(radius=3.0))),
        ({"shape": {"form": "round", "kind": "none"}}, Thing(shape=Round(kind="none"))),
        ({"shape": {"form": "oblong", "sides": [3, 4]}}, Thing(shape=Oblong(sides=(3.0, 4.0)))),
        ({"hole": {"form": "oblong"}, "weight": 2}, Thing(hole=Oblong(), weight=2.0)),
        ({"hole": None, "weight": None}, Thing()),
    ],
)
def test_a_table_names_its_form_and_what_is_made_reads_back(table: dict[str, Any], expected: Thing) -> None:
    made = build(Thing, table, "thing")
    assert made == expected
    assert build(Thing, json.loads(json.dumps(dataclasses.asdict(made))), "thing") == made


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"shape": {"form": "rund"}}, "unknown form in thing: shape: 'rund'; did you mean round"),
        ({"shape": {"form": ["round"]}}, "unknown form in thing: shape: "),
        ({"shape": {"form": "oblong", "radius": 1.0}}, "unknown key in thing: shape: 'radius'; valid: form, sides"),
        ({"shape": {"sides": [1, 2]}}, "unknown key in thing: shape: 'sides'"),
        ({"shape": {"form": "oblong", "sides": 3}}, "thing: shape: sides must be a list"),
        ({"shape": "round"}, "thing: shape must be a table, not 'round'"),
        ({"shape": None}, "thing: shape must be a table, not None"),
        ({"hole": 3}, "thing: hole must be a table, not 3"),
    ],
)
def test_mistakes_are_one_line(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build(Thing, table, "thing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.44, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (125, "2 min 5 s"),
        (599.4, "9 min 59 s"), (599.6, "10 min"), (3599, "1 h"), (86_369, "23 h 59 min"), (86_371, "1 day"),
        (3936 * 60, "2 days 18 h"),
    ],
)  # fmt: skip
def test_time_is_told_in_its_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_small_rewards_are_not_all_zero() -> None:
    assert [decimals(values) for values in ([0.0], [5.0, 0.001], [0.1], [0.021, -0.0003], [-0.0046])] == [2, 3, 2, 4, 5]
    assert (decimals([1e308]), decimals([-1.7e308, 5e-324])) == (2, 6)
    assert (decimals([float("nan"), 1e-30]), decimals([0.02], least=3), decimals([])) == (9, 4, 2)
    assert [fixed(value, 2) for value in (0.0, -0.004, -0.5)] == ["0.00", "-4.0e-03", "-0.50"]
    assert fixed(1e-9, 3, "+") == "+1.0e-09"
    assert (number(-0.0004), number(-0.4)) == ("−4.0e−04", "−0.40")
