// Flags, barriers, SyncAll, atomics and the data cache.
#pragma once

#include <cstdint>

#include "emulator/core.h"
#include "emulator/element_types.h"
#include "emulator/tensor.h"
#include "emulator/types.h"

namespace AscendC {

inline int64_t GetBlockIdx() { return emulator::Core::Current().index(); }
inline int64_t GetBlockNum() { return emulator::Core::Current().options().block_dim; }

template <HardEvent event>
void SetFlag(int32_t eventID) {
  emulator::Core::Current().Enter("SetFlag");
  emulator::Core::Current().SetFlag(event, eventID);
}

template <HardEvent event>
void WaitFlag(int32_t eventID) {
  emulator::Core::Current().Enter("WaitFlag");
  emulator::Core::Current().WaitFlag(event, eventID);
}

template <pipe_t pipe>
void PipeBarrier() {
  static_assert(pipe != PIPE_S, "the scalar unit needs no barrier");
  emulator::Core& core = emulator::Core::Current();
  core.Enter("PipeBarrier");
  if constexpr (pipe == PIPE_ALL) {
    core.BarrierAll();
  } else {
    core.Barrier(pipe);
  }
}

// The hardware form: every pipe of every core completes, then all go on.
template <bool isAIVOnly = true>
void SyncAll() {
  static_assert(isAIVOnly, "the emulator has vector cores only");
  emulator::Core& core = emulator::Core::Current();
  core.Enter("SyncAll");
  if (core.kernel_type != KernelMetaType::KERNEL_TYPE_MIX_AIV_1_0) {
    core.Fail("a pure vector kernel must be declared KERNEL_TYPE_MIX_AIV_1_0");
  }
  const emulator::LaunchOptions& options = core.options();
  if (options.block_dim > options.physical_cores) {
    core.Fail(
        emulator::Concat({"the block dimension must be at most the chip's ", options.physical_cores,
                          " vector cores, but is ", options.block_dim}));
  }
  if (options.schedule_mode != 1) {
    core.Fail(emulator::Concat(
        {"the tiling must call SetScheduleMode(1), but the mode is ", options.schedule_mode}));
  }
  core.BarrierAll();
  core.chip().SyncAll();
}

// Until SetAtomicNone, copies from UB to GM add to what is there.
template <typename T>
void SetAtomicAdd() {
  emulator::Core& core = emulator::Core::Current();
  core.Enter("SetAtomicAdd");
  if (!emulator::IsOneOf<T, float, half, bfloat16_t, int32_t, int16_t, int8_t>()) {
    core.Fail(emulator::Concat({"type ", emulator::TypeName<T>(), " can't be added atomically"}));
  }
  core.atomic_type = emulator::TypeName<T>();
}

inline void SetAtomicNone() {
  emulator::Core::Current().Enter("SetAtomicNone");
  emulator::Core::Current().atomic_type = nullptr;
}

// Writes back and drops one line of the data cache, or all of it.
template <typename T, CacheLine entireType, DcciDst dcciDst = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& dst) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_S, "DataCacheCleanAndInvalid");
  if (dcciDst != DcciDst::CACHELINE_OUT && dcciDst != DcciDst::CACHELINE_ALL) {
    core.Fail("`dcciDst` must be CACHELINE_OUT or CACHELINE_ALL to reach GM");
  }
  const emulator::DataCache::Moment now{++core.chip().time, core.chip().phase};
  if (entireType == CacheLine::ENTIRE_DATA_CACHE) {
    core.cache().CleanAll(now);
    core.dirty_lines().clear();
    return;
  }
  const auto address = reinterpret_cast<uint64_t>(dst.view.data());
  core.cache().CleanLine(address, now);
  core.dirty_lines().erase(address / emulator::DataCache::kLineBytes *
                           emulator::DataCache::kLineBytes);
}

}  // namespace AscendC
