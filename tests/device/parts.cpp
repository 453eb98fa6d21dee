// Parts of a member's loop as C functions, for tests on the host. `Rules`, AGED and BATCH_SIZE come first.
using Buffer = Replay<Rules>;
using TestOrder = Order<AGED, 16, 512>;

extern "C" {
void bits(const unsigned* counter, unsigned key0, unsigned key1, unsigned* out) {
    const Bits drawn = philox({counter[0], counter[1], counter[2], counter[3]}, key0, key1);
    out[0] = drawn.x, out[1] = drawn.y, out[2] = drawn.z, out[3] = drawn.w;
}
void normals(unsigned member, int count, float* out) {
    const Random random{7, member};
    for (int i = 0; i < count; ++i) out[i] = random.normal(Purpose::SENSOR, i);
}

static TestOrder::Shared order_shared;
void order_begin(const OrderMemory* memory) { TestOrder{order_shared, *memory}.begin(); }
void order_change(const OrderMemory* memory, int count, const unsigned* slots, const unsigned* keys, const unsigned* serials) {
    TestOrder{order_shared, *memory}.change(count, [=](int c) { return slots[c]; }, [=](int c) { return keys[c]; },
                                            [=](int c) { return serials[c]; });
}
void order_select(const OrderMemory* memory, int count, const int* ranks, unsigned* slots) {
    for (int i = 0; i < count; ++i) slots[i] = TestOrder{order_shared, *memory}.select(0, ranks[i]);
}
int order_size(const OrderMemory* memory) { return TestOrder{order_shared, *memory}.size(); }

static Buffer::Shared shared;
static Buffer buffer(const ReplaySettings* settings, char* base, unsigned member) {
    return {shared, *reinterpret_cast<ReplayState*>(base), *settings, base, {11, member}};
}
void replay_begin(const ReplaySettings* settings, char* base, unsigned member) { buffer(settings, base, member).begin(); }
void replay_end(const ReplaySettings* settings, char* base, unsigned member) { buffer(settings, base, member).end(); }
void replay_store(const ReplaySettings* settings, char* base, unsigned member, int count, const float* rows) {
    for (int i = 0; i < count; ++i) {
        buffer(settings, base, member).choose();
        buffer(settings, base, member).store(rows + 3 * i);
    }
}
void replay_draw(const ReplaySettings* settings, char* base, unsigned member, float progress, unsigned end, unsigned* idx,
                 double* probability, float* weight) {
    buffer(settings, base, member).draw(progress, end);
    for (int b = 0; b < BATCH_SIZE; ++b)
        idx[b] = shared.idx[b], probability[b] = shared.probability[b], weight[b] = shared.weight[b];
}
void replay_annotate(const ReplaySettings* settings, char* base, unsigned member, const float* td_error) {
    buffer(settings, base, member).annotate(td_error);
}
void tails(int n, double p, int most, double* out) { binomial_tails(n, p, most, out); }
int settings_bytes() { return sizeof(ReplaySettings); }
}
