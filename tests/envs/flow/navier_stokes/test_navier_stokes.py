"""The drafting task in the Navier–Stokes flow, on the coarsest grid."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from replaybench.envs.flow.navier_stokes.engine import PHASES, NavierStokes, Wake, developed_wake
from replaybench.envs.flow.navier_stokes.solver import Grid
from replaybench.envs.flow.plant import LEFT, Drafting
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.errors import UserError

PLANT = Drafting(fidelity="navier-stokes", cells=8)
QUICK = 10.0  # actions per T: an action is then four time steps


def population(members: list[int], **settings: Any) -> PopulationEnv:
    return PopulationEnv(PLANT, len(members), members=members, frequency=QUICK, seed=3, **settings)


def actions(steps: int, members: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(1)).uniform(-1, 1, (steps, members, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def wake() -> Wake:
    return developed_wake(Grid(8))


def test_the_wake_sheds_periodically(wake: Wake) -> None:
    """At 16 cells per D and in a wider box St is 0.204 and Cd 2.27; a coarse grid and near walls are forgiven a lot."""
    assert 0.19 < 1.0 / wake.period < 0.27
    assert 2.0 < 2.0 * wake.drag < 2.9
    v = wake.snapshots[:, 1, 2 + 6 * 8, 2 + 5 * 8]  # on the middle line, 2 D behind the cylinder
    assert v.max() > 0.2
    assert v.min() < -0.2
    np.testing.assert_allclose(v[: PHASES // 2], -v[PHASES // 2 :], atol=0.25 * float(np.ptp(v)))


def test_wakes_are_cached_and_damaged_files_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from replaybench.envs.flow.navier_stokes import engine as module

    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "SETTLING", 24.0)
    grid = Grid(8, 5.0, 4.0, 1.5)
    computed = developed_wake.__wrapped__(grid)
    assert "once" in capsys.readouterr().err
    kept = developed_wake.__wrapped__(grid)
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(computed.snapshots, kept.snapshots)
    assert (computed.period, computed.drag) == (kept.period, kept.drag)
    (path,) = (tmp_path / "flow").glob("*.h5")
    path.write_bytes(path.read_bytes()[:1000])
    np.testing.assert_array_equal(developed_wake.__wrapped__(grid).snapshots, kept.snapshots)


def test_leaving_the_box_ends_the_episode_and_costs(wake: Wake) -> None:
    env = population([0])
    env.reset()
    rewards = []
    for _ in range(60):
        _, reward, terminated, truncated, info = env.step(np.array([[1.0, 0.0, 0.0]]))
        rewards.append(reward[0])
        if terminated[0]:
            break
    assert terminated[0]
    assert not truncated[0]
    assert rewards[-1] == -100.0
    assert info["event"][0] == LEFT
    assert info["left"][0]
    np.testing.assert_allclose(rewards[:-1], -4.0 / QUICK)
    x, y = cast(NavierStokes, env._engine).body[0, :2]
    assert x > 4.0 or abs(y) > 1.0
    assert x < 4.2
    assert abs(y) < 1.2


def test_sensors_see_the_flow_past_a_moving_ellipse() -> None:
    """Velocities linear in place are interpolated exactly; the ellipse's own motion is taken off."""
    engine = NavierStokes(PLANT, 1, 1.0)
    x, y = (
        corner + engine.grid.h * np.arange(n) for corner, n in zip(engine.grid.corner, engine.grid.shape, strict=True)
    )
    half = engine.grid.h / 2
    engine.fields[0, 0] = 1.0 + 0.3 * x[:, None] - 0.7 * (y + half)
    engine.fields[0, 1] = 0.2 - 0.1 * (x[:, None] + half) - 0.3 * y
    engine.body[0] = 2.03, -0.41, 0.5, 0.6, -0.2, 0.9
    engine._observe(0)
    np.testing.assert_allclose(engine.observed[0, :6], engine.body[0])
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    for n, place in enumerate([(-0.55, 0.0), (0.55, 0.0), (0.0, -0.15), (0.0, 0.15)]):
        dx, dy = turn @ place
        px, py = 2.03 + dx, -0.41 + dy
        own = 0.6 - 0.9 * dy, -0.2 + 0.9 * dx
        fluid = 1.0 + 0.3 * px - 0.7 * py, 0.2 - 0.1 * px - 0.3 * py
        np.testing.assert_allclose(engine.observed[0, 6 + 2 * n : 8 + 2 * n], np.subtract(fluid, own), rtol=1e-10)


def test_a_flow_that_has_blown_up_ends_its_episode(wake: Wake) -> None:
    env = population([0, 1])
    env.reset()
    cast(NavierStokes, env._engine).fields[1] = np.nan
    observation, reward, terminated, _, _ = env.step(np.zeros((2, 3)))
    np.testing.assert_array_equal(terminated, [False, True])
    assert reward[1] == -100.0
    assert np.isfinite(observation).all()


def test_states_off_the_grid_are_refused(wake: Wake) -> None:
    """Checkpoints may come from strangers, and the kernels check nothing."""
    env = population([0])
    env.reset()
    for place, value in ((0, 1e6), (1, -5.0), (2, np.nan)):
        state = env.get_state()
        state["body"][0, place] = value
        with pytest.raises(UserError, match="an ellipse is off the grid"):
            env.set_state(state)
    engine = cast(NavierStokes, env._engine)
    engine.body[0, :2] = 1e6
    engine._observe(0)
    assert np.isnan(engine.observed[0, 6:]).all()
