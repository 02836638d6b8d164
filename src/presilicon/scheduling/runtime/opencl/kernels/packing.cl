// Panels for the packed product of matmul.cl: [panel of `tile` lines][step of the reduction][line], padded with zeros.
// A line is a row of A or a column of B.

// Panels of a strided matrix; steps of the reduction come in runs of `run`, `jump` elements apart. One item per panel.
__kernel void pack_matrix(__global const float *restrict x, __global float *restrict packed, long offset, long batch,
                          long line, long step, long jump, int run, int first_step, int lines, int k, int tile) {
    int panel = get_global_id(0), panels = (lines + tile - 1) / tile, first = panel * tile;
    if (panel >= panels) return;
    int count = min(tile, lines - first);
    x += offset + get_global_id(1) * batch + first * line;
    packed += (get_global_id(1) * (long)panels + panel) * tile * k;
    for (int p = 0; p < k;) {
        int absolute = first_step + p, stop = min(k, p + run - absolute % run);
        __global const float *source = x + (absolute / run) * jump + (absolute % run) * step;
        __global float *target = packed + (long)p * tile;
        int length = stop - p;
        if (count < tile) {
            for (int q = 0; q < length; q++)
                for (int i = 0; i < tile; i++) target[q * tile + i] = i < count ? source[i * line + q * step] : 0.0f;
        } else if (line == 1) {
            for (int q = 0; q < length; q++)
                for (int i = 0; i < tile; i++) target[q * tile + i] = source[q * step + i];
        } else {
            for (int i = 0; i < tile; i++)
                for (int q = 0; q < length; q++) target[q * tile + i] = source[i * line + q * step];
        }
        p = stop;
    }
}

// Geometry of a convolution as seen from its result: source = (position * multiply + shift - tap * dilation) / divide.
// A forward convolution and a weight gradient multiply by the stride; an input gradient divides by it, with taps
// counted backwards (negative dilation).
#define GEOMETRY int channels, int height, int width, int rows, int columns, int taps_h, int taps_w, \
    int multiply_h, int multiply_w, int divide_h, int divide_w, int shift_h, int shift_w, int dilation_h, int dilation_w

inline int source_at(int position, int multiply, int divide, int shift, int tap, int dilation, int limit) {
    int at = position * multiply + shift + tap * dilation;
    if (at < 0 || at % divide) return -1;
    at /= divide;
    return at < limit ? at : -1;
}

// Panels whose lines are positions (image, row, column) from `first_line` on and whose steps are (channel, tap).
__kernel void pack_patches(__global const float *restrict x, __global float *restrict packed, long offset, long image,
                           GEOMETRY, int first_line, int lines, int tile) {
    int panel = get_global_id(0), first = panel * tile, k = channels * taps_h * taps_w;
    if (first >= lines) return;
    int count = min(tile, lines - first);
    packed += (long)panel * tile * k;
    for (int begin = 0; begin < tile;) {
        int line = first_line + first + begin, column = line % columns, row = line / columns % rows;
        int length = begin < count ? min(count - begin, columns - column) : tile - begin;
        __global const float *plane = x + offset + (line / columns / rows) * image;
        __global float *target = packed + begin;
        for (int c = 0; c < channels; c++, plane += height * width)
            for (int r = 0; r < taps_h; r++) {
                int h = begin < count ? source_at(row, multiply_h, divide_h, shift_h, r, dilation_h, height) : -1;
                for (int s = 0; s < taps_w; s++, target += tile) {
                    if (h < 0) {
                        for (int i = 0; i < length; i++) target[i] = 0.0f;
                    } else if (multiply_w == 1 && divide_w == 1) {
                        int w = column + shift_w + s * dilation_w, low = clamp(-w, 0, length), high = clamp(width - w, low, length);
                        __global const float *source = plane + h * width + w;
                        for (int i = 0; i < low; i++) target[i] = 0.0f;
                        for (int i = low; i < high; i++) target[i] = source[i];
                        for (int i = high; i < length; i++) target[i] = 0.0f;
                    } else {
                        for (int i = 0; i < length; i++) {
                            int w = source_at(column + i, multiply_w, divide_w, shift_w, s, dilation_w, width);
                            target[i] = w < 0 ? 0.0f : plane[h * width + w];
                        }
                    }
                }
            }
        begin += length;
    }
}

// The transpose: lines are (channel, tap), steps are positions from `first_step` on.
__kernel void pack_taps(__global const float *restrict x, __global float *restrict packed, long offset, long image,
                        GEOMETRY, int first_step, int steps, int tile) {
    int panel = get_global_id(0), lines = channels * taps_h * taps_w;
    if (panel * tile >= lines) return;
    packed += (long)panel * tile * steps;
    for (int p = 0; p < steps;) { // run by run, so that what is written stays in the nearest cache
        int step = first_step + p, column = step % columns, row = step / columns % rows;
        int length = min(steps - p, columns - column);
        __global const float *plane = x + offset + (step / columns / rows) * image;
        for (int i = 0; i < tile; i++) {
            int line = panel * tile + i, s = line % taps_w, r = line / taps_w % taps_h, c = line / taps_w / taps_h;
            int h = line < lines ? source_at(row, multiply_h, divide_h, shift_h, r, dilation_h, height) : -1;
            __global float *target = packed + (long)p * tile + i;
            __global const float *source = plane + ((long)c * height + h) * width;
            int w = column * multiply_w + shift_w + s * dilation_w;
            for (int q = 0; q < length; q++, w += multiply_w)
                target[q * tile] = h < 0 || w < 0 || w >= width ? 0.0f : source[w];
        }
        p += length;
    }
}

// One work item per result: the base that tuned kernels are measured against.
__kernel void matmul_naive(__global const float *restrict a, __global const float *restrict b,
                           __global float *restrict c, int m, int n, int k) {
    int row = get_global_id(1), column = get_global_id(0);
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + column];
    c[row * n + column] = sum;
}
