// Convolutions straight from their tensors: for small ones and for those with few channels per group. Larger ones are
// products of packed patches (packing.cl, matmul.cl). A work item computes a row of the result.
// Build parameter: GROUP, work items of a work group.
#define SHAPE int images, int channels, int height, int width, int filters, int rows, int columns, int taps_h, \
    int taps_w, int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups
#define ITEM __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

// The positions whose source, position * stride + shift, lies in [0, width).
inline int first_inside(int shift, int stride) { return shift >= 0 ? 0 : (-shift + stride - 1) / stride; }
inline int last_inside(int shift, int stride, int width, int positions) {
    return shift >= width ? 0 : min(positions, (width - 1 - shift) / stride + 1);
}

ITEM void conv2d(__global const float *restrict x, __global const float *restrict w, __global float *restrict y,
                 long x_offset, long w_offset, long y_offset, SHAPE) {
    int item = get_global_id(0), row = item % rows, f = item / rows % filters, image = item / rows / filters;
    if (image >= images) return;
    int depth = channels / groups, first = f / (filters / groups) * depth;
    __global float *target = y + y_offset + (long)item * columns;
    for (int i = 0; i < columns; i++) target[i] = 0.0f;
    for (int c = 0; c < depth; c++)
        for (int r = 0; r < taps_h; r++) {
            int h = row * stride_h - pad_h + r * dilation_h;
            if (h < 0 || h >= height) continue;
            __global const float *line = x + x_offset + (((long)image * channels + first + c) * height + h) * width;
            for (int s = 0; s < taps_w; s++) {
                float weight = w[w_offset + ((f * depth + c) * taps_h + r) * taps_w + s];
                int shift = s * dilation_w - pad_w, last = last_inside(shift, stride_w, width, columns);
                if (stride_w == 1)
                    for (int i = first_inside(shift, 1); i < last; i++) target[i] += weight * line[i + shift];
                else
                    for (int i = first_inside(shift, stride_w); i < last; i++)
                        target[i] += weight * line[i * stride_w + shift];
            }
        }
}

ITEM void conv2d_input(__global const float *restrict dy, __global const float *restrict w,
                       __global float *restrict dx, long dy_offset, long w_offset, long dx_offset, SHAPE) {
    int item = get_global_id(0), h = item % height, c = item / height % channels, image = item / height / channels;
    if (image >= images) return;
    int depth = channels / groups, per_group = filters / groups, group = c / depth;
    __global float *target = dx + dx_offset + (long)item * width;
    for (int i = 0; i < width; i++) target[i] = 0.0f;
    for (int f = group * per_group; f < (group + 1) * per_group; f++)
        for (int r = 0; r < taps_h; r++) {
            int row = h + pad_h - r * dilation_h;
            if (row < 0 || row % stride_h || row / stride_h >= rows) continue;
            __global const float *line = dy + dy_offset + (((long)image * filters + f) * rows + row / stride_h) * columns;
            for (int s = 0; s < taps_w; s++) {
                float weight = w[w_offset + ((f * depth + c % depth) * taps_h + r) * taps_w + s];
                int shift = s * dilation_w - pad_w, last = last_inside(shift, stride_w, width, columns);
                if (stride_w == 1)
                    for (int i = first_inside(shift, 1); i < last; i++) target[i + shift] += weight * line[i];
                else
                    for (int i = first_inside(shift, stride_w); i < last; i++)
                        target[i * stride_w + shift] += weight * line[i];
            }
        }
}

ITEM void conv2d_weight(__global const float *restrict x, __global const float *restrict dy,
                        __global float *restrict dw, long x_offset, long dy_offset, long dw_offset, SHAPE) {
    int depth = channels / groups, item = get_global_id(0), s = item % taps_w, r = item / taps_w % taps_h;
    int c = item / taps_w / taps_h % depth, f = item / taps_w / taps_h / depth;
    if (f >= filters) return;
    int channel = f / (filters / groups) * depth + c, shift = s * dilation_w - pad_w;
    int begin = first_inside(shift, stride_w), last = last_inside(shift, stride_w, width, columns);
    float total = 0.0f;
    for (int image = 0; image < images; image++) {
        float plane = 0.0f; // summed plane by plane, which loses less than one long sum
        for (int row = 0; row < rows; row++) {
            int h = row * stride_h - pad_h + r * dilation_h;
            if (h < 0 || h >= height) continue;
            __global const float *line = x + x_offset + (((long)image * channels + channel) * height + h) * width;
            __global const float *error = dy + dy_offset + (((long)image * filters + f) * rows + row) * columns;
            float sum = 0.0f;
            for (int i = begin; i < last; i++) sum += error[i] * line[i * stride_w + shift];
            plane += sum;
        }
        total += plane;
    }
    dw[dw_offset + item] = total;
}
