"""Columns, dialects and rates of logs."""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from replaybench.data.logs.log import Log, read_log
from replaybench.data.logs.text import TextOptions
from replaybench.envs.interface.plant import Params, Plant, Vector
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.registry import make_plant
from replaybench.exchange.log_columns import Missing, control_rate, reserved_names
from replaybench.exchange.logs_to_buffer import convert
from replaybench.exchange.recording import Arrays, Summary
from replaybench.runtime.errors import UserError
from tests.helpers.refusals import refuses

NAMES = ("time", "angle", "angular velocity", "voltage")
UNITS = ("s", "rad", "rad/s", "V")
ROWS = [(0.5 * t, 0.25 * t - 1, 0.125 * t**2, (-1.0) ** t) for t in range(12)]


def imported(
    path: Path, plant: Plant, columns: dict[str, str] | None = None, missing: Missing = "refuse", **options: Any
) -> tuple[Arrays, Summary]:
    frequency, time = options.pop("frequency", None), options.pop("time", None)
    log = read_log(path, time, missing != "refuse", reserved_names(plant, columns or {}), TextOptions(**options))
    arrays, _, summary = convert(log, plant, columns, frequency, missing=missing)
    return arrays, summary


def refusal(path: Path, plant: Plant, **options: Any) -> list[str]:
    with pytest.raises(UserError) as told:
        imported(path, plant, **options)
    return [str(line) for line in told.value.args]


def written(folder: Path, text: str, name: str = "log.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@dataclass(frozen=True, kw_only=True)
class Heater(OdePlant):
    tau: float = 200.0
    name = "Heater"
    state_names, state_units, state_center, state_scale = ("T",), ("°C",), (50.0,), (50.0,)
    action_names, action_units, action_low, action_high = ("u",), ("–",), (0.0,), (1.0,)
    initial_state, reference_state = (20.0,), (60.0,)
    episode_seconds, frequency = 600.0, 1.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return ((20.0 + 100.0 * u[0] - x[0]) / p[0],)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -abs(float(x_next[0]) - 60.0)


class Switch(Heater):
    name = "Switch"
    action_choices = (2,)


def cell(value: float, decimal: str, thousands: str) -> str:
    whole, _, rest = f"{abs(value):,.4f}".partition(".")
    return f"{'-' if value < 0 else ''}{whole.replace(',', thousands)}{decimal}{rest}"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_dialect_gives_the_same_steps(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("dialect")
    draw = data.draw
    encoding = draw(st.sampled_from(("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")))
    mark, decimal = draw(st.sampled_from(((",", "."), (";", "."), (";", ","), ("\t", "."), ("\t", ","), ("|", "."))))
    thousands = "" if mark == "," else draw(st.sampled_from(("", "." if decimal == "," else ",")))
    end = draw(st.sampled_from(("\n", "\r\n")))
    dated = draw(st.sampled_from(("", "%Y-%m-%dT%H:%M:%S.%f", "%d.%m.%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S.%f")))
    comments = draw(st.lists(st.sampled_from(("# Prüfstand 3", "% mm, °C", "; x, y", '"Rig 3, hall 4"', "", "// z"))))
    comments += [mark.join("%abcd")] * draw(st.integers(0, 1))
    if mark == "|" or draw(st.booleans()):
        comments.insert(0, f"sep={mark}")
    titles = [f"{name} [{unit}]" for name, unit in zip(NAMES, UNITS, strict=True)] if draw(st.booleans()) else [*NAMES]
    header = ("# " if draw(st.booleans()) else "") + mark.join([*titles, "Bemerkung"])
    note = draw(st.sampled_from(("", "0", "Fühler ok")))
    lines = [*comments, header]
    if titles[0] == NAMES[0] and not header.startswith("#") and draw(st.booleans()):
        lines.append(mark.join((*UNITS, "")))
    repeated = draw(st.integers(0, len(ROWS)))
    start = datetime(2026, 3, 4, 23, 59, 58)
    for number, (time, *values) in enumerate(ROWS):
        stamp = (start + timedelta(seconds=time)).strftime(dated) if dated else cell(time, decimal, "")
        row = mark.join([stamp, *(cell(1000 * each, decimal, thousands) for each in values), note])
        lines += [row] * (1 + (number == repeated))
    text = (end * draw(st.integers(1, 2))).join(lines) + end * draw(st.integers(0, 2))
    path = written(folder, text, encoding=encoding)
    if draw(st.booleans()):
        path = folder / "log.csv.gz"
        path.write_bytes(gzip.compress(text.encode(encoding)))

    class Wide(Pendulum):
        name = "Wide"
        state_scale = (1e4, 1e5)
        action_low, action_high = (-2e3,), (2e3,)
        periodic = (False, False)

    arrays, _ = imported(path, Wide(), date_format=dated if "/" in dated else None)
    assert arrays["count"] == [len(ROWS) - 1]
    expected = 1000 * np.array(ROWS)
    np.testing.assert_allclose(arrays["observation"][0], expected[:-1, 1:3] / (1e4, 1e5), rtol=1e-6)
    np.testing.assert_allclose(arrays["next_observation"][0], expected[1:, 1:3] / (1e4, 1e5), rtol=1e-6)
    np.testing.assert_allclose(arrays["action"][0, :, 0], expected[:-1, 3] / 2e3, rtol=1e-6)


LVM = """LabVIEW Measurement\t
Separator\tTab
Decimal_Separator\t.
Date\t2024/03/31
***End_of_Header***\t

Channels\t3
Samples\t200\t200\t200
Y_Unit_Label\trad\trad/s\tV
X_Dimension\tTime\tTime\tTime
Delta_X\t0.020000\t0.020000\t0.020000
***End_of_Header***\t\t\t
X_Value\tangle\tangular velocity\tvoltage\tComment
0.00\t0.0\t0.0\t1.0\tstarted
0.02\t0.0\t0.0\t1.0
0.04\t0.0\t0.0\t1.0\t
"""
DSPACE = """generator,dSPACE,,
path,,Model Root/Arm,Model Root/Arm,Model Root/Drive
name,time,angle,angular velocity,voltage
unit,s,rad,rad/s,V
description,,,,
trace_values,0,0,0,1
,0.02,0,0,1
,0.04,0,0,1
"""


@pytest.mark.parametrize(("name", "text"), [("rig.lvm", LVM), ("rig.csv", DSPACE)])
def test_heads_of_instruments_are_understood(name: str, text: str, tmp_path: Path) -> None:
    arrays, summary = imported(written(tmp_path, text, name), Pendulum())
    assert (arrays["count"].item(), summary.frequency) == (2, 50.0)
    assert any("angular velocity in rad/s" in note for note in summary.warnings)
    told, *_ = refusal(written(tmp_path, text.replace("rad/s", "deg/s"), name), Pendulum())
    assert "is in deg/s, Pendulum has angular velocity in rad/s" in told


def test_all_problems_of_a_file_are_one_message(tmp_path: Path) -> None:
    text = (
        "# Ofen 3, Halle Süd\nStempel;Winkel [rad];angular velocity [deg/s];Spannung [V]\n"
        "04.03.2026 06:00:00;0,1;0;9\n04.03.2026 06:00:01;;0;1\n04.03.2026 06:00:02;0,1;0;1\n"
        "04.03.2026 06:00:03;0;0;1;7\n"
    )
    head, *lines = refusal(written(tmp_path, text, encoding="cp1252"), Pendulum())
    assert "read as cp1252" in lines[5]  # which may be the cause of others
    assert head.endswith("log.csv has 5 problems:")
    for told in (
        "line 6 has 5 values, but the header in line 2 has 4",
        "is in deg/s, Pendulum has angular velocity in rad/s",
        "'angle=Winkel [rad]' 'voltage=Spannung [V]'",
        "column 'Winkel [rad]' is not a number at line 4",
        "voltage is 9 in column 'Spannung [V]' at line 3",
    ):
        assert sum(told in line for line in lines) == 1, told


def test_no_column_of_a_signal_is_taken_for_time(tmp_path: Path) -> None:
    rows = "".join(f"{t},{20 + t / 2},0.9\n" for t in range(10))
    for state in ("T [degC]", "T"):
        arrays, summary = imported(written(tmp_path, f"Time [s],{state},u\n{rows}"), Heater())
        assert (arrays["count"].item(), summary.frequency) == (9, 1.0)
    both = "".join(f"{t},{68 + t},{20 + t / 2},0.9\n" for t in range(10))
    chosen, _ = imported(written(tmp_path, f"Time [s],T [°F],T [°C],u\n{both}"), Heater())
    np.testing.assert_array_equal(chosen["observation"], arrays["observation"])
    named, _ = imported(written(tmp_path, f"X_Value,t,u\n{rows}"), Heater(), {"T": "t"})
    np.testing.assert_array_equal(named["observation"], arrays["observation"])
    assert "no column is called time" in refusal(written(tmp_path, f"k,T,u\n{rows}"), Heater())[0]


def test_a_column_exists_and_means_one_thing(tmp_path: Path) -> None:
    path = written(tmp_path, "time,temp,u\n0,20,0\n1,20,0\n")
    (told,) = refusal(path, Heater(), columns={"T": "tmp"})
    assert "unknown column 'tmp'; did you mean temp" in told
    path = written(tmp_path, "time,T,x\n0,20,0\n1,20,1\n2,20,0\n")
    assert "column 'T' is taken for T and for u" in refusal(path, Heater(), columns={"u": "T"})[1]
    told, *_ = refusal(path, Heater(), columns={"u": "time"}, time="time")
    assert "column 'time' is taken for time and for a signal" in told


def heated(folder: Path, column: str, cells: Sequence[object], clock: str = "time") -> Path:
    """Write a log of the heater: with each row u rises by 0.1, and a last column holds the cells."""
    rows = [f"{t},{20 + t},0.{t},{cell}" for t, cell in enumerate(cells)]
    return written(folder, "\n".join([f"{clock},T,u,{column}", *rows]))


def assert_steps(arrays: Arrays, rows: Sequence[int]) -> None:
    """The steps that were taken over are those that begin in these rows of a log of the heater."""
    np.testing.assert_allclose(arrays["action"][0, :, 0], 0.2 * np.array(rows) - 1, atol=1e-6)


@pytest.mark.parametrize("clock", ["time", "k"])
def test_no_step_leads_over_a_truncated_row(clock: str, tmp_path: Path) -> None:
    path = heated(tmp_path, "truncated", (0, 0, 1, 0, 0, 1), clock)
    arrays, summary = imported(path, Heater(), frequency=1.0)
    assert (summary.transitions, summary.episodes) == (4, 2)
    assert_steps(arrays, (0, 1, 3, 4))
    lost = heated(tmp_path, "truncated", (0, 0, "", 0, 0, 1), clock)
    assert "'truncated' is not a number at line 4" in refusal(lost, Heater(), frequency=1.0)[0]
    assert imported(lost, Heater(), missing="drop", frequency=1.0)[1].transitions == 4


@pytest.mark.parametrize("clock", ["time", "k"])
def test_rows_without_an_episode_are_left_out(clock: str, tmp_path: Path) -> None:
    path = heated(tmp_path, "episode", (0, 0, 0, "", 0, 1, 1, 1, 1, 1), clock)
    assert "'episode' is not a number at line 5" in refusal(path, Heater(), frequency=1.0)[0]
    assert_steps(imported(path, Heater(), missing="drop", frequency=1.0)[0], (0, 1, 5, 6, 7, 8))


def test_a_lost_end_leads_into_no_other_episode(tmp_path: Path) -> None:
    """Row 4 may be the state in which an episode ended."""
    path = heated(tmp_path, "terminated", (0, 0, 0, "", 0, 0, 1, 0, 0, 0))
    assert_steps(imported(path, Heater(), missing="drop")[0], (0, 1, 2, 5, 6, 8))


def test_where_time_goes_back_an_episode_begins(tmp_path: Path) -> None:
    rows = [f"{t % 6},{20 + t},0.5" for t in range(12)]
    arrays, summary = imported(written(tmp_path, "\n".join(["time,T,u", *rows])), Heater())
    assert (summary.transitions, summary.episodes) == (10, 2)
    assert any("time goes back 1 times, first at line 8" in note for note in summary.warnings)
    assert arrays["episode"][0].tolist() == [0] * 5 + [1] * 5


def test_actions_between_choices_are_refused(tmp_path: Path) -> None:
    text = "time,T,u\n0,20,1\n1,20,0\n2,20,0.37\n3,20,0\n"
    (told,) = refusal(written(tmp_path, text), Switch())
    assert "u is 0.37 in column 'u' at line 4 (1 such row), none of its choices, 0, 1" in told
    arrays, _ = imported(written(tmp_path, text.replace("0.37", "1")), Switch())
    assert arrays["action"][0, :, 0].tolist() == [1.0, -1.0, 1.0]


def test_the_line_above_numbers_is_the_header_if_nothing_else_is(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "Rig 3\nrate,50\n\ntime,angle,u\n0,1,2\n1,1,2\n"))
    assert (list(log.columns), log.where(0)) == (["time", "angle", "u"], "line 5")
    assert "line 4" in log.notes[0]
    path = written(tmp_path, "time,angle\n0,1,\n1,2,\n")
    assert read_log(path).problems[0].startswith("line 2 has 3 values")
    refuses("--date-format '%Q': 'Q' is a bad directive", read_log, path, options=TextOptions(date_format="%Q"))
    assert list(read_log(written(tmp_path, ";time;angle\n0;0;1\n1;1;2\n")).columns) == ["time", "angle"]
    doubtful = read_log(written(tmp_path, "time,angle\n31/12/2026 10:00,-\n31/12/2026 10:01,\nx,1\n"))
    assert [doubtful.where(row) for row in range(doubtful.rows)] == ["line 2", "line 3", "line 4"]


UNTIMED = Log(Path("rig.csv"), {}, {}, None, None)


def at(frequency: float) -> Log:
    time = np.arange(100) / frequency
    return Log(Path("rig.csv"), {"time": time}, {}, time, None)


def rate_refusal(log: Log, stated: float | None = None, plant: Plant | None = None) -> str:
    with pytest.raises(UserError) as told:
        control_rate(log, plant or Pendulum(), stated)
    return str(told.value)


@pytest.mark.parametrize(("measured", "rate"), [(50.0, 50.0), (49.93, 50.0), (33.25, 33.25), (49.70, 49.75)])
def test_a_measured_rate_is_rounded_to_one_of_the_plant(measured: float, rate: float) -> None:
    assert control_rate(at(measured), Pendulum(), None) == rate


def test_a_stated_rate_is_taken_as_stated() -> None:
    for frequency in (49.75, 50.0, 50.25):
        assert control_rate(at(50.0), Pendulum(), frequency) == frequency
        assert control_rate(UNTIMED, Pendulum(), frequency) == frequency
    for slow_or_fast in (0.25, 3000.0):
        assert control_rate(at(slow_or_fast), Pendulum(), slow_or_fast) == slow_or_fast
    assert rate_refusal(at(0.25)).endswith("give time in s, not ms, or --frequency 0.25 if it is in s")


def test_a_rate_that_the_plant_cannot_have_says_which_fits_the_log() -> None:
    jittering = 49.395
    cut = "49.4 Hz cuts the 4 s episode of Pendulum into 197.6 steps; use 49.25 or 49.5 Hz "
    for stated in (None, 49.4):
        assert rate_refusal(at(jittering), stated) == cut + "(--frequency 49.5 fits the log)"
    assert rate_refusal(at(jittering), 50.0).endswith("not at 50 Hz: use --frequency 49.5")
    assert control_rate(at(jittering), Pendulum(), 49.5) == 49.5
    assert rate_refusal(at(10 / 3)).endswith("use 3.25 or 3.5 Hz (resample the log)")
    assert rate_refusal(UNTIMED, 49.4).endswith("into 197.6 steps; use 49.25 or 49.5 Hz")


def test_a_plant_of_one_rate_takes_no_other() -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    assert control_rate(at(50.04), plant, None) == 50.0
    told = "runs at 50 Hz and no other rate, not at 49.7 Hz (--frequency 50 fits the log)"
    assert rate_refusal(at(49.7), plant=plant).endswith(told)
    assert rate_refusal(at(25.0), plant=plant).endswith("not at 25 Hz (resample the log)")


@pytest.mark.parametrize(
    ("unit", "factor"), [("ms", 1e3), ("µs", 1e6), ("ns", 1e9), ("min", 1 / 60), ("h", 1 / 3600), ("d", 1 / 86400)]
)
def test_a_wrong_unit_of_time_is_named(unit: str, factor: float) -> None:
    for frequency in (50.0, 49.395, 200.0, 10.0) if factor > 1 else (50.0,):
        message = rf"the log is sampled at \S+ Hz, Pendulum at 50 Hz: give time in s, not {unit}"
        assert re.match(message, rate_refusal(at(frequency / factor)))
    assert rate_refusal(at(50.0 / factor), 50.0).endswith(f"not at 50 Hz: give time in s, not {unit}")


def test_a_wrong_rate_says_what_to_type() -> None:
    for wrong in (50.0 / 1.011, 50.0 * 1.011, 100.0):
        assert re.search(r"is sampled at 50 Hz, not at .* Hz: use --frequency 50$", rate_refusal(at(50.0), wrong))
    for nonsense in (0.0, -50.0, float("nan"), float("inf")):
        assert "--frequency must be above 0 and at most 100000 Hz" in rate_refusal(at(50.0), nonsense)
    assert rate_refusal(at(1e13)).endswith("(resample the log)")


def test_a_time_column_that_cannot_be_used_says_why() -> None:
    log = Log(Path("rig.csv"), {"angle": np.zeros(3)}, {"Time": "line 7 holds '1.234,5'"}, None, None)
    assert rate_refusal(log) == ("column 'Time' cannot be used: line 7 holds '1.234,5'; mend it, or give --frequency")
    assert control_rate(log, Pendulum(), 50.0) == 50.0


@pytest.mark.parametrize("missing", ["refuse", "drop", "interpolate"])
def test_a_log_without_any_column_of_the_plant_is_refused(missing: Missing, tmp_path: Path) -> None:
    path = written(tmp_path, "foo,bar\n0,0\n0.02,1\n0.04,2\n")
    (line,) = refusal(path, Pendulum(), missing=missing, frequency=50.0)
    assert "no column is called 'angle' or 'angular velocity' or 'voltage'" in line
    assert "--columns" in line


def pendulum_text(titles: Sequence[str] = NAMES, mark: str = ",", unit: float = 1.0) -> str:
    rows = [f"{0.02 * t:.2f},{unit * 0.1 * np.sin(0.05 * t):.4f},{unit * np.sin(0.05 * t):.4f},1" for t in range(60)]
    return "\n".join([",".join(titles), *rows, ""]).replace(",", mark)


@pytest.mark.parametrize(
    "titles",
    [
        ["time", "angle [DEG]", "angular velocity (Deg/s)", "voltage"],
        ["time", "angle_deg", "angular_velocity_deg_per_s", "voltage"],
        ["time", "angle in degrees", "angular velocity {degrees/sec}", "voltage"],
        ["time", "angle [deg] (filtered)", "angular velocity / dps", "voltage"],
        ["time", "angle [Grad]", "angular velocity [counts]", "voltage"],
    ],
)
def test_no_spelling_of_another_unit_is_read_as_radians(titles: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, pendulum_text(titles))
    refuses("angle", imported, path, Pendulum())
    told = refusal(path, Pendulum(), columns={"angle": titles[1], "angular velocity": titles[2]})
    assert sum("in rad" in line and ("is in" in line or "is not known" in line) for line in told) == 2, told


@pytest.mark.parametrize(
    "rows",
    ["[s],[deg],[deg/s],[V]", "(s),(DEG),(DEG/S),(V)", "s,degrees,deg/sec,Volt", "-,deg,dps,-", "# s,deg,deg/s,V"],
)
@pytest.mark.parametrize("above", [False, True])
def test_a_row_of_units_is_found_above_and_below_the_names(rows: str, above: bool, tmp_path: Path) -> None:
    header, *data = pendulum_text().split("\n")
    lines = [rows, header, *data] if above else [header, "Time stamp,Pole angle,Pole speed,Motor volts", rows, *data]
    told = refusal(written(tmp_path, "\n".join(lines)), Pendulum())
    assert sum(", Pendulum has ang" in line for line in told) == 2, told


@pytest.mark.parametrize("key", [b"unit", b"Units", b"PANDAS_ATTRS", b"units"])
def test_units_in_the_metadata_of_parquet_files_are_used(key: bytes, tmp_path: Path) -> None:
    table = pa.table({name: [0.01 * t for t in range(5)] for name in NAMES})
    about = {name: {b"PANDAS_ATTRS": '{"units": {"angle": "deg"}}', b"units": '{"angle": "deg"}'} for name in ("all",)}
    if key in (b"unit", b"Units"):
        schema = pa.schema([pa.field(n, pa.float64(), metadata={key: b"[deg]"} if n == "angle" else {}) for n in NAMES])
        table = table.cast(schema)
    else:
        table = table.replace_schema_metadata({key: about["all"][key].encode()})
    pq.write_table(table, tmp_path / "log.parquet")
    (told,) = refusal(tmp_path / "log.parquet", Pendulum())
    assert "column 'angle' is in deg, Pendulum has angle in rad" in told


@pytest.mark.parametrize(
    "name", ["done", "Terminals", "timeouts", "is_last", "IsFirst", "run", "trial_id", "Episode ID"]
)
@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet", ".mat"])
def test_usual_columns_of_episodes_cut_a_running_time(name: str, suffix: str, tmp_path: Path) -> None:
    rows = np.arange(60)
    mark = {"is_last": rows % 20 == 19, "isfirst": rows % 20 == 0}.get(name.casefold(), rows % 20 == 19)
    mark = rows // 20 if name in ("run", "trial_id", "Episode ID") else mark
    table = {"time": rows * 1.0, "T": 20 + np.sin(rows), "u": 0.5 + 0 * rows, name: mark * 1.0}
    arrays, summary = imported(table_file(tmp_path / f"log{suffix}", table), Heater())
    assert (arrays["count"].tolist(), summary.episodes) == ([57], 3)
    assert any(repr(name) in note or repr(name.replace(" ", "_")) in note for note in summary.warnings)


def table_file(path: Path, table: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **table)
    elif path.suffix == ".mat":
        savemat(path, {name.replace(" ", "_"): column for name, column in table.items()})
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    else:
        np.savetxt(path, np.stack([*table.values()], 1), "%.9g", ",", header=",".join(table), comments="")
    return path


def test_columns_that_only_look_like_episodes_are_listed_and_a_stated_one_is_used(tmp_path: Path) -> None:
    rows = np.arange(60)
    table = {"time": rows * 1.0, "T": 20 + np.sin(rows), "u": 0.5 + 0 * rows, "phase": rows // 20, "k": rows % 20}
    table |= {"index": rows, "lamp": rows % 20 > 9, "level": 0.5 * (rows // 20)}
    path = table_file(tmp_path / "log.npz", table)
    arrays, summary = imported(path, Heater())
    assert arrays["count"] == 59
    (note,) = (note for note in summary.warnings if note.startswith("unused"))
    assert "'phase', 'k', 'lamp'; if one" in note
    for name in ("phase", "k"):
        assert imported(path, Heater(), {"episode": name})[0]["count"] == 57
    text = written(tmp_path, "time,T,u,run\n0,20,0,A\n1,21,0,A\n2,22,0,B\n3,22,0,B\n")
    assert "column 'run' seems to number the episodes, but line 2 holds 'A'" in refusal(text, Heater())[0]


@pytest.mark.parametrize("value", [1e30, -9999.0, -32768.0, 99999.0, -999.0])
@pytest.mark.parametrize("suffix", [".csv", ".npz", ".mat"])
def test_a_mark_for_missing_numbers_is_no_angle(value: float, suffix: str, tmp_path: Path) -> None:
    time = 0.02 * np.arange(60)
    angle = 40 * np.sin(time)  # several turns, not wrapped
    table = {"time": time, "angle": angle, "angular_velocity": 40 * np.cos(time) / 10, "voltage": 0 * time}
    assert imported(table_file(tmp_path / f"log{suffix}", table), Pendulum())[0]["count"] == 59
    table["angle"] = np.where(np.arange(60) // 3 == 7, value, angle)
    path = table_file(tmp_path / f"marked{suffix}", table)
    (told,) = refusal(path, Pendulum())
    assert "(3 such rows)" in told
    assert "--na" in told
    assert imported(path, Pendulum(), missing="drop", empty=(f"{value:g}",))[0]["count"] == 59 - 4


@pytest.mark.parametrize("between", ["\n", "\n\n", ",,\n", "k,T,u\n", " \n"])
def test_blocks_are_episodes(between: str, tmp_path: Path) -> None:
    block = "".join(f"{t},{20 + t},0.5\n" for t in range(5))
    path = written(tmp_path, f"k,T,u\n{block}{between}{block}{between}{block}")
    arrays, summary = imported(path, Heater(), frequency=1.0)
    assert (arrays["count"].tolist(), summary.episodes) == ([12], 3)
    spaced = written(tmp_path, "k,T,u\n\n" + block.replace("\n", "\n\n"))
    assert imported(spaced, Heater(), frequency=1.0)[0]["count"] == 4


@pytest.mark.parametrize(
    ("stamp", "form"),
    [
        ("{s}.{ms}", None),
        ("2024-03-31 01:59:{s:02}.{ms}", None),
        ("31.03.2024 01:59:{s:02}.{ms}", None),
        ("01:59:{s:02}.{ms}", "%H:%M:%S.%f"),
        ("2024-03-31T01:59:{s:02}.{ms}Z", None),
    ],
)
@pytest.mark.parametrize("step", [20, 33, 5])
def test_fractions_without_leading_zeros_are_refused(stamp: str, form: str | None, step: int, tmp_path: Path) -> None:
    times = [divmod(step * k, 1000) for k in range(200)]
    rows = [f"{stamp.format(s=s, ms=ms)},{k / 100},0,1" for k, (s, ms) in enumerate(times)]
    told = refusal(written(tmp_path, "\n".join([",".join(NAMES), *rows])), Pendulum(), date_format=form)
    assert "its fractions lack leading zeros" in told[0]
    if step != 33:  # Pendulum has no such rate
        stamp = stamp.replace("{ms}", "{ms:03}")
        padded = [f"{stamp.format(s=s, ms=ms)},{k / 100},0,1" for k, (s, ms) in enumerate(times)]
        path = written(tmp_path, "\n".join([",".join(NAMES), *padded]))
        assert imported(path, Pendulum(), date_format=form)[0]["count"] == 199


@pytest.mark.parametrize("head", ["Operator,Jane,,\nRate,50,,\n" * 150, "rig: 3\n" * 600, "Operator Jane\n" * 20])
@pytest.mark.parametrize("titles", [NAMES, ("time\n[s]", '"angle\n[rad]"', '"angular velocity\n[rad/s]"', "voltage")])
@pytest.mark.parametrize("mark", [",", "|", ";"])
def test_long_heads_and_line_breaks_in_titles_are_read(
    head: str, titles: Sequence[str], mark: str, tmp_path: Path
) -> None:
    titles = ('"time\n[s]"', *titles[1:]) if "\n" in titles[0] else titles
    text = head.replace(",", mark) + pendulum_text(titles, mark)
    assert imported(written(tmp_path, text), Pendulum())[0]["count"] == 59


def test_cells_that_spaces_part_are_read(tmp_path: Path) -> None:
    columns = ("time", "angle", "angular_velocity", "voltage")
    for titles in (columns, ("#", *columns)):
        text = pendulum_text(columns, "   ").replace("   ".join(columns), " ".join(titles))
        assert imported(written(tmp_path, text), Pendulum())[0]["count"] == 59
