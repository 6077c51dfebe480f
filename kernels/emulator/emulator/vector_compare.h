// Compare, CompareScalar and Select.
#pragma once

#include <cstdint>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/vector_engine.h"

namespace emulator {

// With a NaN every comparison is false, except NE.
template <typename T>
bool Holds(T a, T b, AscendC::CMPMODE mode) {
  switch (mode) {
    case AscendC::CMPMODE::LT:
      return a < b;
    case AscendC::CMPMODE::GT:
      return a > b;
    case AscendC::CMPMODE::EQ:
      return a == b;
    case AscendC::CMPMODE::LE:
      return a <= b;
    case AscendC::CMPMODE::GE:
      return a >= b;
    case AscendC::CMPMODE::NE:
      return a != b;
  }
  return false;
}

template <typename T, typename U>
void CheckCompare(Core& core, const AscendC::LocalTensor<U>& dst, AscendC::CMPMODE mode,
                  uint32_t count) {
  RequireType<U, uint8_t, int8_t>(core, "dst");
  if (std::is_same_v<T, int32_t> && mode != AscendC::CMPMODE::EQ) {
    core.Fail("`cmpMode` must be EQ for int32_t");
  }
  if (count * sizeof(T) % kRepeatBytes != 0) {
    core.Fail(Concat({"`count` elements must be a multiple of ", kRepeatBytes, " bytes, but are ",
                      count * sizeof(T)}));
  }
  CheckOperand(core, "dst", dst.view, count / 8);
}

// Bit i % 8 of byte i / 8 says whether the comparison of element i holds.
template <typename Predicate>
void WriteBits(Core& core, const UbView& dst, uint32_t count, Predicate predicate) {
  core.Write("dst", dst.offset, count / 8);
  uint8_t* bytes = core.Ub(dst.offset);
  for (uint32_t byte = 0; byte < count / 8; ++byte) {
    uint32_t bits = 0;
    for (uint32_t bit = 0; bit < 8; ++bit) {
      bits |= static_cast<uint32_t>(predicate(byte * 8 + bit)) << bit;
    }
    bytes[byte] = static_cast<uint8_t>(bits);
  }
}

// Checks common to both forms of Select. Returns the number of mask bits that are used.
template <typename T, typename U>
uint32_t CheckSelect(Core& core, const AscendC::LocalTensor<U>& mask, AscendC::SELMODE mode,
                     uint32_t count) {
  RequireType<T, half, float>(core, "src0");
  RequireType<U, uint8_t, uint16_t, uint32_t, uint64_t>(core, "selMask");
  uint32_t bits = count;
  if (mode == AscendC::SELMODE::VSEL_CMPMASK_SPR) {
    bits = std::min<uint32_t>(count, kRepeatBytes / sizeof(T));
  } else {
    core.ReserveForSelect();
  }
  const uint32_t bytes = (bits + 7) / 8;
  CheckOperand(core, "selMask", mask.view, bytes);
  core.Read("selMask", mask.view.offset, bytes);
  return bits;
}

inline bool Bit(const uint8_t* bytes, uint32_t index) {
  return ((bytes[index / 8] >> (index % 8)) & 1) != 0;
}

}  // namespace emulator

namespace AscendC {

template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Compare");
  emulator::RequireType<T, half, float, int32_t>(core, "src0");
  emulator::CheckCompare<T>(core, dst, cmpMode, count);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src0", src0);
  call.Source("src1", src1);
  call.NoOverlap("dst", dst.view.offset, count / 8, "src0", src0.view.offset, count * sizeof(T));
  call.NoOverlap("dst", dst.view.offset, count / 8, "src1", src1.view.offset, count * sizeof(T));
  if constexpr (emulator::IsOneOf<T, half, float, int32_t>()) {
    const T* a = src0.Elements();
    const T* b = src1.Elements();
    emulator::WriteBits(core, dst.view, count,
                        [=](uint32_t i) { return emulator::Holds(a[i], b[i], cmpMode); });
  }
}

template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar,
                   CMPMODE cmpMode, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "CompareScalar");
  emulator::RequireType<T, half, float>(core, "src0");
  emulator::CheckCompare<T>(core, dst, cmpMode, count);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src0", src0);
  call.NoOverlap("dst", dst.view.offset, count / 8, "src0", src0.view.offset, count * sizeof(T));
  if constexpr (emulator::IsOneOf<T, half, float>()) {
    const T* a = src0.Elements();
    emulator::WriteBits(core, dst.view, count,
                        [=](uint32_t i) { return emulator::Holds(a[i], src1Scalar, cmpMode); });
  }
}

// Modes 0 and 2: from src0 where the mask's bit is 1, from src1 where it is 0. Mode 0 uses the
// same bits, one repeat's worth, in every repeat.
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Select");
  if (selMode == SELMODE::VSEL_TENSOR_SCALAR_MODE) {
    core.Fail("`selMode` must be VSEL_CMPMASK_SPR or VSEL_TENSOR_TENSOR_MODE with two tensors");
  }
  const uint32_t bits = emulator::CheckSelect<T>(core, selMask, selMode, count);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src0", src0);
  call.Source("src1", src1);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src0", src0);
  call.NoPartialOverlap("dst", dst, "src1", src1);
  call.NoOverlap("dst", dst.view.offset, count * sizeof(T), "selMask", selMask.view.offset,
                 (bits + 7) / 8);
  const uint8_t* mask = core.Ub(selMask.view.offset);
  const T* a = src0.Elements();
  const T* b = src1.Elements();
  T* to = dst.Elements();
  for (uint32_t i = 0; i < count; ++i) to[i] = emulator::Bit(mask, i % bits) ? a[i] : b[i];
}

// Mode 1: from src0 where the mask's bit is 1, the scalar where it is 0.
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            T src1, SELMODE selMode, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Select");
  if (selMode != SELMODE::VSEL_TENSOR_SCALAR_MODE) {
    core.Fail("`selMode` must be VSEL_TENSOR_SCALAR_MODE with a tensor and a scalar");
  }
  const uint32_t bits = emulator::CheckSelect<T>(core, selMask, selMode, count);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src0", src0);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src0", src0);
  call.NoOverlap("dst", dst.view.offset, count * sizeof(T), "selMask", selMask.view.offset,
                 (bits + 7) / 8);
  const uint8_t* mask = core.Ub(selMask.view.offset);
  const T* a = src0.Elements();
  T* to = dst.Elements();
  for (uint32_t i = 0; i < count; ++i) to[i] = emulator::Bit(mask, i) ? a[i] : src1;
}

}  // namespace AscendC
