// TD3 as in controllers/algorithms/td3.py (Fujimoto et al., 2018, Algorithm 1), one member per block.
//
// Shape has the constants OBSERVATION, ACTION and BATCH, and the types Actor and Critic (Widths of hidden layers). HOT
// contains actor, critics 1 and 2, and then their target networks. batch.noise has ACTION rows of standard normal numbers.
#pragma once
#include "twins.cuh"

template <class Shape> struct TD3 : Squashed<Shape, Shape::ACTION> {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, STRIDE = sample_stride(B);
    CONSTANT Exploration EXPLORES = Exploration::OUTSIDE;
    CONSTANT int NOISE = 0, SMOOTH = A;
    using Samples = Batch<Shape, SMOOTH>;
    using Actor = typename Squashed<Shape, Shape::ACTION>::Actor;
    using Critic = Network<Shape::OBSERVATION, A, 0, 1, typename Shape::Critic>;
    using Both = Twins<Actor, Critic, B>;

    // Sizes of HOT and COLD, and offsets in HOT.
    CONSTANT int CRITICS = Actor::floats(), TRAINED = CRITICS + 2 * Critic::floats(), HOT = 2 * TRAINED, COLD = HOT;

    // Work space: the rows of Twins, further rows, and then single numbers.
    CONSTANT int PI = Both::ROWS, D_PI = PI + A, ROWS = D_PI + A;
    CONSTANT int STEPS_AT = ROWS * STRIDE, SEED = STEPS_AT + 8, ACTOR_SEED = SEED + Critic::last();
    CONSTANT int SCRATCH = rounded_up(ACTOR_SEED + Actor::last(), 4);

    static METHOD void update(float* hot, float* cold, Samples& batch, const LearnerSettings& settings,
                              int step, float* scratch) {
        const bool delayed = step % settings.policy_delay == 0;
        const int actor_step = step / settings.policy_delay;
        const float tau = delayed ? settings.tau : 0.0f;
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        const Both both{scratch, scratch + SEED};
        float *const pi = both.row(PI), *const d_pi = both.row(D_PI), *const q = both.row(Both::Q);
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);
        const Backward<Actor, B> errors{both.actor(hot, x), scratch + ACTOR_SEED, d_pi, d_pi, both.row(Both::SECOND)};

        both.actor(hot + TRAINED, next).all(
            [&](Shares& shares) {
                both.prepare(shares);
                errors.begin(shares);
                shares(2, [&](int which) {
                    now[which] = which ? adam_step(settings.critic, step)
                                       : adam_step(settings.actor, delayed ? actor_step : 1);
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
        both.values(hot + TRAINED + CRITICS, next, pi);
        both.fit(1.0f, hot + CRITICS, hot + TRAINED + CRITICS, cold + 2 * CRITICS, settings.critic, now + 1, tau, batch,
                 [=](int s) { return lesser(q[s], q[STRIDE + s]); });
        if (!delayed) return;

        errors.pass.all([](Shares&) {},
                        [=](int a, int s, float4 value) { quad(pi + a * STRIDE + s) = tanh_exact(value); });
        const auto critic = both.critic(hot + CRITICS, x, pi);
        ascend<false, false>(Backward<Critic, B>{critic, both.seed, nullptr, nullptr, critic.upper}, errors,
                             batch.actor_weight, d_pi, hot + TRAINED, cold, settings.actor, now, tau);
    }
};
