// Twin critics for TD3 and SAC, as in controllers/losses/twin_critics.py. Both have the same targets, which use the lesser
// of the two target values.
//
// The critics use the same work space one after the other, so that large batches fit into shared memory:
//   FIRST   hidden values of the actor, or errors of a critic while the values of the actor are not needed
//   SECOND  hidden values of a critic (its errors overwrite them where no weights are updated), or errors of the actor
#pragma once
#include "networks.cuh"

template <class Actor, class Critic, int B> struct Twins {
    CONSTANT int STRIDE = sample_stride(B), H = Critic::HIDDEN;
    static_assert(Critic::JOINS == 0, "the action joins the observation");
    static FOLDED int larger(int a, int b) { return a > b ? a : b; }
    static FOLDED int actor_errors() { return Actor::OUTPUTS == 1 ? Actor::row(Actor::HIDDEN - 1) : Actor::rows(); }

    // Work space: first rows of STRIDE floats, then single numbers.
    CONSTANT int FIRST = 0, SECOND = larger(Actor::rows(), Critic::row(H - 1));
    CONSTANT int Q = SECOND + larger(Critic::rows(), actor_errors()), Y = Q + 2, D_Q = Y + 1, ONES = D_Q + 1;
    CONSTANT int ROWS = ONES + 1;

    float* const scratch;
    float* const seed;  // [Critic::last()]

    METHOD float* row(int r) const { return scratch + r * STRIDE; }
    METHOD Forward<Actor, B> actor(float* weights, const float* x) const {
        return {weights, x, nullptr, row(ONES), nullptr, row(FIRST)};
    }
    METHOD Forward<Critic, B> critic(float* weights, const float* x, const float* action) const {
        return {weights, x, action, row(ONES), row(SECOND), row(SECOND)};
    }

    // Write what later phases read; to be called in the first phase of an update. Padding samples have no loss.
    METHOD void prepare(Shares& shares) const {
        shares(STRIDE, [&](int s) { row(ONES)[s] = 1.0f, row(D_Q)[s] = 0.0f; });
    }

    // Write the values of both critics to the rows Q and Q + 1. Phases: 2 HIDDEN + 1 (4 with one hidden layer).
    METHOD void values(float* critics, const float* x, const float* action) const {
        constexpr int SECOND_AT = H > 1 ? H : 2;  // the output of one critic and the first layer of the other run together
        const auto one = critic(critics, x, action), other = critic(critics + Critic::floats(), x, action);
        unrolled<0, SECOND_AT + H + 1>([&](auto at) {
            constexpr int NOW = decltype(at)::value;
            PHASE(thread) {
                Shares shares(thread);
                one.template step<NOW>(shares, [&](int, int s, float4 value) { quad(row(Q) + s) = value; });
                other.template step<NOW - SECOND_AT>(shares, [&](int, int s, float4 value) { quad(row(Q + 1) + s) = value; });
            }
        });
    }

    // Do one Adam step of both critics on the loss coefficient * mean_b w_b (y_b - Q(s_b, a_b))^2, with the targets
    // y = reward + discount * successor(sample). Phases: 2 HIDDEN per critic (3 with one hidden layer).
    template <class Samples, class Successor>
    METHOD void fit(float coefficient, float* critics, float* targets, float* moments, const AdamSettings& settings,
                    AdamStep* now, float tau, Samples& batch, Successor successor) const {
        float *const y = row(Y), *const d_q = row(D_Q);
#pragma unroll 1  // one copy of the code serves both critics
        for (int i = 0; i < 2; ++i) {
            const int at = i * Critic::floats();
            const Backward<Critic, B> errors{critic(critics + at, batch.observation[0], batch.action[0]), seed, d_q, nullptr,
                                             row(FIRST)};
            unrolled<0, H + larger(H - 1, 1)>([&](auto step) {
                constexpr int NOW = decltype(step)::value;
                PHASE(thread) {
                    Shares shares(thread);
                    if constexpr (NOW == 0) {
                        errors.begin(shares);
                        if (i == 0) shares(B, [&](int s) { y[s] = batch.reward[s] + batch.discount[s] * successor(s); });
                    }
                    errors.template step<NOW - H>(shares);
                    errors.pass.template step<NOW>(shares, [&](int, int s, float4 q) {
                        const float value[4] = {q.x, q.y, q.z, q.w};
                        for (int b = s; b < s + 4 && b < B; ++b) {
                            const float delta = y[b] - value[b - s], half = 0.5f * fabs(delta);
                            batch.td_error[b] = i ? batch.td_error[b] + half : half;
                            d_q[b] = -2.0f * coefficient / B * batch.weight[b] * delta;
                        }
                    });
                }
            });
            ::fit(errors, targets + at, moments + 2 * at, settings, now, tau);
        }
    }
};
