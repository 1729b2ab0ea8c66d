#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__GNUC__)
#define KERNEL static __attribute__((noinline))
#define HELPER static inline __attribute__((unused))
#define FUNCTION static __attribute__((noinline, noclone, unused))
#else
#define FUNCTION static
#define KERNEL static
#define HELPER static
#endif

/* Memory: what a step computes, and the weights. */
static char *arena, *weights;
#define A(type, at) ((type *)(void *)(arena + (at)))
#define W(type, at) ((type *)(void *)(weights + (at)))

#define f32_NAN ((float)NAN)
#define f32_INF ((float)INFINITY)
#define f64_NAN ((double)NAN)
#define f64_INF ((double)INFINITY)
#define i8_MIN INT8_MIN
#define i16_MIN INT16_MIN
#define i32_MIN INT32_MIN
#define i64_MIN INT64_MIN

HELPER long clamp_long(long x, long high) { return x < 0 ? 0 : x > high ? high : x; }

/* NaN is the largest and the smallest of all. */
#define FLOATS(T, t, suffix)                                                                                           \
  HELPER T max_##t(T a, T b) { return a > b || a != a ? a : b; }                                                       \
  HELPER T min_##t(T a, T b) { return a < b || a != a ? a : b; }                                                       \
  HELPER T abs_##t(T a) { return fabs##suffix(a); }                                                                    \
  HELPER T sign_##t(T a) { return a > 0 ? 1 : a < 0 ? -1 : a; }                                                        \
  HELPER T square_##t(T a) { return a * a; }                                                                           \
  HELPER T rsqrt_##t(T a) { return 1 / sqrt##suffix(a); }                                                              \
  HELPER uint8_t is_finite_##t(T a) { return isfinite(a) != 0; }                                                       \
  HELPER int less_##t(T a, T b) { return a < b || (b != b && a == a); }                                                \
  HELPER T logaddexp_##t(T a, T b) {                                                                                   \
    const T high = max_##t(a, b), low = a > b ? b : a;                                                                 \
    return low == high || !isfinite(high) ? (low == high && isfinite(high) ? high + (T)0.6931471805599453 : high)     \
                                          : high + log1p##suffix(exp##suffix(low - high));                             \
  }                                                                                                                    \
  HELPER T ipow_##t(T a, int n) {                                                                                      \
    T p = 1;                                                                                                           \
    for (unsigned m = n < 0 ? 0u - (unsigned)n : (unsigned)n; m; m >>= 1, a *= a)                                      \
      if (m & 1u) p *= a;                                                                                              \
    return n < 0 ? 1 / p : p;                                                                                          \
  }
FLOATS(float, f32, f)
FLOATS(double, f64, )

/* Integers in the order of floats, signs of zeros and NaNs included. */
HELPER int32_t rank_f32(float a) {
  int32_t bits;
  memcpy(&bits, &a, sizeof bits);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}
HELPER int64_t rank_f64(double a) {
  int64_t bits;
  memcpy(&bits, &a, sizeof bits);
  return bits < 0 ? bits ^ INT64_MAX : bits;
}

#define INTEGERS(T, t)                                                                                                 \
  HELPER T max_##t(T a, T b) { return a > b ? a : b; }                                                                 \
  HELPER T min_##t(T a, T b) { return a < b ? a : b; }                                                                 \
  HELPER int less_##t(T a, T b) { return a < b; }                                                                      \
  HELPER T square_##t(T a) { return (T)((uint64_t)a * (uint64_t)a); }                                                  \
  HELPER T ipow_##t(T a, int n) {                                                                                      \
    uint64_t p = 1, b = (uint64_t)a;                                                                                   \
    for (unsigned m = (unsigned)n; m; m >>= 1, b *= b)                                                                 \
      if (m & 1u) p *= b;                                                                                              \
    return (T)p;                                                                                                       \
  }                                                                                                                    \
  HELPER T population_count_##t(T a) {                                                                                 \
    T n = 0;                                                                                                           \
    for (uint64_t m = (uint64_t)a & (~(uint64_t)0 >> (64 - 8 * sizeof(T))); m; m &= m - 1) ++n;                        \
    return n;                                                                                                          \
  }                                                                                                                    \
  HELPER T clz_##t(T a) {                                                                                              \
    T n = 0;                                                                                                           \
    for (int b = 8 * (int)sizeof(T) - 1; b >= 0 && !(((uint64_t)a >> b) & 1u); --b) ++n;                               \
    return n;                                                                                                          \
  }
/* Division by 0 gives -1, its remainder the dividend; the least number by -1 itself. Shifts by too much give 0. */
#define SIGNED(T, U, t)                                                                                                \
  INTEGERS(T, t)                                                                                                       \
  HELPER T abs_##t(T a) { return a < 0 ? (T)(0 - (U)a) : a; }                                                          \
  HELPER T sign_##t(T a) { return (T)((a > 0) - (a < 0)); }                                                            \
  HELPER T div_##t(T a, T b) { return b == 0 ? (T)-1 : b == -1 ? (T)(0 - (U)a) : (T)(a / b); }                         \
  HELPER T rem_##t(T a, T b) { return b == 0 ? a : b == -1 ? 0 : (T)(a % b); }                                         \
  HELPER T shift_left_##t(T a, T b) { return (U)b >= 8 * sizeof(T) ? 0 : (T)((U)a << b); }                             \
  HELPER T shift_right_logical_##t(T a, T b) { return (U)b >= 8 * sizeof(T) ? 0 : (T)((U)a >> b); }                    \
  HELPER T shift_right_arithmetic_##t(T a, T b) {                                                                      \
    const int n = (U)b >= 8 * sizeof(T) ? 8 * (int)sizeof(T) - 1 : (int)b;                                             \
    return a < 0 ? (T)~(~a >> n) : (T)(a >> n);                                                                        \
  }                                                                                                                    \
  HELPER T f64_to_##t(double a) {                                                                                      \
    const double low = -ldexp(1, 8 * (int)sizeof(T) - 1);                                                              \
    return a != a ? 0 : a <= low ? t##_MIN : a >= -low ? (T)~t##_MIN : (T)a;                                           \
  }
#define UNSIGNED(T, t)                                                                                                 \
  INTEGERS(T, t)                                                                                                       \
  HELPER T abs_##t(T a) { return a; }                                                                                  \
  HELPER T sign_##t(T a) { return a != 0; }                                                                            \
  HELPER T div_##t(T a, T b) { return b == 0 ? (T)-1 : (T)(a / b); }                                                   \
  HELPER T rem_##t(T a, T b) { return b == 0 ? a : (T)(a % b); }                                                       \
  HELPER T shift_left_##t(T a, T b) { return b >= 8 * sizeof(T) ? 0 : (T)(a << b); }                                   \
  HELPER T shift_right_logical_##t(T a, T b) { return b >= 8 * sizeof(T) ? 0 : (T)(a >> b); }                          \
  HELPER T shift_right_arithmetic_##t(T a, T b) { return shift_right_logical_##t(a, b); }                              \
  HELPER T f64_to_##t(double a) {                                                                                      \
    return a != a || a <= 0 ? 0 : a >= ldexp(1, 8 * (int)sizeof(T)) ? (T)~(T)0 : (T)a;                                 \
  }
SIGNED(int8_t, uint8_t, i8)
SIGNED(int16_t, uint16_t, i16)
SIGNED(int32_t, uint32_t, i32)
SIGNED(int64_t, uint64_t, i64)
UNSIGNED(uint8_t, u8)
UNSIGNED(uint16_t, u16)
UNSIGNED(uint32_t, u32)
UNSIGNED(uint64_t, u64)

HELPER uint8_t max_b8(uint8_t a, uint8_t b) { return a | b; }
HELPER uint8_t min_b8(uint8_t a, uint8_t b) { return a & b; }
HELPER int less_b8(uint8_t a, uint8_t b) { return a < b; }

#define FILL(T, t)                                                                                                     \
  HELPER void fill_##t(T *to, long count, T value) {                                                                   \
    for (long i = 0; i < count; ++i) to[i] = value;                                                                    \
  }
FILL(float, f32)
FILL(double, f64)
FILL(int8_t, i8)
FILL(int16_t, i16)
FILL(int32_t, i32)
FILL(int64_t, i64)
FILL(uint8_t, u8)
FILL(uint16_t, u16)
FILL(uint32_t, u32)
FILL(uint64_t, u64)
FILL(uint8_t, b8)

#define BITS(S, s, T, t)                                                                                               \
  HELPER T bits_##s##_##t(S a) {                                                                                       \
    T b;                                                                                                               \
    memcpy(&b, &a, sizeof b);                                                                                          \
    return b;                                                                                                          \
  }
BITS(float, f32, uint32_t, u32)
BITS(float, f32, int32_t, i32)
BITS(uint32_t, u32, float, f32)
BITS(int32_t, i32, float, f32)
BITS(int32_t, i32, uint32_t, u32)
BITS(uint32_t, u32, int32_t, i32)
BITS(double, f64, uint64_t, u64)
BITS(double, f64, int64_t, i64)
BITS(uint64_t, u64, double, f64)
BITS(int64_t, i64, double, f64)
BITS(int64_t, i64, uint64_t, u64)
BITS(uint64_t, u64, int64_t, i64)

/* exp: 2^n times a polynomial of the rest, in a form that compilers vectorise. Relative error below 2e-7. */
HELPER float exp_f32(float x) {
  float y = x > 88.7228f ? 88.7228f : x;
  y = y < -104.0f ? -104.0f : y;
  const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
  const float n = (y * 1.44269504088896341f + shift) - shift;
  float r = y - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t k = (int32_t)n, half = k / 2, rest = k - half; /* two factors: 2^k itself may not be a number */
  const float a = bits_i32_f32((half + 127) * 8388608), b = bits_i32_f32((rest + 127) * 8388608);
  p = p * a * b;
  p = x > 88.7228f ? f32_INF : p;
  return x != x ? x : p;
}
HELPER double exp_f64(double x) { return exp(x); }
HELPER float log_f32(float x) { return logf(x); }
HELPER double log_f64(double x) { return log(x); }
HELPER double tanh_f64(double x) { return tanh(x); }
HELPER float logistic_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }
HELPER double logistic_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
/* tanh: a quotient of polynomials between -7.9 and 7.9, beyond which float knows 1 only. */
HELPER float tanh_f32(float x) {
  float y = x > 7.90531110763549805f ? 7.90531110763549805f : x;
  y = y < -7.90531110763549805f ? -7.90531110763549805f : y;
  const float s = y * y;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  const float t = y * p / q;
  return (x < 0 ? -x : x) < 0.0004f || x != x ? x : t;
}
/* Giles' approximation. */
HELPER double erf_inv_f64(double x) {
  if (!(fabs(x) < 1)) return fabs(x) == 1 ? x * f64_INF : f64_NAN;
  const double w = -log((1 - x) * (1 + x));
  double y = w < 6 ? x * (0.886226925452758 + w * 0.1) : (x < 0 ? -1 : 1) * sqrt(w);
  for (int i = 0; i < 40; ++i) {
    const double d = (erf(y) - x) / (1.1283791670955126 * exp(-y * y));
    y -= d / (1 + y * d);
    if (fabs(d) <= 1e-16 * fabs(y)) break;
  }
  return y;
}
HELPER float erf_inv_f32(float x) {
  float w = -log1pf(-x * x), p;
  if (w < 5.0f) {
    w -= 2.5f;
    p = 2.81022636e-08f;
    p = 3.43273939e-07f + p * w;
    p = -3.5233877e-06f + p * w;
    p = -4.39150654e-06f + p * w;
    p = 0.00021858087f + p * w;
    p = -0.00125372503f + p * w;
    p = -0.00417768164f + p * w;
    p = 0.246640727f + p * w;
    p = 1.50140941f + p * w;
  } else {
    w = sqrtf(w) - 3.0f;
    p = -0.000200214257f;
    p = 0.000100950558f + p * w;
    p = 0.00134934322f + p * w;
    p = -0.00367342844f + p * w;
    p = 0.00573950773f + p * w;
    p = -0.0076224613f + p * w;
    p = 0.00943887047f + p * w;
    p = 1.00167406f + p * w;
    p = 2.83297682f + p * w;
  }
  return x == 1 || x == -1 ? x * f32_INF : p * x;
}
HELPER double digamma_f64(double x) {
  double s = 0;
  if (x <= 0) {
    if (x == floor(x)) return f64_NAN;
    s = -3.14159265358979323846 / tan(3.14159265358979323846 * x);
    x = 1 - x;
  }
  for (; x < 10; x += 1) s -= 1 / x;
  const double y = 1 / (x * x);
  return s + log(x) - 0.5 / x -
         y * (1. / 12 - y * (1. / 120 - y * (1. / 252 - y * (1. / 240 - y * (1. / 132 - y * (691. / 32760))))));
}
HELPER float digamma_f32(float x) { return (float)digamma_f64(x); }
/* exp(-|x|) I_n(x), n 0 or 1: the power series, or for large x the asymptotic one. */
HELPER double bessel_ie(int n, double x) {
  const double a = fabs(x);
  double sum = 1, term = 1;
  if (a < 25) {
    for (int k = 1; term > 1e-17 * sum; ++k) sum += term *= a * a / (4.0 * k * (k + n));
    sum *= exp(-a) * (n ? a / 2 : 1);
  } else {
    for (int k = 1; fabs(term) > 1e-17 * sum; ++k) sum += term *= ((2. * k - 1) * (2. * k - 1) - 4 * n) / (8. * k * a);
    sum /= sqrt(6.283185307179586 * a);
  }
  return n && x < 0 ? -sum : x != x ? x : sum;
}
HELPER double bessel_i0e_f64(double x) { return bessel_ie(0, x); }
HELPER double bessel_i1e_f64(double x) { return bessel_ie(1, x); }
HELPER float bessel_i0e_f32(float x) { return (float)bessel_ie(0, x); }
HELPER float bessel_i1e_f32(float x) { return (float)bessel_ie(1, x); }

/* Threefry 2x32, 20 rounds (Salmon et al., 2011). */
HELPER void threefry(uint32_t k0, uint32_t k1, uint32_t x[2]) {
  static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAu};
  uint32_t a = x[0] + keys[0], b = x[1] + keys[1];
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) {
      const int n = turns[round % 2][i];
      a += b;
      b = (b << n) | (b >> (32 - n));
      b ^= a;
    }
    a += keys[(round + 1) % 3];
    b += keys[(round + 2) % 3] + (uint32_t)round + 1u;
  }
  x[0] = a;
  x[1] = b;
}
