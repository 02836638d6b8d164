// Feeds rows of bits to arithmetic units and notes theirs, one row per enabled cycle; in between, cycles that are not
// enabled, at random, in which nothing may move.
#include <cstring>

extern "C" void units_run(int64_t rows, int64_t in_words, const uint32_t* in, int64_t out_words, uint32_t* out,
                          uint64_t seed, uint32_t gap) {
    VerilatedContext context;
    context.randReset(2);  // registers begin with anything
    context.randSeed(static_cast<int>(seed & 0x7fffffff) + 1);
    auto top = std::make_unique<Vmodel>(&context);
    Random random;
    random.state = seed * 2 + 1;
    auto tick = [&] {
        top->clock = 1;
        top->eval();
        top->clock = 0;
        top->eval();
    };
    std::memcpy(&top->in[0], in, in_words * 4);
    top->clock = 0;
    top->reset = top->enable = 1;
    top->eval();
    for (int cycle = 0; cycle < 4; ++cycle) tick();
    top->reset = 0;
    for (int64_t row = 0; row < rows;) {
        top->enable = random.happens(gap);
        std::memcpy(&top->in[0], in + row * in_words, in_words * 4);
        top->eval();
        if (top->enable) {
            std::memcpy(out + row * out_words, &top->out[0], out_words * 4);
            ++row;
        }
        tick();
    }
    top->final();
}
