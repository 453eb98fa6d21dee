// Fully connected networks of one member: forward and backward pass, weight gradients with Adam behind them.
//
// Speed. Reading shared memory binds these small layers, not arithmetic. A thread therefore computes one or more units
// for four samples at once: one 16-byte load serves 4 multiply-adds of each. Weight gradients are tiles of 4 inputs x 1
// or 2 units, whose Adam step and target follow in registers: gradients are never stored.
//
// Memory. A layer is a matrix [inputs + 1][columns], its last row the bias. `columns` is the number of units made odd,
// so that the backward pass, whose neighbouring threads have neighbouring rows, meets different banks. Activations and
// errors are [unit][STRIDE]. A network with one output needs no error of its last hidden layer: that is the output's
// weight where the unit is active, times the loss gradient of the sample (Seeded, Unit). Its backward pass can thus run
// before the loss is known.
#pragma once
#include "block.cuh"

template <int V> struct Int {
    CONSTANT int value = V;
};

// Call f(Int<FIRST>{}) ... f(Int<END - 1>{}), for loops over layers and steps whose sizes are compile-time constants.
template <int FIRST, int END, class F> DEVICE void unrolled(F&& f) {
    if constexpr (FIRST < END) {
        f(Int<FIRST>{});
        unrolled<FIRST + 1, END>(f);
    }
}

// Spread the tasks of a phase over threads: each begins at the warp at which the one before ended.
struct Shares {
    int thread, taken = 0;
    METHOD explicit Shares(int thread) : thread(thread) {}
    template <class Task> METHOD void operator()(int items, Task&& task) {
        const int start = taken % THREADS;
        for (int item = thread < start ? thread + THREADS - start : thread - start; item < items; item += THREADS)
            task(item);
        taken += rounded_up(items, 32);
    }
};

// Sizes of a network; JOINED numbers (the action) join the input of layer JOIN after its other inputs; -1: none do.
template <int INPUTS, int JOINED, int JOIN, int OUTPUTS_, class Hidden> struct Network {
    CONSTANT int HIDDEN = Hidden::COUNT, OUTPUTS = OUTPUTS_, JOINS = JOIN;
    static_assert(HIDDEN > 0, "networks without hidden layers run on the CPU only");
    static FOLDED int units(int layer) { return layer < HIDDEN ? Hidden::of(layer) : OUTPUTS; }
    static FOLDED int own(int layer) { return layer ? Hidden::of(layer - 1) : INPUTS; }
    static FOLDED int inputs(int layer) { return own(layer) + (layer == JOIN ? JOINED : 0); }
    static FOLDED int columns(int layer) { return units(layer) | 1; }
    static FOLDED int offset(int layer) {
        int floats = 0;
        for (int l = 0; l < layer; ++l) floats += (inputs(l) + 1) * columns(l);
        return floats;
    }
    static FOLDED int floats() { return rounded_up(offset(HIDDEN + 1), 4); }
    // First row of a hidden layer on a tape of all of them.
    static FOLDED int row(int layer) {
        int rows = 0;
        for (int l = 0; l < layer; ++l) rows += Hidden::of(l);
        return rows;
    }
    static FOLDED int rows() { return row(HIDDEN); }
    static FOLDED int last() { return Hidden::of(HIDDEN - 1); }
};

// Inputs of a layer, [row][STRIDE]: its own, those that join it, and ones for the bias.
template <class Net, int LAYER, int STRIDE> struct Rows {
    const float *own, *joined, *ones;
    METHOD const float* row(int k) const {
        if (k < Net::own(LAYER)) return own + k * STRIDE;
        return k < Net::inputs(LAYER) ? joined + (k - Net::own(LAYER)) * STRIDE : ones;
    }
};

// Units (of 4, 2, 1) that a thread computes: as many as leave three quarters of the threads with a share of `items`.
// More units save loads of shared memory; fewer shorten the phase of a layer that cannot occupy the block.
FOLDED int units_of_thread(int units, int items, int most) {
    for (int u = most; u > 1; u /= 2)
        if (u <= units && (units + u - 1) / u * items >= THREADS * 3 / 4) return u;
    return 1;
}

// The passes of networks `Net` over BATCH samples.
template <class Net, int BATCH> struct Passes {
    CONSTANT int STRIDE = sample_stride(BATCH), QUADS = (BATCH + 3) / 4;
    // Sixteen threads have sixteen successive units, the next sixteen the same ones and the next four samples: a warp
    // then reads sixteen successive weights and two quads of each input, without conflicts whatever the width is.
    CONSTANT int LANES = 16;
    static METHOD int unit_of(int item) { return item / LANES / QUADS * LANES + item % LANES; }
    static METHOD int samples_of(int item) { return item / LANES % QUADS * 4; }
    template <int L> using Input = Rows<Net, L, STRIDE>;
    template <int L> static METHOD Input<L> input(const float* x, const float* joined, const float* tape,
                                                  const float* ones) {
        return {L ? tape + Net::row(L ? L - 1 : 0) * STRIDE : x, joined, ones};
    }

    // Hidden layer L: out [units][STRIDE] = relu(W x + b).
    template <int L> static METHOD void forward(Shares& shares, const float* weights, Input<L> x, float* out) {
        constexpr int UNITS = Net::units(L), U = units_of_thread(UNITS, QUADS, 4), PART = (UNITS + U - 1) / U;
        constexpr int COLUMNS = Net::columns(L), OWN = Net::own(L), INPUTS = Net::inputs(L);
        weights += Net::offset(L);
        shares(rounded_up(PART, LANES) * QUADS, [=](int item) {
            const int unit = unit_of(item), s = samples_of(item);
            if (unit >= PART) return;
            const float* w = weights + unit;
            int at[U];  // a unit too many reads the first one's weights, and is not stored
            float4 sum[U];
#pragma unroll
            for (int j = 0; j < U; ++j) {
                at[j] = unit + j * PART < UNITS ? j * PART : 0;
                sum[j] = all4(w[INPUTS * COLUMNS + at[j]]);
            }
#pragma unroll 8
            for (int k = 0; k < OWN; ++k) {
                const float4 value = quad(x.own + k * STRIDE + s);
#pragma unroll
                for (int j = 0; j < U; ++j) add(sum[j], w[k * COLUMNS + at[j]], value);
            }
#pragma unroll
            for (int k = OWN; k < INPUTS; ++k) {
                const float4 value = quad(x.joined + (k - OWN) * STRIDE + s);
#pragma unroll
                for (int j = 0; j < U; ++j) add(sum[j], w[k * COLUMNS + at[j]], value);
            }
#pragma unroll
            for (int j = 0; j < U; ++j)
                if (unit + j * PART < UNITS) quad(out + (unit + j * PART) * STRIDE + s) = relu(sum[j]);
        });
    }

    // Output layer: `then(output, s, value)` receives four samples' values from s on. Sixteen threads share a sum.
    template <class Then>
    static METHOD void head(Shares& shares, const float* weights, Input<Net::HIDDEN> x, Then&& then) {
        constexpr int L = Net::HIDDEN, COLUMNS = Net::columns(L), INPUTS = Net::inputs(L), SUMS = Net::OUTPUTS * QUADS;
        weights += Net::offset(L);
        shares(rounded_up(SUMS * 16, 32), [&](int item) {
            const int which = item / 16 < SUMS ? item / 16 : 0, output = which % Net::OUTPUTS;
            const int s = which / Net::OUTPUTS * 4;
            float4 sum = lane_sum<16>(item, INPUTS, [&](int k) {
                float4 product = all4(0.0f);
                add(product, weights[k * COLUMNS + output], quad(x.row(k) + s));
                return product;
            });
            if (item % 16 == 0 && item / 16 < SUMS)
                then(output, s, plus(sum, all4(weights[INPUTS * COLUMNS + output])));
        });
    }

    // Errors of layer L's units -> errors out of hidden layer L - 1, whose values are h; out may be h itself.
    template <int L, class Errors>
    static METHOD void backward(Shares& shares, const float* weights, Errors errors, const float* h, float* out) {
        constexpr int ROWS = Net::own(L), U = units_of_thread(ROWS, QUADS, 4), PART = (ROWS + U - 1) / U;
        constexpr int COLUMNS = Net::columns(L);
        weights += Net::offset(L);
        shares(rounded_up(PART, LANES) * QUADS, [=](int item) {
            const int row = unit_of(item), s = samples_of(item);
            if (row >= PART) return;
            const float* w = weights + row * COLUMNS;
            int at[U];
            float4 sum[U];
#pragma unroll
            for (int j = 0; j < U; ++j) {
                at[j] = row + j * PART < ROWS ? j * PART * COLUMNS : 0;
                sum[j] = all4(0.0f);
            }
#pragma unroll 8
            for (int u = 0; u < Net::units(L); ++u) {
                const float4 error = errors(u, s);
#pragma unroll
                for (int j = 0; j < U; ++j) add(sum[j], w[at[j] + u], error);
            }
#pragma unroll
            for (int j = 0; j < U; ++j) {
                const int place = (row + j * PART) * STRIDE + s;
                if (row + j * PART < ROWS) quad(out + place) = select(quad(h + place), sum[j]);
            }
        });
    }

    // Gradient to the numbers that joined at layer JOINS: then(number, s, gradient of four samples).
    template <class Errors, class Then>
    static METHOD void joined_gradient(Shares& shares, const float* weights, int count, Errors errors, Then&& then) {
        constexpr int L = Net::JOINS, COLUMNS = Net::columns(L);
        weights += Net::offset(L) + Net::own(L) * COLUMNS;
        shares(rounded_up(count * QUADS * 16, 32), [&](int item) {
            const int which = item / 16 < count * QUADS ? item / 16 : 0, number = which % count, s = which / count * 4;
            const float4 sum = lane_sum<16>(item, Net::units(L), [&](int u) {
                float4 product = all4(0.0f);
                add(product, weights[number * COLUMNS + u], errors(u, s));
                return product;
            });
            if (item % 16 == 0 && item / 16 < count * QUADS) then(number, s, sum);
        });
    }

    // Weight gradient of layer L, in tiles; each number goes to apply(place, is_bias, gradient, apply.fetch(place)).
    template <int L, class Errors, class Apply>
    static METHOD void gradient(Shares& shares, Input<L> x, Errors errors, Apply apply) {
        constexpr int INPUTS = Net::inputs(L), TILES = INPUTS / 4 + 1, COLUMNS = Net::columns(L);
        constexpr int UNITS = Net::units(L), U = units_of_thread(UNITS, TILES, 2), PART = (UNITS + U - 1) / U;
        shares(TILES * PART, [=](int item) mutable {
            const int unit = item % PART, first = item / PART * 4;
            const float* rows[4];
            int at[U];
            float sum[4][U];
            typename Apply::Kept kept[4][U];  // asked for before the sums, as it comes from far
#pragma unroll
            for (int j = 0; j < U; ++j) at[j] = unit + j * PART < UNITS ? unit + j * PART : unit;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int k = first + i <= INPUTS ? first + i : INPUTS;
                rows[i] = x.row(k);
#pragma unroll
                for (int j = 0; j < U; ++j) {
                    sum[i][j] = 0.0f;
                    kept[i][j] = apply.fetch(Net::offset(L) + k * COLUMNS + at[j]);
                }
            }
#pragma unroll 2
            for (int s = 0; s < QUADS * 4; s += 4) {
                float4 error[U];
#pragma unroll
                for (int j = 0; j < U; ++j) error[j] = errors.scaled(at[j], s);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float4 value = quad(rows[i] + s);
#pragma unroll
                    for (int j = 0; j < U; ++j) sum[i][j] = dot(value, error[j], sum[i][j]);
                }
            }
#pragma unroll
            for (int j = 0; j < U; ++j) {
                const float factor = errors.factor(at[j]);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (first + i <= INPUTS && unit + j * PART < UNITS)
                        apply(Net::offset(L) + (first + i) * COLUMNS + at[j], first + i == INPUTS, factor * sum[i][j],
                              kept[i][j]);
            }
        });
    }

    // All layers for a single observation; `out`: the outputs. Eight threads share a sum. Phases: one a layer.
    static METHOD void act(const float* weights, const float* observation, float* tape, float* out) {
        unrolled<0, Net::HIDDEN + 1>([&](auto layer) {
            constexpr int L = decltype(layer)::value, UNITS = Net::units(L), COLUMNS = Net::columns(L);
            constexpr int INPUTS = Net::inputs(L);
            const float *x = L ? tape + Net::row(L ? L - 1 : 0) : observation, *w = weights + Net::offset(L);
            PHASE(thread) {
                Shares shares(thread);
                shares(rounded_up(UNITS * 8, 32), [&](int item) {
                    const int unit = item / 8 < UNITS ? item / 8 : 0;
                    float value = lane_sum<8>(item, INPUTS, [&](int k) { return w[k * COLUMNS + unit] * x[k]; });
                    if (item % 8 || item / 8 >= UNITS) return;
                    value += w[INPUTS * COLUMNS + unit];
                    if constexpr (L == Net::HIDDEN) out[unit] = value;
                    else tape[Net::row(L) + unit] = value < 0 ? 0.0f : value;
                });
            }
        });
    }
};

// Errors of a layer's units, times the loss gradient `scale` [STRIDE] of each sample where they are not complete.
template <int STRIDE> struct Stored {  // complete, [unit][STRIDE]
    const float* rows;
    METHOD float4 operator()(int unit, int s) const { return quad(rows + unit * STRIDE + s); }
    METHOD float4 scaled(int unit, int s) const { return quad(rows + unit * STRIDE + s); }
    METHOD float factor(int) const { return 1.0f; }
};
template <int STRIDE> struct Scaled {  // [unit][STRIDE], of a loss gradient 1
    const float *rows, *scale;
    METHOD float4 operator()(int unit, int s) const { return quad(rows + unit * STRIDE + s); }
    METHOD float4 scaled(int unit, int s) const {
        const float4 a = quad(rows + unit * STRIDE + s), b = quad(scale + s);
        return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
    }
    METHOD float factor(int) const { return 1.0f; }
};
template <int STRIDE> struct Seeded {  // of the last hidden layer of a network with one output; `seed`: its weights
    const float *h, *seed, *scale;
    METHOD float4 operator()(int unit, int s) const { return select(quad(h + unit * STRIDE + s), all4(seed[unit])); }
    METHOD float4 scaled(int unit, int s) const { return select(quad(h + unit * STRIDE + s), quad(scale + s)); }
    METHOD float factor(int unit) const { return seed[unit]; }
};
template <int STRIDE> struct Unit {  // of that output
    const float* scale;
    METHOD float4 operator()(int, int) const { return all4(1.0f); }
    METHOD float4 scaled(int, int s) const { return quad(scale + s); }
    METHOD float factor(int) const { return 1.0f; }
};

// A network with one output or stored errors: which errors its layers have. `tape`: hidden values; `errors`: of hidden
// layers, laid out as the tape (a network with one output leaves its last layer's out); `seed`: a copy of the output's
// weights, because gradients of hidden layers need them while the output's are updated.
template <class Net, int BATCH> struct Backpropagation {
    CONSTANT int STRIDE = sample_stride(BATCH);
    CONSTANT bool SINGLE = Net::OUTPUTS == 1;
    const float *weights, *tape, *seed, *scale, *head;
    float* errors;

    template <int L> METHOD auto of() const {
        if constexpr (L == Net::HIDDEN) {
            if constexpr (SINGLE) return Unit<STRIDE>{scale};
            else return Stored<STRIDE>{head};
        } else if constexpr (SINGLE && L == Net::HIDDEN - 1) {
            return Seeded<STRIDE>{tape + Net::row(L) * STRIDE, seed, scale};
        } else if constexpr (SINGLE) {
            return Scaled<STRIDE>{errors + Net::row(L) * STRIDE, scale};
        } else {
            return Stored<STRIDE>{errors + Net::row(L) * STRIDE};
        }
    }
    // Errors of hidden layer L - 1 from those of layer L.
    template <int L> METHOD void below(Shares& shares) const {
        const int at = Net::row(L - 1) * STRIDE;
        Passes<Net, BATCH>::template backward<L>(shares, weights, of<L>(), tape + at, errors + at);
    }
    // Layers whose errors `below` computes are FIRST, FIRST - 1, ... 1.
    CONSTANT int FIRST = Net::HIDDEN - (SINGLE ? 1 : 0);

    template <class Apply>
    METHOD void gradients(Shares& shares, const float* x, const float* joined, const float* ones, Apply apply) const {
        unrolled<0, Net::HIDDEN + 1>([&](auto layer) {
            constexpr int L = decltype(layer)::value;
            using P = Passes<Net, BATCH>;
            P::template gradient<L>(shares, P::template input<L>(x, joined, tape, ones), of<L>(), apply);
        });
    }
};

// Settings of a network's optimiser, as networks/adam.py has them: take = 1 - keep; log_beta are natural logarithms.
// `penalty` is L2 in the gradient of weights, before clipping; `l2` in that of all, after it; `decay` is decoupled.
struct AdamSettings {
    float rate, epsilon, keep1, take1, keep2, take2, log_beta1, log_beta2, penalty, l2, decay, clip;
};

// What changes from step to step; one thread computes it, in shared memory.
struct AdamStep {
    float size, epsilon, shrink, factor;
};

DEVICE AdamStep adam_step(const AdamSettings& s, float step, float rate_factor) {
    const float root = sqrt(-expm1(step * s.log_beta2)), rate = s.rate * rate_factor;
    return {rate * root / -expm1(step * s.log_beta1), s.epsilon * root, 1.0f - rate * s.decay, 1.0f};
}

struct alignas(8) Moments {
    float first, second;
};

// Adam for the parameters p of a network, with their moments, and tracking of its target network (tau = 0: none).
struct Adam {
    using Kept = Moments;
    float *p, *target;
    Moments* moments;
    AdamSettings s;
    AdamStep now;
    float tau;

    METHOD Moments fetch(int place) const { return moments[place]; }
    METHOD void operator()(int place, bool bias, float gradient, Moments kept) const {
        const float before = p[place];
        const float g = (gradient + (bias ? 0.0f : s.penalty) * before) * now.factor + s.l2 * before;
        const float m1 = s.keep1 * kept.first + s.take1 * g, m2 = s.keep2 * kept.second + s.take2 * g * g;
        // As on the CPU, moments of dead units end at zero; written so that NaN stays.
        kept.first = fabs(m1) < 1e-30f ? 0.0f : m1;
        kept.second = m2 < 1e-30f ? 0.0f : m2;
        const float after = now.shrink * before - now.size * (kept.first / (sqrt(kept.second) + now.epsilon));
        moments[place] = kept;
        p[place] = after;
        if (tau > 0.0f) target[place] = (1.0f - tau) * target[place] + tau * after;
    }
};

// Sum of squares of a gradient, for clipping by its norm.
struct Squares {
    struct Kept {};
    const float* p;
    float penalty;
    double* sum;
    METHOD Kept fetch(int) const { return {}; }
    METHOD void operator()(int place, bool bias, float gradient, Kept) const {
        const double g = gradient + (bias ? 0.0f : penalty) * p[place];
        *sum += g * g;
    }
};

// One Adam step of a network. Phases: 1, or 3 where gradients are clipped (partial: THREADS doubles of work space).
template <bool CLIP, class Net, int BATCH>
DEVICE void fit(const Backpropagation<Net, BATCH>& errors, const float* x, const float* joined, const float* ones,
                float* p, float* target, float* moments, const AdamSettings& settings, AdamStep* now, float tau,
                double* partial) {
    if constexpr (CLIP) {
        PHASE(thread) {
            Shares shares(thread);
            double sum = 0.0;
            errors.gradients(shares, x, joined, ones, Squares{p, settings.penalty, &sum});
            partial[thread] = sum;
        }
        PHASE(thread) {
            if (thread) continue;
            double sum = 0.0;
            for (int i = 0; i < THREADS; ++i) sum += partial[i];
            const double norm = sqrt(sum);
            now->factor = norm > settings.clip ? float(settings.clip / norm) : 1.0f;
        }
    }
    PHASE(thread) {
        Shares shares(thread);
        const Adam adam{p, target, reinterpret_cast<Moments*>(moments), settings, *now, tau};
        errors.gradients(shares, x, joined, ones, adam);
    }
}

// Return tanh(x), at most 1.82 ulp from the exact value: controllers/networks/mlp.py explains it. The approximations
// behind a compiler's fast tanh are a thousand times worse.
DEVICE float tanh_exact(float x) {
    const float size = fabs(x), z = size > 9.02f ? 9.02f : size, a = 0.5f * z, u = a * a;
    const float q = ((28.0f / 135135 * u + 3150.0f / 135135) * u + 62370.0f / 135135) * u + 1.0f;
    const float r = (27.0f / 135135 * u + 2772.0f / 135135) * u + 45045.0f / 135135;
    const float p = q - u * r, gap = q - a * p;
    const float less = z < 1.0f ? z * u * (q * r + p * p) : gap * gap;
    const float y = (z < 1.0f ? z : 1.0f) - less / (q * q + u * p * p);
    return x < 0 ? -y : y;
}
DEVICE float4 tanh_exact(float4 x) { return {tanh_exact(x.x), tanh_exact(x.y), tanh_exact(x.z), tanh_exact(x.w)}; }

// Copy the weights of a network's only output.
template <class Net> DEVICE void copy_seeds(Shares& shares, const float* weights, float* seed) {
    shares(Net::last(), [=](int k) { seed[k] = weights[Net::offset(Net::HIDDEN) + k * Net::columns(Net::HIDDEN)]; });
}

// Errors of all hidden layers. Phases: one a layer whose errors are stored.
template <class Net, int B> DEVICE void backward_all(const Backpropagation<Net, B>& errors) {
    constexpr int FIRST = Backpropagation<Net, B>::FIRST;
    unrolled<0, FIRST>([&](auto done) {
        PHASE(thread) {
            Shares shares(thread);
            errors.template below<FIRST - decltype(done)::value>(shares);
        }
    });
}
