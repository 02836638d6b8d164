// A number format as one word, and a rounding as another; `presilicon.rtl.arithmetic.words` makes both.
//
// format  5:0    bits of a code
//         11:6   mantissa bits, or bits after the point
//         20:12  exponent bias + 128
//         22:21  0 float, 1 two's complement, 2 sign and magnitude, 3 unsigned
//         25:23  special codes: 0 IEEE 754, 1 fn (all ones is NaN), 2 fnuz (-0 is NaN), 3 P3109 (as fnuz, and all ones
//                is infinity), 4 none
//         26     subnormals are zeros
//         28:27  overflow: 0 infinity, 1 saturation, 2 NaN
//         29     NaN becomes the largest number, not zero, where it has no code
// rounding 2:0   0 to nearest even, 1 to nearest away, 2 toward zero, 3 up, 4 down, 5 stochastic
//          7:3   random bits
//          8     numbers beyond the largest overflow in every mode, as in a tensor core
//
// Numbers on their way are terms: a sign, a significand, the exponent of its highest bit (signed, 12 bits), and two
// flags for NaN and infinity. A term that is to be rounded to a float has that format's bias in its exponent. A zero that
// was normalized has the exponent ZERO_EXPONENT, below that of every number.
/* verilator lint_off VARHIDDEN */  // a module and the one around it may both include this
/* verilator lint_off UNUSEDSIGNAL */  // no function needs all bits
/* verilator lint_off UNUSEDPARAM */  // no module needs all of them
localparam int NEAREST_EVEN = 0, NEAREST_AWAY = 1, TOWARD_ZERO = 2, UP = 3, DOWN = 4, STOCHASTIC = 5;
localparam int IEEE = 0, FN = 1, FNUZ = 2, P3109 = 3, NO_SPECIALS = 4;
localparam int TO_INFINITY = 0, SATURATE = 1, TO_NAN = 2;
localparam int ZERO_EXPONENT = -600;

// A float with the rules of IEEE 754.
function automatic integer ieee_format(input integer field, input integer stored, input integer offset);
  ieee_format = (1 + field + stored) | stored << 6 | (offset + 128) << 12;
endfunction

function automatic integer format_bits(input integer spec);
  format_bits = spec & 63;
endfunction

function automatic integer format_kind(input integer spec);
  format_kind = spec >> 21 & 3;
endfunction

// Mantissa bits of a float, bits after the point of others.
function automatic integer format_fraction(input integer spec);
  format_fraction = spec >> 6 & 63;
endfunction

function automatic integer format_exponent(input integer spec);
  format_exponent = (spec & 63) - 1 - (spec >> 6 & 63);
endfunction

function automatic integer format_bias(input integer spec);
  format_bias = (spec >> 12 & 511) - 128;
endfunction

function automatic integer format_specials(input integer spec);
  format_specials = spec >> 23 & 7;
endfunction

function automatic integer format_overflow(input integer spec);
  format_overflow = spec >> 27 & 3;
endfunction

function automatic integer format_flushes(input integer spec);
  format_flushes = spec >> 26 & 1;
endfunction

function automatic integer format_has_negative_zero(input integer spec);
  format_has_negative_zero = format_specials(spec) == FNUZ || format_specials(spec) == P3109 ? 0 : 1;
endfunction

// Bits of a number's significand, the hidden one included; two's complement needs one more than its largest number.
function automatic integer significand_bits(input integer spec);
  significand_bits = format_kind(spec) == 0 ? format_fraction(spec) + 1
      : format_kind(spec) == 2 ? format_bits(spec) - 1 : format_bits(spec);
endfunction

// The smallest exponent of a significand's highest bit, where it is not normalized, and how many more there are.
function automatic integer lowest_exponent(input integer spec);
  lowest_exponent = format_kind(spec) == 0 ? 1 - format_bias(spec) : significand_bits(spec) - 1 - format_fraction(spec);
endfunction

function automatic integer exponent_span(input integer spec);
  exponent_span = format_kind(spec) == 0 ? (1 << format_exponent(spec)) - 2 : 0;
endfunction

// Bits below the last place that decide a rounding, without the one that stands for all further ones.
function automatic integer rounding_bits(input integer spec);
  rounding_bits = (spec & 7) == STOCHASTIC ? spec >> 3 & 31 : 1;
endfunction

function automatic integer larger_of(input integer a, input integer b);
  larger_of = a > b ? a : b;
endfunction
/* verilator lint_on UNUSEDPARAM */
/* verilator lint_on UNUSEDSIGNAL */
/* verilator lint_on VARHIDDEN */
