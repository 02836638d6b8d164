// Functions in plain arithmetic, which vectorizes; the built-in ones are calls in some compilers.
// exp after Cephes, error below 2 ulp; results below the smallest normal float are 0.
__attribute__((always_inline)) inline float exp_(float x) {
    float limited = x < -87.3f ? -87.3f : x > 88.72f ? 88.72f : x;
    float scaled = limited * 1.44269504088896f;
    int n = (int)(scaled + (scaled < 0.0f ? -0.5f : 0.5f));
    float r = limited - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int half_n = n / 2; // two factors, because 2^128 is not a float
    float value = p * as_float((half_n + 127) << 23) * as_float((n - half_n + 127) << 23);
    return x != x ? x : x < -87.3f ? 0.0f : x > 88.72f ? INFINITY : value;
}

__attribute__((always_inline)) inline float tanh_(float x) {
    float magnitude = x < 0.0f ? -x : x, square = x * x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    float large = 1.0f - 2.0f / (exp_(2.0f * magnitude) + 1.0f);
    return magnitude < 0.625f ? p * square * x + x : x < 0.0f ? -large : large;
}

// 1 - erf(x) for x >= 0: exp(-x^2) P(1/(1 + x/2)) (Numerical Recipes), relative error below 1e-6.
__attribute__((always_inline)) inline float erfc_(float x) {
    float t = 1.0f / (1.0f + 0.5f * x);
    float q = 0.17087277f;
    q = q * t - 0.82215223f;
    q = q * t + 1.48851587f;
    q = q * t - 1.13520398f;
    q = q * t + 0.27886807f;
    q = q * t - 0.18628806f;
    q = q * t + 0.09678418f;
    q = q * t + 0.37409196f;
    q = q * t + 1.00002368f;
    return t * exp_(-x * x - 1.26551223f + t * q);
}

__attribute__((always_inline)) inline float erf_(float x) {
    float magnitude = x < 0.0f ? -x : x, square = x * x;
    float p = 7.853861353153693e-5f;
    p = p * square - 8.010193625184903e-4f;
    p = p * square + 5.188327685732524e-3f;
    p = p * square - 2.685381193529856e-2f;
    p = p * square + 1.128358514861418e-1f;
    p = p * square - 3.761262582423300e-1f;
    p = p * square + 1.128379165726710f;
    float large = 1.0f - erfc_(magnitude);
    return x != x ? x : magnitude < 1.0f ? p * x : x < 0.0f ? -large : large;
}
