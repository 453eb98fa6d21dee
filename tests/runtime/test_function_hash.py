"""Content hashes: what changes them, what does not, and what has none."""

import importlib.util
import itertools
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash

SOURCE = """
import enum
import math
import numpy as np
from numba import njit, types
from numba.extending import intrinsic

class Wall(enum.IntEnum):
    LEFT = 1

class Size(enum.Enum):
    SMALL = 2

GAINS = np.array([1.0, 2.0])
PAIR = (1, (2.5, "x"))

@njit
def helper(x, n):
    return helper(x, n - 1) if n else x * GAINS[0]

def outer(scale):
    def inner(x):
        return scale * x
    return njit(inner)

closed = outer(3.0)

@intrinsic
def twice(context, x):
    def codegen(context, builder, signature, args):
        return builder.fadd(args[0], args[0])
    return types.float64(types.float64), codegen

def f(x, power=2):
    # a comment
    wall = Wall.LEFT
    size = [Size.SMALL.value for _ in range(1)]
    return math.sin(helper(x, 2)) + closed(x) ** power + PAIR[0] + np.pi + twice(x)
"""
numbers = itertools.count()


def load(folder: Path, *edits: tuple[str, str]) -> FunctionType:
    text = SOURCE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"module_{next(numbers)}.py"
    path.write_text(text)
    spec: Any = importlib.util.spec_from_file_location("edited", path)  # a name of its own is exact content
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: FunctionType = module.f
    return function


@pytest.mark.parametrize(
    "edit",
    [
        ("LEFT = 1", "LEFT = 2"), ("SMALL = 2", "SMALL = 3"), ("[1.0, 2.0]", "[1.0, 2.5]"), ("(2.5,", "(2.6,"),
        ("x * GAINS", "x + GAINS"), ("outer(3.0)", "outer(3.5)"), ("scale * x", "scale + x"), ("power=2", "power=3"),
        ("math.sin", "math.cos"), ("builder.fadd", "builder.fmul"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("exact", [False, True])
def test_every_edit_of_referenced_content_changes_the_hash(tmp_path: Path, edit: tuple[str, str], exact: bool) -> None:
    before, again, after = (content_hash([load(tmp_path, *edits)], exact=exact) for edits in ((), (), (edit,)))
    assert before == again != after


def test_layout_is_no_content_and_compiler_options_are_exact_content(tmp_path: Path) -> None:
    layout = ("    # a comment\n", "    '''A docstring.'''\n\n"), ("x * GAINS", "x  *  GAINS")
    assert content_hash([load(tmp_path)]) == content_hash([load(tmp_path, *layout)])
    plain, fast = load(tmp_path), load(tmp_path, ("njit(inner)", "njit(inner, fastmath=True)"))
    assert content_hash([plain], exact=True) != content_hash([fast], exact=True)


def test_functions_from_a_prompt_have_hashes() -> None:
    spaces: list[dict[str, FunctionType]] = [{}, {}, {}]
    for number, space in zip((1, 1, 2), spaces, strict=True):
        exec(f"def f(x): return x + {number}", space)
    first, second, third = (content_hash([space["f"]]) for space in spaces)
    assert first == second != third


def test_objects_without_known_content_are_named() -> None:
    table = [1.0, 2.0]

    def f(x: float) -> float:
        return table[0] * x

    with pytest.raises(UserError, match=r"^'table', a list to which a plant's function refers, has no known content"):
        content_hash([f])
