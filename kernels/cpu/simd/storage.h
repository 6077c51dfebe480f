// How numbers are stored (float, double, half, bfloat16) and how they come into registers.
#ifndef ASR_ASCEND_CPU_SIMD_STORAGE_H_
#define ASR_ASCEND_CPU_SIMD_STORAGE_H_

#include "cpu/simd/simd.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

struct Half {
  static constexpr int16_t kMinusInfinity = (int16_t)0xfc00;
  uint16_t bits;
};

struct BFloat16 {
  static constexpr int16_t kMinusInfinity = (int16_t)0xff80;
  uint16_t bits;
};

#if defined(ASR_ASCEND_SIMD_AVX512)
ASR_ASCEND_SIMD_INLINE F32 HalfToF32(U16 bits) { return (F32)_mm512_cvtph_ps((__m256i)bits); }
ASR_ASCEND_SIMD_INLINE U16 F32ToHalf(F32 x) {
  return (U16)_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(ASR_ASCEND_SIMD_AVX2)
ASR_ASCEND_SIMD_INLINE F32 HalfToF32(U16 bits) { return (F32)_mm256_cvtph_ps((__m128i)bits); }
ASR_ASCEND_SIMD_INLINE U16 F32ToHalf(F32 x) {
  return (U16)_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(ASR_ASCEND_SIMD_NEON)
ASR_ASCEND_SIMD_INLINE F32 HalfToF32(U16 bits) {
  return (F32)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)bits));
}
ASR_ASCEND_SIMD_INLINE U16 F32ToHalf(F32 x) {
  return (U16)vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x));
}
#else
// The exponent is rebased by a multiplication, which gets denormals right as well.
ASR_ASCEND_SIMD_INLINE F32 HalfToF32(U16 bits) {
  const U32 wide = __builtin_convertvector(bits, U32);
  const U32 sign = (wide & 0x8000u) << 16;
  const U32 magnitude = (wide & 0x7fffu) << 13;
  const U32 finite = (U32)((F32)magnitude * 0x1p112f);
  const U32 special = magnitude | 0x7f800000u;
  return (F32)((magnitude >= 0x0f800000u ? special : finite) | sign);
}

ASR_ASCEND_SIMD_INLINE U16 F32ToHalf(F32 x) {
  const U32 bits = (U32)x;
  const U32 sign = (bits >> 16) & 0x8000u;
  const U32 magnitude = bits & 0x7fffffffu;
  // Adding 0.5 aligns a denormal's last half bit with the last float bit: the addition rounds.
  const U32 denormal = (U32)((F32)magnitude + 0.5f) - 0x3f000000u;
  const U32 odd = (magnitude >> 13) & 1u;
  const U32 normal = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  const U32 infinite = U32{} + 0x7c00u;
  const U32 nan = U32{} + 0x7e00u;
  U32 half = magnitude < 0x38800000u ? denormal : normal;
  half = magnitude >= 0x47800000u ? infinite : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return __builtin_convertvector(half | sign, U16);
}
#endif

ASR_ASCEND_SIMD_INLINE F32 BFloat16ToF32(U16 bits) {
  return (F32)(__builtin_convertvector(bits, U32) << 16);
}

// bfloat16 in the upper half of each number; what is below is to be dropped. NaNs come out as NaNs
// as long as the upper seven bits of what is below are not all ones.
ASR_ASCEND_SIMD_INLINE U32 RoundedToBFloat16(F32 x) {
  const U32 bits = (U32)x;
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}

ASR_ASCEND_SIMD_INLINE U16 F32ToBFloat16(F32 x) {
  const U32 quiet = (U32)x | 0x400000u;
  const U32 upper = (x == x ? RoundedToBFloat16(x) : quiet) >> 16;
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (U16)_mm512_cvtepi32_epi16((__m512i)upper);
#else
  return __builtin_convertvector(upper, U16);
#endif
}

ASR_ASCEND_SIMD_INLINE U16 LoadBits(const void* p) {
  U16 bits;
  memcpy(&bits, p, sizeof(bits));
  return bits;
}

ASR_ASCEND_SIMD_INLINE U16 LoadBitsPartial(const uint16_t* p, int count) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (U16)_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1u), p);
#else
  U16 bits = {};
  for (int i = 0; i < count; ++i) bits[i] = p[i];
  return bits;
#endif
}

ASR_ASCEND_SIMD_INLINE void StoreBitsPartial(uint16_t* p, U16 bits, int count) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  // Masks of 32-bit lanes: stores under a mask of 16-bit lanes are many times slower on Zen 4.
  _mm256_mask_storeu_epi32(p, (__mmask8)((1u << (count / 2)) - 1u), (__m256i)bits);
  if (count % 2 != 0) p[count - 1] = bits[count - 1];
#else
  for (int i = 0; i < count; ++i) p[i] = bits[i];
#endif
}

#if defined(ASR_ASCEND_SIMD_AVX2)
ASR_ASCEND_SIMD_INLINE __m256i LaneMask32(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ASR_ASCEND_SIMD_INLINE __m256i LaneMask64(int count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
#endif

// Two vectors of one stretch of memory.
template <typename Vec>
struct VecPair {
  Vec first;
  Vec second;
};

// Storage<T>: Vec and kLanes of T in registers; whole and partial loads and stores. A partial one
// touches only the first `count` elements, 0 < count < kLanes; lanes past them are `rest`.
// kLogNegligible: exp of less is left out of a gradient. Its products would be denormal numbers,
// for which a matrix product takes ten times as long.
template <typename T>
struct Storage;

// 2 kLanes elements, in the order that comes cheapest, the same for load and store.
template <typename T>
ASR_ASCEND_SIMD_INLINE VecPair<typename Storage<T>::Vec> LoadPair(const T* p) {
  return {Storage<T>::Load(p), Storage<T>::Load(p + Storage<T>::kLanes)};
}
template <typename T>
ASR_ASCEND_SIMD_INLINE void StorePair(T* p, const VecPair<typename Storage<T>::Vec>& x) {
  Storage<T>::Store(p, x.first);
  Storage<T>::Store(p + Storage<T>::kLanes, x.second);
}

template <>
struct Storage<float> {
  using Vec = F32;
  using Scalar = float;
  static constexpr int kLanes = kF32Lanes;
  static constexpr double kLogSmallest = -103.98;  // exp below this rounds to zero
  static constexpr double kLogNegligible = -76.0;

  ASR_ASCEND_SIMD_INLINE Vec Load(const float* p) {
    Vec x;
    memcpy(&x, p, sizeof(x));
    return x;
  }
  ASR_ASCEND_SIMD_INLINE void Store(float* p, Vec x) { memcpy(p, &x, sizeof(x)); }
  ASR_ASCEND_SIMD_INLINE Vec LoadPartial(const float* p, int count, float rest) {
#if defined(ASR_ASCEND_SIMD_AVX512)
    return (Vec)_mm512_mask_loadu_ps(Fill(rest), (__mmask16)((1u << count) - 1u), p);
#elif defined(ASR_ASCEND_SIMD_AVX2)
    const __m256i mask = LaneMask32(count);
    return (Vec)_mm256_blendv_ps(Fill(rest), _mm256_maskload_ps(p, mask),
                                 _mm256_castsi256_ps(mask));
#else
    Vec x = Fill(rest);
    for (int i = 0; i < count; ++i) x[i] = p[i];
    return x;
#endif
  }
  ASR_ASCEND_SIMD_INLINE void StorePartial(float* p, Vec x, int count) {
#if defined(ASR_ASCEND_SIMD_AVX512)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1u), x);
#elif defined(ASR_ASCEND_SIMD_AVX2)
    _mm256_maskstore_ps(p, LaneMask32(count), x);
#else
    for (int i = 0; i < count; ++i) p[i] = x[i];
#endif
  }
  ASR_ASCEND_SIMD_INLINE double Get(const float* p) { return *p; }
  ASR_ASCEND_SIMD_INLINE void Put(float* p, double x) { *p = (float)x; }
};

template <>
struct Storage<double> {
  using Vec = F64;
  using Scalar = double;
  static constexpr int kLanes = kF64Lanes;
  static constexpr double kLogSmallest = -745.14;
  static constexpr double kLogNegligible = -690.0;

  ASR_ASCEND_SIMD_INLINE Vec Load(const double* p) {
    Vec x;
    memcpy(&x, p, sizeof(x));
    return x;
  }
  ASR_ASCEND_SIMD_INLINE void Store(double* p, Vec x) { memcpy(p, &x, sizeof(x)); }
  ASR_ASCEND_SIMD_INLINE Vec LoadPartial(const double* p, int count, double rest) {
#if defined(ASR_ASCEND_SIMD_AVX512)
    return (Vec)_mm512_mask_loadu_pd(Fill(rest), (__mmask8)((1u << count) - 1u), p);
#elif defined(ASR_ASCEND_SIMD_AVX2)
    const __m256i mask = LaneMask64(count);
    return (Vec)_mm256_blendv_pd(Fill(rest), _mm256_maskload_pd(p, mask),
                                 _mm256_castsi256_pd(mask));
#else
    Vec x = Fill(rest);
    for (int i = 0; i < count; ++i) x[i] = p[i];
    return x;
#endif
  }
  ASR_ASCEND_SIMD_INLINE void StorePartial(double* p, Vec x, int count) {
#if defined(ASR_ASCEND_SIMD_AVX512)
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << count) - 1u), x);
#elif defined(ASR_ASCEND_SIMD_AVX2)
    _mm256_maskstore_pd(p, LaneMask64(count), x);
#else
    for (int i = 0; i < count; ++i) p[i] = x[i];
#endif
  }
  ASR_ASCEND_SIMD_INLINE double Get(const double* p) { return *p; }
  ASR_ASCEND_SIMD_INLINE void Put(double* p, double x) { *p = x; }
};

template <>
struct Storage<Half> {
  using Vec = F32;
  using Scalar = float;
  static constexpr int kLanes = kF32Lanes;
  static constexpr double kLogSmallest = -17.33;
  static constexpr double kLogNegligible = -76.0;

  ASR_ASCEND_SIMD_INLINE Vec Load(const Half* p) { return HalfToF32(LoadBits(p)); }
  ASR_ASCEND_SIMD_INLINE void Store(Half* p, Vec x) {
    const U16 bits = F32ToHalf(x);
    memcpy(p, &bits, sizeof(bits));
  }
  ASR_ASCEND_SIMD_INLINE Vec LoadPartial(const Half* p, int count, float rest) {
    const Vec x = HalfToF32(LoadBitsPartial(&p->bits, count));
    return KeepFirst(x, count, rest);
  }
  ASR_ASCEND_SIMD_INLINE void StorePartial(Half* p, Vec x, int count) {
    StoreBitsPartial(&p->bits, F32ToHalf(x), count);
  }
  ASR_ASCEND_SIMD_INLINE double Get(const Half* p) { return HalfToF32(U16{p->bits})[0]; }
  ASR_ASCEND_SIMD_INLINE void Put(Half* p, double x) { p->bits = F32ToHalf(Fill((float)x))[0]; }

  ASR_ASCEND_SIMD_INLINE Vec KeepFirst(Vec x, int count, float rest) {
#if defined(ASR_ASCEND_SIMD_AVX512)
    return (Vec)_mm512_mask_mov_ps(Fill(rest), (__mmask16)((1u << count) - 1u), x);
#else
    for (int i = count; i < kLanes; ++i) x[i] = rest;
    return x;
#endif
  }
};

template <>
struct Storage<BFloat16> {
  using Vec = F32;
  using Scalar = float;
  static constexpr int kLanes = kF32Lanes;
  static constexpr double kLogSmallest = -92.89;
  static constexpr double kLogNegligible = -76.0;

  ASR_ASCEND_SIMD_INLINE Vec Load(const BFloat16* p) { return BFloat16ToF32(LoadBits(p)); }
  ASR_ASCEND_SIMD_INLINE void Store(BFloat16* p, Vec x) {
    const U16 bits = F32ToBFloat16(x);
    memcpy(p, &bits, sizeof(bits));
  }
  ASR_ASCEND_SIMD_INLINE Vec LoadPartial(const BFloat16* p, int count, float rest) {
    const Vec x = BFloat16ToF32(LoadBitsPartial(&p->bits, count));
    return Storage<Half>::KeepFirst(x, count, rest);
  }
  ASR_ASCEND_SIMD_INLINE void StorePartial(BFloat16* p, Vec x, int count) {
    StoreBitsPartial(&p->bits, F32ToBFloat16(x), count);
  }
  ASR_ASCEND_SIMD_INLINE double Get(const BFloat16* p) { return BFloat16ToF32(U16{p->bits})[0]; }
  ASR_ASCEND_SIMD_INLINE void Put(BFloat16* p, double x) {
    p->bits = F32ToBFloat16(Fill((float)x))[0];
  }
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
// The even and the odd elements: each is the upper half of a float where it lies, or 16 bits off.
ASR_ASCEND_SIMD_INLINE VecPair<F32> LoadPair(const BFloat16* p) {
  U32 both;
  memcpy(&both, p, sizeof(both));
  return {(F32)(both << 16), (F32)(both & 0xffff0000u)};
}
// A NaN is what arithmetic made of a bfloat16 or of nothing: its lower half is zero.
ASR_ASCEND_SIMD_INLINE void StorePair(BFloat16* p, const VecPair<F32>& x) {
  const U32 both = (RoundedToBFloat16(x.first) >> 16) | (RoundedToBFloat16(x.second) & 0xffff0000u);
  memcpy(p, &both, sizeof(both));
}
#endif

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_SIMD_STORAGE_H_
