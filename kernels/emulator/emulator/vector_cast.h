// Cast, with the pairs of types and the round modes that the 910B has.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/vector_engine.h"

namespace emulator {

using AscendC::RoundMode;

// The integer that `value` becomes.
inline double RoundToInteger(double value, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_NONE:
    case RoundMode::CAST_RINT:
      return std::nearbyint(value);
    case RoundMode::CAST_FLOOR:
      return std::floor(value);
    case RoundMode::CAST_CEIL:
      return std::ceil(value);
    case RoundMode::CAST_ROUND:
      return std::round(value);
    case RoundMode::CAST_TRUNC:
      return std::trunc(value);
    case RoundMode::CAST_ODD: {
      const double towards_zero = std::trunc(value);
      if (towards_zero == value || std::fmod(towards_zero, 2.0) != 0.0) return towards_zero;
      return towards_zero + std::copysign(1.0, value);
    }
  }
  return value;
}

// `value` rounded to a float format with so many stored mantissa bits, least exponent and limit.
inline float RoundToFormat(float value, RoundMode mode, int mantissa_bits, int least_exponent,
                           float limit, OverflowMode overflow) {
  if (std::isnan(value)) return value;
  double rounded = value;
  if (std::isfinite(value) && value != 0.0f) {
    const int exponent = std::max(std::ilogb(value), least_exponent);
    const double unit = std::ldexp(1.0, exponent - mantissa_bits);
    rounded = RoundToInteger(value / unit, mode) * unit;
  }
  if (std::fabs(rounded) > limit) {
    const float edge =
        overflow == OverflowMode::kSaturate ? limit : std::numeric_limits<float>::infinity();
    return std::copysign(edge, value);
  }
  return std::copysign(static_cast<float>(rounded), value);
}

template <typename U, typename T>
U CastElement(T value, RoundMode mode, OverflowMode overflow) {
  constexpr bool kFromFloat = IsOneOf<T, float, half, bfloat16_t>();
  if constexpr (std::is_integral_v<U> && kFromFloat) {
    // Integers saturate, and a NaN becomes 0.
    const double exact = static_cast<double>(static_cast<float>(value));
    if (std::isnan(exact)) return 0;
    const double rounded = RoundToInteger(exact, mode);
    if (rounded <= static_cast<double>(std::numeric_limits<U>::min())) {
      return std::numeric_limits<U>::min();
    }
    // The greatest int64_t isn't a double: what isn't below 2^63 saturates.
    if (rounded >= static_cast<double>(std::numeric_limits<U>::max())) {
      return std::numeric_limits<U>::max();
    }
    return static_cast<U>(rounded);
  } else if constexpr (std::is_integral_v<U>) {
    if (value > std::numeric_limits<U>::max()) return std::numeric_limits<U>::max();
    if (value < std::numeric_limits<U>::min()) return std::numeric_limits<U>::min();
    return static_cast<U>(value);
  } else if constexpr (std::is_integral_v<T>) {
    // int32_t and int64_t need rounding to 24 bits; the double or long double before it is exact.
    const auto exact = static_cast<long double>(value);
    if (exact == 0) return U(0.0f);
    const int bits = std::is_same_v<U, half> ? 10 : 23;
    const int exponent = std::max(std::ilogb(exact), std::is_same_v<U, half> ? -14 : -126);
    const long double unit = std::ldexp(1.0L, exponent - bits);
    const auto steps = static_cast<double>(exact / unit);
    return static_cast<U>(static_cast<float>(RoundToInteger(steps, mode) * unit));
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<U, float>) {
    return static_cast<float>(RoundToInteger(value, mode));
  } else if constexpr (std::is_same_v<U, float>) {
    return static_cast<float>(value);
  } else {
    const bool nearest = mode == RoundMode::CAST_RINT || mode == RoundMode::CAST_NONE;
    if (nearest && overflow == OverflowMode::kInfNan) return U(static_cast<float>(value));
    if constexpr (std::is_same_v<U, half>) {
      return static_cast<half>(
          RoundToFormat(static_cast<float>(value), mode, 10, -14, 65504.0f, overflow));
    } else {
      constexpr float kLimit = 3.38953138925153547590470800371487866880e38f;
      return bfloat16_t(RoundToFormat(static_cast<float>(value), mode, 7, -126, kLimit, overflow));
    }
  }
}

// The round modes that the documents list for a pair of types, as bits; 0: no such conversion.
template <typename U, typename T>
constexpr uint32_t SupportedModes() {
  constexpr uint32_t kNone = 1u << static_cast<int>(RoundMode::CAST_NONE);
  constexpr uint32_t kOdd = 1u << static_cast<int>(RoundMode::CAST_ODD);
  constexpr uint32_t kFive = 0x3eu;  // RINT, FLOOR, CEIL, ROUND, TRUNC
  if constexpr (std::is_same_v<T, float>) {
    if constexpr (std::is_same_v<U, half>) return kFive | kOdd | kNone;
    if constexpr (IsOneOf<U, float, int16_t, int32_t, int64_t, bfloat16_t>()) return kFive;
  } else if constexpr (std::is_same_v<T, half>) {
    if constexpr (std::is_same_v<U, float>) return kNone;
    if constexpr (IsOneOf<U, int16_t, int32_t>()) return kFive;
    if constexpr (IsOneOf<U, int8_t, uint8_t>()) return kFive | kNone;
  } else if constexpr (std::is_same_v<T, bfloat16_t>) {
    if constexpr (std::is_same_v<U, float>) return kNone;
    if constexpr (std::is_same_v<U, int32_t>) return kFive;
  } else if constexpr (IsOneOf<T, uint8_t, int8_t>()) {
    if constexpr (std::is_same_v<U, half>) return kNone;
  } else if constexpr (std::is_same_v<T, int16_t>) {
    if constexpr (std::is_same_v<U, half>) return kFive | kNone;
    if constexpr (std::is_same_v<U, float>) return kNone;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if constexpr (std::is_same_v<U, float>) return kFive | kNone;
    if constexpr (IsOneOf<U, int16_t, int64_t>()) return kNone;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if constexpr (std::is_same_v<U, int32_t>) return kNone;
    if constexpr (std::is_same_v<U, float>) return kFive;
  }
  return 0;
}

inline const char* RoundModeName(RoundMode mode) {
  static const char* const kNames[] = {"CAST_NONE",  "CAST_RINT",  "CAST_FLOOR", "CAST_CEIL",
                                       "CAST_ROUND", "CAST_TRUNC", "CAST_ODD"};
  return kNames[static_cast<int>(mode)];
}

template <typename U, typename T>
void CheckCast(Core& core, RoundMode mode) {
  constexpr uint32_t kModes = SupportedModes<U, T>();
  if (kModes == 0) {
    core.Fail(Concat({"there is no conversion from ", TypeName<T>(), " to ", TypeName<U>()}));
  }
  if ((kModes >> static_cast<int>(mode) & 1u) == 0) {
    core.Fail(Concat({"`roundMode` ", RoundModeName(mode), " isn't one for ", TypeName<T>(), " to ",
                      TypeName<U>()}));
  }
}

template <typename U, typename T>
void CastStrided(Core& core, const AscendC::LocalTensor<U>& dst, const AscendC::LocalTensor<T>& src,
                 RoundMode mode, const Mask& mask, uint32_t repeats,
                 const AscendC::UnaryRepeatParams& params) {
  CheckCast<U, T>(core, mode);
  StridedCall(core, mask, repeats,
              {{"dst", dst.view, sizeof(U), params.dstBlkStride, params.dstRepStride},
               {"src", src.view, sizeof(T), params.srcBlkStride, params.srcRepStride}},
              [&core, mode](const auto& at) {
                if constexpr (SupportedModes<U, T>() != 0) {
                  UbElement<U>(core, at(0)) = CastElement<U, T>(UbElement<T>(core, at(1)), mode,
                                                                core.options().overflow_mode);
                } else {
                  static_cast<void>(at);
                }
              });
}

}  // namespace emulator

namespace AscendC {

// Operands of different widths must not overlap at all.
template <typename U, typename T>
void Cast(const LocalTensor<U>& dst, const LocalTensor<T>& src, const RoundMode& roundMode,
          const uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Cast");
  emulator::CheckCast<U, T>(core, roundMode);
  emulator::VectorCall call(core, count, std::max(sizeof(U), sizeof(T)));
  call.Source("src", src);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src", src);
  if constexpr (emulator::SupportedModes<U, T>() != 0) {
    const T* from = src.Elements();
    U* to = dst.Elements();
    const RoundMode mode = roundMode;
    const auto overflow = core.options().overflow_mode;
    for (uint32_t i = 0; i < count; ++i) {
      to[i] = emulator::CastElement<U, T>(from[i], mode, overflow);
    }
  }
}

template <typename U, typename T, bool isSetMask = true>
void Cast(const LocalTensor<U>& dst, const LocalTensor<T>& src, const RoundMode& roundMode,
          const uint64_t mask, uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Cast");
  constexpr size_t kWidest = std::max(sizeof(U), sizeof(T));
  emulator::CastStrided(core, dst, src, roundMode, emulator::ContiguousMask(core, mask, kWidest),
                        repeatTime, repeatParams);
}

template <typename U, typename T, bool isSetMask = true>
void Cast(const LocalTensor<U>& dst, const LocalTensor<T>& src, const RoundMode& roundMode,
          uint64_t mask[], uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Cast");
  constexpr size_t kWidest = std::max(sizeof(U), sizeof(T));
  emulator::CastStrided(core, dst, src, roundMode, emulator::BitMask(core, mask, kWidest),
                        repeatTime, repeatParams);
}

// The scalar unit's conversions.
inline float ToFloat(const bfloat16_t& value) { return static_cast<float>(value); }
inline bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }

}  // namespace AscendC
