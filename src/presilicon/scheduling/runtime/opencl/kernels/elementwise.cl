// Element-wise kernels. All have one signature: a result, up to three operands with their offsets, two scalars and the
// number of elements. The strided twin takes a layout as well:
//   dimensions, then six each of: sides, strides of the result, of a, of b, of c (a stride of 0 broadcasts).
// A work item takes a run of elements (or of rows), so that compilers vectorize the loop inside.
#define OPERANDS(OUT, T, S) __global OUT *out, long out_at, __global const T *a, long a_at, __global const T *b, \
    long b_at, __global const T *c, long c_at, S s, S t, long n
#define MOVE out += out_at; a += a_at; b += b_at; c += c_at;
#define SHARE(total) long share = (total + get_global_size(0) - 1) / get_global_size(0); \
    long low = get_global_id(0) * share, high = min(low + share, (long)(total));

#define KERNEL(name, OUT, T, S, EXPRESSION)                                                                            \
    __kernel void map_##name(OPERANDS(OUT, T, S)) {                                                                          \
        MOVE SHARE(n)                                                                                                  \
        for (long i = low; i < high; i++) {                                                                            \
            T x = a[i], y = b[i], z = c[i];                                                                            \
            out[i] = EXPRESSION;                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    __kernel void map_##name##_strided(OPERANDS(OUT, T, S), __global const int *layout) {                                    \
        MOVE                                                                                                           \
        int last = layout[0] - 1, inner = layout[1 + last];                                                            \
        long rows = n / inner;                                                                                         \
        int step = layout[7 + last], step_a = layout[13 + last], step_b = layout[19 + last];                           \
        int step_c = layout[25 + last];                                                                                \
        SHARE(rows)                                                                                                    \
        for (long row = low; row < high; row++) {                                                                      \
            long rest = row, at = 0, at_a = 0, at_b = 0, at_c = 0;                                                     \
            for (int d = last - 1; d >= 0; d--) {                                                                      \
                int index = rest % layout[1 + d];                                                                      \
                rest /= layout[1 + d];                                                                                 \
                at += index * (long)layout[7 + d];                                                                     \
                at_a += index * (long)layout[13 + d];                                                                  \
                at_b += index * (long)layout[19 + d];                                                                  \
                at_c += index * (long)layout[25 + d];                                                                  \
            }                                                                                                          \
            for (int i = 0; i < inner; i++) {                                                                          \
                T x = a[at_a + i * (long)step_a], y = b[at_b + i * (long)step_b], z = c[at_c + i * (long)step_c];      \
                out[at + i * (long)step] = EXPRESSION;                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
#define FLOAT(name, EXPRESSION) KERNEL(name, float, float, float, EXPRESSION)
#define LONG(name, EXPRESSION) KERNEL(name##_long, long, long, long, EXPRESSION)
#define TEST(name, EXPRESSION) KERNEL(name, uchar, float, float, EXPRESSION)
#define TEST_LONG(name, EXPRESSION) KERNEL(name##_long, uchar, long, long, EXPRESSION)

// Arithmetic and movement.
FLOAT(add, x + s * y)
FLOAT(add_scalar, x + s)
FLOAT(sub, x - s * y)
FLOAT(rsub_scalar, s - t * x)
FLOAT(mul, x * y)
FLOAT(mul_scalar, x * s)
FLOAT(div, x / y)
FLOAT(div_scalar, x / s)
FLOAT(addcmul, x + s * y * z)
FLOAT(addcdiv, x + s * (y / z))
FLOAT(lerp, s < 0.5f ? x + s * (y - x) : y - (y - x) * (1.0f - s))
FLOAT(lerp_tensor, z < 0.5f ? x + z * (y - x) : y - (y - x) * (1.0f - z))
FLOAT(fill, s)
FLOAT(copy, x)
FLOAT(select_by, z != 0.0f ? x : y)
FLOAT(masked_fill, y != 0.0f ? s : x)
FLOAT(maximum, x > y || x != x ? x : y)
FLOAT(minimum, x < y || x != x ? x : y)
FLOAT(clamp_both, x < s ? s : x > t ? t : x)
FLOAT(mse_backward, s * (y - z) * x)
KERNEL(cast_bool_float, float, uchar, float, x)
KERNEL(cast_long_float, float, long, float, x)
KERNEL(cast_float_long, long, float, float, x)
KERNEL(cast_bool_long, long, uchar, float, x)
KERNEL(cast_float_bool, uchar, float, float, x != 0.0f)
KERNEL(cast_long_bool, uchar, long, float, x != 0)
KERNEL(copy_bool, uchar, uchar, long, x)
KERNEL(fill_bool, uchar, uchar, long, s != 0)
LONG(copy, x)
LONG(fill, s)
LONG(add, x + s * y)
LONG(add_scalar, x + s)
LONG(sub, x - s * y)
LONG(mul, x * y)
LONG(mul_scalar, x * s)
TEST(eq, x == y)
TEST_LONG(eq, x == y)
TEST(ne, x != y)
TEST_LONG(ne, x != y)
TEST(lt, x < y)
TEST_LONG(lt, x < y)
TEST(le, x <= y)
TEST_LONG(le, x <= y)
TEST(gt, x > y)
TEST_LONG(gt, x > y)
TEST(ge, x >= y)
TEST_LONG(ge, x >= y)
TEST(eq_scalar, x == s)
TEST_LONG(eq_scalar, x == s)
TEST(ne_scalar, x != s)
TEST_LONG(ne_scalar, x != s)
TEST(lt_scalar, x < s)
TEST_LONG(lt_scalar, x < s)
TEST(le_scalar, x <= s)
TEST_LONG(le_scalar, x <= s)
TEST(gt_scalar, x > s)
TEST_LONG(gt_scalar, x > s)
TEST(ge_scalar, x >= s)
TEST_LONG(ge_scalar, x >= s)
KERNEL(both, uchar, uchar, long, x && y)
KERNEL(either, uchar, uchar, long, x || y)
KERNEL(no, uchar, uchar, long, !x)

FLOAT(pow_scalar, pow(x, s))
