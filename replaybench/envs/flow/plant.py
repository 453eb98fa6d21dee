"""The drafting task: an ellipse has to keep its place in the wake of a cylinder with little actuation.

The flow is a tabulated vortex wake or a solution of the Navier–Stokes equations. The bounds of the ellipse, its start,
the reward, the units and the sensors are the same in these flows.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.flow.wake import BY_FIDELITY, FELT
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Picture, Plant
from replaybench.envs.interface.signals import wrap_angle
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.kernel import kernel
from replaybench.runtime.source_hash import made_of

if TYPE_CHECKING:
    from replaybench.runtime.streams import Stream

SEMI_MAJOR: Final = 0.5  # semi-major axis of the ellipse [D]
SEMI_MINOR: Final = 0.1  # semi-minor axis of the ellipse [D]
SENSORS: Final = ((-0.55, 0.0), (0.55, 0.0), (0.0, -0.15), (0.0, 0.15))  # positions in the axes of the ellipse [D]
LEAVING_REWARD: Final = -100.0
LEFT: Final = 1  # bit of `event`
VARIATIONS: Final = ("strength_spread", "period_spread", "load_spread", "phase_noise", "reading_noise")
FEWEST_CELLS: Final = 8  # per D: the ellipse is then 1.6 cells thick

_ENGINES: Final = {
    "wake": ("replaybench.envs.flow.vortex_engine", "VortexWake"),
    "free-wake": ("replaybench.envs.flow.vortex_engine", "VortexWake"),
    "navier-stokes": ("replaybench.envs.flow.navier_stokes.engine", "NavierStokes"),
}
_UNITS: Final = {"default": (0.25, 0.25, 0.125), "paper": (1.0, 1.0, 1.0)}
_REVISIONS: Final = {"paper": (4.0, math.pi / 8), "january": (3.0, math.pi / 4)}


@dataclass(frozen=True, kw_only=True)
class Drafting(Plant):
    """An ellipse that has to stay in the wake of a D-section cylinder (Novati & Koumoutsakos, 2019, section 5.4).

    The Reynolds number is 400. Lengths are in cylinder diameters D, speeds in units of the stream's speed U, times in T
    = D/U, and the density ρ is 1. Control rates in "Hz" are actions per T. The flat face of the cylinder lies at x = 0,
    and the stream runs along +x. An action `a = (f_x, f_y, τ)` has components in [-2, 2] and is held for a control
    step. It exerts the force `(f_x, f_y) F₀` and the torque `τ τ₀` on the ellipse. By default F₀ = 0.25 ρU²D and τ₀ =
    F₀ D/2. Each step costs `‖a‖²` times the length of the step [T]. This is the paper's reward at the default rate of
    one action per T. The centre of the ellipse must stay in the rectangle `box`. If the centre leaves this box, the
    episode ends, and the reward of the step is −100. The ellipse starts at rest. The wake starts in a random phase,
    which the agent cannot observe.

    `fidelity` selects the flow: "wake" and "free-wake" are tabulated vortex wakes with different forces on the ellipse
    (`replaybench.envs.flow.wake`), and "navier-stokes" solves the equations of the flow. In tabulated wakes, the flow
    and the forces can have random factors in each episode. The settings `*_spread` are the largest logarithms of these
    factors. A spread of 0.2 means up to 22 % more or 18 % less. `phase_noise` makes the vortex street irregular.
    `reading_noise` models the influence of the boundary layer on the sensors. Policies that were learned with these
    disturbances in "free-wake" also work in "navier-stokes".
    """

    fidelity: str = "wake"  # "wake", "free-wake": tabulated vortices; "navier-stokes": the flow itself
    action_unit: str = "default"  # "paper": force in ρU²D, torque in ρU²D²
    revision: str = "paper"  # "january": the shorter box and wider start angles of the authors' code of January 2019
    cells: float = 16.0  # grid cells per D of the Navier–Stokes solver
    strength_spread: float = 0.0  # of the strength of the tabulated wake's cross-stream flow
    period_spread: float = 0.0  # of the period of vortex shedding
    load_spread: float = 0.0  # of inertias, forces and sensor gains, each by its own factor
    phase_noise: float = 0.0  # standard deviation of the random phase change per T [periods]
    reading_noise: float = 0.0  # standard deviation of the noise on sensor readings [U]

    name = "Drafting"
    state_names = (
        *("x", "y", "angle", "velocity x", "velocity y", "angular velocity"),
        *("front flow x", "front flow y", "rear flow x", "rear flow y"),
        *("lower flow x", "lower flow y", "upper flow x", "upper flow y"),
    )
    state_units = ("D", "D", "rad", "U", "U", "U/D", *("U",) * 8)
    action_names = ("force x", "force y", "torque")
    action_units = ("F₀", "F₀", "τ₀")
    positive = ("cells",)

    state_center = (2.0, *(0.0,) * 13)
    state_scale = (1.0, 1.0, math.pi / 2, 1.0, 1.0, 2.0, *(1.0,) * 8)
    action_low = (-2.0,) * 3
    action_high = (2.0,) * 3

    episode_seconds = 400.0
    frequency = 1.0
    discount = 0.995
    reward_scale = 0.1
    update_every = 1
    episode_metric = "return"
    reference_episodes = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, value, known in (
            ("fidelity", self.fidelity, _ENGINES),
            ("action unit", self.action_unit, _UNITS),
            ("revision", self.revision, _REVISIONS),
        ):
            if value not in known:
                raise unknown(f"{what} of Drafting", value, list(known))
        for name in VARIATIONS:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise UserError(f"Drafting: {name} is {value:g}; give a number from 0 to 1, as 0.2")
            if value and self.fidelity == "navier-stokes":
                raise UserError(f"Drafting: {name} varies tabulated wakes; leave it 0 with fidelity = 'navier-stokes'")
        if self.cells < FEWEST_CELLS or self.cells % 1.0:
            raise UserError(f"Drafting: cells is {self.cells:g}; give a whole number of {FEWEST_CELLS} or more, as 16")

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the normalised states.

        The bounds admit an angular velocity of 22 U/D, which the ellipse reaches under the paper's full torque.
        """
        return (*(10.0,) * 5, 20.0, *(10.0,) * 8)

    @property
    def box(self) -> tuple[float, float, float]:
        """Bounds of the ellipse's centre in cylinder diameters: lowest x, highest x and largest absolute y."""
        return 1.0, _REVISIONS[self.revision][0], 1.0

    @property
    def forces(self) -> tuple[float, float, float]:
        """Force along x and y [ρU²D] and torque [ρU²D²] of an action whose three components are 1.

        ρ is the density of the water, U the speed of the stream, and D the diameter of the cylinder.
        """
        return _UNITS[self.action_unit]

    @property
    def start_range(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Means of the initial x, y [cylinder diameters] and angle [rad], and the largest deviations from the means."""
        return (2.0, 0.0, 0.0), (0.5, 0.5, _REVISIONS[self.revision][1])

    @property
    def spreads(self) -> dict[str, float]:
        """Largest logarithm of the random factor of each constant in `wake.Laws`, by the name of the constant."""
        loads = dict.fromkeys(FELT, self.load_spread)
        return {"strength": self.strength_spread, "period": self.period_spread, **loads}

    def start(self, draws: Stream, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return random initial poses `[n, 3]` and phases of the wake `[n]` of the n ellipses marked in `chosen`.

        A pose consists of the position x, y in cylinder diameters and the angle θ [rad]. A phase is in [0, 1).
        """
        drawn = draws.uniform(4, chosen)
        middle, spread = self.start_range
        poses: NDArray[np.float64] = np.array(middle) + np.array(spread) * (2.0 * drawn[:, :3] - 1.0)
        return poses, drawn[:, 3]

    def engine(self, num_envs: int, frequency: float) -> Engine:
        made: Engine = self._engine_class()(self, num_envs, frequency)
        return made

    def made_of(self) -> str:
        digest: str = self._engine_class().made_of()
        given = f"{self.box} {self.forces} {self.start_range} {BY_FIDELITY.get(self.fidelity)}"
        return f"{digest} {given} {made_of(type(self))}".rstrip()

    def _engine_class(self) -> Any:
        module, engine = _ENGINES[self.fidelity]
        return getattr(importlib.import_module(module), engine)


@kernel
def half_turn(angle: float) -> float:
    """Wrap the angle [rad] of an ellipse into [−π/2, π/2). A turn by π does not change an ellipse."""
    return 0.5 * wrap_angle(2.0 * angle)


@kernel
def outside(x: float, y: float, box: tuple[float, float, float]) -> bool:
    """Return whether the centre (x, y) of the ellipse is NaN or outside the bounds `box` (see `Drafting.box`)."""
    inside: bool = x >= box[0] and x <= box[1] and abs(y) <= box[2]
    return not inside


@kernel
def step_reward(actuation: float, left: bool, sample: float) -> float:
    """Return the reward of one control step: `−actuation · sample`, or −100 if the ellipse has left its box.

    Args:
        actuation: Squared norm ‖a‖² of the action.
        left: Whether the ellipse has left the box.
        sample: Length of the control step, in cylinder diameters divided by the speed of the stream.
    """
    return LEAVING_REWARD if left else -actuation * sample


VIEW: Final = (-1.0, 6.0, -1.75, 1.75)  # lowest and highest x, lowest and highest y [D]
PIXELS: Final = (640, 320)
STRONGEST: Final = 6.0  # vorticity of the darkest colour [U/D]
FORCE_LENGTH: Final = 1.0  # length of the arrow for |a| = 1 [D]
TORQUE_SWEEP: Final = 90.0  # angle of the arc for |a| = 1 [degrees]
TORQUE_RADIUS: Final = 0.72  # radius of the arc [D]

_WATER: Final = ("#12335f", "#3f7fbf", "#b9d6ea", "#fbfaf7", "#f3c4ae", "#cf5b4a", "#6d1226")
_BODY, _ACTION = "#26323f", "#e08a00"


class FlowPicture(Picture):
    """A picture of an ellipse in the wake of a cylinder, with the flow, the last action and the ellipse's bounds."""

    def __init__(self, box: tuple[float, float, float]) -> None:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patches import Ellipse, FancyArrowPatch, Rectangle, Wedge

        super().__init__(*PIXELS)
        left, right, bottom, top = VIEW
        self._axes = axes = self._figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.axis("off")
        self._water = axes.imshow(
            np.zeros((2, 2)), cmap=LinearSegmentedColormap.from_list("water", _WATER), vmin=-STRONGEST, vmax=STRONGEST,
            origin="lower", interpolation="bilinear", extent=VIEW, aspect="auto",
        )  # fmt: skip
        low, high, height = box
        axes.add_patch(
            Rectangle((low, -height), high - low, 2 * height, fill=False, color="0.45", lw=1, ls=(0, (4, 4)))
        )
        axes.add_patch(Wedge((0.0, 0.0), 0.5, 90.0, 270.0, color=_BODY, lw=0))
        self._body = Ellipse((0.0, 0.0), 2 * SEMI_MAJOR, 2 * SEMI_MINOR, facecolor=_BODY, edgecolor="white", lw=0.8)
        axes.add_patch(self._body)
        look: Any = {"arrowstyle": "-|>", "mutation_scale": 11, "color": _ACTION, "lw": 2.2, "shrinkA": 0, "shrinkB": 0}
        self._force = FancyArrowPatch((0, 0), (1, 0), zorder=4, **look)
        self._torque = FancyArrowPatch((0, 0), (1, 0), zorder=4, **look)
        for arrow in (self._force, self._torque):
            axes.add_patch(arrow)

    def frame(
        self,
        vorticity: NDArray[np.floating],
        extent: tuple[float, float, float, float],
        pose: NDArray[np.float64],
        action: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """Return the image uint8 `[320, 640, 3]` of a flow, a pose and an action.

        Lengths are in cylinder diameters D, and speeds in units of the stream's speed U.

        Args:
            vorticity: Vorticity [U/D] at points evenly spaced over `extent`, `[rows, columns]`, lowest y first.
            extent: Lowest x, highest x, lowest y and highest y of these points [D].
            pose: Position x, y [D] and angle θ [rad] of the ellipse, `[3]`.
            action: Last action, `[3]`.
        """
        self._water.set_data(vorticity)
        self._water.set_extent(extent)
        self._axes.set(xlim=VIEW[:2], ylim=VIEW[2:])
        x, y, angle = (float(value) for value in pose)
        self._body.set(center=(x, y), angle=math.degrees(angle))
        fx, fy, torque = (float(value) for value in action)
        self._force.set_visible(math.hypot(fx, fy) > 0.02)
        self._force.set_positions((x, y), (x + FORCE_LENGTH * fx, y + FORCE_LENGTH * fy))
        self._torque.set_visible(abs(torque) > 0.02)
        sweep = math.radians(TORQUE_SWEEP * torque)
        start, end = angle, angle + sweep
        self._torque.set_positions(
            (x + TORQUE_RADIUS * math.cos(start), y + TORQUE_RADIUS * math.sin(start)),
            (x + TORQUE_RADIUS * math.cos(end), y + TORQUE_RADIUS * math.sin(end)),
        )
        self._torque.set_connectionstyle("arc3", rad=math.tan(sweep / 4))
        return self.pixels()


class DraftingEngine(Engine):
    """The base class of simulators of M ellipses, each in the wake of its own cylinder.

    Attributes:
        applied: Last action on each ellipse, float64 `[M, 3]`.
    """

    def __init__(self, plant: Drafting, num_envs: int, frequency: float) -> None:
        super().__init__(num_envs, len(plant.state_names), frequency)
        self.plant = plant
        self.applied = np.zeros((num_envs, 3))
        self._picture: FlowPicture | None = None

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return the squared norm of each action as `actuation`, and whether each ellipse left its box as `left`."""
        return {"actuation": (self.applied**2).sum(axis=1), "left": self.terminated.copy()}

    def picture(self) -> FlowPicture:
        self._picture = self._picture or FlowPicture(self.plant.box)
        return self._picture
