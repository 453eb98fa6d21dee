// TD3 as in controllers/algorithms/td3.py (Fujimoto et al. 2018, Algorithm 1), one member a block.
//
// Shape: OBSERVATION, ACTION, BATCH; types Actor, Critic (Widths). Hot: actor, critics 1 and 2, target networks in this
// order. batch.noise holds standard normals, ACTION rows.
#pragma once
#include "twins.cuh"

struct TD3Settings {
    AdamSettings actor, critic;
    float tau, smoothing, smoothing_clip;
    int policy_delay;
};

template <class Shape> struct TD3 {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, STRIDE = sample_stride(B);
    using Settings = TD3Settings;
    CONSTANT Exploration EXPLORES = Exploration::OUTSIDE;
    CONSTANT int OUTPUTS = A, NOISE = 0, SMOOTH = A;
    using Samples = Batch<Shape, SMOOTH>;
    using Actor = Network<Shape::OBSERVATION, 0, -1, A, typename Shape::Actor>;
    using Critic = Network<Shape::OBSERVATION, A, 0, 1, typename Shape::Critic>;
    using Both = Twins<Actor, Critic, B>;

    // Hot and cold.
    CONSTANT int CRITICS = Actor::floats(), TRAINED = CRITICS + 2 * Critic::floats(), HOT = 2 * TRAINED, COLD = HOT;

    // Scratch: rows of both critics and these, then single numbers.
    CONSTANT int PI = Both::ROWS, D_PI = PI + A, ROWS = D_PI + A;
    CONSTANT int STEPS_AT = ROWS * STRIDE, SEED = STEPS_AT + 8, ACTOR_SEED = SEED + Critic::last();
    CONSTANT int SCRATCH = rounded_up(ACTOR_SEED + Actor::last(), 4);

    static METHOD void act(const float* hot, const float* observation, float* output, float* scratch) {
        Passes<Actor, B>::act(hot, observation, scratch, output);
    }
    static METHOD void greedy(const float* output, float* action) {
        for (int a = 0; a < A; ++a) action[a] = tanh_exact(output[a]);
    }

    static METHOD void update(float* hot, float* cold, Samples& batch, const Settings& settings, float step,
                              float rate_factor, float* scratch) {
        const bool delayed = int(step) % settings.policy_delay == 0;
        const float actor_step = float(int(step) / settings.policy_delay), tau = delayed ? settings.tau : 0.0f;
        float *const pi = scratch + PI * STRIDE, *const d_pi = scratch + D_PI * STRIDE;
        float *const ones = scratch + Both::ONES * STRIDE, *const tape = scratch + Both::FIRST * STRIDE;
        float *const seed = scratch + SEED, *const actor_seed = scratch + ACTOR_SEED;
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        const float *const q = scratch + Both::Q * STRIDE;
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);

        evaluate<Actor, B>(
            hot + TRAINED, next, tape, ones,
            [&](Shares& shares) {
                Both::prepare(shares, scratch);
                if constexpr (A == 1) copy_seeds<Actor>(shares, hot, actor_seed);
                shares(2, [&](int which) {
                    now[which] = which ? adam_step(settings.critic, step, rate_factor)
                                       : adam_step(settings.actor, delayed ? actor_step : 1.0f, rate_factor);
                });
            },
            [&](int a, int s, float4 value) {
                const float4 action = tanh_exact(value);
                const float all[4] = {action.x, action.y, action.z, action.w};
                for (int b = 0; b < 4; ++b) {
                    const float clip = settings.smoothing_clip;
                    const float noise = bounded(settings.smoothing * batch.noise[a][s + b], -clip, clip);
                    pi[a * STRIDE + s + b] = bounded(all[b] + noise, -1.0f, 1.0f);
                }
            });
        float* const targets = hot + TRAINED + CRITICS;
        Both::values(targets, targets + Critic::floats(), next, pi, scratch);
        const auto successor = [=](int s) { return lesser(q[s], q[STRIDE + s]); };
#pragma unroll 1  // one copy of the code serves both critics
        for (int i = 0; i < 2; ++i) {
            const int at = CRITICS + i * Critic::floats();
            Both::fit(i, 1.0f, hot + at, hot + TRAINED + at, cold + 2 * at, settings.critic, now + 1, tau, batch, successor,
                      seed, scratch);
        }
        if (!delayed) return;

        evaluate<Actor, B>(
            hot, x, tape, ones, [](Shares&) {},
            [=](int a, int s, float4 value) { quad(pi + a * STRIDE + s) = tanh_exact(value); });
        Both::action_gradient(0, hot + CRITICS, x, pi, A, d_pi, seed, scratch);
        PHASE(thread) {
            Shares shares(thread);
            shares(A * STRIDE, [&](int i) {
                const float slope = 1.0f - pi[i] * pi[i];
                d_pi[i] = i % STRIDE < B ? -1.0f / B * batch.actor_weight[i % STRIDE] * d_pi[i] * slope : 0.0f;
            });
        }
        const Backpropagation<Actor, B> errors{hot, tape, actor_seed, d_pi, d_pi, scratch + Both::SECOND * STRIDE};
        backward_all(errors);
        fit<false>(errors, x, nullptr, ones, hot, hot + TRAINED, cold, settings.actor, now, tau, nullptr);
    }
};
