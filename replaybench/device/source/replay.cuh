// The replay buffer of a member, with the retention, sampling and weighting rules of replaybench/replay/strategies.
//
// The type Rules contains constants that the host writes into the source: WIDTH (number of floats in a row), EXPLORATION_AT
// (column of the exploration magnitude), BATCH, ROOM (see order.cuh), RETENTION, SAMPLING, WEIGHTING, DROPS. Only the code
// that these rules need is compiled. The host computes the byte offsets of all arrays from the base address of a member.
#pragma once
#include "order.cuh"
#include "random.cuh"

enum class Retention { FIFO, FULL, RESV, TDE, EXPL };
enum class Sampling { UNIFORM, PER, PERPROP };
enum class Weighting { NONE, IS, FIS };

CONSTANT int FAN = 32, LEVELS = 7, TAILS = 1024;

// Byte offsets of OrderMemory.
struct OrderPlaces {
    long long bits, run[2], slots[2];
};

struct ReplaySettings {
    double drop, sampling_alpha, epsilon, beta_first, beta_last;
    const double *sampling_sums, *retention_sums;  // sums of r^-alpha over ranks r <= k, for k = 0 ... capacity
    const int* retention_edges;                    // [segments + 1] ranks at which segments of equal probability begin
    long long rows, serial, replays;
    OrderPlaces td, exploration;
    long long sums[LEVELS];
    int capacity, segments, levels, normalise;
};

struct ReplayState {
    unsigned collected, offers, count, updates, offers_before, updates_before;
    int td_head[2], exploration_head[2];
    float largest;
};

// Long functions of one thread are called instead of inlined, which halves the compile time.
#ifdef __CUDACC__
#define CALLED static __device__ __noinline__
#else
#define CALLED static
#endif

// Return the largest k <= count for which the sum of r^-alpha over r <= k is at most `mass`; see replay/orders/rank_law.py.
CALLED int ranks_below(const double* sums, int count, double mass) {
    return lower_bound(count, true, [=](int k) { return sums[k + 1] > mass; });
}
// Return the rank (from 0) at which the cumulative probability reaches `share`.
CALLED int rank_at(const double* sums, int count, double share) {
    const int rank = ranks_below(sums, count, share * sums[count]);
    return rank < count ? rank : count - 1;
}

// Write Pr(X >= K) for X ~ Binomial(n, p) and K = 0 ... most < TAILS. One thread.
CALLED void binomial_tails(int n, double p, int most, double* reached) {
    for (int k = 0; k <= most; ++k) reached[k] = p >= 1.0 && k <= n ? 1.0 : 0.0;
    reached[0] = 1.0;
    if (p >= 1.0) return;
    const double mean = n * p;
    int last = (int)((most > mean ? most : mean) + 10.0 * sqrt(mean)) + 60;
    last = last < n ? last : n;
    // Logarithms are summed forward to the last term. The terms are then summed backward, with the smallest first.
    double log_term = n * log1p(-p);
    for (int k = 0; k < last; ++k) log_term += log((n - k) * p / ((k + 1) * (1.0 - p)));
    double tail = 0.0;
    for (int k = last; k > 0; --k) {
        tail += exp(log_term);
        if (k <= most) reached[k] = tail < 1.0 ? tail : 1.0;
        log_term -= log((n - k + 1) * p / (k * (1.0 - p)));
    }
}

template <class Rules> struct Replay {
    CONSTANT int B = Rules::BATCH, W = Rules::WIDTH;
    CONSTANT bool RANKED = Rules::RETENTION == Retention::TDE || Rules::RETENTION == Retention::EXPL;
    CONSTANT bool BY_TD = Rules::RETENTION == Retention::TDE || Rules::SAMPLING == Sampling::PER;
    CONSTANT bool BY_EXPLORATION = Rules::RETENTION == Retention::EXPL;
    CONSTANT bool PRIORITIES = Rules::SAMPLING == Sampling::PERPROP, COUNTS = Rules::WEIGHTING == Weighting::FIS;
    CONSTANT bool WAITS = BY_TD && !RANKED;  // ranks are not needed before the next update
    using ByTD = Order<Rules::RETENTION == Retention::TDE, B, Rules::ROOM>;
    using ByExploration = Order<true, 1, Rules::ROOM>;
    struct Nothing {};
    template <bool NEEDED, class T> struct If { using type = Nothing; };
    template <class T> struct If<true, T> { using type = T; };

    struct Shared {
        typename If<BY_TD, typename ByTD::Shared>::type td;
        typename If<BY_EXPLORATION, typename ByExploration::Shared>::type exploration;
        double probability[B];
        typename If<COUNTS, double[TAILS]>::type reached;
        unsigned idx[B], live[B], slot;
        unsigned waiting[WAITS ? B : 1];  // new experiences that are not in the order yet
        int waiters;
        int rank;  // rank of the experience to overwrite, or -1
        int edges[Rules::SAMPLING == Sampling::PER ? B + 1 : 1], edges_for, lifetime;
        float weight[B], priority[PRIORITIES ? B : 1];
        int count[COUNTS ? B : 1];
        double expected, mean;
    };

    Shared& shared;
    ReplayState& state;
    const ReplaySettings& settings;
    char* const base;
    const Random random;

    template <class T> METHOD T* at(long long offset) const { return reinterpret_cast<T*>(base + offset); }
    METHOD float* rows() const { return at<float>(settings.rows); }
    METHOD unsigned* serial() const { return at<unsigned>(settings.serial); }
    METHOD float* leaf() const { return at<float>(settings.sums[0]); }
    METHOD OrderMemory order(const OrderPlaces& of, int* head) const {
        return {{at<Entry>(of.run[0]), at<Entry>(of.run[1])},
                {at<unsigned>(of.slots[0]), at<unsigned>(of.slots[1])}, at<unsigned>(of.bits), serial(), head};
    }
    METHOD ByTD td() const { return {shared.td, order(settings.td, state.td_head)}; }
    METHOD ByExploration exploration() const {
        return {shared.exploration, order(settings.exploration, state.exploration_head)};
    }

    // Initialise the part of the buffer in shared memory, at the start of a launch. Phases: 3.
    METHOD void begin() const {
        ONCE shared.edges_for = shared.lifetime = -1, shared.waiters = 0;
        if constexpr (BY_TD) td().begin();
        if constexpr (BY_EXPLORATION) exploration().begin();
    }

    // Write the part of the buffer in shared memory to global memory, at the end of a launch. Phases: 4.
    METHOD void end() const {
        if constexpr (WAITS) admit();
        if constexpr (BY_TD) td().merge();
        if constexpr (BY_EXPLORATION) exploration().merge();
    }

    // Count the stored experiences by age, between two launches: those with serial numbers up to ends[0], then up to ends[1],
    // and so on. Write these numbers, and then the sum of all exploration magnitudes. Phases: 1.
    static METHOD void by_age(const ReplaySettings& settings, const char* base, int groups, const unsigned* ends,
                              double* found) {
        const int count = reinterpret_cast<const ReplayState*>(base)->count;
        const unsigned* const serial = reinterpret_cast<const unsigned*>(base + settings.serial);
        const float* const exploration = reinterpret_cast<const float*>(base + settings.rows) + Rules::EXPLORATION_AT;
        PHASE(thread) {
            for (int group = thread / 32; group <= groups; group += THREADS / 32) {
                const unsigned before = group ? ends[group - 1] : 0, last = group < groups ? ends[group] : 0;
                const double sum = lane_sum<32>(thread, count, [&](int slot) -> double {
                    if (group == groups) return exploration[(long long)slot * W];
                    return before < serial[slot] && serial[slot] <= last;
                });
                if (thread % 32 == 0) found[group] = sum;
            }
        }
    }

    // Choose the slot of the next experience; to be called before `store`. One thread.
    METHOD void choose() const { shared.slot = choose_slot(); }

    // Store an experience in the chosen slot; `row` [WIDTH] is in shared memory.
    METHOD void store(const float* row) const {
        if constexpr (RANKED) {
            PHASE(thread) {
                if (thread >= 32 || shared.rank < 0) continue;
                unsigned found;
                if constexpr (BY_EXPLORATION) found = exploration().select(thread, shared.rank);
                else found = td().select(thread, shared.rank);
                if (thread == 0) shared.slot = found;
            }
        }
        const unsigned slot = shared.slot, number = state.collected + 1;
        const bool stored = slot != ABSENT;
        const auto mine = [=](int) { return slot; };
        const auto numbered = [=](int) { return number; };
        if constexpr (BY_TD && !WAITS)
            if (stored) td().change(1, mine, [](int) { return 0x7f800000u; }, numbered);
        if constexpr (BY_EXPLORATION)
            if (stored) exploration().change(1, mine, [=](int) { return key_bits(row[Rules::EXPLORATION_AT]); }, numbered);
        PHASE(thread) {
            for (int i = thread; stored && i < W; i += THREADS) rows()[(long long)slot * W + i] = row[i];
            if (thread) continue;
            ++state.collected;
            if (!stored) continue;
            serial()[slot] = state.collected;
            state.count += slot == state.count;
            if constexpr (COUNTS) at<unsigned short>(settings.replays)[slot] = 0;
            if constexpr (PRIORITIES) leaf()[slot] = state.largest;
            if constexpr (WAITS) {
                bool known = false;
                for (int k = 0; k < shared.waiters; ++k) known |= shared.waiting[k] == slot;
                if (!known) shared.waiting[shared.waiters++] = slot;
            }
        }
        if constexpr (WAITS)
            if (shared.waiters == B) admit();
        if constexpr (PRIORITIES)
            if (stored) sum_up(1, mine);
    }

    // Sample a batch: write `idx`, `probability` and `weight` to shared memory. `progress` is the fraction of the run, 0 to
    // 1. `updates_end` is the number of updates at the end of the update phase.
    METHOD void draw(float progress, unsigned updates_end) const {
        const int count = state.count;
        if constexpr (WAITS) admit();
        if constexpr (Rules::SAMPLING == Sampling::PER) {
            if (count >= B && shared.edges_for != count) {
                const double* const sums = settings.sampling_sums;
                PHASE(thread) {
                    for (int b = thread; b <= B; b += THREADS)
                        shared.edges[b] = ranks_below(sums, count, sums[count] * b / B);
                }
                ONCE {
                    for (int b = 1; b < B; ++b) {  // each segment has at least one rank
                        const int least = shared.edges[b - 1] + 1, most = count - B + b;
                        const int edge = shared.edges[b] > least ? shared.edges[b] : least;
                        shared.edges[b] = edge < most ? edge : most;
                    }
                    shared.edges_for = count;
                }
            }
        }
        PHASE(thread) {
            const unsigned update = state.updates;
            if constexpr (Rules::SAMPLING == Sampling::PER) {
                constexpr int LANES = ByTD::LANES;
                for (int b = thread / LANES; b < rounded_up(B, THREADS / LANES); b += THREADS / LANES) {
                    const int sample = b < B ? b : 0;
                    double probability;
                    const int rank = rank_of(sample, count, random.uniform(Purpose::SAMPLING, update, sample), &probability);
                    const unsigned slot = td().select(thread, rank);
                    if (thread % LANES == 0 && b < B) shared.idx[b] = slot, shared.probability[b] = probability;
                }
            } else if (thread < B) {
                if constexpr (Rules::SAMPLING == Sampling::UNIFORM) {
                    shared.idx[thread] = random.below(count, Purpose::SAMPLING, update, thread);
                    shared.probability[thread] = 1.0 / count;
                } else {
                    const double share = random.uniform(Purpose::SAMPLING, update, thread);
                    shared.idx[thread] = in_proportion((thread + share) / B, &shared.probability[thread]);
                }
            }
        }
        weigh(progress, updates_end);
    }

    // Update the priorities by the TD errors [B] of the last sampled batch.
    METHOD void annotate(const float* td_error) const {
        if constexpr (BY_TD || PRIORITIES) {
            PHASE(thread) {
                if (thread >= B) continue;
                bool last = true;  // if a slot was drawn several times, the last one counts
                for (int b = thread + 1; b < B; ++b) last &= shared.idx[b] != shared.idx[thread];
                shared.live[thread] = last ? shared.idx[thread] : ABSENT;
                if constexpr (PRIORITIES)
                    shared.priority[thread] =
                        (float)pow(fabs((double)td_error[thread]) + settings.epsilon, settings.sampling_alpha);
            }
        }
        if constexpr (BY_TD)
            td().change(B, [=](int b) { return shared.live[b]; }, [=](int b) { return key_bits(td_error[b]); },
                        [=](int b) { return serial()[shared.live[b]]; });
        if constexpr (PRIORITIES) {
            ONCE {
                for (int b = 0; b < B; ++b) {
                    float& p = shared.priority[b];
                    if (!(p <= 3.402823466e38f)) p = state.largest;
                    else if (p < 0x1p-126f) p = 0x1p-126f;
                    state.largest = p > state.largest ? p : state.largest;
                }
            }
            PHASE(thread) {
                if (thread < B && shared.live[thread] != ABSENT) leaf()[shared.live[thread]] = shared.priority[thread];
            }
            sum_up(B, [=](int b) { return shared.idx[b]; });
        }
    }

private:
    // Add the waiting experiences to the rank order with an infinite key, because they were never replayed.
    METHOD void admit() const {
        const int count = shared.waiters;
        if (count == 0) return;
        td().change(count, [=](int c) { return shared.waiting[c]; }, [](int) { return 0x7f800000u; }, [](int) { return 0u; });
        ONCE shared.waiters = 0;
    }

    // Return the slot of a new experience, or ABSENT if it is not stored. For retention by rank in a full buffer, write
    // the rank of the experience to overwrite to `shared.rank` and return ABSENT.
    METHOD unsigned choose_slot() const {
        shared.rank = -1;
        const unsigned number = state.collected + 1;
        if constexpr (Rules::DROPS)
            if (random.uniform(Purpose::DROP, number) < settings.drop) return ABSENT;
        ++state.offers;
        const unsigned capacity = settings.capacity;
        if (state.count < capacity) return state.count;
        if constexpr (Rules::RETENTION == Retention::FIFO) return (state.offers - 1) % capacity;
        if constexpr (Rules::RETENTION == Retention::RESV) {
            const unsigned place = random.below(state.offers, Purpose::RETENTION, state.offers);
            return place < capacity ? place : ABSENT;
        }
        if constexpr (RANKED) {
            const double share = random.uniform(Purpose::RETENTION, state.offers), place = share * settings.segments;
            const int segment = (int)place, *const edges = settings.retention_edges;
            const int rank = settings.segments ? edges[segment] + (int)((place - segment) * (edges[segment + 1] - edges[segment]))
                                               : rank_at(settings.retention_sums, capacity, share);
            shared.rank = (int)capacity - 1 - rank;
        }
        return ABSENT;  // a FULL buffer never overwrites, because its capacity is that of the whole run
    }

    METHOD int rank_of(int b, int count, double share, double* probability) const {
        if (count < B) {
            const double* const sums = settings.sampling_sums;
            const int rank = rank_at(sums, count, (b + share) / B);
            *probability = pow(rank + 1.0, -settings.sampling_alpha) / sums[count];
            return rank;
        }
        const int low = shared.edges[b], width = shared.edges[b + 1] - low;
        *probability = 1.0 / ((double)B * width);
        return low + (int)(share * width);
    }

    // Return a node of the tree of priorities. The lowest level has the priorities, and each other node is the sum of FAN
    // nodes of the level below. Padding is zero.
    METHOD double sum_at(int level, int node) const {
        return level ? at<double>(settings.sums[level])[node] : leaf()[node];
    }
    METHOD unsigned in_proportion(double share, double* probability) const {
        int node = 0, level = settings.levels;
        const double total = sum_at(level, 0);
        double left = share * total;
        for (; level > 0; --level) {
            double parts[FAN];  // all are loaded before the first is used
#pragma unroll
            for (int child = 0; child < FAN; ++child) parts[child] = sum_at(level - 1, node * FAN + child);
            int chosen = -1;
            bool found = false;
#pragma unroll
            for (int child = 0; child < FAN; ++child) {
                if (found || parts[child] <= 0.0) continue;
                chosen = child;  // by rounding, `left` may exceed the sum of all children
                found = left < parts[child];
                if (!found) left -= parts[child];
            }
            node = node * FAN + chosen;
        }
        *probability = leaf()[node] / total;
        return node;
    }
    // Recompute the sums above changed slots from their children, so that rounding errors do not accumulate. Phases: levels.
    template <class SlotOf> METHOD void sum_up(int count, SlotOf slot_of) const {
        for (int level = 1, span = FAN; level <= settings.levels; ++level, span *= FAN) {
            PHASE(thread) {
                if (thread >= count) continue;
                const int node = slot_of(thread) / span;
                double sum = 0.0;
#pragma unroll
                for (int child = 0; child < FAN; ++child) sum += sum_at(level - 1, node * FAN + child);
                at<double>(settings.sums[level])[node] = sum;
            }
        }
    }

    METHOD void weigh(float progress, unsigned updates_end) const {
        unsigned short* const replays = at<unsigned short>(settings.replays);
        if constexpr (COUNTS) {
            PHASE(thread) {
                if (thread == 0 && state.updates_before == 0)
                    state.offers_before = state.offers, state.updates_before = updates_end;
                if (thread >= B) continue;
                int times = replays[shared.idx[thread]] + 1;
                for (int b = 0; b < thread; ++b) times += shared.idx[b] == shared.idx[thread];
                shared.count[thread] = times < TAILS - 1 ? times : TAILS - 1;
            }
            ONCE {
                for (int b = 0; b < B; ++b) replays[shared.idx[b]] = (unsigned short)shared.count[b];
                expect(updates_end);
            }
        }
        const double beta = settings.beta_first + (settings.beta_last - settings.beta_first) * progress;
        PHASE(thread) {
            if (thread == THREADS - 1) ++state.updates;
            if (thread >= B) continue;
            double raw = 1.0, most = 1.0;
            if constexpr (COUNTS) raw = pow(shared.reached[shared.count[thread]] / shared.mean, settings.beta_first);
            if constexpr (Rules::WEIGHTING == Weighting::IS) {
                const auto weight = [&](int b) { return pow(state.count * shared.probability[b], -beta); };
                raw = weight(thread);
                if (settings.normalise) most = raw;
                for (int b = 0; settings.normalise && b < B; ++b) most = weight(b) > most ? weight(b) : most;
            }
            shared.weight[thread] = (float)(raw / most);
        }
    }

    // Compute the expected lifetime and number of replays of an experience under FIFO[Uniform], and the probabilities of at
    // least K replays; see FIS in replay/strategies/weighting.py.
    METHOD void expect(unsigned updates_end) const {
        const double capacity = settings.capacity, updates = state.updates + 1.0;
        const double offers = state.offers - state.offers_before, later = updates_end - (double)state.updates_before;
        const double rate = later / (offers > 1.0 ? offers : 1.0);
        const bool full = Rules::RETENTION != Retention::FULL && state.count == settings.capacity && offers > 0 &&
                          later > 0 && capacity * rate <= updates_end * (1 + 1e-9);
        const double lasting = rint(full ? capacity * rate : updates), expected = full ? B * rate : updates * B / state.count;
        int lifetime = lasting > 1.0 ? (int)lasting : 1;
        if (expected > 0.5 * lifetime) lifetime *= B;
        if (lifetime == shared.lifetime && expected == shared.expected) return;
        shared.lifetime = lifetime, shared.expected = expected;
        binomial_tails(lifetime, expected / lifetime, TAILS - 1, shared.reached);
        const int terms = (int)ceil(expected) < TAILS ? (int)ceil(expected) : TAILS - 1;
        double sum = 0.0;
        for (int k = 1; k <= terms; ++k) sum += shared.reached[k];
        shared.mean = sum / expected;
    }
};
