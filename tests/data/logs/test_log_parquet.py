"""Parquet logs: numbers, dates and gaps as pandas writes them; damage and a missing package are one line."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaybench.data.logs import table
from replaybench.data.logs.log import read_log
from replaybench.runtime.errors import UserError

TIME = np.arange(20) * 0.02


def save(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_any_numbers_are_columns_and_null_is_nan(tmp_path: Path) -> None:
    log = read_log(
        save(
            tmp_path / "a.parquet",
            time=[0.0, 0.1],
            small=pa.array([1.5, None], pa.float32()),
            count=pa.array([1, None], pa.int64()),
            on=[True, False],
            price=[Decimal("1.25"), Decimal("2.50")],
            a=[{"b": 3}, {"b": 4}],
            **{"a.b": [1, 2]},
            mode=["auto", "manual"],
            pair=[[1, 2], [3, 4]],
        )
    )
    assert {name: column.tolist() for name, column in log.columns.items() if not np.isnan(column).any()} == {
        "time": [0.0, 0.1],
        "on": [1.0, 0.0],
        "price": [1.25, 2.5],
        "a.b": [1.0, 2.0],
    }
    np.testing.assert_array_equal(log.columns["small"], [1.5, np.nan])
    np.testing.assert_array_equal(log.columns["count"], [1.0, np.nan])
    assert all(column.dtype == np.float64 for column in log.columns.values())
    with pytest.raises(UserError, match="column 'mode' cannot be used: it holds string, not numbers"):
        log.column("mode")
    assert log.unusable["a"].startswith("it holds struct")
    assert log.unusable["pair"].startswith("it holds list")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_seconds_after_the_first(unit: str, tmp_path: Path) -> None:
    start = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    dates = [start + datetime.timedelta(seconds=i) for i in range(3)]
    spans = pa.array([datetime.timedelta(seconds=i) for i in (5, 6)] + [None], pa.duration(unit))
    log = read_log(save(tmp_path / "a.parquet", time=pa.array(dates, pa.timestamp(unit, "UTC")), since=spans))
    assert log.columns["time"].tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_array_equal(log.columns["since"], [5.0, 6.0, np.nan])


def test_nanoseconds_keep_their_precision(tmp_path: Path) -> None:
    ticks = 1_772_323_200_000_000_001 + np.arange(5) * 20_000_000
    log = read_log(save(tmp_path / "a.parquet", t=pa.array(ticks, pa.timestamp("ns"))))
    assert log.columns["t"].tolist() == [0.0, 0.02, 0.04, 0.06, 0.08]


def test_the_package_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.parquet", time=TIME)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"a.parquet is Parquet, which needs the extra: pip install 'replaybench\[parq"):
        read_log(path)


def test_what_is_no_parquet_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    for content in (b"", b"hello", b"PAR1" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"a.parquet cannot be read as Parquet: "):
            read_log(path)
    with pytest.raises(UserError, match=r"holds no column of numbers; column 'mode' cannot be used: it holds string"):
        read_log(save(path, mode=["a"]))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), path)
    with pytest.raises(UserError, match=r"two columns named 'a'"):
        read_log(path)
    monkeypatch.setattr(table, "MAX_BYTES", 100)
    with pytest.raises(UserError, match=r"holds more than .* GiB of numbers"):
        read_log(save(path, time=TIME))


def test_a_column_has_to_fit_as_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of some hundred bytes may hold pages of gigabytes, for few rows."""
    pages = pa.table({"x": pa.array([Decimal(1)] * 1000, pa.decimal128(30))})
    pq.write_table(pages, tmp_path / "a.parquet", use_dictionary=False, compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 1000
    monkeypatch.setattr(table, "MAX_BYTES", 10_000)
    with pytest.raises(UserError, match=r"holds more than .* GiB of numbers"):
        read_log(tmp_path / "a.parquet")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_gives_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "whole.parquet"
    content = bytearray((source if source.exists() else save(source, time=TIME, u=np.sin(TIME))).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "flipped.parquet"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    try:
        read_log(path)
    except UserError as error:
        assert "\n" not in str(error)
