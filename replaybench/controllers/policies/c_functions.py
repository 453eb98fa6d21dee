"""The functions in C99 of which exported policies are made: the arithmetic of this package's kernels, in its order.

`NAME` and `name` stand for the policy's. Each text is one function of `networks`, for one member and one observation:
float32 throughout, sums in the order of their terms by fused multiply-adds, no allocation, no state.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from replaybench.controllers.networks import activations
from replaybench.controllers.networks.tiles import THIN_ROWS

FMA: Final = """\
/* A fused multiply-add, rounded once; one instruction where the processor has it (build for it: -mfma, -mfpu=…),
   else a call of the C library. Define NAME_FMA to use another. */
#ifndef NAME_FMA
#ifdef __GNUC__
#define NAME_FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define NAME_FMA(a, b, c) fmaf((a), (b), (c))
#endif
#endif
"""

LAYER: Final = """\
/* y = W x + b, sums in the order of x; of one or two outputs four sums of every fourth, the first also of those left */
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
    for (int u = 0; u < units; u++) /* four sums of every fourth, the first also of those left */
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
/* One layer of long short-term memory: memory = its output h, then its cells c, each of so many units.
   joined has room for inputs + units numbers, gates for 4 units (input, forget, output, candidate). */
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
    for (int i = 0; i < NAME_STATES; i++) {
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

STEP: Final = """\
/* states in physical units -> command in physical units: a whole control step */
static inline void name_step(const double *physical,MEMORY_DECLARED double *command)
{
    float observation[NAME_STATES], action[NAME_ACTIONS];
    name_observe(physical, observation);
    name_predict(observation,MEMORY_PASSED action);
    name_command(action, command);
}
"""

MAIN: Final = """\
int main(void)
{
    int equal = 0, close = 0;
MEMORY_STARTED    for (int n = 0; n < VECTORS; n++) {
        float action[NAME_ACTIONS];
        name_predict(name_given[n],MEMORY_PASSED action);
        for (int a = 0; a < NAME_ACTIONS; a++) {
            const float due = name_due[n][a], unit = nextafterf(fabsf(due), 2.0f) - fabsf(due);
            equal += action[a] == due;
            close += fabsf(action[a] - due) <= unit;
        }
    }
    printf("%d actions: %d equal, %d within one unit in the last place\\n", VECTORS * NAME_ACTIONS, equal, close);
    return close != VECTORS * NAME_ACTIONS;
}
"""


def with_memory(text: str, remembers: bool) -> str:
    """Return `STEP` or `MAIN` for a policy that remembers, or one that does not."""
    parts = {
        "MEMORY_DECLARED": " float *memory,",
        "MEMORY_PASSED": " memory,",
        "MEMORY_STARTED": "    float memory[NAME_MEMORY] = {0.0f};\n",
    }
    for mark, part in parts.items():
        text = text.replace(mark, part if remembers else "")
    return text


def with_limit(limited: bool) -> str:
    """Return `OBSERVE`, within limits or not."""
    return OBSERVE.replace("LIMITED", _LIMITED if limited else "")


def number(value: float | np.float32) -> str:
    """Return a float32 as C writes it, so that a compiler reads the same bits."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if any(mark in text for mark in ".en") else f"{text}.0f"


def double(value: float) -> str:
    """Return a float64 as C writes it, so that a compiler reads the same bits."""
    return repr(float(value))


def tanh_function() -> str:
    """Return `TANH` with the numbers of this package's own, of which it is the form."""
    names = {"Q1": "_Q1", "Q2": "_Q2", "Q3": "_Q3", "R0": "_R0", "R1": "_R1", "R2": "_R2", "SATURATED": "_SATURATED"}
    text = TANH
    for name, ours in names.items():
        text = text.replace(name, number(getattr(activations, ours)))
    return text
