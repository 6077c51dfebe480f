// Rules between cores: each kernel breaks one, and its twin doesn't.
#include "harness.h"

namespace rules_cores {

using namespace harness;

namespace {

constexpr uint32_t kCount = 64;
constexpr uint64_t kCoreOneFirst = 1;  // a seed with which core 1 runs before core 0

void DeclareMixed() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0); }

// Writes `value` to kCount floats of GM and waits for the copy.
void Write(LocalTensor<float> tensor, GlobalTensor<float> gm, float value) {
  Duplicate(tensor, value, kCount);
  Sync<HardEvent::V_MTE3>();
  DataCopy(gm, tensor, kCount);
  Sync<HardEvent::MTE3_V>();
  Sync<HardEvent::MTE3_S>();
}

template <typename T>
void Clean(GlobalTensor<T> gm) {
  DataCacheCleanAndInvalid<T, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(gm);
}

}  // namespace

// Bytes, not blocks: the twin's cores write neighbouring floats of one 32-byte block.
RULE(TwoCoresWrite,
     "DataCopyPad: `dst` (GM `y`) is written by this core, but core 0 wrote it since the last "
     "SyncAll.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        Scratch<float, 1> ub(8);
        Duplicate(ub[0], 1.0f, 8);
        Sync<HardEvent::V_MTE3>();
        DataCopyPad(Gm<float>(y)[GetBlockIdx() * 3], ub[0],
                    DataCopyExtParams{1, broken ? 16u : 12u, 0, 0, 0});
      },
      2);
}

RULE(ReadBeforeSync,
     "DataCopy: `src` (GM `y`) is read by this core, but core 1 wrote it since the last SyncAll.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 2> ub(kCount);
        if (GetBlockIdx() == 1) Write(ub[0], Gm<float>(y), 1.0f);
        if (!broken) SyncAll();
        if (GetBlockIdx() == 0) DataCopy(ub[1], Gm<float>(y), kCount);
      },
      2, Synchronised(kCoreOneFirst));
}

RULE(WriteAfterRead,
     "DataCopy: `dst` (GM `y`) is written by this core, but core 1 read it since the last "
     "SyncAll.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 2> ub(kCount);
        if (GetBlockIdx() == 0) Write(ub[0], Gm<float>(y), 1.0f);
        SyncAll();
        if (GetBlockIdx() == 1) DataCopy(ub[1], Gm<float>(y), kCount);
        if (!broken) SyncAll();
        if (GetBlockIdx() == 0) Write(ub[0], Gm<float>(y), 2.0f);
      },
      2, Synchronised(1));
}

RULE(WriteWhatOthersRead,
     "DataCopy: `dst` (GM `y`) is written by this core, but other cores read it since the last "
     "SyncAll.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 2> ub(kCount);
        if (GetBlockIdx() == 0) Write(ub[0], Gm<float>(y), 1.0f);
        SyncAll();
        DataCopy(ub[1], Gm<float>(y), kCount);
        Sync<HardEvent::MTE2_MTE3>();
        if (!broken) SyncAll();
        if (GetBlockIdx() == 2) Write(ub[0], Gm<float>(y), 2.0f);
      },
      3, Synchronised(3));
}

RULE(SyncAllKernelType, "SyncAll: a pure vector kernel must be declared KERNEL_TYPE_MIX_AIV_1_0.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR) {
        if (!broken) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
        SyncAll();
      },
      2, Synchronised());
}

RULE(SyncAllScheduleMode, "SyncAll: the tiling must call SetScheduleMode(1), but the mode is 0.") {
  LaunchOptions options;
  options.schedule_mode = broken ? 0 : 1;
  return RunXy(
      [](GM_ADDR, GM_ADDR) {
        DeclareMixed();
        SyncAll();
      },
      2, options);
}

RULE(SyncAllTooManyCores,
     "SyncAll: the block dimension must be at most the chip's 40 vector cores, but is 41.") {
  return RunXy(
      [](GM_ADDR, GM_ADDR) {
        DeclareMixed();
        SyncAll();
      },
      broken ? 41 : 40, Synchronised());
}

RULE(SyncAllSkipped, "SyncAll: core 2 ended without it, so the others wait for ever.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR) {
        DeclareMixed();
        if (!broken || GetBlockIdx() != 2) SyncAll();
      },
      4, Synchronised());
}

RULE(StaleScalarRead,
     "GlobalTensor::GetValue: `this` (GM `y`) is read through the data cache, which may hold the "
     "value from before a write of core 1: DataCacheCleanAndInvalid is missing.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 1> ub(kCount);
        if (GetBlockIdx() == 1) Write(ub[0], Gm<float>(y), 3.0f);
        SyncAll();
        if (GetBlockIdx() != 0) return;
        if (!broken) Clean(Gm<float>(y));
        ExpectEqual(Gm<float>(y).GetValue(5), 3.0f, "y[5]");
      },
      2, Synchronised());
}

// Cleaning before SyncAll isn't ordered after the other core's write.
RULE(CleanedTooEarly,
     "GlobalTensor::GetValue: `this` (GM `y`) is read through the data cache, which may hold the "
     "value from before a write of core 1: DataCacheCleanAndInvalid is missing.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 1> ub(kCount);
        if (GetBlockIdx() == 1) Write(ub[0], Gm<float>(y), 3.0f);
        if (broken) Clean(Gm<float>(y));
        SyncAll();
        if (GetBlockIdx() != 0) return;
        if (!broken) Clean(Gm<float>(y));
        Gm<float>(y).GetValue(5);
      },
      2, Synchronised());
}

RULE(StaleOwnWrite,
     "GlobalTensor::GetValue: `this` (GM `y`) is read through the data cache, which may hold the "
     "value from before a write of core 0: DataCacheCleanAndInvalid is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(kCount);
    Write(ub[0], Gm<float>(y), 3.0f);
    if (!broken) Clean(Gm<float>(y));
    ExpectEqual(Gm<float>(y).GetValue(5), 3.0f, "y[5]");
  });
}

RULE(ScalarWriteNotCleaned,
     "DataCopy: `src` (GM `y`) is read, but SetValue left it in the data cache of core 0: "
     "DataCacheCleanAndInvalid is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(kCount);
    GlobalTensor<float> gm = Gm<float>(y);
    for (uint64_t i = 0; i < 8; ++i) gm.SetValue(i, 1.0f);
    if (!broken) Clean(gm);
    Sync<HardEvent::S_MTE2>();
    DataCopy(ub[0], gm, 8);
    if (broken) Clean(gm);
  });
}

RULE(ScalarWriteLeft,
     "end of kernel: `y` was written by SetValue and is still in the data cache: "
     "DataCacheCleanAndInvalid is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Gm<float>(y).SetValue(40, 1.0f);
    if (broken) return;
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(
        Gm<float>(y));
  });
}

RULE(SharedCacheLine,
     "GlobalTensor::SetValue: `this` (GM `y`) shares a 64-byte cache line with what core 0 wrote "
     "since the last SyncAll, and SetValue writes whole lines.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        GlobalTensor<float> mine =
            Gm<float>(y)[static_cast<uint64_t>(GetBlockIdx()) * (broken ? 8 : 16)];
        mine.SetValue(0, 1.0f);
        Clean(mine);
      },
      2);
}

RULE(CleanDestination,
     "DataCacheCleanAndInvalid: `dcciDst` must be CACHELINE_OUT or CACHELINE_ALL to reach GM.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    if (broken) {
      DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_UB>(
          Gm<float>(x));
    } else {
      DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_ALL>(
          Gm<float>(x));
    }
  });
}

RULE(AtomicAndPlain,
     "DataCopy: `dst` (GM `sums`) is written by this core, but core 0 wrote it since the last "
     "SyncAll.") {
  GlobalMemory memory;
  GM_ADDR sums = memory.InOut("sums", std::vector<float>(kCount, 0.0f));
  return Launch(
      [=](GM_ADDR y) {
        Scratch<float, 1> ub(kCount);
        Duplicate(ub[0], 1.0f, kCount);
        Sync<HardEvent::V_MTE3>();
        const bool add = !broken || GetBlockIdx() == 0;
        if (add) SetAtomicAdd<float>();
        DataCopy(Gm<float>(y), ub[0], kCount);
        SetAtomicNone();
      },
      memory, 2, 0, sums);
}

// The sum is complete only when all cores have added to it, whoever was last.
RULE(AtomicThenRead,
     "DataCopy: `src` (GM `sums`) is read by this core, but several cores wrote it since the last "
     "SyncAll.") {
  GlobalMemory memory;
  GM_ADDR sums = memory.InOut("sums", std::vector<float>(kCount, 0.0f));
  return Launch(
      [=](GM_ADDR y) {
        DeclareMixed();
        Scratch<float, 2> ub(kCount);
        Duplicate(ub[0], 1.0f, kCount);
        Sync<HardEvent::V_MTE3>();
        SetAtomicAdd<float>();
        DataCopy(Gm<float>(y), ub[0], kCount);
        SetAtomicNone();
        Sync<HardEvent::MTE3_MTE2>();
        if (!broken) SyncAll();
        const bool last = GetBlockIdx() == 0;
        if (last) DataCopy(ub[1], Gm<float>(y), kCount);
      },
      memory, 2, kCoreOneFirst, sums);
}

RULE(CopyIntoDirtyLine,
     "DataCopy: `dst` (GM `y`) shares a 64-byte cache line with what core 1 wrote since the last "
     "SyncAll, and SetValue writes whole lines.") {
  return RunXy(
      [=](GM_ADDR, GM_ADDR y) {
        Scratch<float, 1> ub(kCount);
        if (GetBlockIdx() == 1) {
          Gm<float>(y).SetValue(0, 1.0f);
          Clean(Gm<float>(y));
        } else {
          Duplicate(ub[0], 1.0f, 8);
          Sync<HardEvent::V_MTE3>();
          DataCopy(Gm<float>(y)[broken ? 8 : 16], ub[0], 8);
        }
      },
      2, Synchronised(kCoreOneFirst));
}

}  // namespace rules_cores
