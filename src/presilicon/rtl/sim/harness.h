// What both harnesses need: random readiness, and words of any width inside wide ports.
#include <cstdint>
#include <memory>
#include "Vmodel.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {

struct Random {  // xorshift64*
    uint64_t state = 1;
    uint32_t next() {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        return static_cast<uint32_t>((state * 0x2545F4914F6CDD1DULL) >> 32);
    }
    bool happens(uint32_t odds) { return (next() >> 16) >= odds; }  // odds of not happening, out of 65536
};

template <typename Wide> void put(Wide& wide, int low, int width, uint64_t value) {
    for (int bit = 0; bit < width; ++bit) {
        const int place = low + bit;
        const uint32_t mask = 1u << (place % 32);
        if (value >> bit & 1) wide[place / 32] |= mask;
        else wide[place / 32] &= ~mask;
    }
}

template <typename Wide> uint64_t get(const Wide& wide, int low, int width) {
    uint64_t value = 0;
    for (int bit = 0; bit < width; ++bit) {
        const int place = low + bit;
        value |= static_cast<uint64_t>(wide[place / 32] >> (place % 32) & 1) << bit;
    }
    return value;
}

}  // namespace
