// Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011). A number depends on the root seed, the member, the
// purpose, and two counters within the purpose. It does not depend on other members or on numbers that were drawn before.
#pragma once
#include "block.cuh"

enum class Purpose : unsigned {
    DROP, RETENTION, SAMPLING, LEARNING, EXPLORATION, SENSOR, ACTUATOR, EVALUATION_SENSOR, EVALUATION_ACTUATOR, WARMUP
};

struct Bits {
    unsigned x, y, z, w;
};

DEVICE unsigned high_product(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }

DEVICE Bits philox(Bits counter, unsigned key0, unsigned key1) {
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = high_product(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        const unsigned high1 = high_product(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = {high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0};
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    return counter;
}

// Random number generator of one member; `seed` is the root seed of the study.
struct Random {
    unsigned long long seed;
    unsigned member;

    METHOD Bits bits(Purpose purpose, unsigned index, unsigned sub = 0) const {
        return philox({sub, index, member, (unsigned)purpose}, (unsigned)seed, (unsigned)(seed >> 32));
    }
    // Return a uniform number in [0, 1) with 53 random bits.
    METHOD double uniform(Purpose purpose, unsigned index, unsigned sub = 0) const {
        const Bits drawn = bits(purpose, index, sub);
        return (double)((((unsigned long long)drawn.x << 32) | drawn.y) >> 11) * 0x1p-53;
    }
    // Return an integer in [0, count), for count > 0. The bias is below count / 2^64.
    METHOD unsigned below(unsigned count, Purpose purpose, unsigned index, unsigned sub = 0) const {
        const Bits drawn = bits(purpose, index, sub);
        const unsigned long long low = (unsigned long long)drawn.y * count;
        return (unsigned)(((unsigned long long)drawn.x * count + (low >> 32)) >> 32);
    }
    // Return a standard normal number by the method of Box and Muller; its absolute value is at most 6.7.
    METHOD float normal(Purpose purpose, unsigned index, unsigned sub = 0) const {
        const Bits drawn = bits(purpose, index, sub);
        const float radius = sqrtf(-2.0f * logf(((float)drawn.x + 1.0f) * 0x1p-32f));
        return radius * cosf(6.2831853f * ((float)drawn.y * 0x1p-32f));
    }
};
