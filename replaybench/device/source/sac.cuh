// SAC as in controllers/algorithms/sac.py (Haarnoja et al., 2018b, Algorithm 1), one member per block.
//
// Shape has the constants OBSERVATION, ACTION and BATCH, and the types Actor and Critic (Widths of hidden layers). HOT
// contains actor (its outputs are means, then log standard deviations), critics 1 and 2, log temperature, and the target
// networks of both critics. batch.noise has standard normal numbers: ACTION rows for the next observation, and then ACTION
// rows for the observation.
#pragma once
#include "twins.cuh"

template <class Shape> struct SAC : Squashed<Shape, 2 * Shape::ACTION> {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, STRIDE = sample_stride(B);
    CONSTANT Exploration EXPLORES = Exploration::NORMALS;
    CONSTANT int NOISE = A, SMOOTH = 2 * A;
    using Samples = Batch<Shape, SMOOTH>;
    using Actor = typename Squashed<Shape, 2 * Shape::ACTION>::Actor;
    using Critic = Network<Shape::OBSERVATION, A, 0, 1, typename Shape::Critic>;
    using Both = Twins<Actor, Critic, B>;

    // Sizes of HOT and COLD, and offsets in HOT.
    CONSTANT int CRITICS = Actor::floats(), TEMPERATURE = CRITICS + 2 * Critic::floats(), TRAINED = TEMPERATURE + 4;
    CONSTANT int HOT = TRAINED + 2 * Critic::floats(), COLD = 2 * TRAINED;

    // Work space: the rows of Twins, further rows, and then single numbers.
    CONSTANT int HEAD = Both::ROWS, PI = HEAD + 2 * A, LOG_PROB = PI + A, D_ACTION = LOG_PROB + 1;
    CONSTANT int D_HEAD = D_ACTION + 2 * A, ROWS = D_HEAD + 2 * A;
    CONSTANT int STEPS_AT = ROWS * STRIDE, SEED = STEPS_AT + 12, SCRATCH = rounded_up(SEED + Critic::last(), 4);

    static METHOD void explore(const float* output, const float* noise, float, float* action) {
        for (int a = 0; a < A; ++a) action[a] = tanh_exact(output[a] + exp(log_std_of(output[A + a])) * noise[a]);
    }

    static METHOD void update(float* hot, float* cold, Samples& batch, const LearnerSettings& settings,
                              int step, float* scratch) {
        const float alpha = exp(hot[TEMPERATURE]);
        const Both both{scratch, scratch + SEED};
        float *const head = both.row(HEAD), *const pi = both.row(PI), *const log_prob = both.row(LOG_PROB);
        float *const d_action = both.row(D_ACTION), *const d_head = both.row(D_HEAD), *const q = both.row(Both::Q);
        float* const targets = hot + TRAINED;
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);
        const auto store = [=](int output, int s, float4 value) { quad(head + output * STRIDE + s) = value; };
        const Backward<Actor, B> errors{both.actor(hot, x), nullptr, nullptr, d_head, both.row(Both::SECOND)};

        both.actor(hot, next).all(
            [&](Shares& shares) {
                both.prepare(shares);
                shares(3, [&](int which) {
                    const AdamSettings& of = which == 0 ? settings.actor : which == 1 ? settings.critic : settings.temperature;
                    now[which] = adam_step(of, step);
                });
            },
            store);
        sample(head, batch.noise[0], pi, log_prob);
        both.values(targets, next, pi);
        both.fit(0.5f, hot + CRITICS, targets, cold + 2 * CRITICS, settings.critic, now + 1, settings.tau, batch,
                 [=](int s) { return lesser(q[s], q[STRIDE + s]) - alpha * log_prob[s]; });

        errors.pass.all([](Shares&) {}, store);
        sample(head, batch.noise[A], pi, log_prob);
#pragma unroll 1  // one copy of the code serves both critics
        for (int i = 0; i < 2; ++i) {
            const auto critic = both.critic(hot + CRITICS + i * Critic::floats(), x, pi);
            float* const to = d_action + i * A * STRIDE;
            action_gradient(Backward<Critic, B>{critic, both.seed, nullptr, nullptr, critic.upper}, A, q + i * STRIDE,
                            [=](int a, int s, float4 d) { quad(to + a * STRIDE + s) = d; });
        }
        PHASE(thread) {
            Shares shares(thread);
            shares(STRIDE, [&](int s) {
                const float share = s < B ? 1.0f / B * batch.actor_weight[s] : 0.0f, d_log_prob = alpha * share;
                const int from = q[s] <= q[STRIDE + s] ? 0 : A * STRIDE;
                for (int a = 0; a < A; ++a) {
                    const float action = pi[a * STRIDE + s], slope = 1.0f - action * action, log_std = head[(A + a) * STRIDE + s];
                    const float by_squashing = 2.0f * action * slope / (slope + 1e-6f);
                    const float d_x = -share * d_action[from + a * STRIDE + s] * slope + d_log_prob * by_squashing;
                    const float by_spread = d_x * exp(log_std) * batch.noise[A + a][s] - d_log_prob;
                    d_head[a * STRIDE + s] = s < B ? d_x : 0.0f;
                    d_head[(A + a) * STRIDE + s] = s >= B || log_std < -20.0f || log_std > 2.0f ? 0.0f : by_spread;
                }
            });
            if (settings.automatic) shares(32, [&](int item) {
                const float total = lane_sum<32>(item, B, [&](int s) {
                    return batch.actor_weight[s] * (log_prob[s] + settings.target_entropy);
                });
                if (item) return;
                float* const moments = cold + 2 * TEMPERATURE;
                const Adam adam{hot + TEMPERATURE, nullptr, reinterpret_cast<Moments*>(moments), settings.temperature, now[2], 0.0f};
                adam(0, true, -total / B, adam.fetch(0));
            });
        }
        errors.all();
        fit(errors, nullptr, cold, settings.actor, now, 0.0f);
    }

private:
    static METHOD float log_std_of(float output) { return bounded(output, -20.0f, 2.0f); }

    // Write the action a = tanh(mean + sigma * noise) and log pi(a) of every sample. Phases: 1.
    static METHOD void sample(const float* head, const float* noise, float* pi, float* log_prob) {
        PHASE(thread) {
            Shares shares(thread);
            shares(STRIDE, [=](int s) {
                float total = 0.0f;
                for (int a = 0; a < A; ++a) {
                    const float log_std = log_std_of(head[(A + a) * STRIDE + s]), e = noise[a * STRIDE + s];
                    const float action = tanh_exact(head[a * STRIDE + s] + exp(log_std) * e);
                    total -= 0.5f * e * e + log_std + 0.918938533f + log(1.0f - action * action + 1e-6f);
                    pi[a * STRIDE + s] = action;
                }
                log_prob[s] = total;
            });
        }
    }
};
