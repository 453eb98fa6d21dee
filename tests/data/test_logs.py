"""Logs in text and Parquet: what is read, what is refused, and where recordings are cut."""

import datetime
import gzip
import io
import re
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaybench.data.logs import table
from replaybench.data.logs.log import Log, read_log, round_rate, sampling_rate, segments
from replaybench.data.logs.text import TextOptions
from tests.helpers.commands import Patch
from tests.helpers.refusals import read_damaged, refuses


def problem(path: Path, time: str | None = None) -> str:
    """Return the only problem of a log."""
    (only,) = read_log(path, time).problems
    return only


def time_of(log: Log) -> Any:
    return None if log.time is None else log.time.tolist()


def text_log(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "# time\tangle\n0.0\t1.5\n0.5\t-2e-3",
        '"time", "angle"\n0.0, "1.5"\n0.5, -2e-3\n',
        "\n time ,angle,\n0.0,1.5,\n0.5,-2e-3,\n",
    ],
    ids=["savetxt", "quoted", "trailing comma"],
)
def test_text_in_its_usual_forms_reads_the_same(tmp_path: Path, text: str) -> None:
    log = read_log(text_log(tmp_path, text))
    assert (time_of(log), list(log.columns)) == ([0.0, 0.5], ["time", "angle"])
    assert log.column("angle").tolist() == [1.5, -2e-3]


def test_the_time_column_is_named_or_found_or_absent(tmp_path: Path) -> None:
    path = text_log(tmp_path, "stamp,T,a\n5,1,0\n6,2,0\n")
    assert (time_of(read_log(path, "stamp")), time_of(read_log(path))) == ([5.0, 6.0], [1.0, 2.0])
    assert time_of(read_log(text_log(tmp_path, "stamp,a\n5,0\n"))) is None
    assert problem(path, "stmp") == "unknown column 'stmp'; did you mean stamp?"
    assert time_of(read_log(text_log(tmp_path, "T,TIME,time\n5,1,0\n6,2,1\n"))) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"log.csv has no header row \(the file is empty\)"),
        ("\n\n0.0,1.5\n0.5,2\n", r"has no header row \(line 3 holds numbers\); write the column names"),
        ("angle,angle\n0,1\n", r"two columns named 'angle'; rename one"),
        ("time,a\x00\n0,1\x00\n" + "0" * 200_000 + ",1\n", r"cannot be read: field larger than field limit"),
    ],
)
def test_malformed_text_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    refuses(message, read_log, text_log(tmp_path, text))


def test_lines_of_another_length_are_each_named(tmp_path: Path) -> None:
    log = read_log(text_log(tmp_path, "time,angle\n0,1\n\n1,2,3\n2\n3,4\n"))
    assert [line.split(",")[0] for line in log.problems] == ["line 4 has 3 values", "line 5 has 1 values"]
    assert log.columns["angle"].tolist() == [1.0, 4.0]
    many = read_log(text_log(tmp_path, "time,angle\n0,1\n2,3\n" + "4\n" * 9 + "5,6\n" * 9))
    assert [line.split(" have ")[0] for line in many.problems][3:] == ["6 more lines"]


def test_only_a_column_that_is_used_must_be_numeric_and_whole(tmp_path: Path) -> None:
    log = read_log(text_log(tmp_path, "time,mode,angle,voltage\n0,auto,1,5\n\n1,manual,,6\n2,auto,inf,7\n"))
    assert log.column("voltage").tolist() == [5.0, 6.0, 7.0]
    refuses(r"column 'mode' cannot be used: line 2 holds 'auto', which is not a number", log.column, "mode")
    refuses(r"column 'angle' is not a number at line 4 \(2 such rows\); correct or leave out", log.column, "angle")
    refuses(r"column 'angle' is inf at line 5 \(1 such row\)", log.column, "angle", np.array([True, False, True]))
    assert log.column("angle", np.array([True, False, False]))[0] == 1.0


def test_rows_without_a_time_are_refused_or_left_out(tmp_path: Path) -> None:
    path = text_log(tmp_path, "time,angle\n0,1\n,2\n1,\ninf,3\n")
    assert re.match(r"column 'time' is not a number at line 3 \(2 such rows\); .* --missing drop", problem(path))
    log = read_log(path, timed_only=True)
    assert (time_of(log), log.where(1)) == ([0.0, 1.0], "line 4")


def test_dates_are_seconds_after_the_first(tmp_path: Path) -> None:
    dates = "2024-12-31T23:59:59.98", "2025-01-01 00:00:00", "", "2025-01-01T00:00:00.02Z"
    rows = [f"{date};0,5;2024-01-31\n" for date in (*dates, "2025-01-01T01:00:00.040+01:00")]
    log = read_log(text_log(tmp_path, "time;angle;day\n" + "".join(rows)), timed_only=True)
    assert time_of(log) == pytest.approx([0.0, 0.02, 0.04, 0.06], abs=1e-12)
    coarse = text_log(tmp_path, "time,angle\n" + "".join(f"2024-01-01T00:00:0{i // 3},{i}\n" for i in range(6)))
    assert read_log(coarse).unusable == {"time": "the date at line 3 is that of the row before; give finer times"}
    for odd in ("3.5", "12:00"):
        odder = text_log(tmp_path, f"time,angle\n2024-01-01,0\n{odd},0\n")
        assert f"'time' cannot be used: line 3 holds '{odd}', which is not a date" in problem(odder, "time")


def test_what_loggers_write_for_a_missing_number_is_an_empty_cell(tmp_path: Path) -> None:
    words = ["n/a", "NA", "-", "NULL", "None", "nan", "", "-1.#IND", "1.#QNAN", "-nan(ind)", "NaN", "---", "Bad Input"]
    words += ["#N/A", "#DIV/0!", "lost"]
    rows = [f"{i},{word},false,2024-01-{i:02}\n" for i, word in enumerate(words, 1)]
    path = text_log(tmp_path, "time,level,alarm,at\n0,1.5,True,\n" + "".join(rows))
    log = read_log(path, options=TextOptions(empty=("LOST",)))
    assert np.isnan(log.columns["level"]).tolist() == [False] + [True] * len(words)
    assert log.columns["alarm"].tolist() == [1.0] + [0.0] * len(words)
    assert log.unusable == {}
    np.testing.assert_allclose(log.columns["at"][1:], 86400.0 * np.arange(len(words)))  # its first cell is empty


@pytest.mark.parametrize(
    ("date", "form"), [("03/31/2024", "%m/%d/%Y"), ("2024/3/31 10:00", "%Y/%m/%d %H:%M"), ("1 Mar 2024", "%d %b %Y")]
)
def test_other_forms_of_dates_are_read_when_they_are_stated(date: str, form: str, tmp_path: Path) -> None:
    path = text_log(tmp_path, f"time,angle\n{date},0\n")
    assert "--date-format" in problem(path, "time") or date[0] == "1"
    assert time_of(read_log(path, options=TextOptions(date_format=form))) == [0.0]


def test_decimal_commas_are_read_where_no_comma_separates_and_no_number_has_a_point(tmp_path: Path) -> None:
    """With both, one of them would be thousands."""
    log = read_log(text_log(tmp_path, "time;angle;mode\n0;-1,5;1,2,3\n0,1;2;4\n"))
    assert (time_of(log), log.column("angle").tolist()) == ([0.0, 0.1], [-1.5, 2.0])
    assert "'-1,5' in line 2" in log.notes[0]
    refuses(r"line 2 holds '1,2,3', which is not a number", log.column, "mode")
    told = problem(text_log(tmp_path, "time;angle\n0.1;1\n0.2;1,500\n"))
    assert "decimal commas ('1,500' in line 3) and points ('0.1' in line 2)" in told
    assert not read_log(text_log(tmp_path, "time,angle\n0.1,1\n")).notes


@pytest.mark.parametrize("marks", [".,", ",."])
def test_marks_for_thousands_are_read_where_a_number_shows_both(tmp_path: Path, marks: str) -> None:
    swap = str.maketrans(".,", marks)
    log = read_log(text_log(tmp_path, "time;level;flow\n1;1.234,50;2.000\n2;-950,25;1.234.567,5\n".translate(swap)))
    assert log.columns["level"].tolist() == [1234.5, -950.25]
    assert log.columns["flow"].tolist() == [2000.0, 1234567.5]
    assert not log.problems
    assert read_log(text_log(tmp_path, "time;level\n1;1.234,50\n2;0.75\n".translate(swap))).problems


def test_files_that_are_no_logs_are_refused(tmp_path: Path) -> None:
    refuses(r"no such file: .*missing.csv", read_log, tmp_path / "missing.csv")
    table = text_log(tmp_path, "x", "log.xlsx")
    refuses(r"a log is a .csv .*, .npz, .mat or .parquet file, not '.xlsx'", read_log, table)
    (odd := tmp_path / "odd.csv").write_bytes(b"time,gr\x81\xff\n0,1\n")
    refuses(r"odd.csv, line 1 is neither UTF-8 nor cp1252 text; give its --encoding", read_log, odd)
    for encoding, told in (("ascii", "line 1 is not ascii text"), ("klingon", "unknown encoding 'klingon'")):
        refuses(told, read_log, odd, options=TextOptions(encoding))
    assert "grЃя" in read_log(odd, options=TextOptions("cp1251")).columns
    path = text_log(tmp_path, "time,angle\n", "log.npz")
    refuses(r"log.npz cannot be read: File is not a zip file", read_log, path)
    np.savez(path, time=np.arange(100.0))
    refuses("is no text", read_log, path, options=TextOptions(empty=("x",)))
    (cut := tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"time,angle\n0,1\n")[:-5])
    refuses("cannot be read", read_log, cut)
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    refuses(r"log.npz cannot be read: Bad CRC-32", read_log, path)


class Bomb:
    """Unpickling it would fail the test."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("unpickled",)


def test_npz_reads_any_plain_numbers_as_float64_and_never_pickled_or_shaped_arrays(tmp_path: Path) -> None:
    numbers: Any = {"t": np.array([0, 1], ">f4"), "u": np.array([1, 2], np.uint8), "on": np.array([True, False])}
    odd: Any = {"angle": np.array([Bomb(), 1.0], object), "state": np.zeros((2, 2)), "note": np.array("rig 3")}
    np.savez_compressed(tmp_path / "log.npz", **numbers, **odd)
    log = read_log(tmp_path / "log.npz")
    assert {name: column.tolist() for name, column in log.columns.items()} == {"t": [0, 1], "u": [1, 2], "on": [1, 0]}
    assert {column.dtype.str for column in (log.time, *log.columns.values()) if column is not None} == {"<f8"}
    refuses(r"column 'angle' cannot be used: it holds pickled Python objects", log.column, "angle")
    refuses(r"'state' cannot be used: it is an array \[2, 2\] of float64; save one 1-D", log.column, "state")
    refuses(r"'note' cannot be used", log.column, "note")


def test_arrays_of_other_lengths_are_left_out_and_doubled_members_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, gains=np.arange(5.0), time=np.arange(3.0), angle=np.arange(3.0), rate=np.array([50.0]))
    log = read_log(path)
    assert set(log.columns) == {"time", "angle"}
    assert log.notes == ("left out, as they have other lengths than 3: gains",)
    refuses(r"column 'gains' cannot be used: it has length 5, but the log has 3 rows", log.column, "gains")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", b"")
    refuses(r"two columns named 'a.npy'", read_log, path)


def test_sizes_in_memory_count_and_declared_ones_do_not(tmp_path: Path, monkeypatch: Patch) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("time.npy", header.getvalue() + bytes(16))
    refuses(r"column 'time' cannot be used: it is damaged", read_log, tmp_path / "lie.npz", "time")
    np.savez_compressed(tmp_path / "bomb.npz", time=np.zeros(1 << 16))
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"time,angle\n" + b" " * (1 << 16)))
    np.savez(tmp_path / "flags.npz", t=np.zeros(1 << 10, np.bool_))  # each takes eight bytes in memory
    (tmp_path / "zeros.csv").write_text("t,a\n" + "0,0\n" * (1 << 10))
    monkeypatch.setattr(table, "MAX_BYTES", 1 << 12)
    refuses(r"bomb.npz unpacks to 0.000488 GiB; split it", read_log, tmp_path / "bomb.npz")
    for name in ("bomb.csv.gz", "flags.npz", "zeros.csv"):
        refuses(f"{name} holds more than", read_log, tmp_path / name)


@pytest.mark.parametrize("frequency", [10.0, 50.0, 1 / 0.03, 60.0, 125.0, 200.0, 12.5])
def test_the_rate_of_a_clock_that_counts_milliseconds_is_found(frequency: float) -> None:
    time = np.round(1e9 + np.arange(2000) / frequency, 3)
    time = np.delete(time, slice(500, 700))
    assert sampling_rate(time) == pytest.approx(frequency, rel=1e-3)
    assert round_rate(sampling_rate(time)) == pytest.approx(frequency, rel=1e-12)
    assert segments(time, frequency) == [slice(0, 500), slice(500, 1800)]


@pytest.mark.parametrize(("measured", "rounded"), [(49.93, 50.0), (50.06, 50.0), (49.7, 49.7)])
def test_a_measured_rate_is_rounded_only_as_far_as_it_is_uncertain(measured: float, rounded: float) -> None:
    assert round_rate(measured) == rounded


@pytest.mark.parametrize("time", [[-1e308, 1e308], [0.0, 1e-310]])
def test_times_beyond_reason_are_told(time: list[float]) -> None:
    refuses("is --time the right column", sampling_rate, np.array(time))


def test_times_that_stand_still_or_are_none_are_told_with_their_line(tmp_path: Path) -> None:
    assert "time stands still at line 4 (1 such row)" in problem(text_log(tmp_path, "t,a\n0,1\n1,2\n1,3\n2,4\n"))
    assert "time goes back at line 3 (2 such rows" in problem(text_log(tmp_path, "t,a\n0,1\n-1,2\n1,3\n0,4\n"))
    assert "is in ms; give times in s" in problem(text_log(tmp_path, "time [ms],a\n0,1\n1,2\n"))


def test_rows_that_repeat_the_one_before_are_left_out(tmp_path: Path) -> None:
    log = read_log(text_log(tmp_path, "time,angle,level\n0,1,\n1,2,\n1,2,\n2,2,\n"))
    assert (time_of(log), log.where(2)) == ([0.0, 1.0, 2.0], "line 5")
    assert "1 rows repeat the row before" in log.notes[0]
    untimed = read_log(text_log(tmp_path, "angle,level\n1,2\n1,2\n"))
    assert (untimed.rows, untimed.notes) == (2, ())  # a state at rest


@settings(max_examples=100, deadline=None)
@given(
    frequency=st.floats(1.0, 1000.0),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    gap=st.floats(2.0, 1e4),
    start=st.floats(-1e3, 1e6),
    seed=st.integers(0, 1000),
)
def test_recordings_are_cut_at_gaps(frequency: float, lengths: list[int], gap: float, start: float, seed: int) -> None:
    lengths = [60, *lengths]  # most steps are samples, so that the median is one
    jitter = np.random.default_rng(seed).uniform(-0.05, 0.05, sum(lengths))
    periods = 1 + jitter - jitter.mean()  # the clock is right in the long run
    periods[np.cumsum(lengths)[:-1]] = gap
    time = start + np.cumsum(periods) / frequency
    pieces = segments(time, frequency)
    assert [piece.stop - piece.start for piece in pieces] == lengths
    assert np.concatenate([np.arange(len(time))[piece] for piece in pieces]).tolist() == list(range(len(time)))


TIME = np.arange(20) * 0.02


def save(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_any_numbers_are_columns_and_null_is_nan(tmp_path: Path) -> None:
    numbers = {
        "time": ([0.0, 0.1], [0.0, 0.1]),
        "small": (pa.array([1.5, None], pa.float32()), [1.5, np.nan]),
        "count": (pa.array([1, None], pa.int64()), [1.0, np.nan]),
        "on": ([True, False], [1.0, 0.0]),
        "price": ([Decimal("1.25"), Decimal("2.50")], [1.25, 2.5]),
        "a.b": ([1, 2], [1.0, 2.0]),
    }
    others = {"a": [{"b": 3}, {"b": 4}], "mode": ["auto", "manual"], "pair": [[1, 2], [3, 4]]}
    columns = {name: given for name, (given, _) in numbers.items()}
    log = read_log(save(tmp_path / "a.parquet", **columns, **others))
    assert log.columns.keys() == numbers.keys()
    for name, (_, expected) in numbers.items():
        np.testing.assert_array_equal(log.columns[name], expected)
        assert log.columns[name].dtype == np.float64
    refuses("column 'mode' cannot be used: it holds string, not numbers", log.column, "mode")
    assert log.unusable["a"].startswith("it holds struct")
    assert log.unusable["pair"].startswith("it holds list")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_in_parquet_are_seconds_after_the_first(unit: str, tmp_path: Path) -> None:
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


def test_what_is_no_parquet_log_is_refused_and_any_without_the_package(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "a.parquet"
    for content in (b"", b"hello", b"PAR1" + bytes(100)):
        path.write_bytes(content)
        refuses(r"a.parquet cannot be read as Parquet: ", read_log, path)
    save(path, mode=["a"])
    refuses(r"holds no column of numbers; column 'mode' cannot be used: it holds string", read_log, path)
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), path)
    refuses(r"two columns named 'a'", read_log, path)
    monkeypatch.setattr(table, "MAX_BYTES", 100)
    refuses(r"holds more than .* GiB of numbers", read_log, save(path, time=TIME))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuses(r"a.parquet is Parquet, which needs the extra: pip install 'replaybench\[parq", read_log, path)


def test_a_column_has_to_fit_as_it_is_unpacked(tmp_path: Path, monkeypatch: Patch) -> None:
    """A file of some hundred bytes may hold pages of gigabytes, for few rows."""
    pages = pa.table({"x": pa.array([Decimal(1)] * 1000, pa.decimal128(30))})
    pq.write_table(pages, tmp_path / "a.parquet", use_dictionary=False, compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 1000
    monkeypatch.setattr(table, "MAX_BYTES", 10_000)
    refuses(r"holds more than .* GiB of numbers", read_log, tmp_path / "a.parquet")


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_no_damage_gives_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "whole.parquet"
    whole = (source if source.exists() else save(source, time=TIME, u=np.sin(TIME))).read_bytes()
    read_damaged(read_log, tmp_path / "flipped.parquet", whole, data)
