// Macros and small functions for code that computes one member (one independent learner) with one thread block. The same
// source is compiled for a GPU (by NVRTC or nvcc) and for the host (by g++).
//
// Phases
//   PHASE(thread) { ... } runs its body once for each of the THREADS threads of the block, and ends with a barrier.
//   THREADS is a multiple of 32. On the GPU the threads run in parallel. On the host they run in a loop, so that all
//   code can be tested without a GPU. Rules:
//   - In a phase, a thread must not read what another thread writes, and must not write what another thread reads.
//   - Code outside of phases runs in every thread on the GPU, and once on the host. It must be the same for all threads
//     (loops, branches on shared values). It must not write to shared or global memory. It must not read what the next
//     phase writes, because another warp may already be in that phase.
//   - `continue` ends the work of a thread in the phase. `break` and `return` would skip the barrier and are forbidden.
//   - ONCE { ... } is a phase in which one thread runs.
//   - A phase must not contain a phase. The comment of a function that contains phases gives their number ("Phases: n").
//   - A variable that keeps its value for each thread between phases has the type PerThread<T>: `kept(thread)`.
//   - lane_sum adds numbers of neighbouring threads without a barrier. Every thread of the phase must call lane_sum.
//
// Interface of a learner: template <class Shape> struct DDPG | TD3 | SAC | DQN
//   Shape    Constants and types that the host writes into the source: OBSERVATION, ACTION, BATCH, widths of hidden layers
//            as Widths<50, 50>, and options that change the code (see the header of each learner).
//   HOT      Number of floats for networks and target networks of a member, in shared memory. device/learners.py copies
//            the parameters from and to this layout. Padding is zero and stays zero.
//   COLD     Number of floats for Adam's two moments of each parameter, in shared or global memory, 8-byte aligned. In
//            global memory, two blocks of the DDPG of de Bruin et al. (2018) fit on a multiprocessor.
//   SCRATCH  Number of floats of work space in shared memory, 16-byte aligned. Its content is lost after a call.
//   EXPLORES Type of exploration. OUTSIDE (DDPG, TD3): the caller adds noise to the greedy action. NORMALS (SAC) and
//            UNIFORMS (DQN): type of the random numbers that `explore` needs.
//   NOISE    Number of random numbers that `explore` needs in a step: 0 (OUTSIDE), ACTION (SAC) or 2 (DQN).
//   SMOOTH   Number of standard normal numbers that an update needs for each sample of a batch: 0, ACTION (TD3) or
//            2 * ACTION (SAC, where those for the next observation come first).
//   OUTPUTS  Number of floats that `act` writes.
//   act(hot, observation, output, scratch)   Compute the policy network. observation [OBSERVATION] and output are in
//            shared memory. Phases: one per layer.
//   greedy(output, action [ACTION])   Write the greedy action in [-1, 1], given the output of `act`. One thread.
//   explore(output, noise [NOISE], random, action)   Write the action to apply. `random` is the probability of a random
//            choice (DQN). Not defined for OUTSIDE. One thread.
//   update(hot, cold, batch, settings, step, scratch)   Do one update; `step` is its number, from 1.
//
// Batch<Shape> contains arrays [column][STRIDE] in shared memory, 16-byte aligned. STRIDE >= BATCH is a multiple of 4
//   floats, and STRIDE / 4 is odd, so that 16-byte loads of eight rows access different banks. Inputs are observations,
//   action, scaled reward, discount (gamma, or 0 where the episode terminated), loss weights of critic and actor, and noise
//   (SMOOTH rows). The output is td_error: delta before the update for DDPG and DQN, mean |delta| of both critics for TD3
//   and SAC. Samples from BATCH to STRIDE are padding and must be zero. Clear the batch once, and then write only to the
//   first BATCH samples of each row.
#pragma once

#ifndef THREADS
#define THREADS 256
#endif

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define CONSTANT static constexpr
#define FOLDED constexpr __host__ __device__
#define PHASE(thread) for (int thread = threadIdx.x, once_ = 1; once_; once_ = 0, __syncthreads())
#define ONCE PHASE(thread_) if (thread_ == 0)
#else
#include <cmath>
#include <cstdint>
#define DEVICE static inline
#define METHOD inline
#define CONSTANT static constexpr
#define FOLDED constexpr
#define ONCE for (int once_ = 1; once_; once_ = 0)
#ifdef REVERSED  // a phase must not depend on the order of its threads, so that tests run both orders
#define PHASE(thread) for (int thread = THREADS - 1; thread >= 0; --thread)
#else
#define PHASE(thread) for (int thread = 0; thread < THREADS; ++thread)
#endif
struct alignas(16) float4 {
    float x, y, z, w;
};
using std::ceil, std::exp, std::expm1, std::fabs, std::log, std::sqrt, std::tanh;
#endif

// A variable that keeps its value for each thread between phases; a register on the GPU.
template <class T> struct PerThread {
#ifdef __CUDACC__
    T value;
    METHOD T& operator()(int) { return value; }
#else
    T value[THREADS];
    METHOD T& operator()(int thread) { return value[thread]; }
#endif
};

enum class Exploration { OUTSIDE, NORMALS, UNIFORMS };

DEVICE float plus(float a, float b) { return a + b; }
DEVICE double plus(double a, double b) { return a + b; }
DEVICE float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Return the sum of term(k) (float, double or float4) for 0 <= k < count, computed by LANES neighbouring threads (a power of two
// up to 32). Only the first of these threads (thread % LANES == 0) receives the sum. The GPU adds partial sums in registers.
// The host adds them in the same order.
#ifdef __CUDACC__
DEVICE float lane_below(float x, int away, int lanes) { return __shfl_down_sync(0xffffffffu, x, away, lanes); }
DEVICE double lane_below(double x, int away, int lanes) { return __shfl_down_sync(0xffffffffu, x, away, lanes); }
DEVICE float4 lane_below(float4 x, int away, int lanes) {
    return {lane_below(x.x, away, lanes), lane_below(x.y, away, lanes), lane_below(x.z, away, lanes),
            lane_below(x.w, away, lanes)};
}
#endif
template <int LANES, class Term> DEVICE auto lane_sum(int thread, int count, Term term) {
#ifdef __CUDACC__
    decltype(term(0)) sum{};
    for (int k = thread % LANES; k < count; k += LANES) sum = plus(sum, term(k));
#pragma unroll
    for (int away = LANES / 2; away > 0; away /= 2) sum = plus(sum, lane_below(sum, away, LANES));
    return sum;
#else
    decltype(term(0)) sum[LANES] = {};
    if (thread % LANES) return sum[0];
    for (int lane = 0; lane < LANES; ++lane)
        for (int k = lane; k < count; k += LANES) sum[lane] = plus(sum[lane], term(k));
    for (int away = LANES / 2; away > 0; away /= 2)
        for (int lane = 0; lane < away; ++lane) sum[lane] = plus(sum[lane], sum[lane + away]);
    return sum[0];
#endif
}

// Return how many of the sorted values get(0) <= ... <= get(count - 1) are less than `wanted`.
template <class Get, class T> DEVICE int lower_bound(int count, T wanted, Get get) {
    int low = 0;
    while (low < count) {
        const int middle = (low + count) / 2;
        if (get(middle) < wanted) low = middle + 1;
        else count = middle;
    }
    return low;
}
// The same for SEARCHES values at once, computed by LANES neighbouring threads. This hides the latency of global memory.
// Every thread of the phase must call this function, and the first of the LANES threads receives the numbers.
template <int LANES, int SEARCHES, class T, class Get>
DEVICE void lane_lower_bounds(int thread, const int (&counts)[SEARCHES], const T (&wanted)[SEARCHES], Get get,
                              int (&found)[SEARCHES]) {
#ifdef __CUDACC__
    const int lane = thread % LANES, first = thread % 32 - lane;
    int end[SEARCHES];
    bool open = false;
#pragma unroll
    for (int k = 0; k < SEARCHES; ++k) found[k] = 0, end[k] = counts[k], open |= end[k] > 0;
    while (__any_sync(0xffffffffu, open)) {
        int apart[SEARCHES];
        bool less[SEARCHES];
#pragma unroll
        for (int k = 0; k < SEARCHES; ++k) {
            apart[k] = (end[k] - found[k] + LANES - 1) / LANES;
            const int at = found[k] + lane * apart[k];
            less[k] = at < end[k] && get(at) < wanted[k];
        }
        open = false;
#pragma unroll
        for (int k = 0; k < SEARCHES; ++k) {
            const unsigned votes = __ballot_sync(0xffffffffu, less[k]) >> first;
            const int passed = __popc(votes & (unsigned)((1ull << LANES) - 1)), next = found[k] + passed * apart[k];
            end[k] = next < end[k] ? next : end[k];
            found[k] = passed ? found[k] + (passed - 1) * apart[k] + 1 : end[k];
            open |= found[k] < end[k];
        }
    }
#else
    for (int k = 0; k < SEARCHES; ++k) found[k] = thread % LANES ? 0 : lower_bound(counts[k], wanted[k], get);
#endif
}
template <int LANES, class T, class Get> DEVICE int lane_lower_bound(int thread, int count, T wanted, Get get) {
    const int counts[1] = {count};
    const T one[1] = {wanted};
    int found[1];
    lane_lower_bounds<LANES, 1>(thread, counts, one, get, found);
    return found[0];
}

DEVICE float4& quad(float* row) { return *reinterpret_cast<float4*>(row); }
DEVICE float4 quad(const float* row) { return *reinterpret_cast<const float4*>(row); }

// Functions of four samples each. add: sum += factor * x. select: x where h > 0, else 0.
DEVICE void add(float4& sum, float factor, float4 x) {
    sum.x += factor * x.x, sum.y += factor * x.y, sum.z += factor * x.z, sum.w += factor * x.w;
}
DEVICE float4 times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
DEVICE float4 select(float4 h, float4 x) {
    return {h.x > 0 ? x.x : 0.0f, h.y > 0 ? x.y : 0.0f, h.z > 0 ? x.z : 0.0f, h.w > 0 ? x.w : 0.0f};
}
DEVICE float4 relu(float4 x) {  // NaN stays
    return {x.x < 0 ? 0.0f : x.x, x.y < 0 ? 0.0f : x.y, x.z < 0 ? 0.0f : x.z, x.w < 0 ? 0.0f : x.w};
}
DEVICE float4 all4(float x) { return {x, x, x, x}; }
DEVICE float dot(float4 a, float4 b, float sum) { return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

// Clipping and minimum that return NaN for NaN, unlike fminf and fmaxf, so that a failed member is detected.
DEVICE float bounded(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
DEVICE float lesser(float a, float b) { return b >= a ? a : b; }

template <int... W> struct Widths {
    CONSTANT int COUNT = sizeof...(W);
    // Width of hidden layer `layer`, counted from 0.
    static FOLDED int of(int layer) {
        const int all[] = {W..., 0};
        return all[layer];
    }
};

FOLDED int rounded_up(int n, int to) { return (n + to - 1) / to * to; }
FOLDED int sample_stride(int batch) {
    return rounded_up(batch, 4) / 4 % 2 ? rounded_up(batch, 4) : rounded_up(batch, 4) + 4;
}

template <class Shape, int SMOOTH> struct alignas(16) Batch {
    CONSTANT int STRIDE = sample_stride(Shape::BATCH);
    float observation[Shape::OBSERVATION][STRIDE];
    float action[Shape::ACTION][STRIDE];
    float next_observation[Shape::OBSERVATION][STRIDE];
    float reward[STRIDE], discount[STRIDE], weight[STRIDE], actor_weight[STRIDE];
    float noise[SMOOTH ? SMOOTH : 1][STRIDE];
    float td_error[STRIDE];
};
