"""The magnetic manipulation of de Bruin et al. (2018, appendix A.2): four magnets pull a steel ball along a track.

Magnets only pull, and their force is strongly nonlinear. A neighbouring magnet must therefore help to stop the ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.plant import OdePlant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAGNETS: Final = 4
SPACING: Final = 0.025  # between neighbouring magnets [m]
TRACK_LOW: Final = -0.035  # [m]
TRACK_HIGH: Final = 0.105  # [m]
WALL_SPEED: Final = 0.01  # speed away from the wall after a collision [m/s]
GOAL: Final = 0.035  # [m]
POSITION_COST: Final = 100.0  # per m (A.2: W₁)
VELOCITY_COST: Final = 5.0  # per m/s (A.2: W₁)
WALL_COST: Final = 1.0  # per step with a collision


@dataclass(frozen=True, kw_only=True)
class Magman(OdePlant):
    """A steel ball on a track above four electromagnets (de Bruin et al., 2018, appendix A.2).

    The equation of motion is `m ẍ = −b ẋ + Σ_j g(x, j) u_j` with the parameters m, b, c₁ and c₂ of this class. Here
    u_j is the squared current of the magnet j at `p_j`, and `g(x, j) = −c₁ (x − p_j) / ((x − p_j)² + c₂)³`.

    The paper's text measures x from the first magnet, so that the magnets are at 0.025·(j−1) m. The paper's equation
    and the authors' code have them at 0.025·j m. The default follows the equation, and `first_magnet_at=0.0` follows
    the text. Collisions with walls are resolved after every Runge-Kutta step.
    """

    mass: float = 3.2e-2  # m [kg]
    friction: float = 1.613e-2  # b [N s/m]
    force_constant: float = 5.52e-10  # c₁ [N m⁵/A²]
    force_width: float = 1.75e-4  # c₂ [m²]
    first_magnet_at: float = 0.025  # p₁ [m]

    name = "Magman"
    state_names = ("position", "velocity")
    state_units = ("m", "m/s")
    action_names = ("current 1 squared", "current 2 squared", "current 3 squared", "current 4 squared")
    action_units = ("A²", "A²", "A²", "A²")

    state_center = (GOAL, 0.0)
    state_scale = (0.07, 0.4)
    action_low = (0.0, 0.0, 0.0, 0.0)
    action_high = (0.6, 0.6, 0.6, 0.6)
    initial_state = (0.0, 0.0)
    reference_state = (GOAL, 0.0)
    positive = ("mass", "force_width")
    max_substep = 0.01  # the paper does not state the step, as for the pendulum

    grid_nodes = (141, 101)
    grid_low = (TRACK_LOW, -0.4)
    grid_high = (TRACK_HIGH, 0.4)
    action_levels = (3, 3, 3, 3)
    refine_grid = True

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the normalised states.

        The bound on the velocity is 1.5 times the largest speed that the ball can reach. Between standstills and
        collisions the ball moves in one direction. Each magnet, however it is switched, then adds at most the depth of
        its potential well, `u c₁ / (4 c₂²)`, to the energy of the ball.
        """
        depth = self.action_high[0] * abs(self.force_constant) / (4 * self.force_width**2)
        fastest = math.sqrt(WALL_SPEED**2 + 2 * MAGNETS * depth / self.mass)
        return 1.0, 1.5 * fastest / self.state_scale[1]

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        """Return the velocity [m/s] and the acceleration [m/s²]."""
        m, b, c1, c2, first = p
        force = -b * x[1]
        for j in range(MAGNETS):
            distance = x[0] - (first + SPACING * j)
            width = distance * distance + c2
            force -= u[j] * c1 * distance / (width * width * width)
        return x[1], force / m

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        """Return −(100 |x − 0.035| + 5 |ẋ|) for the next state (de Bruin et al., 2018, eq. 9).

        A collision with a wall costs 1 more.
        """
        cost: float = POSITION_COST * abs(x_next[0] - GOAL) + VELOCITY_COST * abs(x_next[1])
        return -(cost + WALL_COST) if event else -cost

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        """Return 1 if the ball has hit a wall, and otherwise 0.

        A ball that hits a wall is placed at the wall, with a velocity of 0.01 m/s away from the wall.
        """
        if x[0] < TRACK_LOW:
            x[0], x[1] = TRACK_LOW, WALL_SPEED
            return 1
        if x[0] > TRACK_HIGH:
            x[0], x[1] = TRACK_HIGH, -WALL_SPEED
            return 1
        return 0

    def draw(self, axes: Axes, state: Vector, action: Vector) -> None:
        """Draw the track, the goal, the ball, and each magnet filled in proportion to its squared current."""
        from matplotlib.patches import Circle, Rectangle

        axes.set(xlim=(TRACK_LOW - 0.012, TRACK_HIGH + 0.012), ylim=(-0.052, 0.062), aspect="equal")
        axes.axis("off")
        axes.add_patch(Rectangle((TRACK_LOW - 0.009, -0.001), TRACK_HIGH - TRACK_LOW + 0.018, 0.002, color="0.3"))
        for edge in (TRACK_LOW - 0.009, TRACK_HIGH + 0.005):  # the ball's centre stops at the bound
            axes.add_patch(Rectangle((edge, -0.001), 0.004, 0.022, color="0.3"))
        axes.plot([GOAL], [0.024], marker="v", color="#55a868", markersize=9)
        for j, strength in enumerate((1 + action) / 2):
            corner = self.first_magnet_at + SPACING * j - 0.009, -0.034
            axes.add_patch(Rectangle(corner, 0.018, 0.027, facecolor="0.93", edgecolor="0.55"))
            axes.add_patch(Rectangle(corner, 0.018, 0.027 * float(strength), color="#dd8452"))
        axes.add_patch(Circle((float(state[0]), 0.006), 0.005, color="#30497a", zorder=3))
