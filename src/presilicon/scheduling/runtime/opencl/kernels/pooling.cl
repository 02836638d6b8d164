// Pooling and embedding; operands are contiguous. A work item takes a plane (image and channel) or a block of columns.
#define WINDOW int planes, int height, int width, int rows, int columns, int taps_h, int taps_w, int stride_h, \
    int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w

__kernel void max_pool(__global const float *x, long x_at, __global float *y, __global long *indices, WINDOW) {
    int plane = get_global_id(0);
    if (plane >= planes) return;
    x += x_at + (long)plane * height * width;
    y += (long)plane * rows * columns;
    indices += (long)plane * rows * columns;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            float top = -INFINITY;
            int best = -1;
            for (int r = 0; r < taps_h; r++) {
                int h = row * stride_h - pad_h + r * dilation_h;
                if (h < 0 || h >= height) continue;
                for (int s = 0; s < taps_w; s++) {
                    int w = column * stride_w - pad_w + s * dilation_w;
                    if (w < 0 || w >= width) continue;
                    float value = x[h * width + w];
                    if (best < 0 || value > top || value != value) {
                        top = value;
                        best = h * width + w;
                    }
                }
            }
            y[row * columns + column] = top;
            indices[row * columns + column] = best;
        }
}

__kernel void max_pool_backward(__global const float *dy, long dy_at, __global const long *indices, long indices_at,
                                __global float *dx, int planes, int area, int results) {
    int plane = get_global_id(0);
    if (plane >= planes) return;
    dx += (long)plane * area;
    dy += dy_at + (long)plane * results;
    indices += indices_at + (long)plane * results;
    for (int i = 0; i < area; i++) dx[i] = 0.0f;
    for (int i = 0; i < results; i++) dx[indices[i]] += dy[i];
}

// Windows of an average: fixed size, or (adaptive) as many as there are results.
#define BOUNDS                                                                                                         \
    int top, bottom, left, right, count;                                                                               \
    if (adaptive) {                                                                                                    \
        top = row * height / rows;                                                                                     \
        bottom = ((row + 1) * height + rows - 1) / rows;                                                               \
        left = column * width / columns;                                                                               \
        right = ((column + 1) * width + columns - 1) / columns;                                                        \
        count = (bottom - top) * (right - left);                                                                       \
    } else {                                                                                                           \
        top = row * stride_h - pad_h;                                                                                  \
        left = column * stride_w - pad_w;                                                                              \
        bottom = min(top + taps_h, height + pad_h);                                                                    \
        right = min(left + taps_w, width + pad_w);                                                                     \
        count = (bottom - top) * (right - left);                                                                       \
        top = max(top, 0), left = max(left, 0), bottom = min(bottom, height), right = min(right, width);               \
        if (divisor) count = divisor;                                                                                  \
        else if (!padded) count = (bottom - top) * (right - left);                                                     \
    }

__kernel void avg_pool(__global const float *x, long x_at, __global float *y, WINDOW, int adaptive, int padded, int divisor) {
    int plane = get_global_id(0);
    if (plane >= planes) return;
    x += x_at + (long)plane * height * width;
    y += (long)plane * rows * columns;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            BOUNDS
            float total = 0.0f;
            for (int h = top; h < bottom; h++)
                for (int w = left; w < right; w++) total += x[h * width + w];
            y[row * columns + column] = total / count;
        }
}

__kernel void avg_pool_backward(__global const float *dy, long dy_at, __global float *dx, WINDOW, int adaptive, int padded, int divisor) {
    int plane = get_global_id(0);
    if (plane >= planes) return;
    dx += (long)plane * height * width;
    dy += dy_at + (long)plane * rows * columns;
    for (int i = 0; i < height * width; i++) dx[i] = 0.0f;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            BOUNDS
            float share = dy[row * columns + column] / count;
            for (int h = top; h < bottom; h++)
                for (int w = left; w < right; w++) dx[h * width + w] += share;
        }
}

__kernel void embedding(__global const float *table, long table_at, __global const long *indices, long indices_at,
                        __global float *out, int count, int width) {
    int item = get_global_id(0);
    if (item >= count) return;
    table += table_at + indices[indices_at + item] * width;
    out += (long)item * width;
    for (int i = 0; i < width; i++) out[i] = table[i];
}

// Adds rows of dy to the rows of a table of zeros, in order: a work item takes 16 columns, so that none collide.
__kernel void embedding_backward(__global const float *dy, long dy_at, __global const long *indices, long indices_at,
                                 __global float *dtable, int count, int width, long padding) {
    int first = get_global_id(0) * 16, last = min(first + 16, width);
    for (int item = 0; item < count; item++) {
        long index = indices[indices_at + item];
        if (index == padding) continue;
        for (int i = first; i < last; i++) dtable[index * width + i] += dy[dy_at + (long)item * width + i];
    }
}
