"""Strategies of users: what they choose is looked at before kernels take it, and what they promise is theirs alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from buffers import fill, make

from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

OWN = """
from dataclasses import dataclass
from typing import Literal

import numpy as np

from replaybench.replay.strategies.retention import FIFO
from replaybench.replay.strategies.uniform import RunningUniform, Uniform


@dataclass(frozen=True)
class Keep(FIFO):
    slot: int = 0
    meddles: bool = False

    def start(self, view):
        return _Keep(self.slot, self.meddles)


class _Keep:
    def __init__(self, slot, meddles):
        self.slot, self.meddles = slot, meddles

    def slots(self, offers, capacity, slots):
        slots[slots == -2] = self.slot
        if self.meddles:
            slots[:] = self.slot

    def state_dict(self, stored):
        return {}


@dataclass(frozen=True)
class Draw(Uniform):
    slot: int = 0

    def start(self, view):
        running = _Draw(view)
        running.slot = self.slot
        return running


class _Draw(RunningUniform):
    def draw(self, context, count, offers, draws):
        draws.idx[:], draws.probability[:] = self.slot, 1


@dataclass(frozen=True)
class Listens(Uniform):
    def start(self, view):
        return _Listens(view)


class _Listens(RunningUniform):
    def annotate(self, idx, td_error):
        pass


@dataclass(frozen=True)
class Told(Listens):
    feedback = ("td_error",)


@dataclass(frozen=True)
class Misspelt(Uniform):
    feedback = ("td_errors",)


@dataclass(frozen=True)
class Keeps(Uniform):
    name_of: Literal["mine", "reward", "priority"] = "mine"
    form: Literal["array", "number"] = "array"

    def start(self, view):
        running = _Keeps(view)
        running.state = {self.name_of: np.zeros(len(view.members)) if self.form == "array" else 3}
        return running


class _Keeps(RunningUniform):
    def state_dict(self, stored):
        return self.state


@dataclass(frozen=True)
class Unmakable(FIFO):
    share: float = 0.5

    def __post_init__(self):
        raise ValueError("no share")
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


@pytest.mark.parametrize("slot", [-3, 4, 10**9])
def test_a_slot_that_is_not_there_is_told_and_nothing_is_written(slot: int, own: str) -> None:
    replay = make(f"{own}:Keep(0)[Uniform]".replace("(0)", f"({slot})"), members=2, capacity=4)
    fill(replay, 4)
    before = replay.columns.rows.copy()
    with pytest.raises(UserError, match=rf"own.py:_Keep: slots chose {slot}, not -1 or a slot from 0 to 3"):
        fill(replay, 1, 4)
    np.testing.assert_array_equal(replay.columns.rows, before)


def test_slots_of_members_that_are_not_full_are_left_alone(own: str) -> None:
    replay = make(f"{own}:Keep(1, true)[Uniform]", members=2, capacity=4)
    fill(replay, 4)
    fill(replay, 3, 4)  # all are full: nothing is meddled with
    replay.count[1] -= 1
    with pytest.raises(UserError, match="slots changed an entry that was not -2"):
        fill(replay, 1, 7)


@pytest.mark.parametrize("slot", [-1, 3, 10**9])
def test_a_draw_of_what_is_not_stored_is_told(slot: int, own: str) -> None:
    replay = make(f"FIFO[{own}:Draw({slot})]", members=2, capacity=8)
    fill(replay, 3)
    with pytest.raises(UserError, match=rf"own.py:_Draw: draw chose slot {slot} of a member that has 0 to 2"):
        replay.sample(Context())


def test_a_promise_is_not_inherited(own: str) -> None:
    """A sampling that puts the newest in front derives from one whose batches may be drawn as one."""
    strategy = parse(f"{own}:Keep[{own}:Draw]")
    assert not strategy.sampling.independent
    assert not strategy.in_turn


def test_who_waits_for_errors_says_so(own: str) -> None:
    with pytest.raises(UserError, match=r'Listens has annotate, which is called only with feedback = \("td_error",\)'):
        make(f"FIFO[{own}:Listens]")
    make(f"FIFO[{own}:Told]")
    with pytest.raises(UserError, match="unknown metric or feedback .*did you mean td_error"):
        make(f"FIFO[{own}:Misspelt]")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("reward", "'reward' of state_dict is what the buffer itself calls so"),
        ("priority", "'priority' of state_dict is of type f8, and of f4 in buffer files"),
        ("mine, number", "'mine' of state_dict must be an array that begins with M = 2"),
    ],
)
def test_what_a_file_could_not_hold_is_told(given: str, told: str, own: str) -> None:
    replay = make(f"FIFO[{own}:Keeps({given})]", members=2)
    with pytest.raises(UserError, match=f"own.py:_Keeps: {told}"):
        replay.state_dict()


def test_what_it_could_is_taken(own: str) -> None:
    assert make(f"FIFO[{own}:Keeps]", members=2).state_dict()["mine"].shape == (2,)


def test_a_class_that_cannot_be_made_is_one_line(own: str) -> None:
    with pytest.raises(UserError, match=r"own.py:Unmakable cannot be made: ValueError: no share"):
        parse(f"{own}:Unmakable[Uniform]")


@pytest.mark.parametrize("name", ["path (1)/own.py", "a+b.py", "x[0].py", "a*b.py"])
@pytest.mark.parametrize("whole", ["{}:Mine(0.5)[Uniform]", "Drop(0.5)*{}:Mine[Uniform]", "FIFO[{}:Mine(mode=2)]"])
def test_a_path_with_signs_of_the_notation_is_told(
    name: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("")
    with pytest.raises(
        UserError, match=f"the path {re.escape(repr(name))} has a sign in it .*; rename the file or its"
    ):
        parse(whole.format(name))


def test_a_path_longer_than_any_file_has_is_none() -> None:
    with pytest.raises(UserError):
        parse(f"FIFO[{'a' * 300}(1).py:B]")


def test_a_parameter_that_is_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nfrom replaybench.replay.strategies.retention import FIFO\n"
        "@dataclass(frozen=True)\nclass Mine(FIFO):\n    mode: str = 'fast'\n"
    )
    with pytest.raises(
        UserError,
        match="mode of .*own.py:Mine is of a type that no strategy .*; declare a number, a bool or a Literal$",
    ):
        parse(f"{tmp_path / 'own.py'}:Mine(mode=slow)[Uniform]")
