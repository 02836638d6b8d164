// Drives the bare core: vectors, configuration bytes and blocks, each with valid and ready at random.
// Everything is reached through a few C functions that Python calls.
#include <cstring>

namespace {

struct Simulation {
    VerilatedContext context;
    std::unique_ptr<Vmodel> top;
    Random random;
    int64_t cycles = 0;

    explicit Simulation(int seed) {
        context.randReset(2);  // what is not reset begins with anything
        context.randSeed(seed);
        top = std::make_unique<Vmodel>(&context);
        top->clock = 0;
        top->in_valid = top->config_valid = 0;
        top->out_ready = 1;
        top->reset = 1;
        for (int i = 0; i < 3; ++i) tick();
        top->reset = 0;
        top->eval();
        cycles = 0;
    }
    void tick() {
        top->clock = 1;
        top->eval();
        top->clock = 0;
        top->eval();
        ++cycles;
    }
};

}  // namespace

extern "C" {

Simulation* sim_new(int seed) { return new Simulation(seed); }
void sim_free(Simulation* simulation) { delete simulation; }

struct Run {
    int64_t lanes, element_bits, word_bits;
    int64_t vectors;
    const int64_t* words;   // [vectors, lanes]
    const uint8_t* meta;    // [vectors]: bits 0-1 last, bit 2 broken off
    int64_t tap;
    int64_t config_bytes;
    const uint8_t* config;
    int64_t wait_for_image;  // 1: go on until the configuration has been judged
    uint64_t seed;
    uint32_t in_gap, config_gap, out_gap;  // of 65536
    int64_t most_blocks;
    int64_t* out_words;     // [most_blocks, lanes]
    int32_t* out_meta;      // [most_blocks]: count, bit 16 end, bit 17 abort
    int64_t most_cycles;
    int64_t blocks, first_accept, last_accept, cycles;  // results
    int64_t image, taken, refused, refusal;
};

// 0 done, 1 out of cycles, 2 too many blocks
int sim_run(Simulation* simulation, Run* run) {
    Vmodel& top = *simulation->top;
    Random& random = simulation->random;
    random.state = run->seed * 2 + 1;
    int64_t vector = 0, byte = 0, start = simulation->cycles;
    const int64_t judged = top.taken + top.refused;
    bool offered = false, configured = false;
    run->blocks = 0;
    run->first_accept = run->last_accept = -1;
    int result = 1;
    for (int64_t cycle = 0; cycle < run->most_cycles; ++cycle) {
        if (!offered && vector < run->vectors && random.happens(run->in_gap)) {
            offered = true;
            const int64_t* words = run->words + vector * run->lanes;
            for (int lane = 0; lane < run->lanes; ++lane)
                put(top.in_data, lane * run->element_bits, run->element_bits, words[lane]);
            top.in_tap = run->tap;
            top.in_last = run->meta[vector] & 3;
            top.in_break = run->meta[vector] >> 2 & 1;
        }
        if (!configured && byte < run->config_bytes && random.happens(run->config_gap)) {
            configured = true;
            top.config_data = run->config[byte];
        }
        top.in_valid = offered;
        top.config_valid = configured;
        top.out_ready = random.happens(run->out_gap);
        top.eval();
        if (offered && top.in_ready) {
            offered = false;
            if (run->first_accept < 0) run->first_accept = cycle;
            run->last_accept = cycle;
            ++vector;
        }
        if (configured && top.config_ready) {
            configured = false;
            ++byte;
        }
        if (top.out_valid && top.out_ready) {
            if (run->blocks == run->most_blocks) return 2;
            for (int lane = 0; lane < run->lanes; ++lane)
                run->out_words[run->blocks * run->lanes + lane] =
                    get(top.out_data, lane * run->word_bits, run->word_bits);
            run->out_meta[run->blocks++] = top.out_count | top.out_end << 16 | top.out_abort << 17;
        }
        simulation->tick();
        const bool fed = vector == run->vectors && byte == run->config_bytes;
        const bool answered = !run->wait_for_image || top.taken + top.refused != judged || top.waiting;
        top.in_valid = offered;
        top.config_valid = configured;
        top.eval();
        if (fed && answered && top.idle && !top.out_valid) {
            result = 0;
            break;
        }
    }
    top.in_valid = top.config_valid = 0;
    top.eval();
    run->cycles = simulation->cycles - start;
    run->image = top.image, run->taken = top.taken, run->refused = top.refused, run->refusal = top.refusal;
    return result;
}

struct State {
    int64_t lanes, word_bits, rows;
    int64_t* scratchpad;  // [rows, lanes]
    int64_t* carried;     // [lanes]
    int64_t* partial;     // [lanes]
    int64_t fill;
    uint64_t first_0, first_1;
    int64_t registers;
    int64_t* controls;
};

void sim_state(Simulation* simulation, State* state) {
    Vmodel& top = *simulation->top;
    for (int row = 0; row < state->rows; ++row) {
        top.peek_row = row;
        top.eval();
        for (int lane = 0; lane < state->lanes; ++lane)
            state->scratchpad[row * state->lanes + lane] =
                get(top.peek_scratchpad, lane * state->word_bits, state->word_bits);
    }
    for (int lane = 0; lane < state->lanes; ++lane) {
        state->carried[lane] = get(top.peek_carried, lane * state->word_bits, state->word_bits);
        state->partial[lane] = get(top.peek_partial, lane * state->word_bits, state->word_bits);
    }
    state->fill = top.peek_fill;
    state->first_0 = top.peek_first_0;
    state->first_1 = top.peek_first_1;
    for (int index = 0; index < state->registers; ++index)
        state->controls[index] = static_cast<uint32_t>(get(top.peek_controls, 32 * index, 32));
}

}  // extern "C"
