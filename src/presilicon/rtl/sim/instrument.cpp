// Drives the whole instrument: every tap with its own vectors and pauses, in the instrument's clock or in another,
// images while data flows, a reader of the stream that pauses. Notes what the instrument decides.

extern "C" {

struct Tap {
    int64_t vectors;
    const int64_t* words;    // [vectors, lanes], elements
    const uint8_t* last;     // [vectors]
    const int32_t* pauses;   // [vectors]: cycles of the tap's clock without a vector before it
};

enum { VECTOR, BREAK, EXCHANGE, TOO_LATE, STATUS, BLOCK, REPORT };

struct Event {
    int32_t kind, tap, last, number;
    int64_t cycle;
    int64_t place;  // of a vector among those that were noted
};

struct Session {
    int64_t lanes, element_bits, taps, wide_tap, crossed;
    int64_t period, tap_period;  // of the two clocks, in units of time
    const Tap* tap;
    int64_t config_bytes;
    const uint8_t* config;
    const int64_t* config_at;    // [bytes]: the earliest cycle of each
    void (*heard)(uint8_t byte, int64_t cycle);  // takes a byte of the stream; may add bytes to `config`
    uint64_t seed;
    uint32_t stream_gap;         // of 65536
    int64_t reset_at;            // a cycle of reset in between, where it is not negative
    int64_t stream_every;        // the reader takes at most a byte every so many cycles
    int64_t most_cycles;
    int64_t most_events;
    Event* events;
    int64_t most_vectors;
    int64_t* vectors;            // [most_vectors, lanes]
    int64_t most_bytes;
    uint8_t* bytes;
    int64_t event_count, vector_count, byte_count, cycles;  // results
    int64_t* dropped;            // [taps]
    int64_t control_0;
};

// 0 done, 1 out of cycles, 2 out of room
int session_run(Session* session) {
    VerilatedContext context;
    context.randReset(2);
    context.randSeed(static_cast<int>(session->seed & 0x7fffffff) + 1);
    auto owned = std::make_unique<Vmodel>(&context);
    Vmodel& top = *owned;
    Random random;
    random.state = session->seed * 2 + 1;
    int64_t next_edge = session->period, next_tap_edge = session->tap_period, cycle = -8, tap_cycle = -8;
    int64_t position[64] = {}, pause[64] = {};
    for (int t = 0; t < session->taps; ++t) pause[t] = session->tap[t].vectors ? session->tap[t].pauses[0] : 0;
    int64_t byte = 0, quiet = 0, last_byte = -1000000;
    int32_t taken = 0, refused = 0;
    session->event_count = session->vector_count = session->byte_count = 0;
    top.clock = top.tap_clock = 0;
    top.reset = top.tap_reset = 1;
    top.config_valid = 0;
    top.stream_ready = 0;
    top.tap_valid = 0;
    top.eval();

    auto note = [&](int32_t kind, int32_t tap, int32_t last, int32_t number, int64_t place) {
        if (session->event_count < session->most_events)
            session->events[session->event_count] = {kind, tap, last, number, cycle, place};
        ++session->event_count;
    };
    auto offer = [&](bool of_tap_clock) {  // after an edge of a clock: what its taps offer next
        for (int t = 0; t < session->taps; ++t) {
            if (((session->crossed >> t & 1) != 0) != of_tap_clock) continue;
            const Tap& tap = session->tap[t];
            top.tap_valid &= ~(1ULL << t);
            if (position[t] >= tap.vectors) continue;
            if (pause[t]-- > 0) continue;
            const int64_t index = position[t]++;
            pause[t] = position[t] < tap.vectors ? tap.pauses[position[t]] : 0;
            for (int lane = 0; lane < session->lanes; ++lane)
                put(top.tap_data, t * session->wide_tap + lane * session->element_bits, session->element_bits,
                    tap.words[index * session->lanes + lane]);
            top.tap_valid |= 1ULL << t;
            top.tap_last_0 = (top.tap_last_0 & ~(1ULL << t)) | static_cast<uint64_t>(tap.last[index] & 1) << t;
            top.tap_last_1 = (top.tap_last_1 & ~(1ULL << t)) | static_cast<uint64_t>(tap.last[index] >> 1 & 1) << t;
        }
    };

    while (cycle < session->most_cycles) {
        const bool edge = next_edge <= next_tap_edge, tap_edge = next_tap_edge <= next_edge;
        bool sent = false, read = false;
        if (edge) {
            if (cycle >= 0) {
                if (top.pushed) {
                    const int32_t kind = top.pushed_kind;
                    if (kind >= 2) note(EXCHANGE, 0, 0, 0, 0);
                    if (kind == 1) note(BREAK, top.pushed_tap, 0, 0, 0);
                    if (kind == 0 || kind == 3) {
                        if (session->vector_count == session->most_vectors) return 2;
                        for (int lane = 0; lane < session->lanes; ++lane)
                            session->vectors[session->vector_count * session->lanes + lane] =
                                get(top.pushed_data, lane * session->element_bits, session->element_bits);
                        note(VECTOR, top.pushed_tap, top.pushed_last, top.pushed_number, session->vector_count++);
                    }
                }
                if (top.too_late) note(TOO_LATE, top.too_late_tap, 0, top.too_late_number, 0);
                if (top.taken != taken || top.refused != refused)
                    note(REPORT, top.refused != refused, 0, top.refusal, 0), taken = top.taken, refused = top.refused;
                if (top.status_starts) {
                    note(STATUS, 0, 0, 0, session->byte_count);
                    for (int t = 0; t < session->taps; ++t)
                        note(STATUS, t + 1, 0, static_cast<int32_t>(get(top.dropped, 32 * t, 32)), 0);
                }
                if (top.block_starts) note(BLOCK, 0, 0, 0, 0);
            }
            sent = top.config_valid && top.config_ready;
            read = top.stream_valid && top.stream_ready;
            if (read) {
                if (session->byte_count == session->most_bytes) return 2;
                session->bytes[session->byte_count++] = top.stream_data;
                last_byte = cycle;
                if (session->heard) session->heard(top.stream_data, cycle);
            }
        }
        if (edge) top.clock = 1;
        if (tap_edge) top.tap_clock = 1;
        top.eval();
        if (edge) {
            next_edge += session->period;
            ++cycle;
            top.reset = cycle < 0 || cycle == session->reset_at;
            if (cycle >= 0) {
                offer(false);
                if (sent) ++byte;
                top.config_valid = byte < session->config_bytes && session->config_at[byte] <= cycle;
                if (top.config_valid) top.config_data = session->config[byte];
                top.stream_ready = random.happens(session->stream_gap) && cycle - last_byte >= session->stream_every;
            }
        }
        if (tap_edge) {
            next_tap_edge += session->tap_period;
            ++tap_cycle;
            top.tap_reset = tap_cycle < 0;
            if (tap_cycle >= 0 && cycle >= 0) offer(true);
        }
        // Falling edges do nothing in the circuit; they come at once.
        top.clock = top.tap_clock = 0;
        top.eval();
        bool fed = byte == session->config_bytes;
        for (int t = 0; t < session->taps; ++t) fed = fed && position[t] >= session->tap[t].vectors;
        quiet = fed && !top.busy && !top.stream_valid && !top.tap_valid ? quiet + 1 : 0;
        if (quiet > 400) break;
    }
    for (int t = 0; t < session->taps; ++t) session->dropped[t] = get(top.dropped, 32 * t, 32);
    session->control_0 = top.control_0;
    session->cycles = cycle;
    top.final();
    if (session->event_count > session->most_events) return 2;
    return cycle < session->most_cycles ? 0 : 1;
}

}  // extern "C"
