/* C[cm + cn] = sum over k of A[am + ak] * B[bk + bn]: the addresses of all elements come from tables. Blocks of A and B
   are packed into rows of tiles, and a micro kernel multiplies tiles of them, its sums in registers. */
enum { BLOCK_M = 128, BLOCK_N = 512, BLOCK_K = 256 };

/* Where a convolution finds the input under place k of the window at place n of the output: at sum of at * stride,
   with at = (inside[k] + outside[n] - before) / gap along each dim, if that is whole and within size; otherwise 0. */
struct patches {
  int dims;
  const int64_t *k, *n;
  struct {
    const int64_t *inside, *outside;
    long before, gap, size, stride;
  } dim[3];
};

/* A micro tile has ROWS rows of two vectors: its sums fill most of the vector registers. */
#if defined(__AVX512F__)
enum { VECTOR = 64, ROWS = 12 };
#elif defined(__AVX__)
enum { VECTOR = 32, ROWS = 6 };
#else
enum { VECTOR = 16, ROWS = 4 };
#endif
enum { COLUMNS_F32 = 2 * VECTOR / 4, COLUMNS_F64 = 2 * VECTOR / 8 };

#if defined(__GNUC__)
#define TILE(T, t, COLUMNS)                                                                                            \
  typedef T vector_##t __attribute__((vector_size(VECTOR), may_alias, aligned(__alignof__(T))));                       \
  FUNCTION void tile_##t(long depth, const T *a, const T *b, T *sums) {                                                \
    vector_##t s[ROWS][2] = {{{0}}};                                                                                   \
    for (long k = 0; k < depth; ++k, a += ROWS, b += COLUMNS) {                                                        \
      const vector_##t b0 = *(const vector_##t *)b, b1 = *(const vector_##t *)(b + COLUMNS / 2);                       \
      for (int i = 0; i < ROWS; ++i) s[i][0] += a[i] * b0, s[i][1] += a[i] * b1;                                       \
    }                                                                                                                  \
    memcpy(sums, s, sizeof s);                                                                                         \
  }
#else
#define TILE(T, t, COLUMNS)                                                                                            \
  FUNCTION void tile_##t(long depth, const T *restrict a, const T *restrict b, T *restrict sums) {                     \
    T s[ROWS][COLUMNS] = {{0}};                                                                                        \
    for (long k = 0; k < depth; ++k)                                                                                   \
      for (int i = 0; i < ROWS; ++i)                                                                                   \
        for (int j = 0; j < COLUMNS; ++j) s[i][j] += a[k * ROWS + i] * b[k * COLUMNS + j];                             \
    memcpy(sums, s, sizeof s);                                                                                         \
  }
#endif

#define PATCH(T, t)                                                                                                    \
  HELPER T patch_##t(const T *x, const struct patches *g, long k, long n) {                                            \
    long at = g->k[k] + g->n[n];                                                                                       \
    for (int d = 0; d < g->dims; ++d) {                                                                                \
      long p = g->dim[d].inside[k] + g->dim[d].outside[n] + g->dim[d].before;                                          \
      if (g->dim[d].gap > 1) {                                                                                         \
        if (p < 0 || p % g->dim[d].gap) return 0;                                                                      \
        p /= g->dim[d].gap;                                                                                            \
      }                                                                                                                \
      if (p < 0 || p >= g->dim[d].size) return 0;                                                                      \
      at += p * g->dim[d].stride;                                                                                      \
    }                                                                                                                  \
    return x[at];                                                                                                      \
  }

/* Patches at several places of the output: in the plane and without gaps, as most are, without a branch. */
#define PATCHES(T, t)                                                                                                  \
  PATCH(T, t)                                                                                                          \
  HELPER void patches_##t(T *restrict to, const T *restrict x, const struct patches *g, long k, long n, long count) {  \
    if (g->dims != 2 || g->dim[0].gap > 1 || g->dim[1].gap > 1) {                                                      \
      for (long j = 0; j < count; ++j) to[j] = patch_##t(x, g, k, n + j);                                              \
      return;                                                                                                          \
    }                                                                                                                  \
    const int64_t *rows = g->dim[0].outside + n, *columns = g->dim[1].outside + n, *starts = g->n + n;                 \
    const long row = g->dim[0].inside[k] + g->dim[0].before, column = g->dim[1].inside[k] + g->dim[1].before;          \
    const unsigned long high = (unsigned long)g->dim[0].size, wide = (unsigned long)g->dim[1].size;                    \
    const long down = g->dim[0].stride, right = g->dim[1].stride;                                                      \
    const T *first = x + g->k[k];                                                                                      \
    for (long j = 0; j < count; ++j) {                                                                                 \
      const long p = row + (long)rows[j], q = column + (long)columns[j];                                               \
      const int inside = ((unsigned long)p < high) & ((unsigned long)q < wide);                                        \
      const T found = first[inside ? (long)starts[j] + p * down + q * right : (long)starts[j]];                        \
      to[j] = inside ? found : 0;                                                                                      \
    }                                                                                                                  \
  }

#define PRODUCT(T, t, COLUMNS)                                                                                         \
  PATCHES(T, t)                                                                                                        \
  TILE(T, t, COLUMNS)                                                                                                  \
  FUNCTION void product_##t(long m, long n, long depth, const T *a, const int64_t *am, const int64_t *ak, const T *b,    \
                          const int64_t *bk, const int64_t *bn, const struct patches *g, T *c, const int64_t *cm,      \
                          const int64_t *cn, T *work)          {                                                       \
    if (depth == 0)                                                                                                    \
      for (long i = 0; i < m; ++i)                                                                                     \
        for (long j = 0; j < n; ++j) c[cm[i] + cn[j]] = 0;                                                             \
    for (long k0 = 0; k0 < depth; k0 += BLOCK_K) {                                                                     \
      const long kk = depth - k0 < BLOCK_K ? depth - k0 : BLOCK_K;                                                     \
      for (long n0 = 0; n0 < n; n0 += BLOCK_N) {                                                                       \
        const long nn = n - n0 < BLOCK_N ? n - n0 : BLOCK_N;                                                           \
        T *right = work, *to = right;                                                                                    \
        for (long j0 = 0; j0 < nn; j0 += COLUMNS) {                                                                    \
          const int64_t *places = bn ? bn + n0 + j0 : NULL;                                                            \
          int in_a_row = places && nn - j0 >= COLUMNS;                                                                 \
          for (long j = 1; in_a_row && j < COLUMNS; ++j) in_a_row = places[j] == places[0] + j;                        \
          for (long k = 0; k < kk; ++k, to += COLUMNS) {                                                               \
            if (in_a_row) {                                                                                            \
              memcpy(to, b + bk[k0 + k] + places[0], COLUMNS * sizeof *to);                                            \
              continue;                                                                                                \
            }                                                                                                          \
            const long count = nn - j0 < COLUMNS ? nn - j0 : COLUMNS;                                                  \
            if (g) patches_##t(to, b, g, k0 + k, n0 + j0, count);                                                      \
            else                                                                                                       \
              for (long j = 0; j < count; ++j) to[j] = b[bk[k0 + k] + places[j]];                                      \
            for (long j = count; j < COLUMNS; ++j) to[j] = 0;                                                          \
          }                                                                                                            \
        }                                                                                                              \
        T *left = to;                                                                                                   \
        for (long m0 = 0; m0 < m; m0 += BLOCK_M) {                                                                     \
          const long mm = m - m0 < BLOCK_M ? m - m0 : BLOCK_M;                                                         \
          to = left;                                                                                                   \
          for (long i0 = 0; i0 < mm; i0 += ROWS)                                                                       \
            for (long k = 0; k < kk; ++k, to += ROWS)                                                                  \
              for (long i = 0; i < ROWS; ++i) to[i] = i0 + i < mm ? a[am[m0 + i0 + i] + ak[k0 + k]] : 0;               \
          for (long j0 = 0; j0 < nn; j0 += COLUMNS)                                                                    \
            for (long i0 = 0; i0 < mm; i0 += ROWS) {                                                                   \
              T sums[ROWS * COLUMNS];                                                                                  \
              tile_##t(kk, left + i0 * kk, right + j0 * kk, sums);                                                     \
              const long rows = mm - i0 < ROWS ? mm - i0 : ROWS, columns = nn - j0 < COLUMNS ? nn - j0 : COLUMNS;      \
              for (long i = 0; i < rows; ++i) {                                                                        \
                T *row = c + cm[m0 + i0 + i];                                                                          \
                const int64_t *places = cn + n0 + j0;                                                                  \
                if (k0 == 0)                                                                                           \
                  for (long j = 0; j < columns; ++j) row[places[j]] = sums[i * COLUMNS + j];                           \
                else                                                                                                   \
                  for (long j = 0; j < columns; ++j) row[places[j]] += sums[i * COLUMNS + j];                          \
              }                                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  HELPER void matmul_##t(long m, long n, long depth, const T *a, const int64_t *am, const int64_t *ak, const T *b,     \
                         const int64_t *bk, const int64_t *bn, T *c, const int64_t *cm, const int64_t *cn, T *work) {  \
    product_##t(m, n, depth, a, am, ak, b, bk, bn, NULL, c, cm, cn, work);                                             \
  }                                                                                                                    \
  HELPER void convolve_##t(long m, long n, long depth, const T *w, const int64_t *wm, const int64_t *wk, const T *x,   \
                           const struct patches *g, T *y, const int64_t *ym, const int64_t *yn, T *work) {             \
    product_##t(m, n, depth, w, wm, wk, x, NULL, NULL, g, y, ym, yn, work);                                            \
  }
PRODUCT(float, f32, COLUMNS_F32)
PRODUCT(double, f64, COLUMNS_F64)

#define WHOLE_PRODUCT(T, U, t)                                                                                         \
  HELPER void matmul_##t(long m, long n, long depth, const T *a, const int64_t *am, const int64_t *ak, const T *b,     \
                         const int64_t *bk, const int64_t *bn, T *c, const int64_t *cm, const int64_t *cn, T *work) {  \
    (void)work;                                                                                                        \
    for (long i = 0; i < m; ++i)                                                                                       \
      for (long j = 0; j < n; ++j) {                                                                                   \
        U s = 0;                                                                                                       \
        for (long k = 0; k < depth; ++k) s += (U)a[am[i] + ak[k]] * (U)b[bk[k] + bn[j]];                               \
        c[cm[i] + cn[j]] = (T)s;                                                                                       \
      }                                                                                                                \
  }
WHOLE_PRODUCT(int32_t, uint32_t, i32)
WHOLE_PRODUCT(int64_t, uint64_t, i64)
