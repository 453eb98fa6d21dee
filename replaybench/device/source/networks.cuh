// Fully connected networks of one member: forward pass, backward pass, and weight gradients with Adam steps.
//
// Speed. Loads from shared memory limit the speed of these small layers, not arithmetic. A thread therefore computes one
// or more units for four samples at once, so that one 16-byte load serves 4 multiply-adds of each unit. Weight gradients
// are computed in tiles of 4 inputs x 1 or 2 units. The Adam step and the update of the target network follow in
// registers, so that gradients are never stored.
//
// Memory. A layer is a matrix [inputs + 1][columns], whose last row is the bias. `columns` is the number of units, made odd
// to avoid bank conflicts in the backward pass. Activations and errors (gradients with respect to pre-activations) are
// [unit][STRIDE]. If a network has one output, the errors of its last hidden layer are not stored. Such an error is the
// weight of the output where the unit is active, times the loss gradient of the sample (Form::SEEDED, Form::UNIT). The
// backward pass of such a network can therefore run before the loss is known.
#pragma once
#include "block.cuh"

template <int V> struct Int {
    CONSTANT int value = V;
};

// Call f(Int<FIRST>{}) ... f(Int<END - 1>{}): a loop over layers or steps whose sizes are compile-time constants.
template <int FIRST, int END, class F> DEVICE void unrolled(F&& f) {
    if constexpr (FIRST < END) {
        f(Int<FIRST>{});
        unrolled<FIRST + 1, END>(f);
    }
}

// Distribute the tasks of a phase over the threads. Each task begins at the warp at which the previous task ended.
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

// Sizes of a network. JOINED numbers (the action of a critic) are appended to the inputs of layer JOIN; -1 for no layer.
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
    // First row of a hidden layer in an array with the values of all hidden layers (a tape).
    static FOLDED int row(int layer) {
        int rows = 0;
        for (int l = 0; l < layer; ++l) rows += Hidden::of(l);
        return rows;
    }
    static FOLDED int rows() { return row(HIDDEN); }
    static FOLDED int last() { return Hidden::of(HIDDEN - 1); }
};

// Return the number of units (4, 2 or 1) that a thread computes: as many as leave work for three quarters of the threads.
// More units need fewer loads from shared memory. Fewer units shorten the phase of a layer that cannot occupy the block.
FOLDED int units_of_thread(int units, int items, int most) {
    for (int u = most; u > 1; u /= 2)
        if (u <= units && (units + u - 1) / u * items >= THREADS * 3 / 4) return u;
    return 1;
}

// Compute sums of weight * value for UNITS units and all samples. terms(s, add) must call add(k, values of four samples) for
// each term k, and store(unit, s, sum) receives the result. Sixteen threads compute sixteen successive units. The next
// sixteen threads compute the same units for the next four samples. A warp therefore reads sixteen successive weights and
// two groups of four samples of each input, without bank conflicts.
template <int TOGETHER, int B, int UNITS, int UNIT_STEP, int TERM_STEP, int BIAS, class Terms, class Store>
DEVICE void products(Shares& shares, const float* weights, Terms terms, Store store) {
    constexpr int QUADS = (B + 3) / 4, U = units_of_thread(UNITS, QUADS * TOGETHER, 4), PART = (UNITS + U - 1) / U;
    shares(rounded_up(PART, 16) * QUADS, [=](int item) {
        const int unit = item / 16 / QUADS * 16 + item % 16, s = item / 16 % QUADS * 4;
        if (unit >= PART) return;
        const float* const w = weights + unit * UNIT_STEP;
        int at[U];  // a unit beyond the last one reads the weights of the first one, and is not stored
        float4 sum[U];
#pragma unroll
        for (int j = 0; j < U; ++j) {
            at[j] = unit + j * PART < UNITS ? j * PART * UNIT_STEP : 0;
            sum[j] = all4(BIAS < 0 ? 0.0f : w[BIAS + at[j]]);
        }
        terms(s, [&](int k, float4 value) {
#pragma unroll
            for (int j = 0; j < U; ++j) add(sum[j], w[k * TERM_STEP + at[j]], value);
        });
#pragma unroll
        for (int j = 0; j < U; ++j)
            if (unit + j * PART < UNITS) store(unit + j * PART, s, sum[j]);
    });
}

// The same for layers with few outputs: sixteen threads compute each sum of TERMS terms.
template <int B, int TERMS, int OUTPUT_STEP, int TERM_STEP, class Value, class Then>
DEVICE void few_products(Shares& shares, const float* weights, int outputs, Value value, Then&& then) {
    const int sums = outputs * ((B + 3) / 4);
    shares(rounded_up(sums * 16, 32), [&](int item) {
        const int which = item / 16 < sums ? item / 16 : 0, output = which % outputs, s = which / outputs * 4;
        const float4 sum = lane_sum<16>(item, TERMS, [&](int k) {
            float4 product = all4(0.0f);
            add(product, weights[output * OUTPUT_STEP + k * TERM_STEP], value(k, s));
            return product;
        });
        if (item % 16 == 0 && item / 16 < sums) then(output, s, sum);
    });
}

// A forward pass of a batch. Inputs are arrays [row][STRIDE]: `x`, the appended numbers `joined`, and ones for the bias. The
// values of hidden layers below JOINS are in the array `lower`, those of other layers in `upper`, at the rows Net::row. Both
// arrays may be the same.
template <class Net, int B> struct Forward {
    CONSTANT int STRIDE = sample_stride(B), H = Net::HIDDEN;
    float* weights;
    const float *x, *joined, *ones;
    float *lower, *upper;

    METHOD float* hidden(int layer) const { return (layer < Net::JOINS ? lower : upper) + Net::row(layer) * STRIDE; }
    template <int L> METHOD const float* input(int k) const {
        if (k < Net::own(L)) return (L ? hidden(L ? L - 1 : 0) : x) + k * STRIDE;
        return k < Net::inputs(L) ? joined + (k - Net::own(L)) * STRIDE : ones;
    }

    // Compute layer L, if it exists: relu(W x + b). For the last layer, call then(output, s, values of four samples)
    // instead. TOGETHER is the number of similar layers in the same phase.
    template <int L, int TOGETHER = 1, class Then> METHOD void step(Shares& shares, Then&& then) const {
        if constexpr (L >= 0 && L <= H) {
            constexpr int COLUMNS = Net::columns(L), OWN = Net::own(L), INPUTS = Net::inputs(L);
            const float* const w = weights + Net::offset(L);
            if constexpr (L == H) {
                few_products<B, INPUTS, 1, COLUMNS>(
                    shares, w, Net::OUTPUTS, [=](int k, int s) { return quad(input<L>(k) + s); },
                    [&](int output, int s, float4 sum) { then(output, s, plus(sum, all4(w[INPUTS * COLUMNS + output]))); });
            } else {
                const float *const own = input<L>(0), *const more = joined;
                float* const out = hidden(L);
                products<TOGETHER, B, Net::units(L), 1, COLUMNS, INPUTS * COLUMNS>(
                    shares, w,
                    [=](int s, auto&& add) {
#pragma unroll 8
                        for (int k = 0; k < OWN; ++k) add(k, quad(own + k * STRIDE + s));
#pragma unroll
                        for (int k = OWN; k < INPUTS; ++k) add(k, quad(more + (k - OWN) * STRIDE + s));
                    },
                    [=](int unit, int s, float4 sum) { quad(out + unit * STRIDE + s) = relu(sum); });
            }
        }
    }
    template <int L> METHOD void step(Shares& shares) const {
        if constexpr (L < H) step<L>(shares, 0);
    }
    // Compute all layers; first(shares) is called in the first phase. Phases: HIDDEN + 1.
    template <class First, class Then> METHOD void all(First&& first, Then&& then) const {
        unrolled<0, H + 1>([&](auto layer) {
            PHASE(thread) {
                Shares shares(thread);
                if constexpr (decltype(layer)::value == 0) first(shares);
                step<decltype(layer)::value>(shares, then);
            }
        });
    }
};

// Compute all layers for a single observation. Eight threads compute each sum. Phases: one per layer.
template <class Net> DEVICE void act_with(const float* weights, const float* observation, float* tape, float* out) {
    unrolled<0, Net::HIDDEN + 1>([&](auto layer) {
        constexpr int L = decltype(layer)::value, UNITS = Net::units(L), COLUMNS = Net::columns(L), INPUTS = Net::inputs(L);
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

// Errors of the units of a layer. The error is scaled(unit, s) * factor(unit). operator() returns the error divided by the
// loss gradient `scale` [STRIDE] of the sample, except for STORED. SEEDED: the last hidden layer, whose values are `rows`,
// before a single output with the weights `seed`. UNIT: the single output.
enum class Form { STORED, SCALED, SEEDED, UNIT };
template <Form FORM, int STRIDE> struct Errors {
    const float *rows, *seed, *scale;
    METHOD float4 operator()(int unit, int s) const {
        if constexpr (FORM == Form::UNIT) return all4(1.0f);
        else if constexpr (FORM == Form::SEEDED) return select(quad(rows + unit * STRIDE + s), all4(seed[unit]));
        else return quad(rows + unit * STRIDE + s);
    }
    METHOD float4 scaled(int unit, int s) const {
        if constexpr (FORM == Form::UNIT) return quad(scale + s);
        else if constexpr (FORM == Form::SEEDED) return select(quad(rows + unit * STRIDE + s), quad(scale + s));
        else if constexpr (FORM == Form::SCALED) return times(quad(rows + unit * STRIDE + s), quad(scale + s));
        else return quad(rows + unit * STRIDE + s);
    }
    METHOD float factor(int unit) const {
        if constexpr (FORM == Form::SEEDED) return seed[unit];
        else return 1.0f;
    }
};

// The backward pass of a forward pass. `seed` is a copy of the weights of a single output, which the hidden layers need
// while the output's weights are updated. `scale` has the loss gradients of a single output, and `head` has the errors of
// several outputs. `errors` has the errors of the hidden layers (without the last one if there is a single output), at the
// rows of their values, which they may overwrite.
template <class Net, int B> struct Backward {
    CONSTANT int STRIDE = sample_stride(B), H = Net::HIDDEN;
    CONSTANT bool SINGLE = Net::OUTPUTS == 1;
    CONSTANT int STEPS = SINGLE ? H - 1 : H;  // layers whose errors are stored
    Forward<Net, B> pass;
    const float *seed, *scale, *head;
    float* errors;

    template <int L> METHOD auto of() const {
        constexpr Form FORM = !SINGLE ? Form::STORED : L == H ? Form::UNIT : L == H - 1 ? Form::SEEDED : Form::SCALED;
        const float* const own = FORM == Form::SEEDED ? pass.hidden(L) : errors + Net::row(L) * STRIDE;
        return Errors<FORM, STRIDE>{L == H ? head : own, seed, scale};
    }
    // Copy the weights of a single output to `seed`. This is necessary before the first step.
    METHOD void begin(Shares& shares) const {
        const float* const w = pass.weights + Net::offset(H);
        float* const to = const_cast<float*>(seed);
        if constexpr (SINGLE) shares(Net::last(), [=](int k) { to[k] = w[k * Net::columns(H)]; });
    }
    // Compute the errors of the next lower hidden layer, for step K = 0 ... STEPS - 1. TOGETHER is the number of similar
    // layers in the same phase.
    template <int K, int TOGETHER = 1> METHOD void step(Shares& shares) const {
        if constexpr (K >= 0 && K < STEPS) {
            constexpr int L = STEPS - K;
            const auto above = of<L>();
            const float* const h = pass.hidden(L - 1);
            float* const out = errors + Net::row(L - 1) * STRIDE;
            products<TOGETHER, B, Net::own(L), Net::columns(L), 1, -1>(
                shares, pass.weights + Net::offset(L),
                [=](int s, auto&& add) {
#pragma unroll 8
                    for (int u = 0; u < Net::units(L); ++u) add(u, above(u, s));
                },
                [=](int unit, int s, float4 sum) {
                    const int place = unit * STRIDE + s;
                    quad(out + place) = select(quad(h + place), sum);
                });
        }
    }
    // Do all steps. Phases: STEPS.
    METHOD void all() const {
        unrolled<0, STEPS>([&](auto k) {
            PHASE(thread) {
                Shares shares(thread);
                step<decltype(k)::value>(shares);
            }
        });
    }

    // Compute the weight gradients of all layers in tiles, and call apply(place, is_bias, gradient, apply.fetch(place)) with
    // each number.
    template <class Apply> METHOD void gradients(Shares& shares, Apply apply) const {
        unrolled<0, H + 1>([&](auto layer) { gradient<decltype(layer)::value>(shares, of<decltype(layer)::value>(), apply); });
    }

private:
    template <int L, class Given, class Apply> METHOD void gradient(Shares& shares, Given errors, Apply apply) const {
        constexpr int INPUTS = Net::inputs(L), TILES = INPUTS / 4 + 1, COLUMNS = Net::columns(L);
        constexpr int UNITS = Net::units(L), U = units_of_thread(UNITS, TILES, 2), PART = (UNITS + U - 1) / U;
        shares(TILES * PART, [=](int item) mutable {
            const int unit = item % PART, first = item / PART * 4;
            const float* rows[4];
            int at[U];
            float sum[4][U];
            typename Apply::Kept kept[4][U];  // loaded before the sums are computed, to hide the latency of global memory
#pragma unroll
            for (int j = 0; j < U; ++j) at[j] = unit + j * PART < UNITS ? unit + j * PART : unit;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int k = first + i <= INPUTS ? first + i : INPUTS;
                rows[i] = pass.template input<L>(k);
#pragma unroll
                for (int j = 0; j < U; ++j) {
                    sum[i][j] = 0.0f;
                    kept[i][j] = apply.fetch(Net::offset(L) + k * COLUMNS + at[j]);
                }
            }
#pragma unroll 2
            for (int s = 0; s < rounded_up(B, 4); s += 4) {
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
};

// Settings of the optimiser of a network, as in controllers/networks/adam.py. keep1 and keep2 are beta1 and beta2, take1 and
// take2 are 1 - beta1 and 1 - beta2, and log_beta1 and log_beta2 are natural logarithms. `penalty` is L2 regularisation of
// the weights in the gradient before clipping. `l2` is that of weights and biases after clipping. `decay` is decoupled.
struct AdamSettings {
    float rate, epsilon, keep1, take1, keep2, take2, log_beta1, log_beta2, penalty, l2, decay, clip;
};

// Numbers that change from step to step; one thread computes them, in shared memory.
struct AdamStep {
    float size, epsilon, shrink, factor;
};

DEVICE AdamStep adam_step(const AdamSettings& s, int step) {
    const float root = sqrt(-expm1((float)step * s.log_beta2));
    return {s.rate * root / -expm1((float)step * s.log_beta1), s.epsilon * root, 1.0f - s.rate * s.decay, 1.0f};
}

struct alignas(8) Moments {
    float first, second;
};

// Adam step of the parameters p of a network with their moments, and update of its target network (none for tau = 0).
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
        // As on the CPU, moments of dead units become exactly zero. The comparisons keep NaN.
        kept.first = fabs(m1) < 1e-30f ? 0.0f : m1;
        kept.second = m2 < 1e-30f ? 0.0f : m2;
        const float after = now.shrink * before - now.size * (kept.first / (sqrt(kept.second) + now.epsilon));
        moments[place] = kept;
        p[place] = after;
        if (tau > 0.0f) target[place] = (1.0f - tau) * target[place] + tau * after;
    }
};

// Sum of squares of a gradient, for clipping by the norm.
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

// Do one Adam step of a network. Phases: 1, or 3 with clipped gradients, for which `partial` needs THREADS doubles.
template <bool CLIP = false, class Net, int B>
DEVICE void fit(const Backward<Net, B>& errors, float* target, float* moments, const AdamSettings& settings, AdamStep* now,
                float tau, double* partial = nullptr) {
    float* const p = errors.pass.weights;
    if constexpr (CLIP) {
        PHASE(thread) {
            Shares shares(thread);
            double sum = 0.0;
            errors.gradients(shares, Squares{p, settings.penalty, &sum});
            partial[thread] = sum;
        }
        ONCE {
            double sum = 0.0;
            for (int i = 0; i < THREADS; ++i) sum += partial[i];
            const double norm = sqrt(sum);
            now->factor = norm > settings.clip ? float(settings.clip / norm) : 1.0f;
        }
    }
    PHASE(thread) {
        Shares shares(thread);
        errors.gradients(shares, Adam{p, target, reinterpret_cast<Moments*>(moments), settings, *now, tau});
    }
}

// Compute the gradient of a critic's value with respect to the action `pass.joined`, and call then(number, s, four samples).
// `errors` may overwrite the hidden values. The value is written to q, unless q is null. Phases: 2 HIDDEN - JOINS, or 1 if
// JOINS is HIDDEN.
template <class Net, int B, class Then>
DEVICE void action_gradient(const Backward<Net, B>& errors, int actions, float* q, Then&& then) {
    constexpr int H = Net::HIDDEN, J = Net::JOINS, FORWARD = J == H ? 0 : H, LAST = J == H ? 0 : 2 * H - 1 - J;
    unrolled<0, LAST + 1>([&](auto at) {
        constexpr int NOW = decltype(at)::value;
        PHASE(thread) {
            Shares shares(thread);
            if constexpr (NOW == 0) errors.begin(shares);
            if constexpr (NOW < FORWARD) errors.pass.template step<NOW>(shares);
            if constexpr (NOW == H)
                if (q) errors.pass.template step<H>(shares, [=](int, int s, float4 value) { quad(q + s) = value; });
            if constexpr (NOW >= FORWARD && NOW < LAST) errors.template step<NOW - FORWARD>(shares);
            if constexpr (NOW == LAST)
                few_products<B, Net::units(J), Net::columns(J), 1>(
                    shares, errors.pass.weights + Net::offset(J) + Net::own(J) * Net::columns(J), actions,
                    errors.template of<J>(), then);
        }
    });
}

// Do one step of a deterministic actor that increases the critic's value of the actor's actions `critic.pass.joined`. The
// errors of the actor's outputs are written to `d_pi`. READY: the errors of its hidden layers are already known. Phases:
// those of action_gradient, STEPS unless READY, and those of fit.
template <bool CLIP, bool READY, class Critic, class Actor, int B>
DEVICE void ascend(const Backward<Critic, B>& critic, const Backward<Actor, B>& actor, const float* weight, float* d_pi,
                   float* target, float* moments, const AdamSettings& settings, AdamStep* now, float tau,
                   double* partial = nullptr) {
    constexpr int STRIDE = sample_stride(B);
    const float* const pi = critic.pass.joined;
    action_gradient(critic, Actor::OUTPUTS, nullptr, [=](int a, int s, float4 d) {
        const float4 action = quad(pi + a * STRIDE + s), w = times(quad(weight + s), all4(-1.0f / B));
        const float4 square = times(action, action);
        const float4 slope = {1.0f - square.x, 1.0f - square.y, 1.0f - square.z, 1.0f - square.w};
        quad(d_pi + a * STRIDE + s) = times(times(w, d), slope);
    });
    if constexpr (!READY) actor.all();
    fit<CLIP>(actor, target, moments, settings, now, tau, partial);
}

// Return tanh(x) with an error of at most 1.82 ulp; controllers/networks/mlp.py explains the formula. The errors of a
// compiler's fast tanh are a thousand times larger.
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

// Settings of all types of learners. The host fills them, and a learner reads those that it needs.
struct LearnerSettings {
    AdamSettings actor, critic, temperature;
    float tau, smoothing, smoothing_clip, huber, target_entropy;
    int policy_delay, copy_every, automatic;
};

// A policy whose actions are tanh of its first outputs.
template <class Shape, int OUTPUTS_> struct Squashed {
    CONSTANT int OUTPUTS = OUTPUTS_;
    using Actor = Network<Shape::OBSERVATION, 0, -1, OUTPUTS, typename Shape::Actor>;
    static METHOD void act(const float* hot, const float* observation, float* output, float* scratch) {
        act_with<Actor>(hot, observation, scratch, output);
    }
    static METHOD void greedy(const float* output, float* action) {
        for (int a = 0; a < Shape::ACTION; ++a) action[a] = tanh_exact(output[a]);
    }
};
