// The exact sum of numbers in sign and magnitude; a sum of zero has the sign +.
module presilicon_signed_sum #(
    parameter int COUNT = 4,
    parameter int BITS = 8,
    parameter int SUM = 10  // BITS + $clog2(COUNT)
) (
    input  logic [     COUNT-1:0] signs,
    input  logic [COUNT*BITS-1:0] magnitudes,
    output logic                  sign,
    output logic [       SUM-1:0] magnitude
);
  logic [SUM:0] total;
  always_comb begin
    total = '0;
    // A magnitude is subtracted by adding its complement and 1: one adder, not two and a choice.
    for (int term = 0; term < COUNT; term++)
      total = total + ((SUM + 1)'(magnitudes[term*BITS+:BITS]) ^ {(SUM + 1) {signs[term]}}) + (SUM + 1)'(signs[term]);
  end
  assign sign = total[SUM];
  assign magnitude = sign ? -total[SUM-1:0] : total[SUM-1:0];
endmodule
