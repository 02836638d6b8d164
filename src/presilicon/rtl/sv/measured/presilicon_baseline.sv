// The fixed-function instrument that a programmable one is compared with: three ways of looking at a vector, chosen at
// debug time, each a circuit of its own that takes one vector per cycle. Nothing else can be computed without building
// the circuit again.
//
//   mode 0  distribution: every lane counts into 128 bins of equal width
//   mode 1  spatial sparsity: one bit per lane, 1 where the element is zero
//   mode 2  summary: the sum of all elements and the number of zeros of a frame
//
// At the end of a frame (`in_last`) the distribution is read out bin by bin, over BINS cycles in which vectors are not
// taken; the summary leaves at once. N is a power of two, at least 4.

// One lane of the distribution: a memory of counters with a read, an addition and a write in a row. A count that is
// still on its way to the memory is passed on, so that the same bin can be counted in every cycle.
module presilicon_baseline_lane #(
    parameter WIDTH = 32,
    parameter BINS = 128,
    parameter COUNT = 32
) (
    input wire clk,
    input wire rst,
    input wire in_valid,
    input wire signed [WIDTH-1:0] in_data,
    input wire signed [WIDTH-1:0] low,     // lower end of the first bin
    input wire [5:0] shift,                // a bin is 2^shift wide
    input wire sweep,                      // read out and clear instead of counting
    input wire [$clog2(BINS)-1:0] sweep_bin,
    output wire [COUNT-1:0] sweep_count
);
    localparam PLACE = $clog2(BINS);

    // Distance from the first bin, in whole bins, held inside: one register after each.
    reg [WIDTH:0] distance, steps;
    reg below;
    wire above = |steps[WIDTH:PLACE];
    reg [PLACE-1:0] bin;
    reg [2:0] valid;
    wire bin_valid = valid[2];

    always @(posedge clk) begin
        distance <= {in_data[WIDTH-1], in_data} - {low[WIDTH-1], low};
        steps <= distance >> shift;
        below <= distance[WIDTH];
        bin <= below ? {PLACE{1'b0}} : above ? {PLACE{1'b1}} : steps[PLACE-1:0];
        valid <= rst ? 3'd0 : {valid[1:0], in_valid & ~sweep};
    end

    reg [COUNT-1:0] counts [0:BINS-1];
    wire [PLACE-1:0] read_bin = sweep ? sweep_bin : bin;
    reg [COUNT-1:0] stored, passed;
    reg [PLACE-1:0] count_bin;
    reg count_valid, clear_valid, is_passed;
    wire [COUNT-1:0] count = is_passed ? passed : stored;
    wire [COUNT-1:0] next = count + 1'b1;

    always @(posedge clk) begin
        stored <= counts[read_bin];
        if (count_valid | clear_valid) counts[count_bin] <= clear_valid ? {COUNT{1'b0}} : next;
    end
    always @(posedge clk) begin
        passed <= next;
        is_passed <= count_valid && count_bin == read_bin;
        count_bin <= read_bin;
        count_valid <= bin_valid & ~rst;
        clear_valid <= sweep & ~rst;
    end

    assign sweep_count = count;
endmodule

// The sum of N words of WIDTH bits, one register after every level.
module presilicon_baseline_sum #(
    parameter N = 16,
    parameter WIDTH = 32
) (
    input wire clk,
    input wire [N*WIDTH-1:0] words,
    output wire [WIDTH-1:0] total
);
    generate
        if (N == 1) begin : only
            assign total = words;
        end else begin : tree
            reg [N/2*WIDTH-1:0] sums;
            integer pair;
            always @(posedge clk)
                for (pair = 0; pair < N / 2; pair = pair + 1)
                    sums[pair*WIDTH +: WIDTH] <= words[2*pair*WIDTH +: WIDTH] + words[(2*pair+1)*WIDTH +: WIDTH];
            presilicon_baseline_sum #(.N(N / 2), .WIDTH(WIDTH)) rest (.clk(clk), .words(sums), .total(total));
        end
    endgenerate
endmodule

module presilicon_baseline_instrument #(
    parameter N = 16,
    parameter WIDTH = 32,
    parameter BINS = 128
) (
    input wire clk,
    input wire rst,
    input wire [1:0] mode,
    input wire signed [WIDTH-1:0] low,
    input wire [5:0] shift,
    input wire in_valid,
    output wire in_ready,
    input wire [N*WIDTH-1:0] in_data,
    input wire in_last,
    output reg out_valid,
    output reg [N*WIDTH-1:0] out_data
);
    localparam PLACE = $clog2(BINS);
    localparam LEVELS = $clog2(N);

    reg sweep, is_clearing;
    reg [PLACE-1:0] sweep_bin;
    reg [LEVELS+2:0] sweep_moves;
    reg [2:0] settling;
    assign in_ready = ~sweep & (settling == 0);
    wire take = in_valid & in_ready;

    // After the last vector of a frame some cycles pass until the counters have settled; then they are read out. After a reset
    // they are cleared.
    always @(posedge clk) begin
        if (rst) begin
            sweep <= 1'b1;
            is_clearing <= 1'b1;
            settling <= 0;
            sweep_bin <= 0;
        end else begin
            if (take && in_last && mode == 0) settling <= 5;
            else if (settling != 0) begin
                settling <= settling - 1'b1;
                if (settling == 1) sweep <= 1'b1;
            end
            if (sweep) begin
                sweep_bin <= sweep_bin + 1'b1;
                if (&sweep_bin) begin
                    sweep <= 1'b0;
                    is_clearing <= 1'b0;
                end
            end
        end
        sweep_moves <= {sweep_moves[LEVELS+1:0], sweep & ~is_clearing & ~rst};
    end

    wire [N*WIDTH-1:0] lane_counts;
    reg [N-1:0] zeros;
    genvar lane;
    generate
        for (lane = 0; lane < N; lane = lane + 1) begin : lanes
            presilicon_baseline_lane #(.WIDTH(WIDTH), .BINS(BINS), .COUNT(WIDTH)) counter (
                .clk(clk), .rst(rst), .in_valid(take && mode == 0), .in_data(in_data[lane*WIDTH +: WIDTH]), .low(low),
                .shift(shift), .sweep(sweep), .sweep_bin(sweep_bin), .sweep_count(lane_counts[lane*WIDTH +: WIDTH])
            );
            always @(posedge clk) zeros[lane] <= in_data[lane*WIDTH +: WIDTH] == 0;
        end
    endgenerate

    // One tree adds the lanes' counts while they are read out, and their elements for the summary.
    reg [N*WIDTH-1:0] summands;
    wire [WIDTH-1:0] total;
    reg [LEVELS+1:0] sum_valid, sum_last;
    always @(posedge clk) begin
        summands <= sweep_moves[0] ? lane_counts : in_data;
        sum_valid <= {sum_valid[LEVELS:0], take && mode == 2 && ~rst};
        sum_last <= {sum_last[LEVELS:0], take & in_last};
    end
    presilicon_baseline_sum #(.N(N), .WIDTH(WIDTH)) adder (.clk(clk), .words(summands), .total(total));

    // The number of zeros of a vector, for the summary.
    wire [N*(LEVELS+1)-1:0] zero_words;
    wire [LEVELS:0] zero_count;
    generate
        for (lane = 0; lane < N; lane = lane + 1) begin : zero_lanes
            assign zero_words[lane*(LEVELS+1) +: LEVELS+1] = {{LEVELS{1'b0}}, zeros[lane]};
        end
    endgenerate
    presilicon_baseline_sum #(.N(N), .WIDTH(LEVELS + 1)) zero_adder (.clk(clk), .words(zero_words), .total(zero_count));

    reg [WIDTH-1:0] frame_sum, frame_zeros;
    wire summed = sum_valid[LEVELS];
    wire [WIDTH-1:0] sum_now = frame_sum + total;
    wire [WIDTH-1:0] zeros_now = frame_zeros + {{(WIDTH-LEVELS-1){1'b0}}, zero_count};
    wire frame_done = summed & sum_last[LEVELS];
    always @(posedge clk)
        if (rst | frame_done) begin
            frame_sum <= 0;
            frame_zeros <= 0;
        end else if (summed) begin
            frame_sum <= sum_now;
            frame_zeros <= zeros_now;
        end

    // Words and bits are packed into blocks of N words.
    reg zero_valid;
    reg [N*WIDTH-1:0] bits, words;
    reg [$clog2(WIDTH)-1:0] bits_held;
    reg [LEVELS:0] words_held;
    wire count_out = sweep_moves[LEVELS+1];
    wire [N*WIDTH-1:0] words_with_count = {total, words[N*WIDTH-1:WIDTH]};
    wire [N*WIDTH-1:0] words_with_summary = {zeros_now, sum_now, words[N*WIDTH-1:2*WIDTH]};
    always @(posedge clk) begin
        out_valid <= 1'b0;
        zero_valid <= take && mode == 1 && ~rst;
        if (rst) begin
            bits_held <= 0;
            words_held <= 0;
        end else begin
            if (zero_valid) begin
                bits <= {zeros, bits[N*WIDTH-1:N]};
                bits_held <= bits_held + 1'b1;
                if (&bits_held) begin
                    out_valid <= 1'b1;
                    out_data <= {zeros, bits[N*WIDTH-1:N]};
                end
            end
            if (count_out) begin
                words <= words_with_count;
                words_held <= (words_held == N - 1) ? 0 : words_held + 1'b1;
                if (words_held == N - 1) begin
                    out_valid <= 1'b1;
                    out_data <= words_with_count;
                end
            end else if (frame_done) begin
                words <= words_with_summary;
                words_held <= (words_held == N - 2) ? 0 : words_held + 2'd2;
                if (words_held == N - 2) begin
                    out_valid <= 1'b1;
                    out_data <= words_with_summary;
                end
            end
        end
    end
endmodule
