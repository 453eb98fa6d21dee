"""Rivals of learners as C: a tuned PID controller, and linear-quadratic control with integral action.

The C code computes `Pid.act` and `Lqi.act` for one plant, in float64. The observation is float32, as in the package.
"""

from typing import Final

import numpy as np

from replaybench.baselines.controllers import linearised
from replaybench.baselines.lqi import lqi_gains
from replaybench.baselines.pid import GAINS, set_point_columns
from replaybench.baselines.rivals import LQI, PID, Rival
from replaybench.controllers.policies.c_header import Law, array, double
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime import elementwise
from replaybench.runtime.errors import UserError, unknown

ERROR: Final = """\
/* the shorter way between two readings of loop l, normalised */
static inline double name_short_way(int l, double difference)
{
    const double scale = name_loop_scale[l], angle = scale * difference, turn = TURN;
    return name_turns[l] ? (angle - turn * floor((angle + 0.5 * turn) / turn)) / scale : difference;
}

/* set point minus reading of loop l, normalised */
static inline double name_error(int l, const float *observation)
{
    const double scale = name_loop_scale[l], center = name_loop_center[l];
    const int point = name_point[l];
    const double goal = point < 0 ? name_goal[l] : name_point_center[l] + name_point_scale[l] * observation[point];
    return name_short_way(l, (goal - (center + scale * observation[name_regulated[l]])) / scale);
}
""".replace("TURN", repr(2 * np.pi))

_PID: Final = """\
/* observation (normalised) -> action in [-1, 1]: u = Kp e + Ki times the integral of e - Kd times the filtered slope */
static inline void name_predict(const float *observation, name_state *state, float *action)
{
    double wanted[NAME_ACTIONS], step[NAME_LOOPS];
    for (int a = 0; a < NAME_ACTIONS; a++)
        wanted[a] = name_rest[a];
    for (int l = 0; l < NAME_LOOPS; l++) {
        const double reading = observation[name_regulated[l]], error = name_error(l, observation);
        if (state->acted)
            state->slope[l] = name_decay[l] * state->slope[l]
                + (1.0 - name_decay[l]) * (name_short_way(l, reading - state->reading[l]) * NAME_RATE);
        state->reading[l] = reading;
        wanted[name_drives[l]] += name_kp[l] * error + state->integral[l] - name_kd[l] * state->slope[l];
        step[l] = name_ki[l] * error / NAME_RATE;
    }
    state->acted = 1;
    for (int l = 0; l < NAME_LOOPS; l++) { /* the integral stops while the action is saturated */
        const double u = wanted[name_drives[l]];
        if (!((u > 1.0 && step[l] > 0.0) || (u < -1.0 && step[l] < 0.0)))
            state->integral[l] += step[l];
    }
CLIPPED}
"""

_LQI: Final = """\
/* observation (normalised) -> action in [-1, 1]: the action at rest - K times the deviation - Ki times the integral */
static inline void name_predict(const float *observation, name_state *state, float *action)
{
    double wanted[NAME_ACTIONS], deviation[NAME_EQUATIONS];
    int saturated = 0;
    for (int i = 0; i < NAME_EQUATIONS; i++)
        deviation[i] = observation[i] - name_reference[i];
    for (int l = 0; l < NAME_LOOPS; l++)
        deviation[name_regulated[l]] = -name_error(l, observation);
    for (int a = 0; a < NAME_ACTIONS; a++) {
        wanted[a] = name_rest[a];
        for (int i = 0; i < NAME_EQUATIONS; i++)
            wanted[a] -= deviation[i] * name_gain[a][i];
        for (int l = 0; l < NAME_LOOPS; l++)
            wanted[a] -= state->integral[l] * name_integral_gain[a][l];
        saturated |= fabs(wanted[a]) > 1.0;
    }
    for (int l = 0; l < NAME_LOOPS && !saturated; l++)
        state->integral[l] += name_error(l, observation) / NAME_RATE;
CLIPPED}
"""

_CLIPPED: Final = """\
    for (int a = 0; a < NAME_ACTIONS; a++)
        action[a] = (float)(wanted[a] > 1.0 ? 1.0 : wanted[a] < -1.0 ? -1.0 : wanted[a]);
"""


def check_rival(plant: OdePlant, name: str) -> None:
    """Raise `UserError` if a plant has no rival of this name, or if there is no C code of it."""
    if name not in (PID, LQI):
        raise unknown("rival in C:", name, (PID, LQI))
    if not plant.regulated:
        raise UserError(f"{plant.name} declares nothing in regulated, so it has no {name} controller")


def rival_law(plant: OdePlant, frequency: float, name: str, rival: Rival) -> Law:
    """Return the C code of a rival, a tuned PID controller or LQI."""
    states, points = set_point_columns(plant)
    loops, kept = len(states), f"double integral[{len(states)}];"
    functions = [f"#define NAME_LOOPS {loops}\n", *_loops(plant, states, points)]
    if name == PID:
        kp, ki, kd, filtered = np.reshape(rival.gains, (-1, GAINS)).T
        drives = np.array([plant.action_names.index(action) for action in plant.regulated.values()])
        values = {"kp": kp, "ki": ki, "kd": kd, "decay": elementwise.exp(-1.0 / frequency / filtered)}
        values["rest"] = plant.normalise_action(plant.zero_action)
        functions += [array("int", "name_drives", drives, str)]
        state = [kept, f"double slope[{loops}], reading[{loops}];", "int acted; /* 0 in the first step */"]
    else:
        gain, integral_gain = lqi_gains(plant, frequency)
        values = {"gain": gain, "integral_gain": integral_gain, "rest": linearised(plant, frequency)[2]}
        values["reference"] = plant.normalise_state(plant.reference_state)[: plant.equations]
        functions += [f"#define NAME_EQUATIONS {plant.equations}\n"]
        state = [kept]
    functions += [array("double", f"name_{key}", table, double) for key, table in values.items()]
    law = (_PID if name == PID else _LQI).replace("CLIPPED", _CLIPPED)
    return Law(
        states=len(plant.state_names), actions=len(plant.action_names), rate=frequency,
        functions=[*functions, ERROR], predict=law, argument="state", state=state,
    )  # fmt: skip


def _loops(plant: OdePlant, states: list[int], points: list[int | None]) -> list[str]:
    """Return the C tables of the regulated states and their set points."""
    center, scale = np.array(plant.state_center), np.array(plant.state_scale)
    followed = [state if point is None else point for state, point in zip(states, points, strict=True)]
    goals = np.array(plant.reference_state)[states]
    reals = {"loop_center": center[states], "loop_scale": scale[states], "goal": goals}
    reals |= {"point_center": center[followed], "point_scale": scale[followed]}
    wholes = {"regulated": states, "point": [-1 if point is None else point for point in points]}
    wholes["turns"] = [int(plant.periodic[state]) for state in states]
    return [array("double", f"name_{key}", values, double) for key, values in reals.items()] + [
        array("int", f"name_{key}", np.array(values), str) for key, values in wholes.items()
    ]
