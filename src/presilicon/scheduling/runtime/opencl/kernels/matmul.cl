// Products of matrices. Build parameters:
//   SIMD       floats per vector (1, 2, 4, 8, 16)
//   TM, TN     register tile of a work item: TM rows by TN vectors
//   UNROLL     unrolling of the loop over the reduction
//   UNITS      compute units: work groups that share the output tiles
//   GROUP      work items of a work group
//   STAGED     1: a work group copies its panel of B into local memory, KS steps of the reduction at a time
// The packed kernel reads panels that pack_matrix and pack_patches of packing.cl write, padded with zeros:
//   A: [panel of TM rows][k][TM], B: [panel of TN*SIMD columns][k][TN*SIMD].

#pragma OPENCL FP_CONTRACT ON
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if SIMD == 1
typedef float vec;
#else
typedef CAT(float, SIMD) vec;
#endif
// Vectors at any float's address. vload and vstore are calls in some compilers, and a call spills the accumulators.
typedef vec __attribute__((aligned(4))) loose;
#define LOAD(p) (*(__global const loose *)(p))
#define STORE(v, p) (*(__global loose *)(p) = (v))
#define WIDE (TN * SIMD)
#ifndef KS
#define KS 64
#endif

// Repetition by the preprocessor: compilers do not always unroll loops over arrays of vectors, and spill them.
#define ROWS1(X) X(0)
#define ROWS2(X) ROWS1(X) X(1)
#define ROWS3(X) ROWS2(X) X(2)
#define ROWS4(X) ROWS3(X) X(3)
#define ROWS5(X) ROWS4(X) X(4)
#define ROWS6(X) ROWS5(X) X(5)
#define ROWS7(X) ROWS6(X) X(6)
#define ROWS8(X) ROWS7(X) X(7)
#define ROWS9(X) ROWS8(X) X(8)
#define ROWS10(X) ROWS9(X) X(9)
#define ROWS11(X) ROWS10(X) X(10)
#define ROWS12(X) ROWS11(X) X(11)
#define ROWS13(X) ROWS12(X) X(12)
#define ROWS14(X) ROWS13(X) X(13)
#define ROWS15(X) ROWS14(X) X(14)
#define ROWS16(X) ROWS15(X) X(15)
#define COLUMNS1(X, i) X(i, 0)
#define COLUMNS2(X, i) COLUMNS1(X, i) X(i, 1)
#define COLUMNS3(X, i) COLUMNS2(X, i) X(i, 2)
#define COLUMNS4(X, i) COLUMNS3(X, i) X(i, 3)
#define STEPS1(X) X(0)
#define STEPS2(X) X(0) X(1)
#define STEPS4(X) STEPS2(X) X(2) X(3)
#define STEPS8(X) STEPS4(X) X(4) X(5) X(6) X(7)
#define STEPS16(X) STEPS8(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_ROW(X) CAT(ROWS, TM)(X)
#define EACH_COLUMN(X, i) CAT(COLUMNS, TN)(X, i)
#define EACH_STEP(X) CAT(STEPS, UNROLL)(X)

#define ZERO(i, j) vec acc##i##_##j = (vec)(0.0f);
#define ZERO_ROW(i) EACH_COLUMN(ZERO, i)
#define LOAD_B(p, j) vec b##j = *(B_SPACE const loose *)(vb + j * SIMD);
#define MAC(i, j) acc##i##_##j += x##i * b##j;
// One step of the reduction: `A_AT(i)` is the element of row i, `vb` the address of the vectors of B.
#define MAC_ROW(i) { vec x##i = (vec)(A_AT(i)); EACH_COLUMN(MAC, i) }
#define STEP EACH_COLUMN(LOAD_B, 0) EACH_ROW(MAC_ROW)

// Where element (row, column) of a result lies: columns come in runs of `run`, `jump` elements apart, and the
// first column is number `start` of all.
#define TARGET long offset, long row_stride, long jump, long batch, int run, int start, int m, int n
#define HERE offset, row_stride, jump, batch, run, start, m, n

inline void store(__global float *c, TARGET, int row, int column, vec value, float alpha, float beta) {
    if (row >= m || column >= n) return;
    __global float *line = c + row * row_stride;
    int absolute = column + start, within = absolute % run;
    value *= alpha;
    if (column + SIMD <= n && within + SIMD <= run) {
        __global float *p = line + (absolute / run) * jump + within;
        if (beta != 0.0f) value += LOAD(p) * beta;
        STORE(value, p);
        return;
    }
    float lane[SIMD];
    *(loose *)lane = value;
    for (int s = 0; s < SIMD && column + s < n; s++) {
        __global float *p = line + ((absolute + s) / run) * jump + (absolute + s) % run;
        *p = beta != 0.0f ? lane[s] + *p * beta : lane[s];
    }
}
#define STORE_ONE(i, j) store(c, HERE, row * TM + i, column * WIDE + j * SIMD, acc##i##_##j, alpha, beta);
#define STORE_ROW(i) EACH_COLUMN(STORE_ONE, i)

// C = alpha A B + beta C on packed panels; get_global_id(1) counts batches.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void matmul_packed(__global const float *restrict a, __global const float *restrict b, __global float *restrict c,
                   TARGET, int k, float alpha, float beta) {
    int rows = (m + TM - 1) / TM, columns = (n + WIDE - 1) / WIDE;
    int row_groups = (rows + GROUP - 1) / GROUP;
    a += get_global_id(1) * (long)rows * TM * k;
    b += get_global_id(1) * (long)columns * WIDE * k;
    c += offset + get_global_id(1) * batch;
#if STAGED
    __local float panel[KS * WIDE];
#endif
    for (int tile = get_group_id(0); tile < row_groups * columns; tile += get_num_groups(0)) {
        int column = tile / row_groups, row = (tile % row_groups) * GROUP + get_local_id(0);
        __global const float *va = a + (long)min(row, rows - 1) * TM * k;
        EACH_ROW(ZERO_ROW)
#define A_AT(i) va[i]
#if STAGED
#define B_SPACE __local
        for (int start = 0; start < k; start += KS) {
            int steps = min(KS, k - start);
            __global const float *source = b + ((long)column * k + start) * WIDE;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int x = get_local_id(0); x < steps * WIDE; x += GROUP) panel[x] = source[x];
            barrier(CLK_LOCAL_MEM_FENCE);
            __local const float *vb = panel;
            int left = steps;
#else
#define B_SPACE __global
        {
            __global const float *vb = b + (long)column * WIDE * k;
            int left = k;
#endif
#define ONE_STEP(u) { STEP va += TM; vb += WIDE; }
            for (; left >= UNROLL; left -= UNROLL) { EACH_STEP(ONE_STEP) }
            for (; left > 0; left--) ONE_STEP(0)
        }
#undef A_AT
#undef ONE_STEP
#undef B_SPACE
        if (row < rows) { EACH_ROW(STORE_ROW) }
    }
}

// C = alpha A B + beta C straight from strided operands, for products that are too small to pack.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void matmul_direct(__global const float *restrict a, __global const float *restrict b, __global float *restrict c,
                   TARGET, int k, float alpha, float beta, long a_offset, long a_batch, long a_row, long a_step,
                   long b_offset, long b_batch, long b_step, long b_column) {
    int rows = (m + TM - 1) / TM, columns = (n + WIDE - 1) / WIDE;
    a += a_offset + get_global_id(1) * a_batch;
    b += b_offset + get_global_id(1) * b_batch;
    c += offset + get_global_id(1) * batch;
    for (int tile = get_global_id(0); tile < rows * columns; tile += get_global_size(0)) {
        int row = tile / columns, column = tile % columns, last = n - 1 - column * WIDE;
        __global const float *pa = a;
        EACH_ROW(ZERO_ROW)
#define A_AT(i) pa[min(row * TM + i, m - 1) * a_row]
        if (b_column == 1 && last + 1 >= WIDE) {
            __global const float *vb = b + column * WIDE;
#define B_SPACE __global
#define ONE_STEP(u) { STEP pa += a_step; vb += b_step; }
            int left = k;
            for (; left >= UNROLL; left -= UNROLL) { EACH_STEP(ONE_STEP) }
            for (; left > 0; left--) ONE_STEP(0)
#undef ONE_STEP
#undef B_SPACE
#define B_SPACE
        } else {
            __global const float *pb = b + column * WIDE * b_column;
            for (int p = 0; p < k; p++) {
                float vb[WIDE];
                for (int j = 0; j < WIDE; j++) vb[j] = pb[min(j, last) * b_column];
                STEP
                pa += a_step;
                pb += b_step;
            }
        }
#undef A_AT
#undef B_SPACE
        EACH_ROW(STORE_ROW)
    }
}
