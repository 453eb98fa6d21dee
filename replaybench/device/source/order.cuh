// An exact order of a member's slots by key, the largest key first, for one thread block.
//
// A sorted run in global memory does not change until the next merge. What has changed since is in shared memory: sorted
// items that were added, and the sorted positions of run entries that are dead. The entry at a rank is found by two nested
// binary searches. A batch of changes moves added items and dead positions within registers; `merge` makes a new run.
//
// An entry is ~(bits of the key) << 32 | tie, all distinct: ascending entries are descending keys. The tie is the slot,
// or with BY_AGE the negated serial number, so that of equal keys the newest comes first. A NaN key counts as +inf.
#pragma once
#include "block.cuh"

using Entry = unsigned long long;
CONSTANT unsigned ABSENT = 0xffffffffu;

DEVICE unsigned key_bits(float key) {
    union { float number; unsigned bits; } same{fabsf(key)};
    return same.bits > 0x7f800000u ? 0x7f800000u : same.bits;
}
DEVICE Entry entry_of(unsigned bits, unsigned tie) { return (Entry)~bits << 32 | tie; }

template <class Get, class T> DEVICE int lower_bound(int count, T wanted, Get get) {
    int low = 0;
    while (low < count) {
        const int middle = (low + count) / 2;
        if (get(middle) < wanted) low = middle + 1;
        else count = middle;
    }
    return low;
}

// A member's arrays in global memory, each of `capacity` elements; `run_slots` with BY_AGE only.
struct OrderMemory {
    Entry* run[2];
    unsigned* run_slots[2];
    unsigned* bits;          // of each slot's key; ABSENT if it is not in the order
    const unsigned* serial;  // of each slot's experience
    int* head;               // which of the two runs is valid, and its length
};

// MOST: changes at a time; ROOM: added items, and dead entries, between two merges.
template <bool BY_AGE, int MOST, int ROOM> struct Order {
    static_assert(MOST <= THREADS && ROOM >= 2 * MOST && ROOM % THREADS == 0);
    CONSTANT int EACH = ROOM / THREADS;
    struct Item {
        Entry entry;
        unsigned at, slot;  // at: number of entries of the run before it
    };
    struct Change {
        Entry entry;                          // the new one
        unsigned at, slot, removed, died;     // removed: place among the added items; died: position in the run
    };
    struct Shared {
        Item items[ROOM];
        unsigned dead[ROOM];
        Change changes[MOST];
        int added, died;
    };
    struct Kept {
        Item items[EACH];
        unsigned dead[EACH];
        int item_to[EACH], dead_to[EACH];  // -1: nowhere
    };
    Shared& shared;
    const OrderMemory memory;

    METHOD int size() const { return memory.head[1] - shared.died + shared.added; }

    METHOD void begin() {  // Phases: 1
        PHASE(thread) {
            if (thread == 0) shared.added = shared.died = 0;
        }
    }

    // The slot at a rank in [0, size). One thread.
    METHOD unsigned select(int rank) const {
        int low = 0, high = shared.added;  // how many added items come before it
        while (low < high) {
            const int middle = (low + high) / 2;
            if (middle + alive_before(shared.items[middle].at) <= rank) low = middle + 1;
            else high = middle;
        }
        if (low > 0) {
            const Item& last = shared.items[low - 1];
            if (low - 1 + alive_before(last.at) == rank) return last.slot;
        }
        int place = rank - low, skip = 0;  // among the living entries of the run
        for (int until = shared.died; skip < until;) {
            const int middle = (skip + until) / 2;
            if ((int)shared.dead[middle] - middle <= place) skip = middle + 1;
            else until = middle;
        }
        place += skip;
        const int valid = memory.head[0];
        if constexpr (BY_AGE) return memory.run_slots[valid][place];
        else return (unsigned)memory.run[valid][place];
    }

    // Move slot_of(c), 0 <= c < count, to bits_of(c): from absence, or into absence (ABSENT). Slots differ; ABSENT as slot
    // is no change. With BY_AGE, serial_of(c) is the serial number that the caller writes afterwards. Phases: 4, or 6.
    template <class SlotOf, class BitsOf, class SerialOf>
    METHOD void change(int count, SlotOf slot_of, BitsOf bits_of, SerialOf serial_of) {
        if (shared.added + count > ROOM || shared.died + count > ROOM) merge();
        const int added = shared.added, died = shared.died;
        const Entry* const run = memory.run[memory.head[0]];
        const int length = memory.head[1];
        PHASE(thread) {
            if (thread < count) {
                Change& mine = shared.changes[thread];
                const unsigned slot = slot_of(thread);
                mine = {~(Entry)0, ABSENT, slot, ABSENT, ABSENT};
                if (slot != ABSENT) {
                    const unsigned before = memory.bits[slot], after = bits_of(thread);
                    if (before != ABSENT) {
                        const Entry old = entry_of(before, BY_AGE ? ~memory.serial[slot] : slot);
                        const int place = find_item(added, old);
                        if (place < added && shared.items[place].entry == old) mine.removed = place;
                        else mine.died = find_in(run, length, old);
                    }
                    if (after != ABSENT) {
                        mine.entry = entry_of(after, BY_AGE ? ~(unsigned)serial_of(thread) : slot);
                        mine.at = find_in(run, length, mine.entry);
                    }
                    memory.bits[slot] = after;
                }
            }
        }
        PerThread<Kept> moving;
        PHASE(thread) {
            Kept& kept = moving(thread);
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const int j = thread + e * THREADS;
                kept.item_to[e] = kept.dead_to[e] = -1;
                if (j < added) {
                    kept.items[e] = shared.items[j];
                    int to = j;
                    bool stays = true;
                    for (int c = 0; c < count; ++c) {
                        const Change& each = shared.changes[c];
                        stays &= each.removed != (unsigned)j;
                        to += (each.entry < kept.items[e].entry) - (each.removed < (unsigned)j);
                    }
                    if (stays) kept.item_to[e] = to;
                }
                if (j < died) {
                    kept.dead[e] = shared.dead[j];
                    int to = j;
                    for (int c = 0; c < count; ++c) to += shared.changes[c].died < kept.dead[e];
                    kept.dead_to[e] = to;
                }
            }
        }
        PerThread<int> place_item, place_dead;
        PHASE(thread) {
            place_item(thread) = place_dead(thread) = -1;
            if (thread < count) {
                const Change& mine = shared.changes[thread];
                if (mine.at != ABSENT) {
                    const int before = find_item(added, mine.entry);
                    int to = before;
                    for (int c = 0; c < count; ++c)
                        to += (shared.changes[c].entry < mine.entry) - (shared.changes[c].removed < (unsigned)before);
                    place_item(thread) = to;
                }
                if (mine.died != ABSENT) {
                    int to = lower_bound(died, mine.died, [&](int j) { return shared.dead[j]; });
                    for (int c = 0; c < count; ++c) to += shared.changes[c].died < mine.died;
                    place_dead(thread) = to;
                }
            }
        }
        PHASE(thread) {
            const Kept& kept = moving(thread);
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                if (kept.item_to[e] >= 0) shared.items[kept.item_to[e]] = kept.items[e];
                if (kept.dead_to[e] >= 0) shared.dead[kept.dead_to[e]] = kept.dead[e];
            }
            if (thread < count) {
                const Change& mine = shared.changes[thread];
                if (place_item(thread) >= 0) shared.items[place_item(thread)] = {mine.entry, mine.at, mine.slot};
                if (place_dead(thread) >= 0) shared.dead[place_dead(thread)] = mine.died;
            }
            if (thread == 0) {
                int more = 0, more_dead = 0;
                for (int c = 0; c < count; ++c) {
                    more += (shared.changes[c].at != ABSENT) - (shared.changes[c].removed != ABSENT);
                    more_dead += shared.changes[c].died != ABSENT;
                }
                shared.added = added + more, shared.died = died + more_dead;
            }
        }
    }

    // Write the living entries of the run and the added ones into the other run. Phases: 2
    METHOD void merge() {
        const int from = memory.head[0], length = memory.head[1], added = shared.added, died = shared.died;
        if (added == 0 && died == 0) return;
        PHASE(thread) {
            for (int p = thread; p < length; p += THREADS) {
                const int gone = dead_before(p);
                if (gone < died && shared.dead[gone] == (unsigned)p) continue;
                const int come = lower_bound(added, (unsigned)p + 1, [&](int j) { return shared.items[j].at; });
                memory.run[1 - from][p - gone + come] = memory.run[from][p];
                if constexpr (BY_AGE) memory.run_slots[1 - from][p - gone + come] = memory.run_slots[from][p];
            }
            for (int j = thread; j < added; j += THREADS) {
                const Item& item = shared.items[j];
                const int to = j + alive_before(item.at);
                memory.run[1 - from][to] = item.entry;
                if constexpr (BY_AGE) memory.run_slots[1 - from][to] = item.slot;
            }
        }
        PHASE(thread) {
            if (thread == 0) {
                memory.head[0] = 1 - from, memory.head[1] = length - died + added;
                shared.added = shared.died = 0;
            }
        }
    }

private:
    METHOD int dead_before(unsigned at) const {
        return lower_bound(shared.died, at, [&](int j) { return shared.dead[j]; });
    }
    METHOD int alive_before(unsigned at) const { return (int)at - dead_before(at); }
    METHOD int find_item(int added, Entry entry) const {
        return lower_bound(added, entry, [&](int j) { return shared.items[j].entry; });
    }
    static METHOD unsigned find_in(const Entry* run, int length, Entry entry) {
        return lower_bound(length, entry, [=](int j) { return run[j]; });
    }
};
