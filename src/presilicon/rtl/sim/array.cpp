// Runs products of linear layers on a systolic array, with memories that answer in the next cycle; between two enabled
// cycles there may be others, at random, in which nothing moves. Feeds the instrument's host port and notes its stream.
#include <cstring>

struct Job {
    int32_t products, resident, samples, last_row, last_column, rest_rows, rest_columns, layer;
    int32_t rows, word_counts[4];    // of a vector of weights, left, top, out
    const uint32_t* memory[3];       // weights [row groups, column groups, rows], left and top [groups, samples]
    int64_t most_results;
    int32_t* places;                 // [results, 5]: product, sample, row group, column group, row
    uint32_t* results;               // [results, words]
    int64_t config_bytes;
    const uint8_t* config;
    int64_t quiet;                   // cycles without a byte of the stream after which the job ends
    int64_t most_bytes;
    uint8_t* bytes;
    int64_t result_count, byte_count, cycles[3], total;  // results
};

struct Simulation {
    VerilatedContext context;
    std::unique_ptr<Vmodel> top;
    Random random;
    uint32_t gap;
};

extern "C" {

void* array_new(uint64_t seed, uint32_t gap) {
    auto simulation = new Simulation;
    simulation->context.randReset(2);  // registers begin with anything
    simulation->context.randSeed(static_cast<int>(seed & 0x7fffffff) + 1);
    simulation->top = std::make_unique<Vmodel>(&simulation->context);
    simulation->random.state = seed * 2 + 1;
    simulation->gap = gap;
    Vmodel& top = *simulation->top;
    top.clock = 0;
    top.reset = top.enable = 1;
    top.start = top.config_valid = top.stream_ready = 0;
    top.eval();
    for (int edge = 0; edge < 8; ++edge) top.clock = !top.clock, top.eval();
    top.reset = 0;
    return simulation;
}

void array_free(void* handle) {
    auto simulation = static_cast<Simulation*>(handle);
    simulation->top->final();
    delete simulation;
}

// 0 done, 1 too many cycles, 2 out of room
int array_run(void* handle, Job* job, int64_t most_cycles) {
    auto simulation = static_cast<Simulation*>(handle);
    Vmodel& top = *simulation->top;
    job->result_count = job->byte_count = job->total = 0;
    for (auto& count : job->cycles) count = 0;
    top.products = job->products, top.resident = job->resident, top.samples = job->samples;
    top.last_row = job->last_row, top.last_column = job->last_column;
    top.rest_rows = job->rest_rows, top.rest_columns = job->rest_columns, top.layer = job->layer;
    const int32_t columns = job->last_column + 1;
    bool started = false;
    int64_t byte = 0, silence = 0;
    while (job->total < most_cycles) {
        const bool enable = simulation->random.happens(simulation->gap);
        const bool fed = byte == job->config_bytes;
        top.enable = enable;
        top.start = fed && !started;
        top.config_valid = !fed;
        if (!fed) top.config_data = job->config[byte];
        top.stream_ready = 1;
        top.eval();
        const uint32_t* answer[3] = {};  // of the memories, in the next cycle
        if (enable) {
            if (top.running) ++job->cycles[top.running_product];
            if (top.weights_read)
                answer[0] = job->memory[0] + job->word_counts[0] * static_cast<int64_t>(
                    (top.weights_row_group * columns + top.weights_column_group) * job->rows + top.weights_row);
            if (top.left_read)
                answer[1] = job->memory[1] + job->word_counts[1] * static_cast<int64_t>(
                    top.left_group * job->samples + top.left_sample);
            if (top.top_read)
                answer[2] = job->memory[2] + job->word_counts[2] * static_cast<int64_t>(
                    top.top_group * job->samples + top.top_sample);
            if (top.out_valid) {
                if (job->result_count == job->most_results) return 2;
                int32_t* place = job->places + 5 * job->result_count;
                place[0] = top.out_product, place[1] = top.out_sample, place[2] = top.out_row_group;
                place[3] = top.out_column_group, place[4] = top.out_row;
                std::memcpy(job->results + job->word_counts[3] * job->result_count++, &top.out[0],
                            4 * job->word_counts[3]);
            }
            ++job->total;
        }
        const bool taken = top.config_valid && top.config_ready;
        if (top.stream_valid) {
            if (job->byte_count == job->most_bytes) return 2;
            job->bytes[job->byte_count++] = top.stream_data;
            silence = 0;
        }
        const bool idle = started && !top.busy;
        started = started || (top.start && enable);
        top.clock = 1;
        top.eval();
        byte += taken;
        if (answer[0]) std::memcpy(&top.weights[0], answer[0], 4 * job->word_counts[0]);
        if (answer[1]) std::memcpy(&top.left[0], answer[1], 4 * job->word_counts[1]);
        if (answer[2]) std::memcpy(&top.top[0], answer[2], 4 * job->word_counts[2]);
        top.clock = 0;
        if (idle && silence++ >= job->quiet) return 0;
    }
    return 1;
}

}  // extern "C"
