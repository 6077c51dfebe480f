// Duplicate, CreateVecIndex and Gather.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/vector_engine.h"

namespace emulator {

template <typename T>
void RequireFillType(Core& core) {
  RequireType<T, half, bfloat16_t, int16_t, uint16_t, int32_t, uint32_t, float>(core, "dst");
}

template <typename T>
void DuplicateStrided(Core& core, const AscendC::LocalTensor<T>& dst, const T& value,
                      const Mask& mask, uint32_t repeats, uint32_t block_stride,
                      uint32_t repeat_stride) {
  RequireFillType<T>(core);
  StridedCall(core, mask, repeats, {{"dst", dst.view, sizeof(T), block_stride, repeat_stride}},
              [&](const auto& at) { UbElement<T>(core, at(0)) = value; });
}

// CreateVecIndex writes block 0 element by element, then adds: each block of the first repeat from
// the one before it, then each repeat from the one before it.
inline void MarkVectorIndex(Core& core, const UbView& dst, uint32_t count, size_t element_bytes) {
  if (count == 0) return;
  const uint32_t bytes = count * static_cast<uint32_t>(element_bytes);
  CheckOperand(core, "dst", dst, bytes);
  const uint32_t first = std::min(bytes, kBlockBytes);
  core.Issue(PIPE_S, "CreateVecIndex");
  core.Write("dst", dst.offset, first);
  Counters& counters = core.counters();
  counters.ub_scalar_writes += first / element_bytes;
  core.Turn(AscendC::HardEvent::S_V);
  const auto step = [&](uint32_t begin, uint32_t unit) {
    for (uint32_t at = begin; at < std::min(bytes, begin == kBlockBytes ? kRepeatBytes : bytes);
         at += unit) {
      const uint32_t length = std::min(unit, bytes - at);
      if (at > kBlockBytes) core.Barrier(PIPE_V);
      core.Issue(PIPE_V, "CreateVecIndex");
      core.Read("dst", dst.offset + at - unit, length);
      core.Write("dst", dst.offset + at, length);
      ++counters.vector_instructions;
      ++counters.vector_repeats;
      counters.vector_elements += length / element_bytes;
    }
  };
  step(kBlockBytes, kBlockBytes);
  step(kRepeatBytes, kRepeatBytes);
}

}  // namespace emulator

namespace AscendC {

template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Duplicate");
  emulator::RequireFillType<T>(core);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Destination("dst", dst);
  const T value = scalarValue;
  T* to = dst.Elements();
  for (int32_t i = 0; i < count; ++i) to[i] = value;
}

template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, uint32_t repeatTime,
               uint16_t dstBlockStride, uint8_t dstRepeatStride) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Duplicate");
  emulator::DuplicateStrided(core, dst, scalarValue,
                             emulator::ContiguousMask(core, mask, sizeof(T)), repeatTime,
                             dstBlockStride, dstRepeatStride);
}

template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[],
               uint32_t repeatTime, uint16_t dstBlockStride, uint8_t dstRepeatStride) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Duplicate");
  emulator::DuplicateStrided(core, dst, scalarValue, emulator::BitMask(core, mask, sizeof(T)),
                             repeatTime, dstBlockStride, dstRepeatStride);
}

// firstValue, firstValue + 1, ... The scalar unit writes the first 32 bytes, and nothing orders
// that after what the vector unit does with them: the caller must.
template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "CreateVecIndex");
  emulator::RequireType<T, half, int16_t, int32_t, float>(core, "dst");
  emulator::MarkVectorIndex(core, dst.view, count, sizeof(T));
  if constexpr (emulator::IsOneOf<T, half, int16_t, int32_t, float>()) {
    T* to = dst.Elements();
    for (uint32_t i = 0; i < count; ++i) to[i] = static_cast<T>(firstValue + static_cast<T>(i));
  }
}

// dst[i] is the element of `src` at `srcBaseAddr` + srcOffset[i] bytes.
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src,
            const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr,
            const uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "Gather");
  emulator::RequireType<T, int16_t, uint16_t, int32_t, uint32_t, float, half, bfloat16_t>(core,
                                                                                          "src");
  emulator::VectorCall call(core, count, sizeof(uint32_t));
  emulator::CheckOperand(core, "src", src.view, 0);
  call.Source("srcOffset", srcOffset);
  const uint32_t* offsets = srcOffset.Elements();
  uint64_t begin = src.view.bytes, end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = uint64_t{srcBaseAddr} + offsets[i];
    if (at % sizeof(T) != 0) {
      core.Fail("srcOffset", emulator::Concat({"must count whole elements of ", sizeof(T),
                                               " bytes, but byte ", at, " is asked for"}));
    }
    if (at + sizeof(T) > src.view.bytes) {
      core.Fail("srcOffset",
                emulator::Concat({"points to byte ", at, " of `src`, which has ", src.view.bytes}));
    }
    core.Read("src", src.view.offset + static_cast<uint32_t>(at), sizeof(T));
    begin = std::min(begin, at);
    end = std::max(end, at + sizeof(T));
  }
  call.Destination("dst", dst);
  const uint64_t bytes = uint64_t{count} * sizeof(T);
  call.NoOverlap("dst", dst.view.offset, bytes, "src", src.view.offset + begin, end - begin);
  call.NoOverlap("dst", dst.view.offset, bytes, "srcOffset", srcOffset.view.offset,
                 uint64_t{count} * sizeof(uint32_t));
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(dst.Elements() + i, core.Ub(src.view.offset + srcBaseAddr + offsets[i]), sizeof(T));
  }
}

}  // namespace AscendC
