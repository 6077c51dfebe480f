// exp, log and log(exp(a) + exp(b)) of whole vectors.
//
// exp(x) = 2^n exp(r), r = x - n ln 2 by an exact two-part ln 2, |r| <= ln(2) / 2, and
// exp(r) = 1 + r + r^2 q(r) with q near-minimax (Chebyshev interpolation). Bounds, measured over
// the whole range by tests/exp_test.cpp: float 1.1 ulp, double 1.2 ulp, denormal results among
// them. -inf gives 0, +inf and overflow inf, NaN NaN.
#ifndef ASR_ASCEND_CPU_SIMD_EXP_LOG_H_
#define ASR_ASCEND_CPU_SIMD_EXP_LOG_H_

#include "cpu/simd/simd.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Adding this to a number rounds it to an integer, which stands in the sum's last bits.
constexpr float kRoundF32 = 0x1.8p23f;
constexpr double kRoundF64 = 0x1.8p52;

// 2^n x for a rounded n = shifted - kRound. Two halves of n, so that a denormal result is
// rounded once and 2^128 is reached.
ASR_ASCEND_SIMD_INLINE F32 ScaleByPowerOfTwo(F32 x, F32 shifted) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (F32)_mm512_scalef_ps(x, shifted - kRoundF32);
#else
  const U32 biased = (U32)shifted - (U32)Fill(kRoundF32) + 256u;
  const U32 half = biased >> 1;
  const U32 rest = biased - half;
  return x * (F32)((half - 1u) << 23) * (F32)((rest - 1u) << 23);
#endif
}

ASR_ASCEND_SIMD_INLINE F64 ScaleByPowerOfTwo(F64 x, F64 shifted) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (F64)_mm512_scalef_pd(x, shifted - kRoundF64);
#else
  const U64 biased = (U64)shifted - (U64)Fill(kRoundF64) + 2048u;
  const U64 half = biased >> 1;
  const U64 rest = biased - half;
  return x * (F64)((half - 1u) << 52) * (F64)((rest - 1u) << 52);
#endif
}

// Exp of what is known to be at most 89 (710 for double).
ASR_ASCEND_SIMD_INLINE F32 ExpOfBounded(F32 x) {
  x = Max(Fill(-104.0f), x);
  const F32 shifted = x * 0x1.715476p0f + kRoundF32;
  const F32 n = shifted - kRoundF32;
  F32 r = x - n * 0x1.63p-1f;
  r = r - n * -0x1.bd0106p-13f;
  F32 q = Fill(0.00139262134663f);
  q = q * r + 0.00836320297158f;
  q = q * r + 0.0416665544377f;
  q = q * r + 0.16666576846f;
  q = q * r + 0.5f;
  const F32 tail = q * (r * r) + r;
  return ScaleByPowerOfTwo(tail + 1.0f, shifted);
}

ASR_ASCEND_SIMD_INLINE F64 ExpOfBounded(F64 x) {
  x = Max(Fill(-746.0), x);
  const F64 shifted = x * 0x1.71547652b82fep0 + kRoundF64;
  const F64 n = shifted - kRoundF64;
  F64 r = x - n * 0x1.62e42fee00000p-1;
  r = r - n * 0x1.a39ef35793c76p-33;
  F64 q = Fill(2.510042415700506679e-8);
  q = q * r + 2.762013871973399557e-7;
  q = q * r + 2.755726837868419287e-6;
  q = q * r + 0.00002480152119021772765;
  q = q * r + 0.0001984126986310596875;
  q = q * r + 0.001388888891728179331;
  q = q * r + 0.008333333333330051346;
  q = q * r + 0.04166666666662399152;
  q = q * r + 0.1666666666666666746;
  q = q * r + 0.5;
  const F64 tail = q * (r * r) + r;
  return ScaleByPowerOfTwo(tail + 1.0, shifted);
}

ASR_ASCEND_SIMD_INLINE F32 Exp(F32 x) { return ExpOfBounded(Min(Fill(89.0f), x)); }
ASR_ASCEND_SIMD_INLINE F64 Exp(F64 x) { return ExpOfBounded(Min(Fill(710.0), x)); }

// 2 atanh(s) = log((1 + s) / (1 - s)) for |s| <= 1/3.
ASR_ASCEND_SIMD_INLINE F64 TwiceAtanh(F64 s) {
  const F64 w = s * s;
  F64 p = Fill(0.0808202280597176611);
  p = p * w + 0.04400369243072336941;
  p = p * w + 0.06000536404795356268;
  p = p * w + 0.06657072104827468075;
  p = p * w + 0.07692785032479311552;
  p = p * w + 0.09090894718066429085;
  p = p * w + 0.1111111135871393149;
  p = p * w + 0.1428571428355437858;
  p = p * w + 0.2000000000000729134;
  p = p * w + 0.3333333333333332928;
  const F64 twice = s + s;
  return twice * (p * w) + twice;
}

// log(x) of a positive, finite, normal x; anything else gives a meaningless number.
ASR_ASCEND_SIMD_INLINE F64 LogOfNormal(F64 x) {
  // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
  const U64 offset = (U64)x - 0x3fe6a09e667f3bcdu;
  const U64 exponent = ((offset >> 52) + 0x400u) & 0xfffu;
  const F64 n = (F64)(exponent | 0x4330000000000000u) - (0x1p52 + 1024.0);
  const F64 m = (F64)((offset & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  return n * 0x1.62e42fefa39efp-1 + TwiceAtanh((m - 1.0) / (m + 1.0));
}

// log(exp(a) + exp(b)); exact for -inf in either or both; NaN in either is NaN.
ASR_ASCEND_SIMD_INLINE F64 LogAddExp(F64 a, F64 b) {
  const F64 larger = Max(a, b);
  // One finite side keeps (-inf) - (-inf) from being NaN; a NaN in either passes through.
  const F64 difference = Max(Fill(-0x1p1000), a) - b;
  const F64 distance = (F64)((U64)difference | 0x8000000000000000u);
  const F64 y = ExpOfBounded(distance);
  return larger + TwiceAtanh(y / (y + 2.0));
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_SIMD_EXP_LOG_H_
