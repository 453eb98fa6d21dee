// DDPG as in controllers/algorithms/ddpg.py (de Bruin et al., 2018, section 3.2), one member per block.
//
// Shape has the constants OBSERVATION, ACTION, BATCH, ACTION_LAYER (layer of the critic to which the action is appended) and
// CLIP (whether gradients are clipped), and the types Actor and Critic (Widths of hidden layers). HOT contains actor, critic,
// target actor and target critic.
//
// Phases. Independent computations run in the same phases. The actor and the critic on the observation and the target
// actor come first. The target critic and the backward pass of the critic, which does not need the loss, follow (see
// networks.cuh). With the widths of the paper, an update has 13 phases: 6 up to the TD error, 1 to update the critic, 5 for
// the gradient with respect to the action, and 1 to update the actor.
#pragma once
#include "networks.cuh"

template <class Shape> struct DDPG : Squashed<Shape, Shape::ACTION> {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, STRIDE = sample_stride(B), JOIN = Shape::ACTION_LAYER;
    using Samples = Batch<Shape, 0>;
    using Actor = typename Squashed<Shape, Shape::ACTION>::Actor;
    using Critic = Network<Shape::OBSERVATION, A, JOIN, 1, typename Shape::Critic>;
    CONSTANT Exploration EXPLORES = Exploration::OUTSIDE;
    CONSTANT int NOISE = 0, SMOOTH = 0, NA = Actor::HIDDEN, NC = Critic::HIDDEN;

    // Sizes of HOT and COLD, and offsets in HOT.
    CONSTANT int CRITIC = Actor::floats(), TRAINED = CRITIC + Critic::floats();
    CONSTANT int ACTOR_TARGET = TRAINED, CRITIC_TARGET = TRAINED + CRITIC, HOT = 2 * TRAINED, COLD = 2 * TRAINED;

    // Work space, in rows of STRIDE. The target critic from the layer of the action on overwrites the target actor.
    CONSTANT int TARGETS = 0, UPPER = Critic::rows() - Critic::row(JOIN);
    CONSTANT int TARGET_LOWER = TARGETS + (UPPER > Actor::rows() ? UPPER : Actor::rows());
    CONSTANT int CRITIC_TAPE = TARGET_LOWER + Critic::row(JOIN), CRITIC_ERRORS = CRITIC_TAPE + Critic::rows();
    CONSTANT int ACTOR_TAPE = CRITIC_ERRORS + Critic::row(NC - 1), ACTOR_ERRORS = ACTOR_TAPE + Actor::rows();
    CONSTANT int PI_TARGET = ACTOR_ERRORS + Actor::row(A == 1 ? NA - 1 : NA), PI = PI_TARGET + A, D_PI = PI + A;
    CONSTANT int Q = D_PI + A, D_Q = Q + 1, ONES = D_Q + 1, ROWS = ONES + 1;
    CONSTANT int STEPS_AT = ROWS * STRIDE, CRITIC_SEED = STEPS_AT + 8, ACTOR_SEED = CRITIC_SEED + Critic::last();
    CONSTANT int PARTIAL = rounded_up(ACTOR_SEED + Actor::last(), 4);
    CONSTANT int SCRATCH = PARTIAL + (Shape::CLIP ? 2 * THREADS : 0);

    // The layers of the target critic from JOIN on follow the target actor. The output of the target critic follows that of
    // the critic, because it is needed for the TD error.
    static FOLDED int later(int a, int b) { return a > b ? a : b; }
    CONSTANT int JOINS_AT = later(NA + 1, JOIN), LOSS_AT = later(JOINS_AT + NC - JOIN, NC + 1);
    static FOLDED int target_layer(int now) {
        const int layer = now < JOIN ? now : now < JOINS_AT ? NC : now - JOINS_AT + JOIN;
        return now == LOSS_AT ? NC : layer < NC ? layer : -1;
    }
    CONSTANT int STEPS = later(LOSS_AT + 1, later(2 * NC - 1, A == 1 ? 2 * NA - 1 : 0));

    static METHOD void update(float* hot, float* cold, Samples& batch, const LearnerSettings& settings,
                              int step, float* scratch) {
        const auto row = [=](int r) { return scratch + r * STRIDE; };
        float *const ones = row(ONES), *const pi_target = row(PI_TARGET), *const pi = row(PI), *const d_pi = row(D_PI);
        float *const q = row(Q), *const d_q = row(D_Q), *const tape = row(CRITIC_TAPE), *const critic_seed = scratch + CRITIC_SEED;
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);
        double* const partial = reinterpret_cast<double*>(scratch + PARTIAL);
        const Forward<Actor, B> actor_t{hot + ACTOR_TARGET, next, nullptr, ones, nullptr, row(TARGETS)};
        const Forward<Actor, B> actor{hot, x, nullptr, ones, nullptr, row(ACTOR_TAPE)};
        const Forward<Critic, B> critic_t{hot + CRITIC_TARGET, next, pi_target, ones, row(TARGET_LOWER),
                                          row(TARGETS) - Critic::row(JOIN) * STRIDE};
        const Forward<Critic, B> critic{hot + CRITIC, x, batch.action[0], ones, tape, tape};
        const Forward<Critic, B> critic_of_pi{hot + CRITIC, x, pi, ones, tape, tape};
        const Backward<Actor, B> actor_errors{actor, scratch + ACTOR_SEED, d_pi, d_pi, row(ACTOR_ERRORS)};
        const Backward<Critic, B> critic_errors{critic, critic_seed, d_q, nullptr, row(CRITIC_ERRORS)};
        const auto squashed = [](float* out) {
            return [=](int a, int s, float4 value) { quad(out + a * STRIDE + s) = tanh_exact(value); };
        };
        unrolled<0, STEPS>([&](auto at) {
            constexpr int NOW = decltype(at)::value, TOGETHER = NOW < NA ? 3 : 2;
            PHASE(thread) {
                Shares shares(thread);
                actor_t.template step<NOW, TOGETHER>(shares, squashed(pi_target));
                actor.template step<NOW, TOGETHER>(shares, squashed(pi));
                critic.template step<NOW, TOGETHER>(shares, [=](int, int s, float4 value) { quad(q + s) = value; });
                critic_t.template step<target_layer(NOW), TOGETHER>(shares, [&](int, int s, float4 q_t) {
                    const float value[4] = {q_t.x, q_t.y, q_t.z, q_t.w};
                    for (int b = s; b < s + 4; ++b) {
                        const float delta = batch.reward[b] + batch.discount[b] * value[b - s] - q[b];
                        batch.td_error[b] = delta;
                        d_q[b] = -2.0f / B * batch.weight[b] * delta;
                    }
                });
                critic_errors.template step<NOW - NC, TOGETHER>(shares);
                if constexpr (A == 1) actor_errors.template step<NOW - NA, TOGETHER>(shares);
                if constexpr (NOW == 0) {
                    critic_errors.begin(shares);
                    actor_errors.begin(shares);
                    shares(STRIDE, [=](int s) { ones[s] = 1.0f; });
                    shares(2, [&](int which) {
                        now[which] = adam_step(which ? settings.critic : settings.actor, step);
                    });
                }
            }
        });
        fit<Shape::CLIP != 0>(critic_errors, hot + CRITIC_TARGET, cold + 2 * CRITIC, settings.critic, now + 1, settings.tau,
                              partial);
        // The errors of the updated critic overwrite its hidden values.
        const Backward<Critic, B> value_errors{critic_of_pi, critic_seed, nullptr, nullptr, tape};
        ascend<Shape::CLIP != 0, A == 1>(value_errors, actor_errors, batch.actor_weight, d_pi, hot + ACTOR_TARGET, cold,
                                         settings.actor, now, settings.tau, partial);
    }
};
