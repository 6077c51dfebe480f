// What every vector instruction does around its arithmetic: checks, shadow, counters, and the
// walk over repeats, blocks and mask bits of the high-dimension forms.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <vector>

#include "emulator/core.h"
#include "emulator/element_types.h"
#include "emulator/tensor.h"

namespace emulator {

// A count form: `count` elements, contiguous. Name the sources before the destination, so that an
// instruction may write what it reads.
class VectorCall {
 public:
  VectorCall(Core& core, int64_t count, size_t widest_element)
      : core_(core), count_(static_cast<uint64_t>(count)) {
    if (count < 0) core.Fail(Concat({"`count` must not be negative, but is ", count}));
    if (count == 0) return;
    Counters& counters = core.counters();
    ++counters.vector_instructions;
    counters.vector_elements += count_;
    counters.vector_repeats += (count_ * widest_element + kRepeatBytes - 1) / kRepeatBytes;
  }

  template <typename T>
  void Source(const char* name, const AscendC::LocalTensor<T>& tensor) {
    Source(name, tensor.view, static_cast<uint32_t>(sizeof(T)));
  }
  template <typename T>
  void Destination(const char* name, const AscendC::LocalTensor<T>& tensor) {
    Destination(name, tensor.view, static_cast<uint32_t>(sizeof(T)));
  }
  // What the instruction touches of two operands may be the same memory if they are of one width;
  // nothing may overlap in part.
  template <typename T, typename U>
  void NoPartialOverlap(const char* name, const AscendC::LocalTensor<T>& a, const char* other,
                        const AscendC::LocalTensor<U>& b) {
    if (sizeof(T) == sizeof(U) && a.view.offset == b.view.offset) return;
    NoOverlap(name, a.view.offset, count_ * sizeof(T), other, b.view.offset, count_ * sizeof(U));
  }
  void NoOverlap(const char* name, uint64_t a, uint64_t a_bytes, const char* other, uint64_t b,
                 uint64_t b_bytes) {
    if (count_ == 0 || a >= b + b_bytes || b >= a + a_bytes) return;
    core_.Fail(name, Concat({"overlaps `", other, "` in part"}));
  }

 private:
  void Source(const char* name, const UbView& view, uint32_t element_bytes) {
    CheckOperand(core_, name, view, count_ * element_bytes);
    core_.Read(name, view.offset, static_cast<uint32_t>(count_ * element_bytes));
  }
  void Destination(const char* name, const UbView& view, uint32_t element_bytes) {
    CheckOperand(core_, name, view, count_ * element_bytes);
    core_.Write(name, view.offset, static_cast<uint32_t>(count_ * element_bytes));
  }

  Core& core_;
  uint64_t count_;
};

// Which elements of a repeat take part.
struct Mask {
  uint64_t low = 0;
  uint64_t high = 0;

  bool Has(uint32_t lane) const { return (((lane < 64 ? low : high) >> (lane % 64)) & 1u) != 0; }
};

inline Mask ContiguousMask(Core& core, uint64_t mask, size_t widest_element) {
  const uint64_t lanes = kRepeatBytes / widest_element;
  if (mask > std::min<uint64_t>(lanes, 128)) {
    core.Fail(Concat({"`mask` must be at most ", lanes, " for elements of ", widest_element,
                      " bytes, but is ", mask}));
  }
  const auto bits = [](uint64_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; };
  return Mask{bits(mask), mask > 64 ? bits(mask - 64) : 0};
}

inline Mask BitMask(Core& core, const uint64_t mask[], size_t widest_element) {
  // With 64 lanes the second word doesn't exist for the hardware.
  if (widest_element >= 4) return Mask{mask[0], 0};
  if (widest_element < 2) core.Fail("`mask` bit by bit needs elements of 16 or 32 bits");
  return Mask{mask[0], mask[1]};
}

struct StridedOperand {
  const char* name;
  UbView view;
  uint32_t element_bytes;
  uint32_t block_stride;   // in blocks, within a repeat
  uint32_t repeat_stride;  // in blocks, between repeats
};

// The addresses that one operand of a high-dimension form touches.
class StridedWalk {
 public:
  StridedWalk(Core& core, const StridedOperand& operand, const Mask& mask, uint32_t lanes)
      : operand_(operand), per_block_(kBlockBytes / operand.element_bytes) {
    CheckOperand(core, operand.name, operand.view, 0);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (!mask.Has(lane)) continue;
      const uint32_t offset = lane / per_block_ * operand.block_stride * kBlockBytes +
                              lane % per_block_ * operand.element_bytes;
      if (active_ > 0 && lane % per_block_ != 0 && mask.Has(lane - 1)) {
        runs_[num_runs_ - 1].bytes += operand.element_bytes;
      } else {
        runs_[num_runs_++] = Run{offset, operand.element_bytes, lane / per_block_};
      }
      lane_offset_[active_++] = offset;
    }
  }

  uint32_t active() const { return active_; }
  uint32_t Offset(uint32_t repeat, uint32_t index) const {
    return operand_.view.offset + repeat * operand_.repeat_stride * kBlockBytes +
           lane_offset_[index];
  }

  void Mark(Core& core, uint32_t repeats, bool write) {
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
      for (uint32_t r = 0; r < num_runs_; ++r) {
        const uint32_t relative = repeat * operand_.repeat_stride * kBlockBytes + runs_[r].offset;
        const uint32_t end = relative + runs_[r].bytes;
        if (end > operand_.view.bytes) {
          core.Fail(operand_.name,
                    Concat({"has ", operand_.view.bytes, " bytes, but ", end, " are accessed"}));
        }
        const uint32_t offset = operand_.view.offset + relative;
        begin_ = std::min(begin_, offset);
        end_ = std::max(end_, operand_.view.offset + end);
        if (write) {
          core.Write(operand_.name, offset, runs_[r].bytes);
        } else {
          core.Read(operand_.name, offset, runs_[r].bytes);
        }
      }
    }
  }

  // Memory may be shared with `other` only where the same block of the same repeat uses it.
  void CheckOverlap(Core& core, uint32_t repeats, const StridedWalk& other,
                    bool may_be_same) const {
    if (begin_ >= other.end_ || other.begin_ >= end_) return;
    std::vector<int32_t> user(kUbBytes / kBlockBytes, 0);
    const auto visit = [repeats](const StridedWalk& walk, auto action) {
      for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        for (uint32_t r = 0; r < walk.num_runs_; ++r) {
          const uint32_t offset = walk.operand_.view.offset + walk.runs_[r].offset +
                                  repeat * walk.operand_.repeat_stride * kBlockBytes;
          action(offset / kBlockBytes, static_cast<int32_t>(repeat * 8 + walk.runs_[r].block + 1));
        }
      }
    };
    visit(other, [&](uint32_t block, int32_t who) {
      user[block] = user[block] == 0 || user[block] == who ? who : -1;
    });
    visit(*this, [&](uint32_t block, int32_t who) {
      if (user[block] == 0 || (may_be_same && user[block] == who)) return;
      core.Fail(operand_.name, Concat({"overlaps `", other.operand_.name, "` in part"}));
    });
  }

 private:
  struct Run {
    uint32_t offset = 0;
    uint32_t bytes = 0;
    uint32_t block = 0;
  };

  StridedOperand operand_;
  uint32_t per_block_;
  uint32_t active_ = 0;
  uint32_t num_runs_ = 0;
  uint32_t begin_ = kUbBytes;
  uint32_t end_ = 0;
  std::array<uint32_t, 128> lane_offset_;
  std::array<Run, 128> runs_;
};

// Checks and marks the operands of a high-dimension form, destination first.
inline std::vector<StridedWalk> CheckStrided(Core& core, const Mask& mask, uint32_t repeats,
                                             std::initializer_list<StridedOperand> operands) {
  const StridedOperand& dst = *operands.begin();
  if (repeats > 255) core.Fail(Concat({"`repeatTime` must be at most 255, but is ", repeats}));
  if (dst.block_stride == 0) core.Fail("`dstBlkStride` must not be zero");
  uint32_t widest = 0;
  for (const StridedOperand& operand : operands) {
    widest = std::max(widest, operand.element_bytes);
  }
  std::vector<StridedWalk> walks;
  walks.reserve(operands.size());
  for (const StridedOperand& operand : operands) {
    walks.emplace_back(core, operand, mask, kRepeatBytes / widest);
  }
  for (size_t i = 1; i < walks.size(); ++i) walks[i].Mark(core, repeats, false);
  walks[0].Mark(core, repeats, true);
  for (size_t i = 1; i < walks.size(); ++i) {
    const bool same_width = dst.element_bytes == operands.begin()[i].element_bytes;
    walks[0].CheckOverlap(core, repeats, walks[i], same_width);
  }
  Counters& counters = core.counters();
  ++counters.vector_instructions;
  counters.vector_repeats += repeats;
  counters.vector_elements += uint64_t{repeats} * walks[0].active();
  return walks;
}

// A high-dimension form: after the checks, calls `element(at)`, where at(i) is the UB offset of
// operand i's element.
template <typename Element>
void StridedCall(Core& core, const Mask& mask, uint32_t repeats,
                 std::initializer_list<StridedOperand> operands, Element element) {
  const std::vector<StridedWalk> walks = CheckStrided(core, mask, repeats, operands);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (uint32_t index = 0; index < walks[0].active(); ++index) {
      element([&](size_t i) { return walks[i].Offset(repeat, index); });
    }
  }
}

template <typename T>
T& UbElement(Core& core, uint32_t offset) {
  return *reinterpret_cast<T*>(core.Ub(offset));
}

// An unsupported element type is reported like any other broken rule.
template <typename T, typename... Allowed>
void RequireType(Core& core, const char* operand) {
  if constexpr (!IsOneOf<T, Allowed...>()) {
    core.Fail(operand, Concat({"has type ", TypeName<T>(), ", which the 910B doesn't take here"}));
  } else {
    static_cast<void>(core);
    static_cast<void>(operand);
  }
}

template <typename T>
T LargestFinite() {
  if constexpr (std::is_same_v<T, half>) return static_cast<half>(65504.0f);
  if constexpr (std::is_same_v<T, float>) return std::numeric_limits<float>::max();
}

// In saturation mode an infinite result becomes the largest finite one.
template <typename T>
T Saturated(const Core& core, T value) {
  if constexpr (IsOneOf<T, float, half>()) {
    if (core.options().overflow_mode == OverflowMode::kSaturate) {
      const T limit = LargestFinite<T>();
      if (value > limit) return limit;
      if (value < -limit) return -limit;
    }
  }
  return value;
}

}  // namespace emulator
