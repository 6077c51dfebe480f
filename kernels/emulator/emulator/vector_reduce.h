// ReduceSum, ReduceMax, WholeReduceSum and WholeReduceMax, in the hardware's order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/vector_arithmetic.h"
#include "emulator/vector_engine.h"

namespace emulator {

// Neighbours in pairs, then the pairs, and so on: the tree inside one repeat.
template <typename T>
T TreeSum(const Core& core, T* values, uint32_t count) {
  if constexpr (IsOneOf<T, float, half>()) {
    for (uint32_t left = count; left > 1; left = (left + 1) / 2) {
      for (uint32_t i = 0; i < left / 2; ++i) {
        values[i] = AddOp::Apply(core, values[2 * i], values[2 * i + 1]);
      }
      if (left % 2 == 1) values[left / 2] = values[left - 1];
    }
  }
  static_cast<void>(core);
  return values[0];
}

// The greatest value and the first index that has it.
template <typename T>
struct Greatest {
  T value{};
  uint32_t index = 0;

  void Take(const Core& core, T candidate, uint32_t at) {
    if constexpr (IsOneOf<T, float, half>()) {
      const T winner = MaxOp::Apply(core, value, candidate);
      const bool same = winner == value || (winner != winner && value != value);
      if (same) return;
      value = winner;
      index = at;
    } else {
      static_cast<void>(core);
      static_cast<void>(candidate);
      static_cast<void>(at);
    }
  }
};

// An index is stored as the bits of an unsigned integer of the element's width.
template <typename T>
T IndexBits(uint32_t index) {
  T bits{};
  std::memcpy(&bits, &index, sizeof(T));  // little-endian
  return bits;
}

inline uint32_t DivideUp(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Elements of `sharedTmpBuffer` that ReduceMax needs for so many repeats.
template <typename T>
uint32_t ReduceMaxTemporary(uint32_t repeats, bool with_index) {
  constexpr uint32_t kPerBlock = kBlockBytes / sizeof(T);
  constexpr uint32_t kPerRepeat = kRepeatBytes / sizeof(T);
  const auto aligned = [](uint32_t n) { return DivideUp(n, kPerBlock) * kPerBlock; };
  uint32_t outputs = repeats * 2;
  uint32_t needed = aligned(outputs);
  if (!with_index) return needed;
  // Each further round keeps its results beside the earlier ones, whose indices it refers to.
  do {
    outputs = DivideUp(outputs, kPerRepeat) * 2;
    needed += aligned(outputs);
  } while (outputs > 2);
  return needed;
}

// Marks what a reduction reads and writes; `tmp_elements` may be 0. `tmp` may be the source or hold
// the result. The scalar unit reads the result of the vector unit and writes it to `dst`, with a
// wait of each for the other inside.
template <typename T>
void MarkReduction(Core& core, const UbView& dst, uint32_t results, const UbView& tmp,
                   uint32_t tmp_elements) {
  if (tmp_elements > 0) {
    const auto bytes = static_cast<uint32_t>(tmp_elements * sizeof(T));
    CheckOperand(core, "sharedTmpBuffer", tmp, bytes);
    core.Write("sharedTmpBuffer", tmp.offset, bytes);
    core.Forget(tmp.offset, bytes);
  }
  const auto result_bytes = static_cast<uint32_t>(results * sizeof(T));
  CheckOperand(core, "dst", dst, result_bytes, result_bytes);
  core.Turn(AscendC::HardEvent::V_S);
  core.Write("dst", dst.offset, result_bytes);
  core.counters().ub_scalar_reads += results;
  core.counters().ub_scalar_writes += results;
  core.Turn(AscendC::HardEvent::S_V);
}

// The masked elements of each repeat.
template <typename T, typename Visit>
void ForEachRepeat(Core& core, const AscendC::LocalTensor<T>& src, const Mask& mask,
                   uint32_t repeats, uint32_t block_stride, uint32_t repeat_stride, Visit visit) {
  StridedWalk walk(core, StridedOperand{"src", src.view, sizeof(T), block_stride, repeat_stride},
                   mask, kRepeatBytes / sizeof(T));
  if (walk.active() == 0) return;
  walk.Mark(core, repeats, false);
  Counters& counters = core.counters();
  counters.vector_repeats += repeats;
  counters.vector_elements += uint64_t{repeats} * walk.active();
  std::array<T, 128> lanes{};
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (uint32_t i = 0; i < walk.active(); ++i) {
      lanes[i] = UbElement<T>(core, walk.Offset(repeat, i));
    }
    visit(repeat, lanes.data(), walk.active());
  }
}

}  // namespace emulator

namespace AscendC {

// A tree inside each repeat, then repeat after repeat. `sharedTmpBuffer` isn't used by this form.
template <typename T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "ReduceSum");
  emulator::RequireType<T, float, half>(core, "src");
  emulator::CheckLive(core, "sharedTmpBuffer", sharedTmpBuffer.view);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src", src);
  if (count == 0) return;
  constexpr uint32_t kPerRepeat = emulator::kRepeatBytes / sizeof(T);
  T lanes[kPerRepeat];
  T sum = T();
  for (uint32_t begin = 0; begin < static_cast<uint32_t>(count); begin += kPerRepeat) {
    const uint32_t n = std::min(kPerRepeat, static_cast<uint32_t>(count) - begin);
    std::memcpy(lanes, src.Elements() + begin, n * sizeof(T));
    const T part = emulator::TreeSum(core, lanes, n);
    if constexpr (emulator::IsOneOf<T, float, half>()) {
      sum = begin == 0 ? part : emulator::AddOp::Apply(core, sum, part);
    }
  }
  emulator::MarkReduction<T>(core, dst.view, 1, sharedTmpBuffer.view, 0);
  dst.Elements()[0] = sum;
}

// High-dimension form: a tree inside each repeat, and trees over the repeats' results.
template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t mask, const int32_t repeatTime,
               const int32_t srcRepStride) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "ReduceSum");
  emulator::RequireType<T, float, half>(core, "src");
  if (mask <= 0 || repeatTime <= 0) return;
  ++core.counters().vector_instructions;
  std::vector<T> parts;
  emulator::ForEachRepeat(
      core, src, emulator::ContiguousMask(core, static_cast<uint64_t>(mask), sizeof(T)),
      static_cast<uint32_t>(repeatTime), 1, static_cast<uint32_t>(srcRepStride),
      [&](uint32_t, T* lanes, uint32_t n) { parts.push_back(emulator::TreeSum(core, lanes, n)); });
  constexpr uint32_t kPerRepeat = emulator::kRepeatBytes / sizeof(T);
  constexpr uint32_t kPerBlock = emulator::kBlockBytes / sizeof(T);
  const uint32_t needed =
      emulator::DivideUp(static_cast<uint64_t>(repeatTime), kPerBlock) * kPerBlock;
  while (parts.size() > 1) {
    std::vector<T> next;
    for (size_t begin = 0; begin < parts.size(); begin += kPerRepeat) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(kPerRepeat, parts.size() - begin));
      next.push_back(emulator::TreeSum(core, parts.data() + begin, n));
    }
    parts.swap(next);
  }
  emulator::MarkReduction<T>(core, dst.view, 1, sharedTmpBuffer.view, needed);
  dst.Elements()[0] = parts[0];
}

// dst[0] is the greatest; with `calIndex` dst[1] holds the bits of its first index.
template <typename T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count, bool calIndex = 0) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "ReduceMax");
  emulator::RequireType<T, float, half>(core, "src");
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src", src);
  if (count == 0) return;
  const T* values = src.Elements();
  emulator::Greatest<T> greatest{values[0], 0};
  for (int32_t i = 1; i < count; ++i) greatest.Take(core, values[i], static_cast<uint32_t>(i));
  const uint32_t repeats =
      emulator::DivideUp(static_cast<uint64_t>(count) * sizeof(T), emulator::kRepeatBytes);
  emulator::MarkReduction<T>(core, dst.view, calIndex ? 2 : 1, sharedTmpBuffer.view,
                             emulator::ReduceMaxTemporary<T>(repeats, calIndex));
  dst.Elements()[0] = greatest.value;
  if (calIndex) dst.Elements()[1] = emulator::IndexBits<T>(greatest.index);
}

template <typename T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t mask, const int32_t repeatTime,
               const int32_t srcRepStride, bool calIndex = 0) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "ReduceMax");
  emulator::RequireType<T, float, half>(core, "src");
  if (mask <= 0 || repeatTime <= 0) return;
  ++core.counters().vector_instructions;
  emulator::Greatest<T> greatest;
  const auto lanes_per_repeat = static_cast<uint32_t>(emulator::kRepeatBytes / sizeof(T));
  emulator::ForEachRepeat(core, src,
                          emulator::ContiguousMask(core, static_cast<uint64_t>(mask), sizeof(T)),
                          static_cast<uint32_t>(repeatTime), 1, static_cast<uint32_t>(srcRepStride),
                          [&](uint32_t repeat, T* lanes, uint32_t n) {
                            if (repeat == 0) greatest = emulator::Greatest<T>{lanes[0], 0};
                            for (uint32_t i = 0; i < n; ++i) {
                              greatest.Take(core, lanes[i], repeat * lanes_per_repeat + i);
                            }
                          });
  emulator::MarkReduction<T>(
      core, dst.view, calIndex ? 2 : 1, sharedTmpBuffer.view,
      emulator::ReduceMaxTemporary<T>(static_cast<uint32_t>(repeatTime), calIndex));
  dst.Elements()[0] = greatest.value;
  if (calIndex) dst.Elements()[1] = emulator::IndexBits<T>(greatest.index);
}

// One sum for each repeat. `dstRepStride` counts elements.
template <typename T, bool isSetMask = true>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t mask,
                    const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "WholeReduceSum");
  emulator::RequireType<T, float, half>(core, "src");
  if (repeatTime > 255) {
    core.Fail(emulator::Concat({"`repeatTime` must be at most 255, but is ", repeatTime}));
  }
  if (mask <= 0 || repeatTime <= 0) return;
  ++core.counters().vector_instructions;
  std::vector<T> sums;
  emulator::ForEachRepeat(
      core, src, emulator::ContiguousMask(core, static_cast<uint64_t>(mask), sizeof(T)),
      static_cast<uint32_t>(repeatTime), static_cast<uint32_t>(srcBlkStride),
      static_cast<uint32_t>(srcRepStride),
      [&](uint32_t, T* lanes, uint32_t n) { sums.push_back(emulator::TreeSum(core, lanes, n)); });
  const auto stride = static_cast<uint32_t>(dstRepStride);
  emulator::CheckOperand(core, "dst", dst.view, ((sums.size() - 1) * stride + 1) * sizeof(T),
                         sizeof(T));
  for (uint32_t i = 0; i < sums.size(); ++i) {
    core.Write("dst", dst.view.offset + i * stride * static_cast<uint32_t>(sizeof(T)), sizeof(T));
    dst.Elements()[i * stride] = sums[i];
  }
}

// One value (and index within the repeat) for each repeat. `dstRepStride` counts results.
template <typename T, bool isSetMask = true>
void WholeReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t mask,
                    const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "WholeReduceMax");
  emulator::RequireType<T, float, half>(core, "src");
  if (repeatTime > 255) {
    core.Fail(emulator::Concat({"`repeatTime` must be at most 255, but is ", repeatTime}));
  }
  if (mask <= 0 || repeatTime <= 0) return;
  ++core.counters().vector_instructions;
  std::vector<emulator::Greatest<T>> results;
  emulator::ForEachRepeat(core, src,
                          emulator::ContiguousMask(core, static_cast<uint64_t>(mask), sizeof(T)),
                          static_cast<uint32_t>(repeatTime), static_cast<uint32_t>(srcBlkStride),
                          static_cast<uint32_t>(srcRepStride), [&](uint32_t, T* lanes, uint32_t n) {
                            emulator::Greatest<T> greatest{lanes[0], 0};
                            for (uint32_t i = 1; i < n; ++i) greatest.Take(core, lanes[i], i);
                            results.push_back(greatest);
                          });
  // Bytes of one result. An index alone is a uint32_t whatever the element type.
  const bool pair =
      order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE;
  const bool only_index = order == ReduceOrder::ORDER_ONLY_INDEX;
  const bool index_first = order == ReduceOrder::ORDER_INDEX_VALUE;
  const auto size = static_cast<uint32_t>(sizeof(T));
  const uint32_t width = only_index ? 4 : (pair ? 2 * size : size);
  const uint32_t stride = static_cast<uint32_t>(dstRepStride) * width;
  emulator::CheckOperand(core, "dst", dst.view, (results.size() - 1) * stride + width, width);
  for (uint32_t i = 0; i < results.size(); ++i) {
    const uint32_t at = dst.view.offset + i * stride;
    core.Write("dst", at, width);
    if (only_index) {
      emulator::UbElement<uint32_t>(core, at) = results[i].index;
      continue;
    }
    emulator::UbElement<T>(core, at + (index_first ? size : 0)) = results[i].value;
    if (pair) {
      emulator::UbElement<T>(core, at + (index_first ? 0 : size)) =
          emulator::IndexBits<T>(results[i].index);
    }
  }
}

}  // namespace AscendC
