// Vectors of float and double for the instruction set this translation unit is compiled for.
//
// GCC's and Clang's vector extensions carry the arithmetic; intrinsics stand only where they buy
// something (maximum, partial loads, half precision, powers of two). Everything lives in a
// namespace named after the instruction set, and no inline function of the standard library is
// used: the linker would keep one copy for all, perhaps the one for a wider set than the CPU has.
#ifndef ASR_ASCEND_CPU_SIMD_SIMD_H_
#define ASR_ASCEND_CPU_SIMD_SIMD_H_

#include <stdint.h>
#include <string.h>

#if defined(ASR_ASCEND_SIMD_AVX512)
#include <immintrin.h>
#define ASR_ASCEND_SIMD_NAMESPACE simd_avx512
#define ASR_ASCEND_SIMD_NAME "avx512"
#define ASR_ASCEND_SIMD_BYTES 64
#elif defined(ASR_ASCEND_SIMD_AVX2)
#include <immintrin.h>
#define ASR_ASCEND_SIMD_NAMESPACE simd_avx2
#define ASR_ASCEND_SIMD_NAME "avx2"
#define ASR_ASCEND_SIMD_BYTES 32
#elif defined(ASR_ASCEND_SIMD_NEON)
#include <arm_neon.h>
#define ASR_ASCEND_SIMD_NAMESPACE simd_neon
#define ASR_ASCEND_SIMD_NAME "neon"
#define ASR_ASCEND_SIMD_BYTES 16
#else
#define ASR_ASCEND_SIMD_PLAIN 1
#define ASR_ASCEND_SIMD_NAMESPACE simd_plain
#define ASR_ASCEND_SIMD_NAME "plain"
#define ASR_ASCEND_SIMD_BYTES 16
#endif

#define ASR_ASCEND_SIMD_INLINE static inline __attribute__((always_inline))

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

typedef float F32 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef int32_t I32 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef uint32_t U32 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef uint16_t U16 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES / 2)));
typedef int16_t I16 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef double F64 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef int64_t I64 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));
typedef uint64_t U64 __attribute__((vector_size(ASR_ASCEND_SIMD_BYTES)));

constexpr int kF32Lanes = ASR_ASCEND_SIMD_BYTES / 4;
constexpr int kF64Lanes = ASR_ASCEND_SIMD_BYTES / 8;

constexpr float kInfinityF32 = __builtin_inff();
constexpr double kInfinityF64 = __builtin_inf();

// x - 0 is x for every x, -0 and NaN among them, so this is a broadcast and no arithmetic.
ASR_ASCEND_SIMD_INLINE F32 Fill(float x) { return x - F32{}; }
ASR_ASCEND_SIMD_INLINE F64 Fill(double x) { return x - F64{}; }

// Max and Min give their second operand where either is NaN, as x86 does: bounds stand first.
#if defined(ASR_ASCEND_SIMD_AVX512)
ASR_ASCEND_SIMD_INLINE F32 Max(F32 bound, F32 x) { return (F32)_mm512_max_ps(bound, x); }
ASR_ASCEND_SIMD_INLINE F32 Min(F32 bound, F32 x) { return (F32)_mm512_min_ps(bound, x); }
ASR_ASCEND_SIMD_INLINE F64 Max(F64 bound, F64 x) { return (F64)_mm512_max_pd(bound, x); }
ASR_ASCEND_SIMD_INLINE F64 Min(F64 bound, F64 x) { return (F64)_mm512_min_pd(bound, x); }
#elif defined(ASR_ASCEND_SIMD_AVX2)
ASR_ASCEND_SIMD_INLINE F32 Max(F32 bound, F32 x) { return (F32)_mm256_max_ps(bound, x); }
ASR_ASCEND_SIMD_INLINE F32 Min(F32 bound, F32 x) { return (F32)_mm256_min_ps(bound, x); }
ASR_ASCEND_SIMD_INLINE F64 Max(F64 bound, F64 x) { return (F64)_mm256_max_pd(bound, x); }
ASR_ASCEND_SIMD_INLINE F64 Min(F64 bound, F64 x) { return (F64)_mm256_min_pd(bound, x); }
#else
ASR_ASCEND_SIMD_INLINE F32 Max(F32 bound, F32 x) { return bound > x ? bound : x; }
ASR_ASCEND_SIMD_INLINE F32 Min(F32 bound, F32 x) { return bound < x ? bound : x; }
ASR_ASCEND_SIMD_INLINE F64 Max(F64 bound, F64 x) { return bound > x ? bound : x; }
ASR_ASCEND_SIMD_INLINE F64 Min(F64 bound, F64 x) { return bound < x ? bound : x; }
#endif

ASR_ASCEND_SIMD_INLINE I16 Max(I16 a, I16 b) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (I16)_mm512_max_epi16((__m512i)a, (__m512i)b);
#elif defined(ASR_ASCEND_SIMD_AVX2)
  return (I16)_mm256_max_epi16((__m256i)a, (__m256i)b);
#else
  return a > b ? a : b;
#endif
}

// sum, and term as well where x is below zero.
ASR_ASCEND_SIMD_INLINE F32 AddWhereNegative(F32 sum, F32 x, F32 term) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (F32)_mm512_mask_add_ps(sum, _mm512_cmp_ps_mask(x, F32{}, _CMP_LT_OQ), sum, term);
#else
  return sum + (x < F32{} ? term : F32{});
#endif
}
ASR_ASCEND_SIMD_INLINE F64 AddWhereNegative(F64 sum, F64 x, F64 term) {
  return sum + (x < F64{} ? term : F64{});
}

// Pairwise sums of the lanes.
ASR_ASCEND_SIMD_INLINE float Sum(F32 x) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return _mm512_reduce_add_ps(x);
#elif defined(ASR_ASCEND_SIMD_AVX2)
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
#else
  return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

ASR_ASCEND_SIMD_INLINE double Sum(F64 x) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return _mm512_reduce_add_pd(x);
#elif defined(ASR_ASCEND_SIMD_AVX2)
  const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
#else
  return x[0] + x[1];
#endif
}

ASR_ASCEND_SIMD_INLINE float LargestLane(F32 x) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return _mm512_reduce_max_ps(x);
#elif defined(ASR_ASCEND_SIMD_AVX2)
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
#else
  float largest = x[0];
  for (int i = 1; i < kF32Lanes; ++i) largest = largest > x[i] ? largest : x[i];
  return largest;
#endif
}

ASR_ASCEND_SIMD_INLINE int16_t LargestLane(I16 x) {
#if defined(ASR_ASCEND_SIMD_AVX512) || defined(ASR_ASCEND_SIMD_AVX2)
#if defined(ASR_ASCEND_SIMD_AVX512)
  const __m256i half = _mm256_max_epi16(_mm512_castsi512_si256((__m512i)x),
                                        _mm512_extracti64x4_epi64((__m512i)x, 1));
#else
  const __m256i half = (__m256i)x;
#endif
  const __m128i quarter =
      _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // The one horizontal instruction there is finds the smallest unsigned number.
  const __m128i turn = _mm_set1_epi16(0x7fff);
  return (int16_t)(0x7fff ^ _mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(quarter, turn)), 0));
#else
  int16_t largest = x[0];
  for (int i = 1; i < ASR_ASCEND_SIMD_BYTES / 2; ++i) largest = largest > x[i] ? largest : x[i];
  return largest;
#endif
}

ASR_ASCEND_SIMD_INLINE double LargestLane(F64 x) {
  double largest = x[0];
  for (int i = 1; i < kF64Lanes; ++i) largest = largest > x[i] ? largest : x[i];
  return largest;
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_SIMD_SIMD_H_
