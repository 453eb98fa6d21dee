// DQN as in controllers/algorithms/dqn.py (Mnih et al., 2015; de Bruin et al., 2018, section 6.3), one member per block.
//
// Shape has the constants OBSERVATION, ACTION, BATCH, CHOICES and DOUBLE (0 or 1), and the types Critic (Widths of hidden
// layers) and Levels (Widths: number of values of each action). HOT contains the network and the target network.
#pragma once
#include "networks.cuh"

template <class Shape> struct DQN {
    CONSTANT int A = Shape::ACTION, B = Shape::BATCH, K = Shape::CHOICES, STRIDE = sample_stride(B);
    CONSTANT Exploration EXPLORES = Exploration::UNIFORMS;
    CONSTANT int OUTPUTS = K, NOISE = 2, SMOOTH = 0;
    using Samples = Batch<Shape, SMOOTH>;
    using Critic = Network<Shape::OBSERVATION, 0, -1, K, typename Shape::Critic>;
    CONSTANT int H = Critic::HIDDEN;
    static_assert(K > 1, "a choice has an alternative");

    // Sizes of HOT and COLD.
    CONSTANT int TRAINED = Critic::floats(), HOT = 2 * TRAINED, COLD = 2 * TRAINED;

    // Work space, in rows of STRIDE. Errors overwrite the hidden values of the target network, and the loss gradient
    // overwrites its outputs.
    CONSTANT int TAPE = 0, OTHER = TAPE + Critic::rows(), JUDGE = OTHER + Critic::rows();
    CONSTANT int Q = JUDGE + (Shape::DOUBLE ? Critic::rows() : 0), Q_T = Q + K, Q_JUDGE = Q_T + K;
    CONSTANT int ONES = Q_JUDGE + (Shape::DOUBLE ? K : 0), ROWS = ONES + 1;
    CONSTANT int STEPS_AT = ROWS * STRIDE, SCRATCH = STEPS_AT + 4;

    static METHOD void act(const float* hot, const float* observation, float* output, float* scratch) {
        act_with<Critic>(hot, observation, scratch, output);
    }
    static METHOD void greedy(const float* output, float* action) {
        float failed = 0.0f;  // if a value is NaN, the action is NaN, too
        for (int k = 0; k < K; ++k) failed = output[k] != output[k] ? output[k] : failed;
        take(largest(output, 1), action);
        for (int a = 0; a < A; ++a) action[a] = failed != failed ? failed : action[a];
    }
    // Choose randomly if noise[0] is less than `random`; noise[1] determines the random choice.
    static METHOD void explore(const float* output, const float* noise, float random, float* action) {
        if (noise[0] < random) take(lesser(int(noise[1] * K), K - 1), action);
        else greedy(output, action);
    }

    static METHOD void update(float* hot, float* cold, Samples& batch, const LearnerSettings& settings,
                              int step, float* scratch) {
        const auto row = [=](int r) { return scratch + r * STRIDE; };
        float *const q = row(Q), *const q_t = row(Q_T), *const ones = row(ONES);
        const float *const x = batch.observation[0], *const next = batch.next_observation[0];
        AdamStep* const now = reinterpret_cast<AdamStep*>(scratch + STEPS_AT);
        const Forward<Critic, B> pass{hot, x, nullptr, ones, nullptr, row(TAPE)};
        const Forward<Critic, B> target{hot + TRAINED, next, nullptr, ones, nullptr, row(OTHER)};
        const Forward<Critic, B> judge{hot, next, nullptr, ones, nullptr, row(JUDGE)};
        const auto store = [](float* out) { return [=](int k, int s, float4 value) { quad(out + k * STRIDE + s) = value; }; };
        unrolled<0, H + 1>([&](auto layer) {
            constexpr int L = decltype(layer)::value;
            PHASE(thread) {
                Shares shares(thread);
                pass.template step<L>(shares, store(q));
                target.template step<L>(shares, store(q_t));
                if constexpr (Shape::DOUBLE) judge.template step<L>(shares, store(row(Q_JUDGE)));
                if constexpr (L == 0) {
                    shares(STRIDE, [=](int s) { ones[s] = 1.0f; });
                    shares(1, [&](int) { *now = adam_step(settings.critic, step); });
                }
            }
        });
        PHASE(thread) {
            Shares shares(thread);
            shares(STRIDE, [&](int s) {
                const int best = largest((Shape::DOUBLE ? row(Q_JUDGE) : q_t) + s, STRIDE), chosen = choice_of(batch, s);
                const float delta = batch.reward[s] + batch.discount[s] * q_t[best * STRIDE + s] - q[chosen * STRIDE + s];
                batch.td_error[s] = delta;
                for (int k = 0; k < K; ++k) q_t[k * STRIDE + s] = 0.0f;
                const float slope = bounded(delta, -settings.huber, settings.huber);
                if (s < B) q_t[chosen * STRIDE + s] = -1.0f / B * batch.weight[s] * slope;
            });
        }
        const Backward<Critic, B> errors{pass, nullptr, nullptr, q_t, row(OTHER)};
        errors.all();
        fit(errors, hot + TRAINED, cold, settings.critic, now, step % settings.copy_every == 0 ? 1.0f : 0.0f);
    }

private:
    static METHOD int lesser(int a, int b) { return a < b ? a : b; }

    // Write the action with the index `choice`; the last dimension of the action changes fastest.
    static METHOD void take(int choice, float* action) {
        for (int a = A - 1; a >= 0; --a) {
            const int levels = Shape::Levels::of(a), level = choice % levels;
            action[a] = level == levels - 1 ? 1.0f : float(-1.0 + level * (2.0 / (levels - 1)));
            choice /= levels;
        }
    }

    // Return the index of the largest of K values, or that of the first NaN if there is one.
    static METHOD int largest(const float* values, int stride) {
        int best = 0;
        for (int k = 1; k < K; ++k) {
            const float value = values[k * stride], most = values[best * stride];
            if (most == most && !(value <= most)) best = k;
        }
        return best;
    }

    // Return the index of the choice that is nearest to a stored action; see runtime/elementwise.py.
    static METHOD int choice_of(const Samples& batch, int s) {
        int index = 0;
        for (int a = 0; a < A; ++a) {
            const int levels = Shape::Levels::of(a);
            const double place = 0.5 * (batch.action[a][s] + 1.0) * (levels - 1) - 0.5;
            const int level = !(place > 0.0) ? 0 : place > levels - 2 ? levels - 1 : int(ceil(place));
            index = index * levels + level;
        }
        return index;
    }
};
