// The largest number of a row.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_ROW_MAXIMUM_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_ROW_MAXIMUM_H_

#include "cpu/simd/storage.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Sees a row part by part. Where a NaN comes by, the outcome is any number of the row, or NaN.
template <typename T>
struct WideMaximum {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  using Scalar = typename S::Scalar;
  static constexpr int kStep = S::kLanes;
  Vec largest;

  ASR_ASCEND_SIMD_INLINE WideMaximum Lowest() {
    return WideMaximum{Fill((Scalar)-__builtin_inff())};
  }
  __attribute__((always_inline)) void See(const T* p) { largest = Max(largest, S::Load(p)); }
  // 0 < count < kStep elements.
  __attribute__((always_inline)) void SeePartial(const T* p, int count) {
    largest = Max(largest, S::LoadPartial(p, count, -__builtin_inff()));
  }
  __attribute__((always_inline)) void Join(const WideMaximum& other) {
    largest = Max(largest, other.largest);
  }
  __attribute__((always_inline)) Scalar Value() const { return LargestLane(largest); }
};

// 16-bit floats are compared by their bits, without conversion: as signed integers with the
// magnitude of negative ones turned over they order as the numbers do. A NaN lies beyond infinity.
template <typename T>
struct SixteenBitMaximum {
  static constexpr int kStep = 2 * kF32Lanes;
  I16 keys;

  // Turns bits into keys and keys into bits.
  ASR_ASCEND_SIMD_INLINE I16 Turned(I16 x) { return x ^ ((x >> 15) & 0x7fff); }

  ASR_ASCEND_SIMD_INLINE SixteenBitMaximum Lowest() {
    return SixteenBitMaximum{Turned(I16{} + T::kMinusInfinity)};
  }
  __attribute__((always_inline)) void See(const T* p) {
    I16 bits;
    memcpy(&bits, p, sizeof(bits));
    keys = Max(keys, Turned(bits));
  }
  __attribute__((always_inline)) void SeePartial(const T* p, int count) {
    I16 bits = I16{} + T::kMinusInfinity;
#if defined(ASR_ASCEND_SIMD_AVX512)
    bits = (I16)_mm512_mask_loadu_epi16((__m512i)bits, (__mmask32)((1u << count) - 1u), p);
#else
    for (int i = 0; i < count; ++i) bits[i] = (int16_t)p[i].bits;
#endif
    keys = Max(keys, Turned(bits));
  }
  __attribute__((always_inline)) void Join(const SixteenBitMaximum& other) {
    keys = Max(keys, other.keys);
  }
  __attribute__((always_inline)) float Value() const {
    const int16_t key = LargestLane(keys);
    const T largest = {(uint16_t)(key < 0 ? key ^ 0x7fff : key)};
    return (float)Storage<T>::Get(&largest);
  }
};

template <typename T>
struct RowMaximumOf {
  using Type = WideMaximum<T>;
};
template <>
struct RowMaximumOf<Half> {
  using Type = SixteenBitMaximum<Half>;
};
template <>
struct RowMaximumOf<BFloat16> {
  using Type = SixteenBitMaximum<BFloat16>;
};
template <typename T>
using RowMaximum = typename RowMaximumOf<T>::Type;

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_ROW_MAXIMUM_H_
