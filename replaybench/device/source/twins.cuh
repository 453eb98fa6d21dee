// Twin critics (controllers/losses/twin_critics.py) for TD3 and SAC: both learn the same targets, the lesser one is used.
//
// One critic after the other uses the same work space, so that large batches fit into shared memory:
//   first   tape of the actor, or errors of a critic while no actor's tape is needed
//   second  tape of a critic (its errors take its place where no weights are learned), or errors of the actor
#pragma once
#include "networks.cuh"

template <class Actor, class Critic, int B> struct Twins {
    CONSTANT int STRIDE = sample_stride(B), H = Critic::HIDDEN;
    static_assert(Critic::JOINS == 0, "the action joins the observation");
    using Pass = Passes<Critic, B>;
    static FOLDED int larger(int a, int b) { return a > b ? a : b; }
    static FOLDED int actor_errors() { return Actor::OUTPUTS == 1 ? Actor::row(Actor::HIDDEN - 1) : Actor::rows(); }

    // Work space, in rows of STRIDE.
    CONSTANT int FIRST = 0, SECOND = larger(Actor::rows(), Critic::row(H - 1));
    CONSTANT int Q = SECOND + larger(Critic::rows(), actor_errors()), Y = Q + 2, D_Q = Y + 1, ONES = D_Q + 1;
    CONSTANT int ROWS = ONES + 1;

    // Write the values of both critics for these inputs to Q and Q + 1. Phases: 2 HIDDEN + 1 (4 with one hidden layer).
    static METHOD void values(const float* one, const float* other, const float* x, const float* action, float* scratch) {
        constexpr int SECOND_AT = H > 1 ? H : 2;  // the first critic's output and the other's first layer run together
        float *const tape = scratch + SECOND * STRIDE, *const ones = scratch + ONES * STRIDE;
        unrolled<0, SECOND_AT + H + 1>([&](auto at) {
            constexpr int NOW = decltype(at)::value;
            PHASE(thread) {
                Shares shares(thread);
                if constexpr (NOW == H) head(shares, one, x, action, scratch, scratch + Q * STRIDE);
                if constexpr (NOW < H) layer<NOW>(shares, one, x, action, tape, ones);
                if constexpr (NOW >= SECOND_AT && NOW < SECOND_AT + H)
                    layer<NOW - SECOND_AT>(shares, other, x, action, tape, ones);
                if constexpr (NOW == SECOND_AT + H) head(shares, other, x, action, scratch, scratch + (Q + 1) * STRIDE);
            }
        });
    }

    // One step of a critic on coefficient * mean_b w_b (y_b - Q(s_b, a_b))^2, y = reward + discount * successor(sample).
    // `which` (0, then 1) adds its half of the mean |delta|. Phases: 2 HIDDEN (3 with one hidden layer).
    template <class Samples, class Successor>
    static METHOD void fit(int which, float coefficient, float* critic, float* target, float* moments,
                           const AdamSettings& settings, AdamStep* now, float tau, Samples& batch, Successor successor,
                           float* seed, float* scratch) {
        float *const y = scratch + Y * STRIDE, *const d_q = scratch + D_Q * STRIDE, *const ones = scratch + ONES * STRIDE;
        float* const tape = scratch + SECOND * STRIDE;
        const float *const x = batch.observation[0], *const action = batch.action[0];
        const Backpropagation<Critic, B> errors{critic, tape, seed, d_q, nullptr, scratch + FIRST * STRIDE};
        unrolled<0, H + larger(H - 1, 1)>([&](auto at) {
            constexpr int NOW = decltype(at)::value;
            PHASE(thread) {
                Shares shares(thread);
                if constexpr (NOW == 0) {
                    copy_seeds<Critic>(shares, critic, seed);
                    if (which == 0) shares(B, [&](int s) { y[s] = batch.reward[s] + batch.discount[s] * successor(s); });
                }
                if constexpr (NOW < H) layer<NOW>(shares, critic, x, action, tape, ones);
                if constexpr (NOW >= H && 2 * H - 1 - NOW >= 1) errors.template below<2 * H - 1 - NOW>(shares);
                if constexpr (NOW == H)
                    Pass::head(shares, critic, Pass::template input<H>(x, action, tape, ones), [&](int, int s, float4 q) {
                        const float value[4] = {q.x, q.y, q.z, q.w};
                        for (int b = 0; b < 4 && s + b < B; ++b) {
                            const float delta = y[s + b] - value[b], half = 0.5f * fabs(delta);
                            batch.td_error[s + b] = which ? batch.td_error[s + b] + half : half;
                            d_q[s + b] = -2.0f * coefficient / B * batch.weight[s + b] * delta;
                        }
                    });
            }
        });
        ::fit<false>(errors, x, action, ones, critic, target, moments, settings, now, tau, nullptr);
    }

    // Value of a critic at (x, action) to Q + which, its gradient to the action to d_action. Phases: 2 HIDDEN.
    static METHOD void action_gradient(int which, const float* critic, const float* x, const float* action, int actions,
                                       float* d_action, float* seed, float* scratch) {
        float *const tape = scratch + SECOND * STRIDE, *const ones = scratch + ONES * STRIDE;
        const Backpropagation<Critic, B> errors{critic, tape, seed, nullptr, nullptr, tape};
        unrolled<0, 2 * H>([&](auto at) {
            constexpr int NOW = decltype(at)::value;
            PHASE(thread) {
                Shares shares(thread);
                if constexpr (NOW == 0) copy_seeds<Critic>(shares, critic, seed);
                if constexpr (NOW < H) layer<NOW>(shares, critic, x, action, tape, ones);
                if constexpr (NOW >= H && NOW < 2 * H - 1) errors.template below<2 * H - 1 - NOW>(shares);
                if constexpr (NOW == H) head(shares, critic, x, action, scratch, scratch + (Q + which) * STRIDE);
                if constexpr (NOW == 2 * H - 1)
                    Pass::joined_gradient(shares, critic, actions, errors.template of<0>(),
                                          [=](int a, int s, float4 d) { quad(d_action + a * STRIDE + s) = d; });
            }
        });
    }

    // In the first phase of an update: what later phases read. Samples of padding have no loss.
    static METHOD void prepare(Shares& shares, float* scratch) {
        shares(STRIDE, [=](int s) {
            scratch[ONES * STRIDE + s] = 1.0f;
            scratch[D_Q * STRIDE + s] = 0.0f;
        });
    }

private:
    template <int L>
    static METHOD void layer(Shares& shares, const float* weights, const float* x, const float* action, float* tape,
                             const float* ones) {
        Pass::template forward<L>(shares, weights, Pass::template input<L>(x, action, tape, ones),
                                  tape + Critic::row(L) * STRIDE);
    }
    static METHOD void head(Shares& shares, const float* weights, const float* x, const float* action, float* scratch,
                            float* out) {
        const auto inputs = Pass::template input<H>(x, action, scratch + SECOND * STRIDE, scratch + ONES * STRIDE);
        Pass::head(shares, weights, inputs, [=](int, int s, float4 q) { quad(out + s) = q; });
    }
};

// The actor of TD3 and SAC over a batch: hidden layers, then `then(output, s, value)`. Phases: HIDDEN + 1.
template <class Net, int B, class First, class Then>
DEVICE void evaluate(const float* weights, const float* x, float* tape, const float* ones, First&& first, Then&& then) {
    using Pass = Passes<Net, B>;
    unrolled<0, Net::HIDDEN + 1>([&](auto layer) {
        constexpr int L = decltype(layer)::value;
        PHASE(thread) {
            Shares shares(thread);
            const auto inputs = Pass::template input<L>(x, nullptr, tape, ones);
            if constexpr (L == 0) first(shares);
            if constexpr (L < Net::HIDDEN) Pass::template forward<L>(shares, weights, inputs, tape + Net::row(L) * Pass::STRIDE);
            else Pass::head(shares, weights, inputs, then);
        }
    });
}
