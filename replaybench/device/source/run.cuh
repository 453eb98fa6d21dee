// The training loop of one member, as in experiments/loop.py and cell.py: act, step, store; then sample, update, annotate.
//
// The host defines Shape and Learner (see the header of the learner), Rules (replay.cuh) and Plant (plant.cuh), and then
// includes this file. A launch runs some rounds (training episodes or iterations) of every member. Between launches, the
// state of a member is one block of global memory with its networks, moments, counters and buffer. A copy of this block is a
// checkpoint from which training continues bit for bit.
#pragma once
#include "plant.cuh"
#include "replay.cuh"

// Settings of all members, which the host fills.
struct RunSettings {
    LearnerSettings learner;
    PlantSettings<Plant> plant;
    ReplaySettings replay;
    unsigned long long seed;
    long long stride, run_at, hot_at, cold_at, replay_at;  // size of a member and offsets of its parts, in bytes
    double updates_per_phase, horizon;
    // Exploration. The scale, which decays linearly, is that of a noise process or the probability of a random choice.
    double first_scale, last_scale, diffusion, friction, noise_bound, action_bound, decay_episodes;
    float discount, reward_scale;
    int update_every, greedy_every, warmup_rounds, first_member;
};

// State of a member except networks and buffer: episodes, exploration process and counters.
struct RunState {
    Episode<Plant> training, evaluation;
    double process[Plant::ACTIONS], scores, lengths, ended;
    unsigned explored;
    int begun;  // the round in which the training episode began
};

using Buffer = Replay<Rules>;
using Samples = Learner::Samples;

struct RunShared {
    alignas(16) float hot[Learner::HOT];
    alignas(16) float scratch[Learner::SCRATCH];
    Samples batch;
    Buffer::Shared buffer;
    RunState run;
    float output[Learner::OUTPUTS], action[Plant::ACTIONS], greedy[Plant::ACTIONS], row[Rules::WIDTH];
};

struct Member {
    const RunSettings& settings;
    RunShared& shared;
    char* const base;
    float* const cold;
    const Random random;

    METHOD Buffer buffer() const {
        char* const own = base + settings.replay_at;
        return {shared.buffer, *reinterpret_cast<ReplayState*>(own), settings.replay, own, random};
    }
    METHOD Simulation<Plant> training() const {
        return {settings.plant, shared.run.training, random, Purpose::SENSOR, Purpose::ACTUATOR};
    }
    METHOD Simulation<Plant> evaluation() const {
        return {settings.plant, shared.run.evaluation, random, Purpose::EVALUATION_SENSOR, Purpose::EVALUATION_ACTUATOR};
    }

    METHOD void load() const {
        PHASE(thread) {
            copy(thread, shared.hot, base + settings.hot_at, sizeof(shared.hot));
            copy(thread, &shared.run, base + settings.run_at, sizeof(RunState));
            copy(thread, &shared.batch, nullptr, sizeof(Samples));  // padding is zero
        }
        buffer().begin();
    }
    METHOD void save() const {
        buffer().end();
        PHASE(thread) {
            copy(thread, base + settings.hot_at, shared.hot, sizeof(shared.hot));
            copy(thread, base + settings.run_at, &shared.run, sizeof(RunState));
        }
    }

    // Run one round: write the mean score and length of the episodes that ended and, unless `greedy` is null, run a greedy
    // episode and write its score.
    METHOD void advance(int round, double* score, double* length, double* greedy) const {
        const int every = settings.update_every, steps = settings.plant.steps;
        ONCE shared.run.scores = shared.run.lengths = shared.run.ended = 0.0;
        bool goes_on = true;
        for (long long done = (long long)round * steps, end = done + steps; goes_on;) {
            begin(round);
            step(round);
            ++done;
            goes_on = every ? done < end : shared.run.training.active != 0;
            if (every ? done % every == 0 : !goes_on) learn(every ? (int)(done / every) - 1 : round, round);
        }
        ONCE {
            *score = shared.run.scores / shared.run.ended;  // NaN if no episode has ended
            *length = shared.run.lengths / shared.run.ended;
        }
        if (greedy == nullptr) return;
        ONCE evaluation().begin();
        while (shared.run.evaluation.active) {
            Learner::act(shared.hot, shared.run.evaluation.observation, shared.output, shared.scratch);
            ONCE {
                Learner::greedy(shared.output, shared.greedy);
                evaluation().step(shared.greedy);
            }
        }
        ONCE *greedy = shared.run.evaluation.score(settings.plant);
    }

private:
    // Copy this thread's part of an array of 4-byte words; without `from`, write zeros.
    static METHOD void copy(int thread, void* to, const void* from, int bytes) {
        for (int i = thread; i < bytes / 4; i += THREADS) ((int*)to)[i] = from ? ((const int*)from)[i] : 0;
    }

    // Begin an episode unless one is active. `active` is read within the phase that writes it, by the same thread; see the
    // rules in block.cuh.
    METHOD void begin(int round) const {
        ONCE {
            if (shared.run.training.active) continue;
            training().begin();
            shared.run.begun = round;
            for (int a = 0; a < Plant::ACTIONS; ++a) shared.run.process[a] = 0.0;
        }
    }

    CONSTANT bool NOISE_STORED = Rules::WIDTH > 2 * Plant::OBSERVED + Plant::ACTIONS + 3;
    METHOD void step(int round) const {
        Learner::act(shared.hot, shared.run.training.observation, shared.output, shared.scratch);
        PHASE(thread) {
            if (thread == THREADS / 2) buffer().choose();
            if (thread) continue;
            constexpr int S = Plant::OBSERVED, A = Plant::ACTIONS;
            Episode<Plant>& episode = shared.run.training;
            explore(round < settings.warmup_rounds);
            float *const row = shared.row, *const after = row + S + A, *const noise = after + S + 3, deviation = 0.0f;
            for (int a = 0; a < A; ++a) {
                row[S + a] = shared.action[a];
                deviation += fabsf(shared.action[a] - shared.greedy[a]);
            }
            for (int o = 0; o < S; ++o) row[o] = episode.observation[o];
            for (int o = 0; NOISE_STORED && o < S; ++o) noise[o] = episode.sensor_noise[o];
            training().step(shared.action);
            after[0] = (float)episode.reward;
            for (int o = 0; o < S; ++o) after[1 + o] = episode.observation[o];
            after[S + 1] = episode.terminated ? 1.0f : 0.0f;
            after[S + 2] = deviation;
            for (int a = 0; NOISE_STORED && a < A; ++a) noise[S + a] = episode.actuator_noise[a];
            if (episode.active) continue;
            shared.run.scores += episode.score(settings.plant);
            shared.run.lengths += episode.length;
            shared.run.ended += 1.0;
        }
        buffer().store(shared.row);
    }

    // Write the greedy action and the action to apply, which is uniformly random during warm-up. One thread.
    template <class L = Learner> METHOD void explore(bool warming_up) const {
        const double decay = settings.decay_episodes > 1 ? settings.decay_episodes - 1 : 1;
        const double share = shared.run.begun < decay ? shared.run.begun / decay : 1.0;
        const double scale = settings.first_scale + share * (settings.last_scale - settings.first_scale);
        const unsigned now = shared.run.explored++;
        Learner::greedy(shared.output, shared.greedy);
        if constexpr (L::EXPLORES == Exploration::OUTSIDE) {
            for (int a = 0; a < Plant::ACTIONS; ++a) {
                double& u = shared.run.process[a];  // also updated in warm-up, because an episode may last longer
                u += settings.diffusion * random.normal(Purpose::EXPLORATION, now, a) - settings.friction * u;
                const double limit = settings.noise_bound, bound = settings.action_bound;
                const double tried = shared.greedy[a] + scale * (u < -limit ? -limit : u > limit ? limit : u);
                shared.action[a] = (float)(tried > bound ? bound : tried < -bound ? -bound : tried);
            }
        } else {
            float noise[L::NOISE];
            for (int i = 0; i < L::NOISE; ++i)
                noise[i] = L::EXPLORES == Exploration::NORMALS ? random.normal(Purpose::EXPLORATION, now, i)
                                                                     : (float)random.uniform(Purpose::EXPLORATION, now, i);
            L::explore(shared.output, noise, (float)scale, shared.action);
        }
        for (int a = 0; warming_up && a < Plant::ACTIONS; ++a)
            shared.action[a] = (float)(2.0 * random.uniform(Purpose::WARMUP, now, a) - 1.0);
    }

    // Do the updates of an update phase; `phase` is its number, from 0. Fractions of an update are carried over.
    METHOD void learn(int phase, int round) const {
        const int due = (int)((phase + 1) * settings.updates_per_phase) - (int)(phase * settings.updates_per_phase);
        if (round < settings.warmup_rounds) return;
        if (buffer().state.count == 0) {
            ONCE buffer().state.updates += due;
            return;
        }
        const double along = phase / (settings.horizon > 2.0 ? settings.horizon - 1.0 : 1.0);
        const float progress = (float)(along < 1.0 ? along : 1.0);
        const unsigned end = buffer().state.updates + due;
        for (int update = 0; update < due; ++update) {
            buffer().draw(progress, end);
            fetch();
            Learner::update(shared.hot, cold, shared.batch, settings.learner, buffer().state.updates, shared.scratch);
            buffer().annotate(shared.batch.td_error);
        }
    }

    // Copy the sampled rows into the batch, and draw the random numbers of the update.
    METHOD void fetch() const {
        constexpr int S = Plant::OBSERVED, A = Plant::ACTIONS, COLUMNS = 2 * S + A + 2, B = Shape::BATCH;
        PHASE(thread) {
            Samples& batch = shared.batch;
            for (int i = thread; i < B * COLUMNS; i += THREADS) {
                const int b = i / COLUMNS, column = i % COLUMNS;
                const float value = buffer().rows()[(long long)shared.buffer.idx[b] * Rules::WIDTH + column];
                if (column < S) batch.observation[column][b] = value;
                else if (column < S + A) batch.action[column - S][b] = value;
                else if (column == S + A) batch.reward[b] = settings.reward_scale * value;
                else if (column < COLUMNS - 1) batch.next_observation[column - S - A - 1][b] = value;
                else batch.discount[b] = settings.discount * (1.0f - value);
            }
            for (int b = thread; b < B; b += THREADS) {
                batch.weight[b] = shared.buffer.weight[b];
                batch.actor_weight[b] = Rules::WEIGHS_ACTOR ? shared.buffer.weight[b] : 1.0f;
            }
            for (int i = thread; i < B * Learner::SMOOTH; i += THREADS)
                batch.noise[i / B][i % B] = random.normal(Purpose::LEARNING, buffer().state.updates, i);
        }
    }
};

// Run rounds first ... first + count - 1 of a member. The arrays of scores are [members][count].
DEVICE void run_member(const RunSettings& settings, RunShared& shared, char* memory, int member, int first, int count,
                       double* scores, double* lengths, double* greedy) {
    char* const base = memory + (long long)member * settings.stride;
    const Random random{settings.seed, (unsigned)(settings.first_member + member)};
    const Member own{settings, shared, base, reinterpret_cast<float*>(base + settings.cold_at), random};
    own.load();
    for (int k = 0; k < count; ++k) {
        const long long place = (long long)member * count + k;
        const bool due = settings.greedy_every > 0 && (first + k + 1) % settings.greedy_every == 0;
        own.advance(first + k, scores + place, lengths + place, due ? greedy + place : nullptr);
    }
    own.save();
}

// Describe the buffer of a member by Replay::by_age. `ends` is [members][groups], and `found` is [members][groups + 1].
DEVICE void describe_member(const RunSettings& settings, char* memory, int member, int groups, const unsigned* ends,
                            double* found) {
    char* const base = memory + (long long)member * settings.stride + settings.replay_at;
    Buffer::by_age(settings.replay, base, groups, ends + (long long)member * groups, found + (long long)member * (groups + 1));
}

#ifdef __CUDACC__
#ifndef BLOCKS  // number of blocks per multiprocessor, which limits the number of registers
#define BLOCKS (THREADS <= 256 && sizeof(RunShared) <= 113 * 1024 ? 2 : 1)
#endif
extern "C" __global__ void size_of_shared(int* bytes) { *bytes = sizeof(RunShared); }
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    run_rounds(const RunSettings* settings, char* memory, int first, int count, double* scores, double* lengths,
               double* greedy) {
    extern __shared__ __align__(16) char space[];
    run_member(*settings, *reinterpret_cast<RunShared*>(space), memory, blockIdx.x, first, count, scores, lengths, greedy);
}
extern "C" __global__ void describe_buffers(const RunSettings* settings, char* memory, int groups, const unsigned* ends,
                                            double* found) {
    describe_member(*settings, memory, blockIdx.x, groups, ends, found);
}
#else
extern "C" {
void set_plant(decltype(plant_rhs) rhs, decltype(plant_reward) reward, decltype(plant_project) project,
               decltype(plant_terminated) terminated) {
    plant_rhs = rhs, plant_reward = reward, plant_project = project, plant_terminated = terminated;
}
int settings_size() { return sizeof(RunSettings); }
int state_size() { return sizeof(RunState); }
void run_rounds(const RunSettings* settings, char* memory, int members, int first, int count, double* scores,
                double* lengths, double* greedy) {
    for (int m = 0; m < members; ++m) {
        RunShared* const shared = new RunShared();
        run_member(*settings, *shared, memory, m, first, count, scores, lengths, greedy);
        delete shared;
    }
}
void describe_buffers(const RunSettings* settings, char* memory, int members, int groups, const unsigned* ends, double* found) {
    for (int m = 0; m < members; ++m) describe_member(*settings, memory, m, groups, ends, found);
}
}
#endif
