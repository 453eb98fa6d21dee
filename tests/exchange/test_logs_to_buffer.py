"""A recording becomes a buffer: the steps, the units, the rewards, and what is refused or warned of."""

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy.integrate import solve_ivp
from scipy.io import savemat

import replaybench
from replaybench.data.logs.log import Log, read_log
from replaybench.data.record import read_record, write_record
from replaybench.envs.interface.channel import Channel
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.interface.signals import wrap
from replaybench.envs.ode.magman import TRACK_HIGH, Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.rk4 import simulate
from replaybench.envs.ode.servo import Servo
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant
from replaybench.exchange.log_columns import Missing, parse_columns
from replaybench.exchange.logs_to_buffer import convert
from replaybench.exchange.recording import action_dimensions, summary_table, warnings_about
from replaybench.replay.storage.schema import open_buffer
from replaybench.reports.inspection.composition import Visits, plant_axes
from tests.helpers.refusals import refuses

Table = dict[str, NDArray[np.float64]]


def pendulum_table(rows: int = 120, frequency: float = 50.0, seed: int = 0) -> Table:
    """Return a noise-free pendulum recording under random voltages, columns named like the plant's."""
    rng, plant = np.random.default_rng(seed), Pendulum()
    state, voltage = np.zeros((rows, 2)), np.repeat(rng.uniform(-3, 3, rows // 10 + 1), 10)[:rows]
    for t in range(rows - 1):
        state[t + 1] = simulate(plant, state[t], voltage[t : t + 1], 1 / frequency)[0]
    return {
        "time": np.arange(rows) / frequency,
        "angle": state[:, 0],
        "angular_velocity": state[:, 1],
        "voltage": voltage,
    }


def log_of(table: Table, time: bool = True) -> Log:
    return Log(Path("rig.npz"), table, {}, table["time"] if time else None, None)


class Observed(Pendulum):
    observed = ("angle",)


def test_a_buffer_holds_what_a_study_would_observe(tmp_path: Path) -> None:
    """Rewards and terminations are still computed from the whole state."""
    path = tmp_path / "rig.h5"
    whole, _, _ = convert(log_of(pendulum_table()), Pendulum())
    arrays, facts, _ = convert(log_of(pendulum_table()), Observed())
    for name, array in arrays.items():
        columns = slice(0, 1 if name.endswith("observation") else None)
        np.testing.assert_array_equal(array, whole[name][..., columns])
    write_record(path, "buffer", facts, arrays)
    with open_buffer(path) as file:
        assert file.facts.observe == ("angle",)
        assert file.facts.fields["observation"] == 1


def test_the_buffer_file_holds_the_recorded_steps(tmp_path: Path) -> None:
    table, plant = pendulum_table(), Pendulum(damping=4e-6)
    arrays, facts, summary = convert(log_of(table), plant)
    write_record(tmp_path / "rig.h5", "buffer", facts, arrays)
    refuses("which no learner can continue; replay it offline$", replaybench.load_replay, tmp_path / "rig.h5")
    header, stored = read_record(tmp_path / "rig.h5", "buffer")

    fields = {"observation": 2, "action": 1, "reward": 1, "next_observation": 2, "terminated": 1}
    assert {name: (array.shape, array.dtype.str) for name, array in stored.items()} == {
        **{name: ((1, 119, width), "<f4") for name, width in fields.items()},
        **dict.fromkeys(("serial", "episode", "step"), ((1, 119), "<u4")),
        **dict.fromkeys(("offers", "collected", "count"), ((1,), "<i8")),
    }
    assert stored["serial"][0].tolist() == list(range(1, 120))
    assert stored["step"][0].tolist() == list(range(119))
    assert stored["offers"] == stored["collected"] == stored["count"] == 119
    assert not stored["terminated"].any()
    state = np.stack([table["angle"], table["angular_velocity"]], axis=1)
    np.testing.assert_allclose(plant.denormalise_state(stored["observation"][0]), state[:-1], atol=1e-5)
    np.testing.assert_allclose(plant.denormalise_state(stored["next_observation"][0]), state[1:], atol=1e-5)
    np.testing.assert_allclose(plant.denormalise_action(stored["action"][0, :, 0]), table["voltage"][:-1], atol=1e-6)
    assert header.facts == {
        "source": "import",
        "plant": "Pendulum",
        "parameters": {field.name: getattr(plant, field.name) for field in dataclasses.fields(plant)},
        "plant_fingerprint": plant.fingerprint(),
        "frequency": 50.0,
        "noise": None,
        "strategy": None,
        "log": "rig.npz",
        "fields": fields,
        "columns": {"angle": "angle", "angular velocity": "angular_velocity", "voltage": "voltage"},
        **plant.described_signals(),
        "observe": [],
        "version": replaybench.__version__,
    }
    assert (summary.rows, summary.transitions, summary.episodes, summary.inferred) == (120, 119, 1, True)
    assert summary.seconds == pytest.approx(119 / 50)


@pytest.mark.parametrize("plant", [Pendulum(), PendulumDCSC(inertia=5e-4), Magman()], ids=lambda plant: plant.name)
def test_computed_rewards_are_the_plants(plant: OdePlant) -> None:
    """The reward kernel of the plants on the same steps is the oracle, on walls and angles that wrap."""
    rng, size = np.random.default_rng(3), len(plant.state_names)
    x = plant.denormalise_state(rng.uniform(-0.6, 0.6, size))
    table: Table = {"time": 0.02 * np.arange(200, dtype=np.float64)}
    u = plant.denormalise_action(rng.uniform(-1, 1, (200, len(plant.action_names))))
    rows, rewards = [x], []
    for t in range(199):
        x, reward, _ = simulate(plant, x, u[t], 0.02)
        rows.append(x)
        rewards.append(float(reward))
    states = np.array(rows)
    table |= {name: states[:, i] for i, name in enumerate(plant.state_names)}
    table |= {name: u[:, i] for i, name in enumerate(plant.action_names)}
    arrays, _, summary = convert(log_of(table), plant)
    computed = arrays["reward"][0, :, 0]
    if isinstance(plant, Magman):  # a log does not tell of collisions, which cost 1
        hits = np.isclose(computed - rewards, 1.0, atol=1e-5)
        assert 0 < hits.sum() < 40
        computed = computed - hits
    np.testing.assert_allclose(computed, rewards, rtol=1e-6)
    assert summary.mean_reward == pytest.approx(arrays["reward"].mean(), rel=1e-5)
    assert all(each.mismatch is not None and each.mismatch < 1e-9 for each in summary.states)


def test_a_recording_of_an_independent_integrator_fits_the_model() -> None:
    plant, u = PendulumDCSC(), np.array([2.0])
    times = np.arange(100) / 100.0
    solution = solve_ivp(lambda _, x: plant.rhs(x, u, plant.params()), (0, 1), [3.0, 5.0], t_eval=times, rtol=1e-10)
    angle, velocity = solution.y
    assert angle.max() > math.pi  # so that the encoder's angle is wrapped
    table = {"time": times, "angle": angle, "angular velocity": velocity, "voltage": np.full(100, 2.0)}
    arrays, _, summary = convert(log_of(table), plant)
    recorded = plant.denormalise_state(arrays["observation"][0])
    np.testing.assert_allclose(np.cos(recorded[:, 0]), np.cos(angle[:-1]), atol=1e-5)
    assert np.abs(recorded[:, 0]).max() <= math.pi + 1e-6
    assert all(each.mismatch and each.moved and each.mismatch < 1e-3 * each.moved for each in summary.states)
    assert not [warning for warning in summary.warnings if "model" in warning]


def test_no_step_crosses_a_gap() -> None:
    table = pendulum_table(100)
    keep = np.r_[0:30, 33:34, 40:100]  # two gaps around a lonely row
    gapped = {name: column[keep] for name, column in table.items()}
    arrays, _, summary = convert(log_of(gapped), Pendulum(), frequency=50.0)
    whole, _, _ = convert(log_of(table), Pendulum())
    steps = np.r_[0:29, 40:99]
    for name in ("observation", "action", "reward", "next_observation"):
        np.testing.assert_array_equal(arrays[name], whole[name][:, steps])
    assert arrays["episode"][0].tolist() == [0] * 29 + [1] * 59
    assert (summary.transitions, summary.episodes, summary.rows) == (88, 2, 91)
    told = "gaps in time (missing rows) split the log 2 times, first at index 30: cut"
    assert [line for line in summary.warnings if "gaps" in line] == [told]


def test_a_log_without_a_whole_step_is_refused() -> None:
    for time in (False, True):
        log = log_of(pendulum_table(1), time)
        refuses(r"rig.npz: the log has 1 row of data; a step takes two", convert, log, Pendulum(), frequency=50.0)
    table = pendulum_table()
    table["angle"][::2] = np.nan
    refuses("no two whole rows after each other", convert, log_of(table), Pendulum(), frequency=50.0, missing="drop")


def test_what_the_last_row_of_an_episode_lacks_is_not_missed() -> None:
    table = pendulum_table(50)
    table["voltage"][-1] = math.nan
    assert convert(log_of(table), Pendulum())[2].transitions == 49
    table["voltage"][20] = math.nan
    refuses(r"'voltage' is not a number at index 20 \(1 such row\)", convert, log_of(table), Pendulum())
    table = pendulum_table(50)
    table["angle"][-1] = math.inf
    refuses(r"'angle' is inf at index 49", convert, log_of(table), Pendulum())


def test_recorded_rewards_and_ends_are_kept() -> None:
    table = pendulum_table(50)
    table |= {"Reward": np.arange(50.0), "done": np.isin(np.arange(50), (9, 30, 49)).astype(float)}
    arrays, facts, summary = convert(log_of(table), Pendulum(), {"terminated": "done"})
    steps = [t for t in range(49) if t not in (10, 31)]  # rows 10 and 31 hold the states in which episodes ended
    assert arrays["reward"][0, :, 0].tolist() == steps
    assert np.flatnonzero(arrays["terminated"][0, :, 0]).tolist() == [steps.index(9), steps.index(30)]
    assert arrays["episode"][0].tolist() == [0] * 10 + [1] * 20 + [2] * 17
    assert facts["columns"]["reward"] == "Reward"
    assert summary.reward_from == "Reward"
    assert "1 terminated steps lack the state in which they ended: left out" in summary.warnings


class _EndsHigh(Pendulum):
    name = "EndsHigh"

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return bool(x_next[1] > 1.0)


def test_a_plants_own_end_splits_episodes() -> None:
    table = pendulum_table(60) | {"angular_velocity": np.tile(np.linspace(0.0, 1.2, 6), 10)}
    arrays, _, summary = convert(log_of(table), _EndsHigh())
    assert summary.episodes == 10
    assert arrays["terminated"][0, :, 0].tolist() == [0, 0, 0, 0, 1] * 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"time": t["time"] / 2}, r"sampled at 100 Hz, not at 50 Hz: use --frequency 100"),
        (
            lambda t: t | {"angular_velocity": np.rad2deg(t["angular_velocity"])},
            r"angular velocity is \S+ in column 'angular_velocity' at index \d+ \(\d+ such rows\), "
            r"beyond -84.42 … 84.42 rad/s: is the column in rad/s, not in .* deg or the like",
        ),
        (lambda t: t | {"voltage": 1e3 * t["voltage"]}, r"beyond -3 … 3 V: .*Give it in V, or --clip-a"),
        (
            lambda t: {name: t[name] for name in ("time", "angle", "voltage")},
            r"no column is called 'angular velocity', .*; name it with --columns 'angular velocity=COLUMN' "
            r"\(the log has: time, angle, voltage\)",
        ),
        (
            lambda t: {
                name: 5 + column
                for name, column in zip(("time", "w", "Angular-Velocity [deg/s]", "VOLT (V)"), t.values(), strict=True)
            },
            r"(?s)3 problems:.* is in deg/s, Pendulum has angular velocity in rad/s; .*'angle' or 'voltage', which "
            r"Pendulum needs; name them with --columns 'angle=COLUMN' 'voltage=VOLT \(V\)'.* beyond -3 … 3 V",
        ),
    ],
    ids=["rate", "degrees", "millivolt", "missing", "units"],
)
def test_what_cannot_be_the_plant_is_refused(change: Callable[[Table], Table], message: str) -> None:
    refuses(message, convert, log_of(change(pendulum_table(300))), Pendulum(), frequency=50.0)


def test_actions_beyond_their_bounds_are_refused_and_rounding_at_a_bound_is_no_fault() -> None:
    plant = Magman()
    table: Table = {"time": np.arange(9) / 50.0, "position": np.zeros(9), "velocity": np.zeros(9)}
    table |= {name: np.full(9, 0.3) for name in plant.action_names}
    table["current 3 squared"] = np.r_[0.0, 0.0, np.full(7, 350.0)]
    message = "current 3 squared is 350 in column 'current 3 squared' at index 2 (6 such rows), beyond 0 … 0.6 A²"
    refuses(re.escape(message), convert, log_of(table), plant)
    arrays, _, summary = convert(log_of(table), plant, clip_actions=True)
    assert arrays["action"][0, :, 2].tolist() == [-1.0, -1.0] + [1.0] * 6
    assert "6 actions were clipped to the plant's bounds" in summary.warnings

    table = pendulum_table(30)
    table["voltage"] = np.full(30, 3.0 + 2e-6)
    assert (convert(log_of(table), Pendulum())[0]["action"] == 1.0).all()
    table["voltage"] += 2e-6
    refuses("voltage is 3 in column", convert, log_of(table), Pendulum())


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("angle", np.rad2deg),
        ("angular_velocity", lambda values: np.r_[values[8:], np.zeros(8)]),  # as if actions came later
    ],
)
def test_wrong_units_and_late_actions_show_as_a_model_error(name: str, spoilt: Callable[[Any], Any]) -> None:
    table = pendulum_table(200)
    assert not any("model" in line for line in convert(log_of(table), Pendulum())[2].warnings)
    table[name] = spoilt(table[name])
    warning = rf"the plant's model misses {name.replace('_', ' ')} by \S+ \S+ per step, where the"
    assert any(re.match(warning, line) for line in convert(log_of(table), Pendulum())[2].warnings)


def servo_table(**channel: Any) -> Table:
    """Return a recording of a servo that follows set points through a channel at 100 Hz, 1,000 rows in 5 episodes."""
    rig = PopulationEnv("Servo", frequency=100, channel=Channel(**channel), seed=1)
    rows, rng = [], np.random.default_rng(1)
    for step in range(1000):
        if step % 200 == 0:
            observation = rig.reset()[0]
        angle, velocity, target = rig.plant.denormalise_state(observation)[0]
        voltage = np.clip(target - angle + rng.normal(0, 0.5), -3, 3)
        rows.append([step // 200, step / 100, angle, velocity, target, voltage])
        observation = rig.step([[voltage / 3]])[0]
    names = ("episode", "time", "angle", "angular velocity", "set point", "voltage")
    return dict(zip(names, np.array(rows).T, strict=True))


def test_set_points_jump_and_do_not_hide_a_delay() -> None:
    table = servo_table(delay=0.02)
    warnings = convert(log_of(table), Servo())[2].warnings
    assert any("equations fit a delay of 0.02 s better" in line for line in warnings)
    assert not any("misses set point" in line for line in warnings)
    assert not any("misses" in line for line in convert(log_of(table), Servo(), delay=0.02)[2].warnings)


@pytest.mark.parametrize("by_differences", [True, False])
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.008, 0.01, 0.012, 0.014])
def test_the_offered_delay_is_the_nearest_whole_number_of_periods(delay: float, by_differences: bool) -> None:
    """A velocity by differences is half a period old, which must not count as a part of the delay."""
    encoder = {"resolution": {"angle": 2 * math.pi / 1024}, "differentiate": ("angular velocity",)}
    table = servo_table(delay=delay, **(encoder if by_differences else {}))
    nearest = round(delay * 100) / 100
    warnings = convert(log_of(table), Servo())[2].warnings
    assert any(f"equations fit a delay of {nearest:g} s better" in line for line in warnings) == (nearest > 0)
    assert any("half a control period off" in line for line in warnings) == by_differences
    warnings = convert(log_of(table), Servo(), delay=nearest)[2].warnings
    assert not any("better, and miss" in line or ("misses" in line and delay == nearest) for line in warnings)
    estimate = [float(found[1]) for line in warnings if (found := re.search(r"about (\S+) s", line))]
    assert estimate == pytest.approx([delay] * len(estimate), abs=0.0015)
    assert by_differences or bool(estimate) == (delay != nearest)


def test_a_wrong_sign_is_no_delay() -> None:
    encoder = {"resolution": {"angle": 2 * math.pi / 1024}, "differentiate": ("angular velocity",)}
    table = servo_table(delay=0.01, **encoder)
    for name, flipped in (("voltage", table | {"voltage": -table["voltage"]}), ("angle", table)):
        if name == "angle":  # a velocity that is measured, with the right sign
            table = servo_table(delay=0.01)
            flipped = table | {"angle": -table["angle"]}
        warnings = convert(log_of(flipped), Servo())[2].warnings
        assert not any("better" in line for line in warnings)
        (told,) = (line for line in warnings if "flipped" in line)
        assert re.search(rf"with the sign of {name} flipped and a delay of 0.01 s: check the signs", told)
        assert ("worse than no change" in told) == (name == "voltage")
    warnings = convert(log_of(servo_table()), Servo(inertia=2e-6))[2].warnings
    assert any(re.search("worse than no change .*: check the signs, then the units and", line) for line in warnings)
    assert not any("better" in line or "flipped" in line for line in warnings)


def test_late_actions_are_shifted_to_the_steps_in_which_they_act() -> None:
    table = pendulum_table(200) | {"episode": np.repeat([0.0, 1.0], 100)}
    acting = table["voltage"].copy()
    table["voltage"] = np.r_[acting[2:], acting[:2]]  # each recorded two steps before it acts
    arrays, _, summary = convert(log_of(table), Pendulum(), delay=0.04)
    assert not any("model" in line or "equations" in line for line in summary.warnings)
    assert "4 steps lack the action that acts in them, because of the delay: left out" in summary.warnings
    expected = np.r_[acting[2:99], acting[102:199]]
    np.testing.assert_allclose(arrays["action"].reshape(-1)[:194], expected / 3, rtol=1e-6)
    plant, observed = Pendulum(), arrays["observation"].reshape(-1, 2)[:194]
    _, reward, _ = simulate(plant, plant.denormalise_state(observed), expected[:, None], 0.02)
    np.testing.assert_allclose(arrays["reward"].reshape(-1)[:194], reward, rtol=1e-4)
    warnings = convert(log_of(table), Pendulum(), delay=0.02)[2].warnings
    assert any("equations fit a delay of 0.04 s better" in line for line in warnings)
    refuses(
        "--delay 0.03 is no multiple of the control period of 0.02 s; use 0.02 or 0.04",
        convert,
        log_of(table),
        Pendulum(),
        delay=0.03,
    )
    refuses("a delay of 1.92 s leaves 6 steps; lower --delay", convert, log_of(table), Pendulum(), delay=1.92)
    refuses("--delay 5 is no shorter than an episode of Servo, 4 s", convert, log_of(servo_table()), Servo(), delay=5.0)


def test_columns_are_matched_by_name_or_as_stated() -> None:
    table = pendulum_table(30)
    renamed = {"time": table["time"], "ANGLE": table["angle"], "w": table["angular_velocity"], "U": table["voltage"]}
    for stated in (["Angular_Velocity=w", "voltage=U"], ["angular velocity=W", "voltage=u"]):
        _, facts, _ = convert(log_of(renamed), Pendulum(), parse_columns(stated))
        assert facts["columns"] == {"angle": "ANGLE", "angular velocity": "w", "voltage": "U"}
    refuses("unknown state or action 'angel'; did you mean angle", convert, log_of(renamed), Pendulum(), {"angel": "w"})
    refuses("unknown column 'ANGEL'; did you mean ANGLE", convert, log_of(renamed), Pendulum(), {"angle": "ANGEL"})
    refuses("--columns takes NAME=COLUMN, as in angle=theta, not 'angle'", parse_columns, ["angle"])
    refuses("--columns gives 'angle' twice", parse_columns, ["angle=a", "angle=b"])
    text = Log(Path("x.csv"), table, {"angle": "it is text"}, table["time"], None)
    refuses("'angle' cannot be used: it is text", convert, text, Pendulum(), {"angle": "angle"})


def test_a_column_means_one_signal_and_a_signal_one_column() -> None:
    table = pendulum_table(30)
    twice = log_of({"ANGLE": table["voltage"], **table, "Angle": table["voltage"]})
    assert convert(twice, Pendulum())[1]["columns"]["angle"] == "angle"
    alike = log_of({name: twice.columns[name] for name in twice.columns if name != "angle"} | {"time": table["time"]})
    refuses("'ANGLE' and 'Angle' may each be angle; choose one .* 'angle=ANGLE'", convert, alike, Pendulum())
    assert convert(alike, Pendulum(), {"angle": "Angle"})[1]["columns"]["angle"] == "Angle"
    refuses("--columns names angle twice", convert, log_of(table), Pendulum(), {"angle": "voltage", "ANGLE": "angle"})
    plant: Any = type("Twice", (PendulumDCSC,), {"state_names": ("angle", "angle")})
    refuses("has two signals called 'angle'", convert, log_of(table), dataclass(frozen=True, kw_only=True)(plant)())


def test_without_times_the_frequency_must_be_given() -> None:
    plain = {name: column for name, column in pendulum_table(30).items() if name != "time"}
    log, titled = (log_of(plain | more, time=False) for more in ({}, {"Time [s]": np.arange(30.0)}))
    refuses(r"called time; name it with --time 'Time \[s\]', if that is in s, or give", convert, titled, Pendulum())
    refuses("no column is called time; name it with --time, or give --frequency", convert, log, Pendulum())
    _, facts, summary = convert(log, Pendulum(), frequency=50.0)
    assert (facts["frequency"], summary.inferred, summary.episodes) == (50.0, False, 1)


def test_irregular_sampling_is_warned_of() -> None:
    table = pendulum_table(200)
    table["time"] = table["time"] + 0.004 * (np.arange(200) % 2)
    warnings = convert(log_of(table), Pendulum())[2].warnings
    assert any(line.startswith("100% of the sample times are over 10% off the period (worst 20") for line in warnings)


def test_coverage_counts_bins_and_names_what_is_missing() -> None:
    """Of angles over the upper half turn, velocities in the middle of the grid ±15, and zero or full voltage."""
    row = np.arange(2000.0)
    table = {"time": row / 50, "angle": np.linspace(0.0, math.pi - 1e-3, 2000), "angular velocity": 1.5 * np.sin(row)}
    table["voltage"] = 3.0 * (row % 2)
    summary = convert(log_of(table), Pendulum())[2]
    states = {each.name: each for each in summary.states}
    assert states["angle"].visited == pytest.approx(11 / 21)
    (unvisited,) = states["angle"].unvisited
    assert unvisited == pytest.approx((-math.pi, -math.pi / 21))
    assert states["angular velocity"].visited == pytest.approx(3 / 21)
    assert states["angular velocity"].gaps() == "-15 … -2.14, 2.14 … 15"
    assert summary.plane == pytest.approx(33 / 441)
    (action,) = summary.actions
    assert action.visited == pytest.approx(2 / 11)
    assert action.gaps() == "-3 … -0.273, 0.273 … 2.45"
    told = "93% of the plane of angle and angular velocity; angle -3.14 … -0.15 rad; angular velocity -15 … -2.14, 2."
    assert any("never visit some states" in line and told in line for line in summary.warnings)
    assert any("voltage has only 2 value(s) in the data (0, 3 V)" in line for line in summary.warnings)
    table["voltage"] = np.linspace(0.0, 2.0, 2000)
    warnings = convert(log_of(table), Pendulum())[2].warnings
    assert any("never try some actions" in line and "voltage -3 … -0.273" in line for line in warnings)


@pytest.mark.parametrize("low", [-math.pi, 0.0, -5.0])
def test_angles_are_counted_wherever_their_turn_begins(low: float) -> None:
    class Turned(Pendulum):
        name = "Turned"
        grid_low, grid_high = (low, -15.0), (low + 2 * math.pi, 15.0)

    angle = np.linspace(-math.pi, math.pi, 200, endpoint=False)
    table: Table = {"time": np.arange(200) / 50.0, "angle": angle, "angular velocity": np.zeros(200)}
    table["voltage"] = np.zeros(200)
    summary = convert(log_of(table), Turned())[2]
    assert summary.states[0].visited == 1.0
    assert summary.plane == pytest.approx(1 / 21)
    half = {name: column[100:] for name, column in table.items()}
    assert convert(log_of(half), Turned())[2].states[0].visited == pytest.approx(0.5, abs=0.1)
    visits = Visits(plant_axes(Turned()) or [])
    visits.add(Turned().normalise_state(np.stack([angle, np.zeros(200)], axis=1)).astype(np.float32))
    assert visits.dimensions()[0].visited == 1.0
    assert not visits.outside.any()


def test_choices_are_counted_one_by_one() -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    (both,) = action_dimensions(plant, np.array([[0.0], [1.0], [0.0]]))
    assert (both.visited, both.levels) == (1.0, ())
    assert not list(warnings_about((), (both,), None))
    (left,) = action_dimensions(plant, np.zeros((3, 1)))
    assert left.visited == 0.5
    assert len(list(warnings_about((), (left,), None))) == 1


def test_the_example_recording_imports_and_its_summary_prints() -> None:
    log = read_log(Path(replaybench.__file__).parent / "examples" / "rig_log.csv")
    _, _, summary = convert(log, Pendulum(), {"angular velocity": "velocity"})
    assert not any("model" in line for line in summary.warnings)
    console = Console(width=120, force_terminal=False)
    with console.capture() as printed:
        console.print(summary_table(summary))
    text = printed.get()
    assert "rig_log.csv → Pendulum: 1000 rows, 998 transitions in 2 episodes, 19.96 s at 50 Hz (from the" in text
    assert re.search(r"│ angular velocity │ rad/s │ +-9\.8\d+ │ +9\.8\d+ │", text)
    assert "computed by the plant" in text


def test_wrapping_keeps_the_angle_and_its_range() -> None:
    ends = [math.nextafter(math.pi, 0.0), math.nextafter(-math.pi, -4.0), math.pi, -math.pi]
    angles = np.r_[ends, np.random.default_rng(0).uniform(-1e6, 1e6, 200)]
    wrapped = wrap(angles)
    assert (-math.pi <= wrapped).all()
    assert (wrapped < math.pi).all()
    np.testing.assert_allclose(np.cos(wrapped - angles), 1.0, atol=1e-9)


def holed() -> Table:
    """A recording with empty cells: a state's in rows 10 and 11, another's in row 0, an action's in row 40."""
    table = pendulum_table()
    table["angle"][[10, 11]] = table["angular_velocity"][0] = table["voltage"][40] = np.nan
    return table


@pytest.mark.parametrize("time", [True, False])
def test_steps_with_empty_cells_are_left_out(time: bool) -> None:
    refuses("or give --missing drop or interpolate", convert, log_of(holed(), time), Pendulum(), frequency=50.0)
    whole, *_ = convert(log_of(pendulum_table()), Pendulum(), frequency=50.0)
    arrays, _, summary = convert(log_of(holed(), time), Pendulum(), frequency=50.0, missing="drop")
    kept = [step for step in range(119) if step not in (0, 9, 10, 11, 40)]
    for name in ("observation", "action", "next_observation", "reward"):
        np.testing.assert_array_equal(arrays[name], whole[name][:, kept])
    assert summary.episodes == 3
    assert "5 steps have empty cells: left out" in summary.warnings[0]


@pytest.mark.parametrize("missing", ["drop", "interpolate"])
def test_rows_without_a_time_are_left_out(missing: Missing, tmp_path: Path) -> None:
    table = pendulum_table()
    whole, *_ = convert(log_of(table), Pendulum())
    table["time"][[0, 10]] = np.nan
    savemat(tmp_path / "rig.mat", table)
    log = read_log(tmp_path / "rig.mat", timed_only=True)
    arrays, _, summary = convert(log, Pendulum(), missing=missing)
    kept = [step for step in range(119) if step not in (0, 9, 10)]
    np.testing.assert_array_equal(arrays["observation"], whole["observation"][:, kept])
    assert (summary.episodes, summary.warnings[0]) == (2, "2 rows have no time: left out")
    assert log.where(9) == "index 11"


def test_empty_cells_are_filled() -> None:
    """States on a line, angles the short way round, actions by the last; what comes before the first is left out."""
    table = holed()
    table["angle"][9], table["angle"][12] = 3.0, -3.0
    arrays, _, summary = convert(log_of(table), Pendulum(), frequency=50.0, missing="interpolate")
    assert arrays["count"] == [118]
    third = (2 * np.pi - 6.0) / 3
    expected = wrap(np.array(3.0 + third * np.arange(4), np.float64)) / np.pi
    np.testing.assert_allclose(arrays["observation"][0, 8:12, 0], expected, rtol=1e-5)
    assert arrays["action"][0, 39] == arrays["action"][0, 38]
    assert "3 empty cells were filled, 2 in a row at most" in summary.warnings[0]
    assert "1 steps have empty cells: left out" in summary.warnings[1]


def test_nothing_is_filled_across_a_gap_or_the_end_of_an_episode() -> None:
    """Neither has a known neighbour in its own episode, so the steps that need one are left out."""
    table = pendulum_table()
    table["time"][60:] += 1.0
    table["angular_velocity"][60] = table["voltage"][60] = np.nan
    table["terminated"] = np.zeros(120)
    table["terminated"][30] = 1
    table["angular_velocity"][31] = np.nan
    arrays, _, summary = convert(log_of(table), Pendulum(), missing="interpolate")
    whole = np.setdiff1d(np.arange(119), [29 + 1, 31, 59, 60])
    np.testing.assert_allclose(arrays["action"][0, :, 0] * 3.0, table["voltage"][whole], rtol=1e-6)
    assert not any("filled" in note for note in summary.warnings)
    lost = pendulum_table() | {"terminated": (np.arange(120) == 30).astype(float)}
    lost["voltage"][30] = np.nan  # the step that ends the episode is left out, and none leads over it
    arrays, _, _ = convert(log_of(lost), Pendulum(), missing="drop", frequency=50.0)
    kept = np.setdiff1d(np.arange(119), [30, 31])
    np.testing.assert_allclose(arrays["action"][0, :, 0] * 3.0, lost["voltage"][kept], rtol=1e-6)


def test_ends_that_stay_up_and_numbers_too_large_are_reported() -> None:
    table = pendulum_table() | {"terminated": np.zeros(120)}
    table["terminated"][[20, 21, 50]] = 1
    summary = convert(log_of(table), Pendulum(), frequency=50.0)[2]
    assert any(note.startswith("1 steps end an episode directly after another such step") for note in summary.warnings)
    table["reward"] = np.where(np.arange(120) == 7, 1e300, 0.0)
    refuses("^reward of step 8 is beyond what float32 holds", convert, log_of(table), Pendulum(), frequency=50.0)


def test_a_plant_without_equations_takes_a_log_that_tells_its_rewards() -> None:
    plant = make_plant("gymnasium:Pendulum-v1")
    table = {name: np.linspace(-1.0, 1.0, 120) for name in (*plant.state_names, *plant.action_names)}
    table |= {"time": np.arange(120) / 20}
    refuses("to compute rewards with; name the log's with --columns", convert, log_of(table), plant)
    arrays, _, summary = convert(log_of({**table, "reward": -np.ones(120)}), plant)
    assert (arrays["reward"] == -1).all()
    np.testing.assert_allclose(plant.denormalise_action(arrays["action"][0, :, 0]), table["action 0"][:-1], rtol=1e-6)
    assert not arrays["terminated"].any()
    assert any("is not checked" in warning for warning in summary.warnings)
    assert any("no step counts as an end" in warning for warning in summary.warnings)
    assert all(state.mismatch is None for state in summary.states)


@pytest.mark.parametrize("time", ["runs on", "begins anew", "is not there"])
def test_a_column_that_numbers_episodes_cuts_them(time: str) -> None:
    table = pendulum_table(rows=60)
    table["Episode"] = np.repeat([3.0, 4.0, 3.0], 20)
    if time == "begins anew":
        table["time"] = np.tile(table["time"][:20], 3)
    arrays, facts, summary = convert(log_of(table, time != "is not there"), Pendulum(), frequency=50.0)
    assert (summary.episodes, summary.transitions) == (3, 57)
    assert arrays["episode"][0].tolist() == np.repeat([0, 1, 2], 19).tolist()
    found = Pendulum().denormalise_state(arrays["next_observation"][0])
    np.testing.assert_allclose(found[18, 1], table["angular_velocity"][19], rtol=1e-6)
    np.testing.assert_allclose(found[19, 1], table["angular_velocity"][21], rtol=1e-6)
    assert facts["columns"]["episode"] == "Episode"


def test_events_that_no_log_tells_of_are_told() -> None:
    """A ball that runs into the wall costs as if it had not, unless the log has rewards."""
    plant = Magman()
    state = np.array([[0.02, 0.0], [TRACK_HIGH - 1e-4, 0.3], [TRACK_HIGH - 1e-3, -0.01], [0.03, 0.0]])
    table = {"time": np.arange(4) / 50, "position": state[:, 0], "velocity": state[:, 1]}
    table |= {name: np.zeros(4) for name in plant.action_names}
    told = "in 1 steps the plant's model has an event between samples"
    assert any(told in each and "(reward and terminated)" in each for each in convert(log_of(table), plant)[2].warnings)
    whole = table | {"reward": np.zeros(4), "terminated": np.zeros(4)}
    assert not any(told in each for each in convert(log_of(whole), plant)[2].warnings)
