// Sums, softmax, losses and normalizations. Operands are contiguous unless a stride is named; a work item takes a row,
// a channel or a block of columns. Sums run in blocks of 64, which keeps their error close to that of a tree.
#define BLOCK 64

// Eight sums side by side, which vectorize.
inline float sum_run(__global const float *x, long n) {
    float part[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, rest = 0.0f;
    long i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) part[j] += x[i + j];
    for (; i < n; i++) rest += x[i];
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7])) + rest;
}

// out[o, i] = scale * sum over p and d of x[o, p, i, d]: `planes` runs of `length` elements, `plane` apart.
__kernel void sum_planes(__global const float *x, long x_at, __global float *out, long out_at, int results, int inner,
                         long first, long second, int planes, long plane, int length, float scale) {
    int item = get_global_id(0);
    if (item >= results) return;
    x += x_at + (item / inner) * first + (item % inner) * second;
    float total = 0.0f;
    for (int p = 0; p < planes; p++) total += sum_run(x + p * plane, length);
    out[out_at + item] = total * scale;
}

// Sums of the columns of `blocks` matrices [rows, columns]: a work item takes 16 columns.
__kernel void sum_columns(__global const float *x, long x_at, __global float *out, long out_at, int blocks, int rows,
                          int columns, float scale) {
    int per = (columns + 15) / 16, block = get_global_id(0) / per, first = get_global_id(0) % per * 16;
    if (block >= blocks) return;
    int count = min(16, columns - first);
    x += x_at + (long)block * rows * columns + first;
    float total[16], part[16];
    for (int j = 0; j < 16; j++) total[j] = 0.0f;
    for (int start = 0; start < rows; start += BLOCK) {
        int stop = min(start + BLOCK, rows);
        for (int j = 0; j < 16; j++) part[j] = 0.0f;
        if (count == 16)
            for (int r = start; r < stop; r++)
                for (int j = 0; j < 16; j++) part[j] += x[(long)r * columns + j];
        else
            for (int r = start; r < stop; r++)
                for (int j = 0; j < count; j++) part[j] += x[(long)r * columns + j];
        for (int j = 0; j < 16; j++) total[j] += part[j];
    }
    for (int j = 0; j < count; j++) out[out_at + (long)block * columns + first + j] = total[j] * scale;
}

// Softmax (log == 0) or its logarithm over `length` elements `step` apart.
__kernel void softmax(__global const float *x, long x_at, __global float *y, long y_at, int rows, int length, int step, int is_log) {
    int row = get_global_id(0);
    if (row >= rows) return;
    long at = (long)(row / step) * length * step + row % step;
    x += x_at + at;
    y += y_at + at;
    float top = -INFINITY, total = 0.0f;
    for (int i = 0; i < length; i++) top = fmax(top, x[(long)i * step]);
    for (int i = 0; i < length; i++) {
        float e = exp_(x[(long)i * step] - top);
        total += e;
        if (!is_log) y[(long)i * step] = e;
    }
    if (is_log) {
        float shift = top + log(total);
        for (int i = 0; i < length; i++) y[(long)i * step] = x[(long)i * step] - shift;
    } else {
        for (int i = 0; i < length; i++) y[(long)i * step] /= total;
    }
}

__kernel void softmax_backward(__global const float *dy, long dy_at, __global const float *y, long y_at,
                               __global float *dx, long dx_at, int rows, int length, int step, int is_log) {
    int row = get_global_id(0);
    if (row >= rows) return;
    long at = (long)(row / step) * length * step + row % step;
    dy += dy_at + at;
    y += y_at + at;
    dx += dx_at + at;
    float total = 0.0f;
    for (int i = 0; i < length; i++) total += is_log ? dy[(long)i * step] : dy[(long)i * step] * y[(long)i * step];
    for (int i = 0; i < length; i++) {
        float error = dy[(long)i * step], value = y[(long)i * step];
        dx[(long)i * step] = is_log ? error - exp_(value) * total : value * (error - total);
    }
}

// Negative log-likelihood; kind 0: one loss per row, 1: their mean, 2: their sum.
__kernel void nll(__global const float *x, long x_at, __global const long *target, long target_at, __global float *loss,
                  __global float *weight, int rows, int classes, long ignored, int kind) {
    float total = 0.0f;
    int counted = 0;
    for (int row = 0; row < rows; row++) {
        long label = target[target_at + row];
        float value = label == ignored ? 0.0f : -x[x_at + (long)row * classes + label];
        counted += label != ignored;
        total += value;
        if (kind == 0) loss[row] = value;
    }
    if (kind != 0) loss[0] = kind == 1 ? total / counted : total;
    weight[0] = kind == 0 ? 0.0f : counted;
}

__kernel void nll_backward(__global const float *dy, long dy_at, __global const long *target, long target_at,
                           __global const float *weight, long weight_at, __global float *dx, int rows, int classes,
                           long ignored, int kind) {
    int row = get_global_id(0);
    if (row >= rows) return;
    long label = target[target_at + row];
    float error = kind == 0 ? dy[dy_at + row] : kind == 1 ? dy[dy_at] / weight[weight_at] : dy[dy_at];
    for (int i = 0; i < classes; i++) dx[(long)row * classes + i] = i == label && label != ignored ? -error : 0.0f;
}

// Sum of squared differences from a mean, and of products.
inline float spread(__global const float *x, long n, float mean) {
    float total = 0.0f;
    for (long i = 0; i < n; i += BLOCK) {
        float part = 0.0f;
        for (long j = i; j < min(i + BLOCK, n); j++) part += (x[j] - mean) * (x[j] - mean);
        total += part;
    }
    return total;
}

// Layer norm: a work item takes a row; affine says whether there is a gain and a bias.
__kernel void layer_norm(__global const float *x, long x_at, __global const float *gain, long gain_at,
                         __global const float *bias, long bias_at, __global float *y, __global float *mean,
                         __global float *rstd, int rows, int length, float eps, int has_gain, int has_bias) {
    int row = get_global_id(0);
    if (row >= rows) return;
    x += x_at + (long)row * length;
    y += (long)row * length;
    gain += gain_at;
    bias += bias_at;
    float middle = sum_run(x, length) / length, scale = 1.0f / sqrt(spread(x, length, middle) / length + eps);
    for (int i = 0; i < length; i++) {
        float value = (x[i] - middle) * scale;
        y[i] = (has_gain ? value * gain[i] : value) + (has_bias ? bias[i] : 0.0f);
    }
    mean[row] = middle;
    rstd[row] = scale;
}

__kernel void layer_norm_input(__global const float *dy, long dy_at, __global const float *x, long x_at,
                               __global const float *mean, long mean_at, __global const float *rstd, long rstd_at,
                               __global const float *gain, long gain_at, __global float *dx, int rows, int length, int has_gain) {
    int row = get_global_id(0);
    if (row >= rows) return;
    dy += dy_at + (long)row * length;
    x += x_at + (long)row * length;
    dx += (long)row * length;
    gain += gain_at;
    float middle = mean[mean_at + row], scale = rstd[rstd_at + row], total = 0.0f, product = 0.0f;
    for (int i = 0; i < length; i++) {
        float error = has_gain ? dy[i] * gain[i] : dy[i];
        total += error;
        product += error * (x[i] - middle) * scale;
    }
    total /= length;
    product /= length;
    for (int i = 0; i < length; i++) {
        float error = has_gain ? dy[i] * gain[i] : dy[i];
        dx[i] = scale * (error - total - (x[i] - middle) * scale * product);
    }
}

// Gradients of gain and bias: a work item takes 16 columns.
__kernel void layer_norm_weights(__global const float *dy, long dy_at, __global const float *x, long x_at,
                                 __global const float *mean, long mean_at, __global const float *rstd, long rstd_at,
                                 __global float *dgain, __global float *dbias, int rows, int length) {
    int first = get_global_id(0) * 16, count = min(16, length - first);
    if (count <= 0) return;
    float gains[16], biases[16];
    for (int j = 0; j < 16; j++) gains[j] = biases[j] = 0.0f;
    for (int row = 0; row < rows; row++) {
        float middle = mean[mean_at + row], scale = rstd[rstd_at + row];
        for (int j = 0; j < count; j++) {
            long at = (long)row * length + first + j;
            gains[j] += dy[dy_at + at] * (x[x_at + at] - middle) * scale;
            biases[j] += dy[dy_at + at];
        }
    }
    for (int j = 0; j < count; j++) {
        dgain[first + j] = gains[j];
        dbias[first + j] = biases[j];
    }
}

// Batch norm: mean and inverse deviation of each channel of [images, channels, area]; running figures are updated.
__kernel void batch_statistics(__global const float *x, long x_at, __global float *mean, __global float *rstd,
                               __global float *running_mean, long running_mean_at, __global float *running_var,
                               long running_var_at, int images, int channels, int area, float momentum, float eps, int running) {
    int c = get_global_id(0);
    if (c >= channels) return;
    x += x_at + (long)c * area;
    long plane = (long)channels * area, n = (long)images * area;
    float total = 0.0f, square = 0.0f;
    for (int i = 0; i < images; i++) total += sum_run(x + i * plane, area);
    float middle = total / n;
    for (int i = 0; i < images; i++) square += spread(x + i * plane, area, middle);
    mean[c] = middle;
    rstd[c] = 1.0f / sqrt(square / n + eps);
    if (running) {
        running_mean += running_mean_at + c;
        running_var += running_var_at + c;
        *running_mean += momentum * (middle - *running_mean);
        *running_var += momentum * (square / (n - 1) - *running_var);
    }
}

// The normalization itself: a work item takes a plane. is_rstd: `scale` is the inverse deviation, else the variance.
__kernel void batch_norm(__global const float *x, long x_at, __global const float *mean, long mean_at,
                         __global const float *scale, long scale_at, __global const float *gain, long gain_at,
                         __global const float *bias, long bias_at, __global float *y, int images, int channels, int area,
                         float eps, int is_rstd, int has_gain, int has_bias) {
    int plane = get_global_id(0), c = plane % channels;
    if (plane >= images * channels) return;
    float factor = is_rstd ? scale[scale_at + c] : 1.0f / sqrt(scale[scale_at + c] + eps);
    if (has_gain) factor *= gain[gain_at + c];
    float middle = mean[mean_at + c], shift = has_bias ? bias[bias_at + c] : 0.0f;
    x += x_at + (long)plane * area;
    y += (long)plane * area;
    for (int i = 0; i < area; i++) y[i] = (x[i] - middle) * factor + shift;
}

__kernel void batch_norm_sums(__global const float *dy, long dy_at, __global const float *x, long x_at,
                              __global const float *mean, long mean_at, __global const float *scale, long scale_at,
                              __global float *dgain, __global float *dbias, int images, int channels, int area, float eps, int is_rstd) {
    int c = get_global_id(0);
    if (c >= channels) return;
    float middle = mean[mean_at + c], factor = is_rstd ? scale[scale_at + c] : 1.0f / sqrt(scale[scale_at + c] + eps);
    float total = 0.0f, product = 0.0f;
    for (int image = 0; image < images; image++) {
        __global const float *error = dy + dy_at + ((long)image * channels + c) * area;
        __global const float *value = x + x_at + ((long)image * channels + c) * area;
        total += sum_run(error, area);
        for (int i = 0; i < area; i += BLOCK) {
            float part = 0.0f;
            for (int j = i; j < min(i + BLOCK, area); j++) part += error[j] * (value[j] - middle);
            product += part;
        }
    }
    dgain[c] = product * factor;
    dbias[c] = total;
}

__kernel void batch_norm_input(__global const float *dy, long dy_at, __global const float *x, long x_at,
                               __global const float *mean, long mean_at, __global const float *scale, long scale_at,
                               __global const float *gain, long gain_at, __global const float *dgain,
                               __global const float *dbias, __global float *dx, int images, int channels, int area,
                               float eps, int is_rstd, int has_gain, int training) {
    int plane = get_global_id(0), c = plane % channels;
    if (plane >= images * channels) return;
    float middle = mean[mean_at + c], factor = is_rstd ? scale[scale_at + c] : 1.0f / sqrt(scale[scale_at + c] + eps);
    float weight = (has_gain ? gain[gain_at + c] : 1.0f) * factor;
    long n = (long)images * area;
    float total = training ? dbias[c] / n : 0.0f, product = training ? dgain[c] / n * factor : 0.0f;
    dy += dy_at + (long)plane * area;
    x += x_at + (long)plane * area;
    dx += (long)plane * area;
    for (int i = 0; i < area; i++) dx[i] = weight * (dy[i] - total - (x[i] - middle) * product);
}
