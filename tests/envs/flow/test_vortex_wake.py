"""The vortex street against what it was fitted to and what it must obey, and its table against the street."""

import math

import numpy as np
import pytest

from replaybench.envs.flow.wake import (
    LEFT_EDGE,
    LOWER_EDGE,
    NODES,
    PERIOD,
    PHASES,
    SOURCE,
    SOURCE_CORE,
    SPACING,
    flow,
    look_up,
    street,
    vortex,
    vorticity,
    wake_table,
)

H = 1e-5


def points(count: int) -> np.ndarray:
    """Return x, y and phase of points that sensors can reach, `[count, 3]`."""
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform((0.5, -1.5, 0.0), (4.5, 1.5, 1.0), (count, 3))


def at(x: float, y: float, phase: float) -> np.ndarray:
    return np.array(flow(x, y, street(phase % 1.0)))


def test_the_street_sheds_at_the_strouhal_number() -> None:
    times = np.arange(0.0, 20 * PERIOD, 0.1)
    v = np.array([at(3.0, 0.0, time / PERIOD)[1] for time in times])
    spectrum = abs(np.fft.rfft(v))
    peak = np.fft.rfftfreq(times.size, 0.1)[np.argmax(spectrum)]
    assert peak == pytest.approx(0.204, abs=0.003)
    assert abs(v).max() == pytest.approx(0.53, abs=0.05)


def test_divergence_is_the_source_and_curl_is_the_vorticity() -> None:
    for x, y, phase in points(40):
        by_x = (at(x + H, y, phase) - at(x - H, y, phase)) / (2 * H)
        by_y = (at(x, y + H, phase) - at(x, y - H, phase)) / (2 * H)
        source = SOURCE / math.pi * SOURCE_CORE / (x * x + y * y + SOURCE_CORE) ** 2
        assert by_x[0] + by_y[1] == pytest.approx(source, abs=1e-8)
        assert by_x[1] - by_y[0] == pytest.approx(vorticity(np.array([x]), np.array([y]), phase)[0, 0], abs=1e-7)


def test_acceleration_is_that_of_a_particle_that_moves_along() -> None:
    for x, y, phase in points(40):
        u, v, *acceleration = at(x, y, phase)
        after = at(x + H * u, y + H * v, phase + H / PERIOD)
        before = at(x - H * u, y - H * v, phase - H / PERIOD)
        np.testing.assert_allclose((after - before)[:2] / (2 * H), acceleration, rtol=1e-6, atol=1e-6)


def test_the_flow_is_smooth_at_the_centre_of_a_vortex() -> None:
    """The series that takes over near a centre joins the formula."""
    x, y, _, core = vortex(2, 0.3)[:4]
    near, nearer = (at(x + step * math.sqrt(core), y, 0.3) for step in (2e-4, 5e-5))
    np.testing.assert_allclose(near, nearer, rtol=0, atol=3e-3)
    assert np.isfinite(at(x, y, 0.3)).all()


def test_the_table_holds_the_street_at_its_nodes() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    for i, j, p in zip(*(rng.integers(0, n, 50) for n in (NODES, NODES, PHASES)), strict=True):
        x, y = LEFT_EDGE + SPACING * i, LOWER_EDGE + SPACING * j
        # 1e-9 of a phase keeps the query off the boundary of two cells, where either one is right.
        np.testing.assert_allclose(look_up(wake_table(), x, y, p / PHASES + 1e-9, 0.0), at(x, y, p / PHASES), atol=2e-5)


def test_interpolation_between_the_nodes_is_accurate() -> None:
    rows = points(4000)
    error = np.array([np.subtract(look_up(wake_table(), x, y, phase, 0.0), at(x, y, phase)) for x, y, phase in rows])
    assert np.sqrt((error[:, :2] ** 2).mean()) < 0.006
    assert np.sqrt((error[:, 2:] ** 2).mean()) < 0.03


def test_points_outside_the_table_are_clipped_to_its_edge() -> None:
    table = wake_table()
    corner = look_up(table, LEFT_EDGE, LOWER_EDGE, 0.2, 0.0)
    np.testing.assert_array_equal(look_up(table, -math.inf, -1e300, 0.2, 0.0), corner)
    assert np.isfinite(look_up(table, math.inf, 1e300, 0.2, 0.0)).all()
    for lost in ((math.nan, 0.0, 0.2), (1.0, math.nan, 0.2), (1.0, 0.0, math.nan)):
        assert len(look_up(table, *lost, 0.0)) == 4  # whatever it says, it reads nothing outside the table
