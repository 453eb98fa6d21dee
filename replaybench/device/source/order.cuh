// An exact rank order of a member's buffer slots by a key (such as |TD error|), largest key first, for one thread block.
//
// Global memory holds a sorted array, the run, which does not change until the next merge. Shared memory holds the changes
// since the last merge: sorted items that were added, and the sorted positions of run entries that were removed ("dead").
// Two nested searches find the entry at a rank. A batch of changes moves the added items and the dead positions through
// registers. `merge` writes a new run.
//
// An entry is ~(bits of the key) << 32 | tie. All entries are distinct, and ascending entries have descending keys. The tie
// is the slot or, with BY_AGE, the negated serial number, so that the newest of equal keys comes first. A NaN key counts as
// +inf.
#pragma once
#include "block.cuh"

using Entry = unsigned long long;
CONSTANT unsigned ABSENT = 0xffffffffu;

DEVICE unsigned key_bits(float key) {
    union { float number; unsigned bits; } same{fabsf(key)};
    return same.bits > 0x7f800000u ? 0x7f800000u : same.bits;
}
DEVICE Entry entry_of(unsigned bits, unsigned tie) { return (Entry)~bits << 32 | tie; }

// Arrays of a member in global memory, each of `capacity` elements; `run_slots` is only used with BY_AGE.
struct OrderMemory {
    Entry* run[2];
    unsigned* run_slots[2];
    unsigned* bits;          // bits of the key of each slot; ABSENT if the slot is not in the order
    const unsigned* serial;  // serial number of the experience in each slot
    int* head;               // index (0 or 1) of the valid run, and its length
};

// MOST: largest number of changes at a time. ROOM: largest number of added items, and of dead entries, between two merges.
template <bool BY_AGE, int MOST, int ROOM> struct Order {
    static_assert(MOST <= THREADS && ROOM >= 2 * MOST && ROOM % THREADS == 0);
    CONSTANT int EACH = ROOM / THREADS, LANES = 16, CHUNK = 32, AHEAD = 8;
    struct Item {
        Entry entry;
        unsigned at, slot;  // at: number of entries of the run before this item
    };
    struct Change {
        Entry entry;                          // new entry
        unsigned at, slot, removed, died;     // removed, died: place of the old entry among the added items, or in the run
    };
    struct Shared {
        Item items[ROOM];
        unsigned dead[ROOM];
        Change changes[MOST];
        int gone[THREADS + 1], come[THREADS + 1];  // number of dead entries and added items before each chunk of a merge
        int added, died;
    };
    struct Kept {  // items and dead positions that a thread moves, and their new places; negative: removed
        Item items[EACH];
        unsigned dead[EACH];
        int item_to[EACH], dead_to[EACH], new_item_to, new_dead_to;
    };
    Shared& shared;
    const OrderMemory memory;

    METHOD int size() const { return memory.head[1] - shared.died + shared.added; }

    METHOD void begin() {  // Phases: 1
        ONCE shared.added = shared.died = 0;
    }

    // Return the slot at a rank in [0, size). Only the first of LANES threads receives the slot.
    METHOD unsigned select(int thread, int rank) const {
        const auto place_of = [&](int j) { return j + alive_before(shared.items[j].at); };
        const int low = lane_lower_bound<LANES>(thread, shared.added, rank + 1, place_of);  // added items before it
        int place = rank - low;  // place among the remaining entries of the run
        place += lane_lower_bound<LANES>(thread, shared.died, place + 1, [&](int j) { return (int)shared.dead[j] - j; });
        if (thread % LANES) return ABSENT;
        if (low > 0 && place_of(low - 1) == rank) return shared.items[low - 1].slot;
        const int valid = memory.head[0];
        if constexpr (BY_AGE) return memory.run_slots[valid][place];
        else return (unsigned)memory.run[valid][place];
    }

    // Give the slots slot_of(c), 0 <= c < count, the key bits bits_of(c). A slot that is not in the order is added, and
    // ABSENT as key bits removes a slot. The slots must differ; ABSENT as slot means no change. With BY_AGE, serial_of(c) is
    // the serial number that the caller writes afterwards. Phases: 3, and those of merge.
    template <class SlotOf, class BitsOf, class SerialOf>
    METHOD void change(int count, SlotOf slot_of, BitsOf bits_of, SerialOf serial_of) {
        if (shared.added + count > ROOM || shared.died + count > ROOM) merge();
        const int added = shared.added, died = shared.died;
        const Entry* const run = memory.run[memory.head[0]];
        const int length = memory.head[1];
        const auto item = [&](int j) { return shared.items[j].entry; };
        const auto entry = [=](int j) { return run[j]; };
        PHASE(thread) {
            for (int c = thread / LANES; c < rounded_up(count, THREADS / LANES); c += THREADS / LANES) {
                const unsigned slot = c < count ? slot_of(c) : ABSENT;
                const unsigned before = slot == ABSENT ? ABSENT : memory.bits[slot], after = slot == ABSENT ? ABSENT : bits_of(c);
                const Entry old = before == ABSENT ? 0 : entry_of(before, BY_AGE ? ~memory.serial[slot] : slot);
                const Entry now = after == ABSENT ? ~(Entry)0 : entry_of(after, BY_AGE ? ~(unsigned)serial_of(c) : slot);
                const int place = lane_lower_bound<LANES>(thread, before == ABSENT ? 0 : added, old, item);
                const int lengths[2] = {before == ABSENT ? 0 : length, after == ABSENT ? 0 : length};
                const Entry both[2] = {old, now};
                int found[2];
                lane_lower_bounds<LANES, 2>(thread, lengths, both, entry, found);
                if (thread % LANES || c >= count) continue;
                Change& mine = shared.changes[c];
                mine = {now, after == ABSENT ? ABSENT : found[1], slot, ABSENT, ABSENT};
                if (slot != ABSENT) memory.bits[slot] = after;
                if (before == ABSENT) continue;
                if (place < added && shared.items[place].entry == old) mine.removed = place;
                else mine.died = found[0];
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
                    kept.item_to[e] = place_of_item(count, j, kept.items[e].entry, j);
                }
                if (j < died) {
                    kept.dead[e] = shared.dead[j];
                    kept.dead_to[e] = place_of_dead(count, j, kept.dead[e]);
                }
            }
            kept.new_item_to = kept.new_dead_to = -1;
            if (thread >= count) continue;
            const Change& mine = shared.changes[thread];
            if (mine.at != ABSENT) kept.new_item_to = place_of_item(count, lower_bound(added, mine.entry, item), mine.entry, -1);
            if (mine.died != ABSENT) kept.new_dead_to = place_of_dead(count, dead_before(mine.died), mine.died);
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
                if (kept.new_item_to >= 0) shared.items[kept.new_item_to] = {mine.entry, mine.at, mine.slot};
                if (kept.new_dead_to >= 0) shared.dead[kept.new_dead_to] = mine.died;
            }
            for (int c = 0; thread == 0 && c < count; ++c) {
                shared.added += (shared.changes[c].at != ABSENT) - (shared.changes[c].removed != ABSENT);
                shared.died += shared.changes[c].died != ABSENT;
            }
        }
    }

    // Write the remaining entries of the run and the added items, sorted, into the other run. Most chunks of the run are only
    // shifted, because no entry in them died and no item is added within them. Phases: 2, and 2 for each THREADS chunks.
    METHOD void merge() {
        const int from = memory.head[0], length = memory.head[1], added = shared.added, died = shared.died;
        if (added == 0 && died == 0) return;
        const auto come_before = [&](unsigned p) {
            return lower_bound(added, p + 1, [&](int j) { return shared.items[j].at; });
        };
        for (int start = 0; start < length; start += THREADS * CHUNK) {
            PHASE(thread) {
                for (int i = thread; i <= THREADS; i += THREADS) {
                    shared.gone[i] = dead_before(start + i * CHUNK);
                    shared.come[i] = come_before(start + i * CHUNK);
                }
            }
            PHASE(thread) {
                const int end = start + THREADS * CHUNK < length ? start + THREADS * CHUNK : length;
                for (int first = start + thread; first < end; first += AHEAD * THREADS) {
                    Entry entries[AHEAD];  // all are loaded before the first is written
                    unsigned slots[AHEAD];
#pragma unroll
                    for (int k = 0; k < AHEAD; ++k) {
                        const int p = first + k * THREADS < end ? first + k * THREADS : first;
                        entries[k] = memory.run[from][p];
                        if constexpr (BY_AGE) slots[k] = memory.run_slots[from][p];
                    }
#pragma unroll
                    for (int k = 0; k < AHEAD; ++k) {
                        const int p = first + k * THREADS, chunk = (p - start) / CHUNK;
                        if (p >= end) continue;
                        int gone = shared.gone[chunk], come = shared.come[chunk];
                        if (gone != shared.gone[chunk + 1] || come != shared.come[chunk + 1]) {
                            gone = dead_before(p), come = come_before(p);
                            if (gone < died && shared.dead[gone] == (unsigned)p) continue;
                        }
                        memory.run[1 - from][p - gone + come] = entries[k];
                        if constexpr (BY_AGE) memory.run_slots[1 - from][p - gone + come] = slots[k];
                    }
                }
            }
        }
        PHASE(thread) {
            for (int j = thread; j < added; j += THREADS) {
                const Item& item = shared.items[j];
                const int to = j + alive_before(item.at);
                memory.run[1 - from][to] = item.entry;
                if constexpr (BY_AGE) memory.run_slots[1 - from][to] = item.slot;
            }
        }
        ONCE {
            memory.head[0] = 1 - from, memory.head[1] = length - died + added;
            shared.added = shared.died = 0;
        }
    }

private:
    // Return the place after the changes of an added item (or dead position) that is now at `place`; negative if the changes
    // remove the item, which has the index `own` (-1 for a new item).
    METHOD int place_of_item(int count, int place, Entry entry, int own) const {
        int to = place;
        for (int c = 0; c < count; ++c) {
            const Change& each = shared.changes[c];
            to += each.removed == (unsigned)own && own >= 0 ? -4 * ROOM
                                                             : (each.entry < entry) - (each.removed < (unsigned)place);
        }
        return to;
    }
    METHOD int place_of_dead(int count, int place, unsigned at) const {
        int to = place;
        for (int c = 0; c < count; ++c) to += shared.changes[c].died < at;
        return to;
    }
    METHOD int dead_before(unsigned at) const {
        return lower_bound(shared.died, at, [&](int j) { return shared.dead[j]; });
    }
    METHOD int alive_before(unsigned at) const { return (int)at - dead_before(at); }
};
