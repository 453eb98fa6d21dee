"""Checks that mistakes and damaged files raise `UserError` with one line for each problem."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from replaybench.runtime.errors import UserError


def refuses(pattern: str, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Check that a call ends with a `UserError` in which the pattern is found, with one line for each problem."""
    with pytest.raises(UserError, match=pattern) as caught:
        call(*arguments, **options)
    assert not [line for line in caught.value.args if "\n" in line]


def read_damaged(read: Callable[[Path], object], path: Path, whole: bytes, data: st.DataObject) -> None:
    """Check that a file with flipped bits, and perhaps without its end, is read or refused in one line."""
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 9]))])
    try:
        read(path)
    except UserError as error:
        assert "\n" not in str(error)
