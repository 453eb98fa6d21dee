"""C headers of controllers: signals in physical units, the state between two steps, and the self-test.

A law (`Law`) is the C code that computes an action from an observation, such as a network. In the templates below,
`NAME` and `name` stand for the name of the controller.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from replaybench.runtime.arrays import Floats


class Units(NamedTuple):
    """The signals of a plant in physical units, as they pass the channel to the controller.

    An observation is (state − center) / scale. An action a stands for middle + half · a in physical units. The states
    are those that the controller observes, and the positions of velocities that it computes by differences.

    Attributes:
        state_names: Names of the R states.
        state_units: Units of the states.
        center: Center of each state; float64, shape `[R]`.
        scale: Scale of each state; float64, shape `[R]`.
        limit: Observations are clipped to ±limit; float64, shape `[R]`. None means no limit.
        periodic: Whether each state is an angle in [−π, π); bool, shape `[R]`.
        action_names: Names of the A actions.
        action_units: Units of the actions.
        middle: Middle of the range of each action; float64, shape `[A]`.
        half: Half the range of each action; float64, shape `[A]`.
        choices: Number of evenly spaced values of each action. It is empty if actions are continuous.
        neutral: Normalised past actions before the first one; float64, shape `[A]`.
        history: Number of past actions that follow the states in an observation, the newest first.
        delay: Time from a sample to the moment when its command acts [s].
        resolution: Steps to which states are rounded, or 0; float64, shape `[R]`. None means no rounding.
        positions: Index of the position of each velocity that is a difference quotient, and −1 for measured states.
            It is empty if all states are measured.
        observed: Indices of the observed states. It is empty if all states are observed.
    """

    state_names: tuple[str, ...]
    state_units: tuple[str, ...]
    center: Floats
    scale: Floats
    limit: Floats | None
    periodic: tuple[bool, ...]
    action_names: tuple[str, ...]
    action_units: tuple[str, ...]
    middle: Floats
    half: Floats
    choices: tuple[int, ...]
    neutral: Floats
    history: int
    delay: float = 0.0
    resolution: Floats | None = None
    positions: tuple[int, ...] = ()
    observed: tuple[int, ...] = ()

    @property
    def measured(self) -> list[int]:
        """Indices of the states that are measured."""
        return [i for i in range(len(self.state_names)) if not self.positions or self.positions[i] < 0]


@dataclass(frozen=True, kw_only=True)
class Law:
    """The C code of a controller without its signals.

    Attributes:
        states: Number S of values in an observation.
        actions: Number A of actions.
        rate: Control rate in Hz.
        functions: C functions and tables on which `predict` depends.
        predict: The C function `name_predict`, which writes `action` for an `observation`, both normalised.
        argument: A further argument of `name_predict` between these two, in terms of `name_state *state`, or "".
        state: C declarations of the members of the state that the law keeps between two steps.
            At the start of an episode, all of them are 0.
        notes: Lines about the law for the comment at the top.
    """

    states: int
    actions: int
    rate: float
    functions: Sequence[str]
    predict: str
    argument: str = ""
    state: Sequence[str] = ()
    notes: Sequence[str] = ()


class Recorded(NamedTuple):
    """N inputs, one after the other, and the outputs with which the self-test of a header compares those of the C code.

    Attributes:
        given: Readings in physical units, float64 `[N, M]` for M measured states, or normalised observations, float32
            `[N, S]`.
        due: Commands in physical units, float64 `[N, A]`, or actions, float32 `[N, A]`.
        physical: Whether both are in physical units.
    """

    given: np.ndarray
    due: np.ndarray
    physical: bool = True


OBSERVE: Final = """\
/* measured states in physical units -> observation */
static inline void name_observe(const double *measured, float *observation)
{
    for (int i = 0; i < NAME_MEASURED; i++) {
        double seen = (measured[i] - name_center[i]) / name_state_scale[i];
LIMITEDROUNDED        observation[i] = (float)seen;
    }
}
"""

DIFFERENCES: Final = """\
/* measured states in physical units -> observation. Velocities are difference quotients of positions, by the short way
   for angles, and 0 in the first step. */
static inline void name_observe(name_state *state, const double *measured, float *observation)
{
    double now[NAME_SIGNALS];
    for (int i = 0; i < NAME_SIGNALS; i++) {
        if (name_position[i] >= 0)
            continue;
        double seen = (*measured++ - name_center[i]) / name_state_scale[i];
LIMITEDROUNDED        now[i] = seen;
    }
    for (int i = 0; i < NAME_SIGNALS; i++) {
        const int from = name_position[i];
        if (from < 0)
            continue;
        double change = state->running ? name_state_scale[from] * (now[from] - state->last[from]) : 0.0;
        if (name_periodic[from])
            change -= TURN * floor((change + 0.5 * TURN) / TURN);
        now[i] = (change * NAME_RATE - name_center[i]) / name_state_scale[i];
    }
    for (int i = 0; i < NAME_SIGNALS; i++)
        state->last[i] = now[i];
    for (int i = 0; i < NAME_STATES - NAME_PAST; i++)
        observation[i] = (float)now[name_observed[i]];
}
""".replace("TURN", repr(2 * np.pi))

_LIMITED: Final = """\
        if (!(seen <= name_limit[i] && seen >= -name_limit[i]))
            seen = seen > 0.0 ? name_limit[i] : seen < 0.0 ? -name_limit[i] : 0.0;
"""

_ROUNDED: Final = """\
        if (name_resolution[i] > 0.0) {
            const double value = name_center[i] + name_state_scale[i] * seen;
            seen = (name_resolution[i] * rint(value / name_resolution[i]) - name_center[i]) / name_state_scale[i];
        }
"""

COMMAND: Final = """\
/* action in [-1, 1] -> command in physical units */
static inline void name_command(const float *action, double *physical)
{
    for (int a = 0; a < NAME_ACTIONS; a++)
        physical[a] = name_middle[a] + name_half[a] * (double)action[a];
}
"""

CHOOSE: Final = """\
/* action in [-1, 1] -> the nearest choice in physical units */
static inline void name_command(const float *action, double *physical)
{
    for (int a = 0; a < NAME_ACTIONS; a++) {
        const int last = name_choices[a] - 1;
        const double place = 0.5 * ((double)action[a] + 1.0) * last - 0.5;
        const double level = !(place > 0.0) ? 0.0 : place > last - 1 ? last : ceil(place);
        physical[a] = (name_middle[a] - name_half[a]) + 2.0 * name_half[a] * level / last;
    }
}
"""

_RECALL: Final = """\
    for (int i = 0; i < NAME_PAST; i++) /* the past actions complete the observation */
        observation[NAME_STATES - NAME_PAST + i] = state->past[i];
"""

_REMEMBER: Final = """\
    for (int i = NAME_PAST - 1; i >= 0; i--)
        state->past[i] = i < NAME_ACTIONS ? action[i] : state->past[i - NAME_ACTIONS];
"""

_RUNNING: Final = "    state->running = 1;\n"

MAIN: Final = """\
int main(void)
{
    int equal = 0, close = 0;
STARTED    for (int n = 0; n < COUNT; n++) {
        KIND found[NAME_ACTIONS];
        CALL
        for (int a = 0; a < NAME_ACTIONS; a++) {
            const double error = fabs((double)found[a] - (double)name_due[n][a]);
            equal += error == 0.0;
            close += error <= FLT_EPSILON * RANGE;
        }
    }
    printf("%d WORDS: %d equal, %d within float precision\\n", COUNT * NAME_ACTIONS, equal, close);
    return close != COUNT * NAME_ACTIONS;
}
"""


def c_header(law: Law, name: str, origin: Sequence[str], units: Units | None, recorded: Recorded) -> str:
    """Return a controller as a C header.

    Args:
        law: C code that computes actions from observations.
        name: Prefix of all names in the header. It must be a C identifier in lower case.
        origin: Lines of text about the origin of the controller, for the comment at the top.
        units: Physical units of the plant. Without units, the C functions use normalised observations and actions only.
        recorded: Inputs and expected outputs of the self-test.
    """
    return _Writer(law, name, units, recorded).text(origin)


class _Writer:
    def __init__(self, law: Law, name: str, units: Units | None, recorded: Recorded) -> None:
        self.law, self.name, self.units, self.recorded = law, name, units, recorded
        self.past = 0 if units is None else units.history * law.actions
        self.differences = units is not None and bool(units.positions)
        members = [*law.state, *[f"float past[{self.past}]; /* last actions, the newest first */"] * (self.past > 0)]
        if self.differences and units is not None:
            members += ["int running; /* 0 in the first step of an episode */"]
            members += [f"double last[{len(units.state_names)}]; /* last readings, normalised */"]
        self.state = members

    def text(self, origin: Sequence[str]) -> str:
        """Return the whole header, in which the controller's name replaces `NAME` and `name`."""
        parts = [self._opening(), *self._state(), *self.law.functions, self.law.predict]
        parts += [] if self.units is None else self._physical(self.units)
        code = "\n".join([*parts, self._test(), "#endif\n"])
        named = code.replace("NAME_", f"{self.name.upper()}_").replace("name_", f"{self.name}_")
        return f"{self._comment(origin)}\n{named}"

    def _comment(self, origin: Sequence[str]) -> str:
        rate, observed = self.law.rate, self.law.states
        lines = [
            *origin,
            "",
            f"Control rate: {rate:g} Hz. Call it once every {1 / rate:g} s, with the newest readings.",
        ]
        if self.units is not None:
            late = f"{1e3 * self.units.delay:g} ms after the sample" if self.units.delay else "at the sample's time"
            lines += [f"Delay: made for commands that act {late}."]
        lines += self.law.notes
        if self.past:
            count = self.past // self.law.actions
            lines += [f"The last {'action is an input' if count == 1 else f'{count} actions are inputs'}, too."]
        if self.state and self.units is not None:
            lines += [f"Keep a {self.name}_state, and call {self.name}_start at the start of an episode."]
        if self.units is not None:
            lines += ["", f"Measured: {len(self.units.measured)} double, in physical units:"]
            lines += [f"  {line}" for line in self._measured(self.units)]
        lines += ["", f"Observation: {observed} float, normalised:", *(f"  {line}" for line in self._observed())]
        lines += ["", f"Action: {self.law.actions} float in [-1, 1]:", *(f"  {line}" for line in self._acted())]
        lines += ["", f"Self-test: cc -std=c99 -D{self.name.upper()}_MAIN -x c THIS_FILE -lm && ./a.out"]
        wrapped = [part for line in lines for part in (textwrap.wrap(line, 112, subsequent_indent="  ") or [""])]
        return "/*\n" + "\n".join(f" * {line.replace('*/', '* /')}".rstrip() for line in wrapped) + "\n */"

    def _measured(self, u: Units) -> Iterator[str]:
        for place, i in enumerate(u.measured):
            angle = ", an angle in [-pi, pi)" if u.periodic[i] else ""
            step = 0.0 if u.resolution is None else u.resolution[i]
            rounded = f", which is rounded to multiples of {step:g}" if step else ""
            yield f"[{place}] {u.state_names[i]} in {u.state_units[i]}{angle}{rounded}"

    def _observed(self) -> Iterator[str]:
        if self.units is None:
            yield "as the policy's plant observes its states; its units are not in the policy's file"
            return
        u = self.units
        seen = u.observed or range(len(u.state_names))
        for place, i in enumerate(seen):
            quotient = f", the difference quotient of {u.state_names[u.positions[i]]}" if i not in u.measured else ""
            yield f"[{place}] ({u.state_names[i]} - {u.center[i]:g}) / {u.scale[i]:g}{quotient}"
        for i in range(self.past):
            ago = i // self.law.actions + 1
            yield f"[{len(seen) + i}] action [{i % self.law.actions}], {ago} step{'s' * (ago > 1)} ago"

    def _acted(self) -> Iterator[str]:
        if self.units is None:
            yield "of the plant's whole range; its units are not in the policy's file"
            return
        u = self.units
        for a, (name, unit) in enumerate(zip(u.action_names, u.action_units, strict=True)):
            choice = f", the nearest of {u.choices[a]} evenly spaced values" if u.choices else ""
            yield f"[{a}] {name} in {unit} = {u.middle[a]:g} + {u.half[a]:g} * action{choice}"

    def _opening(self) -> str:
        law, u = self.law, self.units
        lines = ["#ifndef NAME_H", "#define NAME_H", "", "#include <math.h>"]
        lines += [*["#include <string.h>"] * bool(self.state), ""]
        lines += [f"#define NAME_RATE {double(law.rate)} /* [Hz] */"]
        if u is not None:
            lines += [f"#define NAME_DELAY {double(u.delay)} /* [s] from a sample to the time when its command acts */"]
            lines += [f"#define NAME_MEASURED {len(u.measured)}"]
        lines += [f"#define NAME_STATES {law.states}", f"#define NAME_ACTIONS {law.actions}"]
        lines += [f"#define NAME_PAST {self.past}"]
        lines += [f"#define NAME_SIGNALS {len(u.state_names)}"] * self.differences if u is not None else []
        return "\n".join([*lines, ""])

    def _state(self) -> Iterator[str]:
        if not self.state:
            return
        members = "\n".join(f"    {member}" for member in self.state)
        yield f"/* values that a step needs from earlier ones */\ntypedef struct {{\n{members}\n}} name_state;\n"
        parts = []
        if self.past and self.units is not None:
            yield array("float", "name_neutral", self.units.neutral.astype(np.float32), number)
            parts += ["for (int i = 0; i < NAME_PAST; i++)", "    state->past[i] = name_neutral[i % NAME_ACTIONS];"]
        # C++ warns about `{0}`, and C99 has no `{}`.
        lines = "\n".join(f"    {part}" for part in ("memset(state, 0, sizeof *state);", *parts))
        yield f"static inline void name_start(name_state *state)\n{{\n{lines}\n}}\n"

    def _physical(self, u: Units) -> Iterator[str]:
        named = {"center": u.center, "state_scale": u.scale, "middle": u.middle, "half": u.half}
        named |= {} if u.limit is None else {"limit": u.limit}
        named |= {} if u.resolution is None else {"resolution": u.resolution}
        yield from (array("double", f"name_{key}", values, double) for key, values in named.items())
        whole = {"choices": u.choices, "position": u.positions}
        if u.positions:
            whole |= {"periodic": u.periodic, "observed": u.observed or tuple(range(len(u.state_names)))}
        yield from (
            array("int", f"name_{key}", np.array(values, np.int64), str) for key, values in whole.items() if values
        )
        observe = DIFFERENCES if u.positions else OBSERVE
        observe = observe.replace("LIMITED", "" if u.limit is None else _LIMITED)
        yield observe.replace("ROUNDED", "" if u.resolution is None else _ROUNDED)
        yield CHOOSE if u.choices else COMMAND
        state = "name_state *state, " if self.state else ""
        given = "state, " if self.differences else ""
        further = f" {self.law.argument}," if self.law.argument else ""
        yield (
            "/* A whole control step: measured states in physical units -> command in physical units */\n"
            f"static inline void name_step({state}const double *measured, double *command)\n{{\n"
            "    float observation[NAME_STATES], action[NAME_ACTIONS];\n"
            f"    name_observe({given}measured, observation);\n{_RECALL * (self.past > 0)}"
            f"    name_predict(observation,{further} action);\n{_REMEMBER * (self.past > 0)}"
            f"{_RUNNING * self.differences}    name_command(action, command);\n}}\n"
        )

    def _test(self) -> str:
        given, due, physical = self.recorded
        count = len(given)
        kind, write = ("double", double) if physical else ("float", number)
        state = "    name_state state, *const kept = &state;\n    name_start(kept);\n" if self.state else ""
        if physical:
            call = f"name_step({'kept, ' if state else ''}name_given[n], found);"
        else:
            further = f"{self.law.argument.replace('state', 'kept')}, " if self.law.argument else ""
            call = f"name_predict(name_given[n], {further}found);"
        given_words, due_words = ("readings", "commands") if physical else ("observations", "actions")
        main = MAIN.replace("COUNT", f"{count}").replace("KIND", kind).replace("STARTED", state).replace("CALL", call)
        main = main.replace("RANGE", "name_half[a]" if physical else "1.0").replace("WORDS", due_words)
        order = "one after the other" if state else "each by itself"
        parts = ["#ifdef NAME_MAIN", "#include <float.h>", "#include <stdio.h>", ""]
        parts += [f"/* {given_words}, {order}, and the expected {due_words} */"]
        parts += [array(kind, "name_given", given, write), array(kind, "name_due", due, write), main]
        return "\n".join([*parts, "#endif\n"])


def number(value: float | np.float32) -> str:
    """Return a C literal that a compiler reads as exactly this float32 value."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if any(mark in text for mark in ".en") else f"{text}.0f"


def double(value: float) -> str:
    """Return a C literal that a compiler reads as exactly this float64 value."""
    return repr(float(value))


def array(kind: str, name: str, values: np.ndarray, write: Callable[[Any], str]) -> str:
    """Return the C definition of a constant array of the type `kind`, with the literals that `write` returns."""
    size = "".join(f"[{length}]" for length in values.shape)
    rows = [", ".join(write(value) for value in row) for row in np.atleast_2d(values)]
    if values.ndim == 2:
        rows = [f"{{{row}}}" for row in rows]
    body = textwrap.fill(", ".join(rows), 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f"static const {kind} {name}{size} = {{\n{body}\n}};\n"
