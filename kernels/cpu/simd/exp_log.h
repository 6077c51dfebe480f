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

// The row stages need less than Exp gives, and get it for fewer instructions: ln 2 in one part, so
// that the error is at most 2 + |x| / 20 ulp.

// factor * exp(x) for many x of at most 20 and |factor| < 2^100. exp(-inf) stays 0 whatever the
// factor.
template <typename Vec>
struct ScaledExp {
  Vec factor;

  ASR_ASCEND_SIMD_INLINE ScaledExp Of(Vec factor) { return ScaledExp{factor}; }
  __attribute__((always_inline)) Vec operator()(Vec x) const { return ExpOfBounded(x) * factor; }
};

#if defined(ASR_ASCEND_SIMD_AVX512)
// n counts sixteenths: 2^n comes from 16 numbers in a register, times a power of two, and a cubic
// is enough for the rest, |r| <= ln(2) / 32. The factor is in the 16 numbers and costs nothing.
constexpr float kRoundSixteenthsF32 = 0x1.8p19f;
alignas(64) static const float kSixteenthPowers[16] = {
    0x1.000000p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fe0p0f, 0x1.3dea64p0f,
    0x1.4bfdaep0f, 0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
    0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};

template <>
struct ScaledExp<F32> {
  F32 powers;

  ASR_ASCEND_SIMD_INLINE ScaledExp Of(F32 factor) {
    return ScaledExp{(F32)_mm512_load_ps(kSixteenthPowers) * factor};
  }
  __attribute__((always_inline)) F32 operator()(F32 x) const {
    x = Max(Fill(-240.0f), x);
    const F32 shifted = x * 0x1.715476p0f + kRoundSixteenthsF32;
    const F32 n = shifted - kRoundSixteenthsF32;
    const F32 r = x - n * 0x1.62e43p-1f;
    const F32 power = (F32)_mm512_permutexvar_ps((__m512i)shifted, powers);
    F32 q = r * 0.16666667f + 0.500016f;
    q = q * r + 1.0f;
    return (F32)_mm512_scalef_ps((q * (r * power)) + power, n);
  }
};
#endif

// exp(x) of what is at most 0, for a sum that is at least 1. Below -60 it is something under 1e-26,
// which no float sum of that size sees. (Further down the factors of a product below would be
// denormal, which costs a hundred cycles.)
ASR_ASCEND_SIMD_INLINE F64 TermOfSum(F64 x) { return ExpOfBounded(x); }

#if defined(ASR_ASCEND_SIMD_AVX512) || defined(ASR_ASCEND_SIMD_AVX2)
// n counts fractions of one, 1 / kFractions: 2^n is a number from a table whose exponent is raised
// by an integer addition. The table's entries are short of what the fraction adds to the exponent.
#if defined(ASR_ASCEND_SIMD_AVX512)
constexpr int kFractionBits = 5;
#else
constexpr int kFractionBits = 3;
#endif
alignas(64) static const uint32_t kFractionPowers[1 << kFractionBits] = {
#if defined(ASR_ASCEND_SIMD_AVX512)
    0x3f800000u, 0x3f7ecd87u, 0x3f7daac3u, 0x3f7c980fu, 0x3f7b95c2u, 0x3f7aa43au, 0x3f79c3d3u,
    0x3f78f4f0u, 0x3f7837f0u, 0x3f778d3au, 0x3f76f532u, 0x3f767043u, 0x3f75fed7u, 0x3f75a15bu,
    0x3f75583fu, 0x3f7523f6u, 0x3f7504f3u, 0x3f74fbafu, 0x3f7508a4u, 0x3f752c4du, 0x3f75672au,
    0x3f75b9beu, 0x3f76248cu, 0x3f76a81eu, 0x3f7744fdu, 0x3f77fbb8u, 0x3f78ccdfu, 0x3f79b907u,
    0x3f7ac0c7u, 0x3f7be4bau, 0x3f7d257du, 0x3f7e83b3u,
#else
    0x3f800000u, 0x3f7b95c2u, 0x3f7837f0u, 0x3f75fed7u,
    0x3f7504f3u, 0x3f75672au, 0x3f7744fdu, 0x3f7ac0c7u,
#endif
};

ASR_ASCEND_SIMD_INLINE U32 FractionPower(U32 fraction) {
#if defined(ASR_ASCEND_SIMD_AVX512)
  return (U32)_mm512_permutex2var_epi32(_mm512_load_si512(kFractionPowers), (__m512i)fraction,
                                        _mm512_load_si512(kFractionPowers + 16));
#else
  return (U32)_mm256_permutevar8x32_epi32(_mm256_load_si256((const __m256i*)kFractionPowers),
                                          (__m256i)fraction);
#endif
}

ASR_ASCEND_SIMD_INLINE F32 TermOfSum(F32 x) {
  constexpr float kRound = 0x1.8p23f / (1 << kFractionBits);
  x = Max(Fill(-60.0f), x);
  const F32 shifted = x * 0x1.715476p0f + kRound;
  const F32 n = shifted - kRound;
  const F32 r = x - n * 0x1.62e43p-1f;
  const U32 bits = (U32)shifted;
  const F32 power = (F32)(FractionPower(bits) + (bits << (23 - kFractionBits)));
#if defined(ASR_ASCEND_SIMD_AVX512)
  const F32 q = (r * 0.16666667f + 0.500004f) * r + 1.0f;
#else
  const F32 q = (r * 0.16664298f + 0.5000648f) * r + 1.0f;
#endif
  return q * (r * power) + power;
}
#else
ASR_ASCEND_SIMD_INLINE F32 TermOfSum(F32 x) { return ExpOfBounded(x); }
#endif

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

// log(1 + x) of x >= 0, finite; anything else gives a meaningless number.
ASR_ASCEND_SIMD_INLINE F64 LogOnePlus(F64 x) {
  // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
  const U64 offset = (U64)(x + 1.0) - 0x3fe6a09e667f3bcdu;
  const U64 exponent = ((offset >> 52) + 0x400u) & 0xfffu;
  const F64 n = (F64)(exponent | 0x4330000000000000u) - (0x1p52 + 1024.0);
  const F64 m = (F64)((offset & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  // Where m is 1 + x itself, x is what m - 1 was before it was rounded.
  const F64 above_one = exponent == 0x400u ? x : m - 1.0;
  return n * 0x1.62e42fefa39efp-1 + TwiceAtanh(above_one / (m + 1.0));
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
