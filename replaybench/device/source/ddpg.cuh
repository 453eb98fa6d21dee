// DDPG as in controllers/algorithms/ddpg.py (de Bruin et al. 2018, section 3.2), one member a block.
//
// Shape: OBSERVATION, ACTION, BATCH, ACTION_LAYER, CLIP (whether gradients are clipped); types Actor, Critic (Widths).
// Hot: actor, critic, target actor, target critic. Settings: see below.
//
// Phases. Everything that does not depend on each other runs side by side: both networks on the observation, the target
// actor, and then the target critic together with the backward pass of the critic, which needs no loss (see networks.cuh). With
// the paper's widths an update has 13 phases: 6 up to the TD error, critic, 5 to the action's gradient, actor.
#pragma once
#include "networks.cuh"

struct DDPGSettings {
    AdamSettings actor, critic;
    float tau;
};

template <class Shape> struct DDPG {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, STRIDE = sample_stride(B), JOIN = Shape::ACTION_LAYER;
    using Settings = DDPGSettings;
    using Samples = Batch<Shape, 0>;
    using Actor = Network<Shape::OBSERVATION, 0, -1, A, typename Shape::Actor>;
    using Critic = Network<Shape::OBSERVATION, A, JOIN, 1, typename Shape::Critic>;
    using ActorPasses = Passes<Actor, B>;
    using CriticPasses = Passes<Critic, B>;
    CONSTANT Exploration EXPLORES = Exploration::OUTSIDE;
    CONSTANT int OUTPUTS = A, NOISE = 0, SMOOTH = 0, NA = Actor::HIDDEN, NC = Critic::HIDDEN;

    // Hot and cold.
    CONSTANT int CRITIC = Actor::floats(), TRAINED = CRITIC + Critic::floats();
    CONSTANT int ACTOR_TARGET = TRAINED, CRITIC_TARGET = TRAINED + CRITIC, HOT = 2 * TRAINED, COLD = 2 * TRAINED;

    // Scratch, in rows of STRIDE: the target critic above the action's layer takes the place of the target actor.
    CONSTANT int TARGETS = 0, UPPER = Critic::rows() - Critic::row(JOIN);
    CONSTANT int TARGET_LOWER = TARGETS + (UPPER > Actor::rows() ? UPPER : Actor::rows());
    CONSTANT int CRITIC_TAPE = TARGET_LOWER + Critic::row(JOIN), CRITIC_ERRORS = CRITIC_TAPE + Critic::rows();
    CONSTANT int ACTOR_TAPE = CRITIC_ERRORS + Critic::row(NC - 1), ACTOR_ERRORS = ACTOR_TAPE + Actor::rows();
    CONSTANT int PI_TARGET = ACTOR_ERRORS + Actor::row(A == 1 ? NA - 1 : NA), PI = PI_TARGET + A, D_PI = PI + A;
    CONSTANT int Q = D_PI + A, D_Q = Q + 1, ONES = D_Q + 1, ROWS = ONES + 1;
    CONSTANT int STEPS_AT = ROWS * STRIDE, CRITIC_SEED = STEPS_AT + 8, ACTOR_SEED = CRITIC_SEED + Critic::last();
    CONSTANT int PARTIAL = rounded_up(ACTOR_SEED + Actor::last(), 4);
    CONSTANT int SCRATCH = PARTIAL + (Shape::CLIP ? 2 * THREADS : 0);

    // When each part of the passes up to the TD error runs; a part reads what earlier steps wrote.
    CONSTANT int TARGET_ACTOR_DONE = NA;
    static FOLDED int target_critic_at(int layer) { return layer < JOIN ? layer : TARGET_ACTOR_DONE + 1 + layer - JOIN; }
    CONSTANT int LOSS_AT = TARGET_ACTOR_DONE + 1 + NC - JOIN > NC ? TARGET_ACTOR_DONE + 1 + NC - JOIN : NC + 1;
    static FOLDED int critic_below_at(int layer) { return NC + NC - 1 - layer; }
    static FOLDED int actor_below_at(int layer) { return NA + NA - 1 - layer; }
    static FOLDED int later(int a, int b) { return a > b ? a : b; }
    CONSTANT int STEPS = later(LOSS_AT, later(critic_below_at(1), A == 1 ? actor_below_at(1) : 0)) + 1;

    static METHOD void act(const float* hot, const float* observation, float* output, float* scratch) {
        ActorPasses::act(hot, observation, scratch, output);
    }
    static METHOD void greedy(const float* output, float* action) {
        for (int a = 0; a < A; ++a) action[a] = tanh_exact(output[a]);
    }

    static METHOD void update(float* hot, float* cold, Samples& batch, const Settings& settings, float step,
                              float rate_factor, float* scratch) {
        const auto row = [=](int r) { return scratch + r * STRIDE; };
        float *const ones = row(ONES), *const pi_target = row(PI_TARGET), *const pi = row(PI), *const d_pi = row(D_PI);
        float *const q = row(Q), *const d_q = row(D_Q), *const tape = row(CRITIC_TAPE);
        float *const critic_seed = scratch + CRITIC_SEED, *const actor_seed = scratch + ACTOR_SEED;
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        const float *const actor_target = hot + ACTOR_TARGET, *const critic_target = hot + CRITIC_TARGET;
        float *const actor = hot, *const critic = hot + CRITIC;
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);
        const Backpropagation<Critic, B> critic_errors{critic, tape, critic_seed, d_q, nullptr, row(CRITIC_ERRORS)};
        const Backpropagation<Actor, B> actor_errors{actor, row(ACTOR_TAPE), actor_seed, d_pi, d_pi, row(ACTOR_ERRORS)};

        unrolled<0, STEPS>([&](auto at) {
            constexpr int NOW = decltype(at)::value;
            PHASE(thread) {
                Shares shares(thread);
                unrolled<0, later(NA, NC)>([&](auto layer) {  // hidden layers forward
                    constexpr int L = decltype(layer)::value;
                    if constexpr (L < NA && L == NOW) {
                        float *const slow = row(TARGETS + Actor::row(L)), *const fast = row(ACTOR_TAPE + Actor::row(L));
                        ActorPasses::template forward<L>(
                            shares, actor_target, ActorPasses::template input<L>(next, nullptr, row(TARGETS), ones), slow);
                        ActorPasses::template forward<L>(
                            shares, actor, ActorPasses::template input<L>(x, nullptr, row(ACTOR_TAPE), ones), fast);
                    }
                    if constexpr (L < NC && L == NOW)
                        CriticPasses::template forward<L>(
                            shares, critic, CriticPasses::template input<L>(x, batch.action[0], tape, ones),
                            tape + Critic::row(L) * STRIDE);
                    if constexpr (L < NC && target_critic_at(L) == NOW)
                        CriticPasses::template forward<L>(shares, critic_target,
                                                          target_input<L>(next, pi_target, scratch), target_tape(L, scratch));
                });
                unrolled<1, later(NA, NC)>([&](auto layer) {  // errors backward
                    constexpr int L = decltype(layer)::value;
                    if constexpr (L < NC && critic_below_at(L) == NOW) critic_errors.template below<L>(shares);
                    if constexpr (A == 1 && L < NA && actor_below_at(L) == NOW) actor_errors.template below<L>(shares);
                });
                if constexpr (NOW == NA) {
                    const auto store = [](float* out) {
                        return [=](int a, int s, float4 value) { quad(out + a * STRIDE + s) = tanh_exact(value); };
                    };
                    ActorPasses::head(shares, actor_target,
                                      ActorPasses::template input<NA>(next, nullptr, row(TARGETS), ones), store(pi_target));
                    ActorPasses::head(shares, actor,
                                      ActorPasses::template input<NA>(x, nullptr, row(ACTOR_TAPE), ones), store(pi));
                }
                if constexpr (NOW == NC)
                    CriticPasses::head(shares, critic, CriticPasses::template input<NC>(x, batch.action[0], tape, ones),
                                       [=](int, int s, float4 value) { quad(q + s) = value; });
                if constexpr (NOW == LOSS_AT)
                    CriticPasses::head(shares, critic_target, target_input<NC>(next, pi_target, scratch),
                                       [&](int, int s, float4 q_t) {
                                           const float value[4] = {q_t.x, q_t.y, q_t.z, q_t.w};
                                           for (int b = 0; b < 4; ++b) {
                                               const float delta =
                                                   batch.reward[s + b] + batch.discount[s + b] * value[b] - q[s + b];
                                               batch.td_error[s + b] = delta;
                                               d_q[s + b] = -2.0f / B * batch.weight[s + b] * delta;
                                           }
                                       });
                if constexpr (NOW == 0) {
                    copy_seeds<Critic>(shares, critic, critic_seed);
                    if constexpr (A == 1) copy_seeds<Actor>(shares, actor, actor_seed);
                    shares(STRIDE, [=](int s) { ones[s] = 1.0f; });
                    shares(2, [&](int which) {
                        now[which] = adam_step(which ? settings.critic : settings.actor, step, rate_factor);
                    });
                }
            }
        });
        double* const partial = reinterpret_cast<double*>(scratch + PARTIAL);
        fit<Shape::CLIP != 0>(critic_errors, x, batch.action[0], ones, critic, hot + CRITIC_TARGET, cold + 2 * CRITIC,
                         settings.critic, now + 1, settings.tau, partial);

        // The action's gradient of the updated critic; its errors take the place of its hidden values.
        const Backpropagation<Critic, B> of_action{critic, tape, critic_seed, nullptr, nullptr, tape};
        unrolled<0, JOIN == NC ? 0 : NC>([&](auto layer) {
            constexpr int L = decltype(layer)::value;
            PHASE(thread) {
                Shares shares(thread);
                CriticPasses::template forward<L>(shares, critic, CriticPasses::template input<L>(x, pi, tape, ones),
                                                  tape + Critic::row(L) * STRIDE);
                if constexpr (L == 0) copy_seeds<Critic>(shares, critic, critic_seed);
            }
        });
        unrolled<0, later(NC - 1 - JOIN, 0)>([&](auto done) {
            PHASE(thread) {
                Shares shares(thread);
                of_action.template below<NC - 1 - decltype(done)::value>(shares);
            }
        });
        PHASE(thread) {
            Shares shares(thread);
            CriticPasses::joined_gradient(shares, critic, A, of_action.template of<JOIN>(), [&](int a, int s, float4 d) {
                const float gradient[4] = {d.x, d.y, d.z, d.w};
                for (int b = 0; b < 4; ++b) {
                    const float action = pi[a * STRIDE + s + b], slope = 1.0f - action * action;
                    d_pi[a * STRIDE + s + b] = -1.0f / B * batch.actor_weight[s + b] * gradient[b] * slope;
                }
            });
        }
        unrolled<0, A == 1 ? 0 : NA>([&](auto done) {
            PHASE(thread) {
                Shares shares(thread);
                actor_errors.template below<NA - decltype(done)::value>(shares);
            }
        });
        fit<Shape::CLIP != 0>(actor_errors, x, nullptr, ones, actor, hot + ACTOR_TARGET, cold, settings.actor, now,
                         settings.tau, partial);
    }

private:
    static METHOD float* target_tape(int layer, float* scratch) {
        const int row = layer < JOIN ? TARGET_LOWER + Critic::row(layer) : TARGETS + Critic::row(layer) - Critic::row(JOIN);
        return scratch + row * STRIDE;
    }
    template <int L> static METHOD auto target_input(const float* next, const float* action, float* scratch) {
        return Rows<Critic, L, STRIDE>{L ? target_tape(L - 1, scratch) : next, action, scratch + ONES * STRIDE};
    }
};
