// Element by element arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/vector_engine.h"

namespace emulator {

// half is computed in float and rounded once, which equals rounding the exact result. Integers
// wrap.
template <typename T, typename F>
T Rounded(const Core& core, F value) {
  return Saturated(core, static_cast<T>(value));
}
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, half>, float, T>;
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, Wide<T>>;

struct AddOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Rounded<T>(core, static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct SubOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Rounded<T>(core, static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};
struct MulOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Rounded<T>(core, static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct DivOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Rounded<T>(core, static_cast<Wide<T>>(a) / static_cast<Wide<T>>(b));
  }
};

// `better(a, b)` says that a wins; what happens with a NaN depends on the launch's rule.
template <typename T, typename Better>
T Pick(const Core& core, T a, T b, Better better) {
  if constexpr (!std::is_integral_v<T>) {
    if (a != a || b != b) {
      switch (core.options().nan_rule) {
        case NanRule::kDrop:
          return a != a ? b : a;
        case NanRule::kPropagate:
          return a != a ? a : b;
        case NanRule::kSecondOperand:
          return b;
      }
    }
  }
  return better(a, b) ? a : b;
}
struct MaxOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Pick(core, a, b, [](T x, T y) { return x > y; });
  }
};
struct MinOp {
  template <typename T>
  static T Apply(const Core& core, T a, T b) {
    return Pick(core, a, b, [](T x, T y) { return x < y; });
  }
};
struct ExpOp {
  template <typename T>
  static T Apply(const Core& core, T a) {
    return Rounded<T>(core, std::exp(static_cast<float>(a)));
  }
};
struct LnOp {
  template <typename T>
  static T Apply(const Core& core, T a) {
    return Rounded<T>(core, std::log(static_cast<float>(a)));
  }
};
struct AbsOp {
  template <typename T>
  static T Apply(const Core&, T a) {
    return static_cast<T>(std::fabs(static_cast<float>(a)));
  }
};
struct ReluOp {
  template <typename T>
  static T Apply(const Core& core, T a) {
    return MaxOp::Apply(core, a, T(0));
  }
};

template <typename Op, typename T>
void UnaryCount(const char* api, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<T>& src, int32_t count) {
  Core& core = Core::Current();
  core.Issue(PIPE_V, api);
  RequireType<T, float, half>(core, "src");
  VectorCall call(core, count, sizeof(T));
  call.Source("src", src);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src", src);
  if constexpr (IsOneOf<T, float, half>()) {
    const T* from = src.Elements();
    T* to = dst.Elements();
    for (int32_t i = 0; i < count; ++i) to[i] = Op::Apply(core, from[i]);
  }
}

template <typename Op, typename T>
void UnaryStrided(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                  const Mask& mask, uint32_t repeats, const AscendC::UnaryRepeatParams& params) {
  Core& core = Core::Current();
  RequireType<T, float, half>(core, "src");
  const std::initializer_list<StridedOperand> operands = {
      {"dst", dst.view, sizeof(T), params.dstBlkStride, params.dstRepStride},
      {"src", src.view, sizeof(T), params.srcBlkStride, params.srcRepStride},
  };
  StridedCall(core, mask, repeats, operands, [&core](const auto& at) {
    if constexpr (IsOneOf<T, float, half>()) {
      UbElement<T>(core, at(0)) = Op::Apply(core, UbElement<T>(core, at(1)));
    } else {
      static_cast<void>(at);
    }
  });
}

// Div takes no integers; the others take int16_t and int32_t as well.
template <typename Op, typename T>
void RequireArithmeticType(Core& core, const char* operand) {
  if constexpr (std::is_same_v<Op, DivOp>) {
    RequireType<T, float, half>(core, operand);
  } else {
    RequireType<T, float, half, int16_t, int32_t>(core, operand);
  }
}
template <typename Op, typename T>
inline constexpr bool kComputes =
    IsOneOf<T, float, half>() || (!std::is_same_v<Op, DivOp> && IsOneOf<T, int16_t, int32_t>());

template <typename Op, typename T>
void BinaryCount(const char* api, const AscendC::LocalTensor<T>& dst,
                 const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1,
                 int32_t count) {
  Core& core = Core::Current();
  core.Issue(PIPE_V, api);
  RequireArithmeticType<Op, T>(core, "src0");
  VectorCall call(core, count, sizeof(T));
  call.Source("src0", src0);
  call.Source("src1", src1);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src0", src0);
  call.NoPartialOverlap("dst", dst, "src1", src1);
  if constexpr (kComputes<Op, T>) {
    const T* a = src0.Elements();
    const T* b = src1.Elements();
    T* to = dst.Elements();
    for (int32_t i = 0; i < count; ++i) to[i] = Op::Apply(core, a[i], b[i]);
  }
}

template <typename Op, typename T>
void BinaryStrided(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                   const AscendC::LocalTensor<T>& src1, const Mask& mask, uint32_t repeats,
                   const AscendC::BinaryRepeatParams& params) {
  Core& core = Core::Current();
  RequireArithmeticType<Op, T>(core, "src0");
  const std::initializer_list<StridedOperand> operands = {
      {"dst", dst.view, sizeof(T), params.dstBlkStride, params.dstRepStride},
      {"src0", src0.view, sizeof(T), params.src0BlkStride, params.src0RepStride},
      {"src1", src1.view, sizeof(T), params.src1BlkStride, params.src1RepStride},
  };
  StridedCall(core, mask, repeats, operands, [&core](const auto& at) {
    if constexpr (kComputes<Op, T>) {
      UbElement<T>(core, at(0)) =
          Op::Apply(core, UbElement<T>(core, at(1)), UbElement<T>(core, at(2)));
    } else {
      static_cast<void>(at);
    }
  });
}

template <typename Op, typename T>
void ScalarCount(const char* api, const AscendC::LocalTensor<T>& dst,
                 const AscendC::LocalTensor<T>& src, const T& scalar, int32_t count) {
  Core& core = Core::Current();
  core.Issue(PIPE_V, api);
  RequireArithmeticType<Op, T>(core, "src");
  VectorCall call(core, count, sizeof(T));
  call.Source("src", src);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src", src);
  if constexpr (kComputes<Op, T>) {
    const T value = scalar;
    const T* from = src.Elements();
    T* to = dst.Elements();
    for (int32_t i = 0; i < count; ++i) to[i] = Op::Apply(core, from[i], value);
  }
}

template <typename Op, typename T>
void ScalarStrided(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                   const T& scalar, const Mask& mask, uint32_t repeats,
                   const AscendC::UnaryRepeatParams& params) {
  Core& core = Core::Current();
  RequireArithmeticType<Op, T>(core, "src");
  const std::initializer_list<StridedOperand> operands = {
      {"dst", dst.view, sizeof(T), params.dstBlkStride, params.dstRepStride},
      {"src", src.view, sizeof(T), params.srcBlkStride, params.srcRepStride},
  };
  StridedCall(core, mask, repeats, operands, [&](const auto& at) {
    if constexpr (kComputes<Op, T>) {
      UbElement<T>(core, at(0)) = Op::Apply(core, UbElement<T>(core, at(1)), scalar);
    } else {
      static_cast<void>(at);
    }
  });
}

}  // namespace emulator

namespace AscendC {

// Each function: the first `count` elements; then the high-dimension form with a contiguous mask
// and with a mask bit by bit.
#define EMULATOR_UNARY(Name, Op)                                                              \
  template <typename T>                                                                       \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count) {     \
    emulator::UnaryCount<emulator::Op>(#Name, dst, src, count);                               \
  }                                                                                           \
  template <typename T, bool isSetMask = true>                                                \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask,              \
            uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {                     \
    emulator::Core& core = emulator::Core::Current();                                         \
    core.Issue(PIPE_V, #Name);                                                                \
    emulator::UnaryStrided<emulator::Op>(                                                     \
        dst, src, emulator::ContiguousMask(core, mask, sizeof(T)), repeatTime, repeatParams); \
  }                                                                                           \
  template <typename T, bool isSetMask = true>                                                \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[],            \
            uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {                     \
    emulator::Core& core = emulator::Core::Current();                                         \
    core.Issue(PIPE_V, #Name);                                                                \
    emulator::UnaryStrided<emulator::Op>(dst, src, emulator::BitMask(core, mask, sizeof(T)),  \
                                         repeatTime, repeatParams);                           \
  }

#define EMULATOR_BINARY(Name, Op)                                                              \
  template <typename T>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const int32_t& count) {                                                            \
    emulator::BinaryCount<emulator::Op>(#Name, dst, src0, src1, count);                        \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask, uint32_t repeatTime, const BinaryRepeatParams& repeatParams) {      \
    emulator::Core& core = emulator::Core::Current();                                          \
    core.Issue(PIPE_V, #Name);                                                                 \
    emulator::BinaryStrided<emulator::Op>(dst, src0, src1,                                     \
                                          emulator::ContiguousMask(core, mask, sizeof(T)),     \
                                          repeatTime, repeatParams);                           \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask[], uint32_t repeatTime, const BinaryRepeatParams& repeatParams) {    \
    emulator::Core& core = emulator::Core::Current();                                          \
    core.Issue(PIPE_V, #Name);                                                                 \
    emulator::BinaryStrided<emulator::Op>(                                                     \
        dst, src0, src1, emulator::BitMask(core, mask, sizeof(T)), repeatTime, repeatParams);  \
  }

#define EMULATOR_SCALAR(Name, Op)                                                               \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue,         \
            const int32_t& count) {                                                             \
    emulator::ScalarCount<emulator::Op>(#Name, dst, src, scalarValue, count);                   \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue,         \
            uint64_t mask, uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {        \
    emulator::Core& core = emulator::Core::Current();                                           \
    core.Issue(PIPE_V, #Name);                                                                  \
    emulator::ScalarStrided<emulator::Op>(dst, src, scalarValue,                                \
                                          emulator::ContiguousMask(core, mask, sizeof(T)),      \
                                          repeatTime, repeatParams);                            \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue,         \
            uint64_t mask[], uint32_t repeatTime, const UnaryRepeatParams& repeatParams) {      \
    emulator::Core& core = emulator::Core::Current();                                           \
    core.Issue(PIPE_V, #Name);                                                                  \
    emulator::ScalarStrided<emulator::Op>(dst, src, scalarValue,                                \
                                          emulator::BitMask(core, mask, sizeof(T)), repeatTime, \
                                          repeatParams);                                        \
  }

EMULATOR_UNARY(Exp, ExpOp)
EMULATOR_UNARY(Ln, LnOp)
EMULATOR_UNARY(Abs, AbsOp)
EMULATOR_UNARY(Relu, ReluOp)
EMULATOR_BINARY(Add, AddOp)
EMULATOR_BINARY(Sub, SubOp)
EMULATOR_BINARY(Mul, MulOp)
EMULATOR_BINARY(Div, DivOp)
EMULATOR_BINARY(Max, MaxOp)
EMULATOR_BINARY(Min, MinOp)
EMULATOR_SCALAR(Adds, AddOp)
EMULATOR_SCALAR(Muls, MulOp)
EMULATOR_SCALAR(Maxs, MaxOp)
EMULATOR_SCALAR(Mins, MinOp)

#undef EMULATOR_UNARY
#undef EMULATOR_BINARY
#undef EMULATOR_SCALAR

}  // namespace AscendC
