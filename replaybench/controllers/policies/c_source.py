"""Policies as C source code.

The C code computes `Policy.predict` in the same order and precision. The results have the same bits if the C library's
tanhf gives the same bits (`docs/how-to/export-a-policy.md`). In the templates below, `NAME` and `name` stand for the
name of the policy. Each template is one function for one observation, in float32. Sums are computed in order, by fused
multiply-adds.
"""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from replaybench.controllers.networks import mlp
from replaybench.controllers.networks.recurrent import PopulationRecurrent
from replaybench.controllers.networks.tiles import THIN_ROWS
from replaybench.controllers.policies.policy import Policy, Units, head_of, memory_of, statistics_of, weights_of

FMA: Final = """\
/* A fused multiply-add, rounded once. It is one instruction if the program is built for a processor that has it
   (-mfma, -mfpu=…), otherwise a call of the C library. Define NAME_FMA to use another function. */
#ifndef NAME_FMA
#ifdef __GNUC__
#define NAME_FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define NAME_FMA(a, b, c) fmaf((a), (b), (c))
#endif
#endif
"""

LAYER: Final = """\
/* y = W x + b, summed in the order of x. With one or two outputs, four partial sums run over every fourth x, and the
   first partial sum includes the remaining x. */
static inline void name_layer(const float *weight, const float *bias, int inputs, int outputs, const float *x, float *y)
{
    const int chained = outputs <= THIN ? (inputs + 1) / 4 * 4 : 0;
    for (int o = 0; o < outputs; o++) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int i = 0; i < inputs; i++)
            sum[i < chained ? i % 4 : 0] = NAME_FMA(weight[o * inputs + i], x[i], sum[i < chained ? i % 4 : 0]);
        sum[inputs < chained ? 3 : 0] += bias[o];
        y[o] = chained ? (sum[0] + sum[1]) + (sum[2] + sum[3]) : sum[0];
    }
}
""".replace("THIN", f"{THIN_ROWS}")

NORMALISE: Final = """\
/* Layer normalisation: z = gain (z - mean) / sqrt(variance + 1e-5) + shift */
static inline void name_normalise(const float *gain, const float *shift, int units, float share, float *z)
{
    float first[4] = {0.0f, 0.0f, 0.0f, 0.0f}, second[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int u = 0; u < units; u++) /* four sums over every fourth unit, the first with the rest */
        first[u < units / 4 * 4 ? u % 4 : 0] += z[u];
    const float mean = ((first[0] + first[1]) + (first[2] + first[3])) * share;
    for (int u = 0; u < units; u++) {
        z[u] -= mean;
        second[u < units / 4 * 4 ? u % 4 : 0] += z[u] * z[u];
    }
    const float variance = ((second[0] + second[1]) + (second[2] + second[3])) * share;
    const float scale = 1.0f / sqrtf(variance + EPSILON);
    for (int u = 0; u < units; u++) {
        z[u] *= scale;
        z[u] = gain[u] * z[u] + shift[u];
    }
}
"""

TANH: Final = """\
/* tanh in rational arithmetic, at most 1.82 units in the last place from the exact value */
static inline float name_tanh(float x)
{
    const float size = x < 0.0f ? -x : x;
    const float z = size > SATURATED ? SATURATED : size;
    const float a = 0.5f * z, u = a * a;
    const float q = ((Q3 * u + Q2) * u + Q1) * u + 1.0f;
    const float r = (R2 * u + R1) * u + R0;
    const float p = q - u * r, gap = q - a * p;
    const int small = z < 1.0f;
    const float less = small ? z * u * (q * r + p * p) : gap * gap;
    const float y = (small ? z : 1.0f) - less / (q * q + u * p * p);
    return x < 0.0f ? -y : y;
}
"""

ACTIVATE: Final = {
    "relu": "y[o] = y[o] <= 0.0f ? 0.0f : y[o];",
    "tanh": "y[o] = name_tanh(y[o]);",
    "softsign": "y[o] = y[o] / (1.0f + (y[o] < 0.0f ? -y[o] : y[o]));",
}

LSTM: Final = """\
/* One LSTM layer. memory contains the layer's output h, then its cells c, with one number per unit each.
   joined has room for inputs + units numbers, and gates for 4 * units (input, forget, output, candidate). */
static inline void name_lstm(const float *weight, const float *bias, int inputs, int units, const float *x,
                             float *memory, float *joined, float *gates)
{
    float *h = memory, *c = memory + units;
    for (int i = 0; i < inputs; i++)
        joined[i] = x[i];
    for (int u = 0; u < units; u++)
        joined[inputs + u] = h[u];
    name_layer(weight, bias, inputs + units, 4 * units, joined, gates);
    for (int k = 0; k < 3 * units; k++) /* the logistic function */
        gates[k] = 0.5f + 0.5f * name_tanh(0.5f * gates[k]);
    for (int u = 0; u < units; u++) {
        const float kept = gates[units + u] * c[u], taken = gates[u] * name_tanh(gates[3 * units + u]);
        c[u] = kept + taken;
        h[u] = gates[2 * units + u] * name_tanh(c[u]);
    }
}
"""


OBSERVE: Final = """\
/* states in physical units -> observation */
static inline void name_observe(const double *physical, float *observation)
{
    for (int i = 0; i < NAME_MEASURED; i++) {
        double seen = (physical[i] - name_center[i]) / name_state_scale[i];
LIMITED        observation[i] = (float)seen;
    }
}
"""

_LIMITED: Final = """\
        if (!(seen <= name_limit[i] && seen >= -name_limit[i]))
            seen = seen > 0.0 ? name_limit[i] : seen < 0.0 ? -name_limit[i] : 0.0;
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

PAST: Final = """\
/* past has NAME_PAST numbers: the last actions, the newest first. Call name_start at the start of an episode. */
static inline void name_start(float *past)
{
    for (int i = 0; i < NAME_PAST; i++)
        past[i] = (float)name_neutral[i % NAME_ACTIONS];
}

/* the past actions complete an observation */
static inline void name_recall(const float *past, float *observation)
{
    for (int i = 0; i < NAME_PAST; i++)
        observation[NAME_MEASURED + i] = past[i];
}

/* an action joins the past ones */
static inline void name_remember(const float *action, float *past)
{
    for (int i = NAME_PAST - 1; i >= 0; i--)
        past[i] = i < NAME_ACTIONS ? action[i] : past[i - NAME_ACTIONS];
}
"""

STEP: Final = """\
/* A whole control step: states in physical units -> command in physical units */
static inline void name_step(const double *physical,PAST_DECLAREDMEMORY_DECLARED double *command)
{
    float observation[NAME_STATES], action[NAME_ACTIONS];
    name_observe(physical, observation);
PAST_RECALLED    name_predict(observation,MEMORY_PASSED action);
PAST_REMEMBERED    name_command(action, command);
}
"""

MAIN: Final = """\
int main(void)
{
    int equal = 0, close = 0;
MEMORY_STARTEDPAST_STARTED    for (int n = 0; n < VECTORS; n++) {
        float observation[NAME_STATES], action[NAME_ACTIONS];
        for (int i = 0; i < NAME_STATES; i++)
            observation[i] = name_given[n][i];
    PAST_RECALLED        name_predict(observation,MEMORY_PASSED action);
    PAST_REMEMBERED        for (int a = 0; a < NAME_ACTIONS; a++) {
            const float due = name_due[n][a], unit = nextafterf(fabsf(due), 2.0f) - fabsf(due);
            equal += action[a] == due;
            close += fabsf(action[a] - due) <= unit;
        }
    }
    printf("%d actions: %d equal, %d within one unit in the last place\\n", VECTORS * NAME_ACTIONS, equal, close);
    return close != VECTORS * NAME_ACTIONS;
}
"""


def number(value: float | np.float32) -> str:
    """Return a C literal that a compiler reads as exactly this float32 value."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if any(mark in text for mark in ".en") else f"{text}.0f"


def double(value: float) -> str:
    """Return a C literal that a compiler reads as exactly this float64 value."""
    return repr(float(value))


VECTORS: Final = 16
"""Number of observations in the self-test of a policy's C header."""


def c_source(policy: Policy, name: str, origin: Sequence[str], units: Units | None) -> str:
    """Return a greedy policy as a C header.

    Args:
        policy: Policy of any learner, feed-forward or recurrent.
        name: Prefix of all names in the header. It must be a C identifier in lower case.
        origin: Lines of text about the origin of the policy, for the comment at the top.
        units: Physical units of the plant. Without units, the C functions use normalised observations and actions only.
    """
    return _Writer(policy, name, units).text(origin)


class _Writer:
    def __init__(self, policy: Policy, name: str, units: Units | None) -> None:
        self.policy, self.name, self.units = policy, name, units
        self.form, self.statistics = policy.agent.policy_head(), statistics_of(policy.agent)
        self.head, self.weights, self.memory = head_of(self.form), weights_of(self.form), memory_of(self.form)
        task = policy.agent.task
        self.states, self.actions = task.observation_size, task.action_size
        self.past = 0 if units is None else units.history * self.actions
        self.rate = float(policy.facts["policy"]["frequency"])

    def text(self, origin: Sequence[str]) -> str:
        """Return the whole header, in which the policy's name replaces `NAME` and `name`."""
        parts = [self._opening(), *self._functions(), *self._tables(), self._predict()]
        parts += [self._physical(self.units)] if self.units is not None else []
        code = "\n".join([*parts, self._test(), "#endif\n"])
        named = code.replace("NAME_", f"{self.name.upper()}_").replace("name_", f"{self.name}_")
        return f"{self._comment(origin)}\n{named}"

    def _comment(self, origin: Sequence[str]) -> str:
        lines = [*origin, ""]
        lines += [
            f"Control rate: {self.rate:g} Hz. Call it once every {1 / self.rate:g} s, with the newest measurement."
        ]
        if self.memory:
            lines += [f"Its memory has {self.memory} numbers. Set them to 0 at the start of an episode."]
        if self.past:
            count = self.past // self.actions
            last = "last action is an input" if count == 1 else f"last {count} actions are inputs"
            lines += [f"The {last}, too. The array past contains them, and name_step updates it."]
        lines += ["", f"Observation: {self.states} float, normalised:"]
        lines += [f"  {line}" for line in self._observed()]
        if self.statistics is not None:
            lines += ["The network receives them standardised by the mean and scale that are below."]
        lines += ["", f"Action: {self.actions} float in [-1, 1]:", *(f"  {line}" for line in self._acted())]
        where = " and tanhf is the same C library's" if self.form.squash == "tanh" else ""
        lines += [
            "",
            "All arithmetic of the network is float32, in the same order as in the package. Results have the same "
            f"bits if the compiler conforms to ISO C (-std=c99 or -ffp-contract=off, without -ffast-math){where}.",
            "",
            f"Self-test: cc -std=c99 -D{self.name.upper()}_MAIN -x c THIS_FILE -lm && ./a.out",
        ]
        wrapped = [part for line in lines for part in (textwrap.wrap(line, 112, subsequent_indent="  ") or [""])]
        return "/*\n" + "\n".join(f" * {line.replace('*/', '* /')}".rstrip() for line in wrapped) + "\n */"

    def _observed(self) -> Iterator[str]:
        if self.units is None:
            yield "as the policy's plant observes its states; its units are not in the policy's file"
            return
        u = self.units
        for i, (name, unit) in enumerate(zip(u.state_names, u.state_units, strict=True)):
            angle = ", an angle in [-pi, pi)" if u.periodic[i] else ""
            yield f"[{i}] ({name} - {u.center[i]:g}) / {u.scale[i]:g}, {name} in {unit}{angle}"
        for i in range(self.past):
            ago = i // self.actions + 1
            yield f"[{len(u.state_names) + i}] action [{i % self.actions}], {ago} step{'s' * (ago > 1)} ago"

    def _acted(self) -> Iterator[str]:
        if self.units is None:
            yield "of the plant's whole range; its units are not in the policy's file"
            return
        u = self.units
        for a, (name, unit) in enumerate(zip(u.action_names, u.action_units, strict=True)):
            choice = f", the nearest of {u.choices[a]} evenly spaced values" if u.choices else ""
            yield f"[{a}] {name} in {unit} = {u.middle[a]:g} + {u.half[a]:g} * action{choice}"

    def _opening(self) -> str:
        lines = ["#ifndef NAME_H", "#define NAME_H", "", "#include <math.h>", ""]
        lines += [f"#define NAME_RATE {double(self.rate)} /* [Hz] */", f"#define NAME_STATES {self.states}"]
        lines += [f"#define NAME_ACTIONS {self.actions}", f"#define NAME_MEMORY {self.memory}"]
        lines += [f"#define NAME_MEASURED {self.states - self.past}", f"#define NAME_PAST {self.past}"]
        return "\n".join([*lines, "", FMA])

    def _functions(self) -> Iterator[str]:
        yield LAYER
        if self.head.layer_norm:
            yield NORMALISE.replace("EPSILON", number(1e-5))
        if self.memory or self.head.tanh or (self.head.activation == "tanh" and len(self.head.layers) > 1):
            text = TANH
            for name in ("Q1", "Q2", "Q3", "R0", "R1", "R2", "SATURATED"):
                text = text.replace(name, number(getattr(mlp, f"_{name}")))
            yield text
        if self.memory:
            yield LSTM

    def _tables(self) -> Iterator[str]:
        for name, array in self.weights.items():
            yield _array("float", f"name_{name.replace('.', '_')}", array.T if array.ndim == 2 else array, number)
        if self.statistics is not None:
            yield _array("double", "name_mean", self.statistics.mean, double)
            yield _array("double", "name_scale", self.statistics.scale, double)
        if self.form.table is not None:
            yield _array("float", "name_choice", self.form.table, number)

    def _predict(self) -> str:
        recurrent = self.form.network.shape.trunk if isinstance(self.form.network, PopulationRecurrent) else None
        width = max(max(pair) for pair in self.head.layers)
        memory = ", float *memory" if self.memory else ""
        note = "; memory has NAME_MEMORY numbers" if self.memory else ""
        lines = [f"/* observation (normalised) -> action in [-1, 1]{note} */"]
        lines += [f"static inline void name_predict(const float *observation{memory}, float *action)", "{"]
        lines += [f"    float x[{max(width, self.states)}], y[{width}];"]
        if recurrent is not None:
            lines += [
                f"    float joined[{max(recurrent.layer_inputs) + recurrent.units}], gates[{4 * recurrent.units}];"
            ]
        lines += ["    for (int i = 0; i < NAME_STATES; i++) {", *self._standardise(), "    }"]
        if recurrent is not None:
            units = recurrent.units
            for layer, inputs in enumerate(recurrent.layer_inputs):
                source = "x" if layer == 0 else f"memory + {2 * (layer - 1) * units}"
                weight = f"&name_trunk_{layer}_weight[0][0], name_trunk_{layer}_bias, {inputs}, {units}"
                lines += [f"    name_lstm({weight}, {source}, memory + {2 * layer * units}, joined, gates);"]
            top = 2 * (recurrent.layers - 1) * units
            lines += [f"    for (int i = 0; i < {units}; i++)", f"        x[i] = memory[{top} + i];"]
        now, other = "x", "y"
        last = len(self.head.layers) - 1
        for layer, (inputs, outputs) in enumerate(self.head.layers):
            part = f"name_head_{layer}_"
            lines += [f"    name_layer(&{part}weight[0][0], {part}bias, {inputs}, {outputs}, {now}, {other});"]
            now, other = other, now
            if layer < last:
                if self.head.layer_norm:
                    share = number(np.float32(1.0 / outputs))
                    lines += [f"    name_normalise({part}gain, {part}shift, {outputs}, {share}, {now});"]
                activation = ACTIVATE[self.head.activation].replace("y[", f"{now}[")
                lines += [f"    for (int o = 0; o < {outputs}; o++)", f"        {activation}"]
        return "\n".join([*lines, *self._chosen(now), "}", ""])

    def _standardise(self) -> list[str]:
        if self.statistics is None:
            return ["        x[i] = observation[i];"]
        lines = ["        double seen = ((double)observation[i] - name_mean[i]) * name_scale[i];"]
        if np.isfinite(bound := self.statistics.bound):
            limit = double(bound)
            lines += [f"        seen = seen > {limit} ? {limit} : seen < -{limit} ? -{limit} : seen;"]
        return [*lines, "        x[i] = (float)seen;"]

    def _chosen(self, outputs: str) -> list[str]:
        first, width = self.form.first, self.form.width
        if self.form.table is not None:
            return [
                "    int best = 0;",
                f"    for (int k = 1; k < {width}; k++)",
                f"        best = {outputs}[{first} + k] > {outputs}[{first} + best] ? k : best;",
                "    for (int a = 0; a < NAME_ACTIONS; a++)",
                "        action[a] = name_choice[best][a];",
                f"    for (int k = 0; k < {width} * NAME_ACTIONS; k++) /* NaN stays NaN */",
                f"        if ({outputs}[{first} + k % {width}] != {outputs}[{first} + k % {width}])",
                f"            action[k / {width}] = {outputs}[{first} + k % {width}];",
            ]
        value = f"{outputs}[{first} + a]" if first else f"{outputs}[a]"
        value = f"name_tanh({value})" if self.head.tanh else value
        value = f"tanhf({value})" if self.form.squash == "tanh" else value
        lines = ["    for (int a = 0; a < NAME_ACTIONS; a++) {", f"        const float chosen = {value};"]
        return [*lines, "        action[a] = chosen > 1.0f ? 1.0f : chosen < -1.0f ? -1.0f : chosen;", "    }"]

    def _physical(self, u: Units) -> str:
        named = {"center": u.center, "state_scale": u.scale, "middle": u.middle, "half": u.half}
        if u.limit is not None:
            named["limit"] = u.limit
        if self.past:
            named["neutral"] = u.neutral
        parts = [_array("double", f"name_{key}", values, double) for key, values in named.items()]
        if u.choices:
            parts += [_array("int", "name_choices", np.array(u.choices), str)]
        command = CHOOSE if u.choices else COMMAND
        observe = OBSERVE.replace("LIMITED", "" if u.limit is None else _LIMITED)
        return "\n".join([*parts, observe, command, *[PAST] * (self.past > 0), self._with_memory(STEP)])

    def _with_memory(self, text: str) -> str:
        parts = {
            "MEMORY_DECLARED": " float *memory,",
            "MEMORY_PASSED": " memory,",
            "MEMORY_STARTED": "    float memory[NAME_MEMORY] = {0.0f};\n",
        }
        past = {
            "PAST_DECLARED": " float *past,",
            "PAST_STARTED": "    float past[NAME_PAST];\n    name_start(past);\n",
            "PAST_RECALLED": "    name_recall(past, observation);\n",
            "PAST_REMEMBERED": "    name_remember(action, past);\n",
        }
        for marks, there in ((parts, self.memory), (past, self.past)):
            for mark, part in marks.items():
                text = text.replace(mark, part) if there else text.replace(f"    {mark}", "").replace(mark, "")
        return text

    def _test(self) -> str:
        observations = np.random.Generator(np.random.PCG64(0)).uniform(-1, 1, (VECTORS, self.states)).astype(np.float32)
        actions, memory = np.empty((VECTORS, self.actions), np.float32), None
        for row, observation in enumerate(observations):
            if self.past and self.units is not None:
                given = [*actions[:row][::-1], *[self.units.neutral] * self.units.history][: self.units.history]
                observation[-self.past :] = np.concatenate(given)
            action, memory = self.policy.predict(observation[None], memory)
            actions[row] = action[0]
        body = self._with_memory(MAIN).replace("VECTORS", f"{VECTORS}")
        how = "one after the other, as in an episode" if self.memory or self.past else "each by itself"
        parts = ["#ifdef NAME_MAIN", "#include <stdio.h>", "", f"/* observations, {how}, and the expected actions */"]
        parts += [_array("float", "name_given", observations, number), _array("float", "name_due", actions, number)]
        return "\n".join([*parts, body, "#endif\n"])


def _array(kind: str, name: str, values: np.ndarray, write: Any) -> str:
    size = "".join(f"[{length}]" for length in values.shape)
    rows = [", ".join(write(value) for value in row) for row in np.atleast_2d(values)]
    if values.ndim == 2:
        rows = [f"{{{row}}}" for row in rows]
    body = textwrap.fill(", ".join(rows), 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f"static const {kind} {name}{size} = {{\n{body}\n}};\n"
