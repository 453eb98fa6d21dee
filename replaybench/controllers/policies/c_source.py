"""Policies as C source code.

The C code computes `Policy.predict` in the same order and precision. The results have the same bits if the C library's
tanhf gives the same bits (`docs/how-to/export-a-policy.md`). In the templates below, `NAME` and `name` stand for the
name of the policy. Each template is one function for one observation, in float32. Sums are computed in order, by fused
multiply-adds.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from replaybench.controllers.networks import mlp
from replaybench.controllers.networks.recurrent import PopulationRecurrent
from replaybench.controllers.networks.tiles import THIN_ROWS
from replaybench.controllers.policies.c_header import Law, Recorded, Units, array, c_header, double, number
from replaybench.controllers.policies.policy import Policy, head_of, memory_of, statistics_of, weights_of

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

VECTORS: Final = 16
"""Number of observations in the self-test of a header without physical units."""


def c_source(
    policy: Policy, name: str, origin: Sequence[str], units: Units | None, recorded: Recorded | None = None
) -> str:
    """Return a greedy policy as a C header.

    Args:
        policy: Policy of any learner, feed-forward or recurrent.
        name: Prefix of all names in the header. It must be a C identifier in lower case.
        origin: Lines of text about the origin of the policy, for the comment at the top.
        units: Physical units of the plant. Without units, the C functions use normalised observations and actions only.
        recorded: Readings of an episode and commands of the policy, if there are units, for the self-test.
    """
    return c_header(_Network(policy).law(), name, origin, units, recorded or _predicted(policy))


def _predicted(policy: Policy) -> Recorded:
    """Return random observations and the actions of the policy."""
    size = policy.agent.task.observation_size
    observations = np.random.Generator(np.random.PCG64(0)).uniform(-1, 1, (VECTORS, size)).astype(np.float32)
    actions, memory = [], None
    for observation in observations:
        action, memory = policy.predict(observation[None], memory)
        actions.append(action[0])
    return Recorded(observations, np.array(actions), physical=False)


class _Network:
    def __init__(self, policy: Policy) -> None:
        self.form, self.statistics = policy.agent.policy_head(), statistics_of(policy.agent)
        self.head, self.weights, self.memory = head_of(self.form), weights_of(self.form), memory_of(self.form)
        task = policy.agent.task
        self.states, self.actions = task.observation_size, task.action_size
        self.rate = float(policy.facts["policy"]["frequency"])

    def law(self) -> Law:
        """Return the C code of the network."""
        remembered = f"float memory[{self.memory}]; /* of the LSTM */"
        return Law(
            states=self.states, actions=self.actions, rate=self.rate,
            functions=[*self._functions(), *self._tables()], predict=self._predict(), notes=self._notes(),
            argument="state->memory" if self.memory else "", state=[remembered] * bool(self.memory),
        )  # fmt: skip

    def _notes(self) -> list[str]:
        standardised = "The network receives observations standardised by the mean and scale that are below."
        where = " and tanhf is the same C library's" if self.form.squash == "tanh" else ""
        return [standardised] * (self.statistics is not None) + [
            "All arithmetic of the network is float32, in the same order as in the package. Results have the same "
            f"bits if the compiler conforms to ISO C (-std=c99 or -ffp-contract=off, without -ffast-math){where}.",
        ]

    def _functions(self) -> Iterator[str]:
        yield FMA
        yield LAYER
        if self.head.layer_norm:
            yield NORMALISE.replace("EPSILON", number(1e-5))
        if self.memory or self.head.tanh or (self.head.activation == "tanh" and len(self.head.layers) > 1):
            text = TANH
            for name in ("Q1", "Q2", "Q3", "R0", "R1", "R2", "SATURATED"):
                text = text.replace(name, number(getattr(mlp, f"_{name}")))
            yield text
        if self.memory:
            yield f"#define NAME_MEMORY {self.memory}\n"
            yield LSTM

    def _tables(self) -> Iterator[str]:
        for name, weight in self.weights.items():
            yield array("float", f"name_{name.replace('.', '_')}", weight.T if weight.ndim == 2 else weight, number)
        if self.statistics is not None:
            yield array("double", "name_mean", self.statistics.mean, double)
            yield array("double", "name_scale", self.statistics.scale, double)
        if self.form.table is not None:
            yield array("float", "name_choice", self.form.table, number)

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
