// Rules of flags and barriers: each kernel breaks one, and its twin doesn't.
#include "harness.h"

namespace rules_sync {

using namespace harness;

namespace {

constexpr uint32_t kCount = 64;

}  // namespace

RULE(VectorReadAfterWrite,
     "Exp: `src` is read on V, but an earlier write on V is not known to be complete: "
     "PipeBarrier<PIPE_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    if (!broken) PipeBarrier<PIPE_V>();
    Exp(ub[1], ub[0], kCount);
  });
}

RULE(VectorWriteAfterWrite,
     "Duplicate: `dst` is written on V, but an earlier write on V is not known to be complete: "
     "PipeBarrier<PIPE_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    if (!broken) PipeBarrier<PIPE_ALL>();
    Duplicate(ub[0], 2.0f, kCount);
  });
}

RULE(VectorWriteAfterRead,
     "Duplicate: `dst` is written on V, but an earlier read on V is not known to be complete: "
     "PipeBarrier<PIPE_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    PipeBarrier<PIPE_V>();
    Exp(ub[1], ub[0], kCount);
    if (!broken) PipeBarrier<PIPE_V>();
    Duplicate(ub[0], 2.0f, kCount);
  });
}

RULE(CopyInBeforeVector,
     "Exp: `src` is read on V, but an earlier write on MTE2 is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::MTE2_V> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 2> ub(kCount);
    DataCopy(ub[0], Gm<float>(x), kCount);
    if (!broken) Sync<HardEvent::MTE2_V>();
    Exp(ub[1], ub[0], kCount);
  });
}

RULE(VectorBeforeCopyOut,
     "DataCopy: `src` is read on MTE3, but an earlier write on V is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::V_MTE3> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    if (!broken) Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], kCount);
  });
}

RULE(CopyOutBeforeVector,
     "Duplicate: `dst` is written on V, but an earlier read on MTE3 is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::MTE3_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], kCount);
    if (!broken) Sync<HardEvent::MTE3_V>();
    Duplicate(ub[0], 2.0f, kCount);
  });
}

RULE(VectorBeforeCopyIn,
     "DataCopy: `dst` is written on MTE2, but an earlier read on V is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::V_MTE2> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 2> ub(kCount);
    DataCopy(ub[0], Gm<float>(x), kCount);
    Sync<HardEvent::MTE2_V>();
    Exp(ub[1], ub[0], kCount);
    if (!broken) Sync<HardEvent::V_MTE2>();
    DataCopy(ub[0], Gm<float>(x)[kCount], kCount);
  });
}

RULE(CopyInOverCopyIn,
     "DataCopy: `dst` is written on MTE2, but an earlier write on MTE2 is not known to be "
     "complete: PipeBarrier<PIPE_MTE2> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(kCount);
    DataCopy(ub[0], Gm<float>(x), kCount);
    if (!broken) PipeBarrier<PIPE_MTE2>();
    DataCopy(ub[0], Gm<float>(x)[kCount], kCount);
  });
}

RULE(CopyOutOverCopyOut,
     "DataCopy: `dst` (GM `y`) is written on MTE3, but an earlier write on MTE3 is not known to be "
     "complete: PipeBarrier<PIPE_MTE3> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], kCount);
    if (!broken) PipeBarrier<PIPE_MTE3>();
    DataCopy(Gm<float>(y)[8], ub[0], kCount);
  });
}

RULE(CopyOutBeforeCopyIn,
     "DataCopy: `src` (GM `y`) is read on MTE2, but an earlier write on MTE3 is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::MTE3_MTE2> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 2> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], kCount);
    if (!broken) Sync<HardEvent::MTE3_MTE2>();
    DataCopy(ub[1], Gm<float>(y), kCount);
  });
}

RULE(CopyInBeforeCopyOut,
     "DataCopy: `dst` (GM `x`) is written on MTE3, but an earlier read on MTE2 is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::MTE2_MTE3> is missing.") {
  GlobalMemory memory;
  GM_ADDR x = memory.InOut("x", Ramp(kCount));
  return Launch(
      [=](GM_ADDR gm) {
        Scratch<float, 2> ub(kCount);
        Duplicate(ub[1], 1.0f, kCount);
        Sync<HardEvent::V_MTE3>();
        DataCopy(ub[0], Gm<float>(gm), kCount);
        if (!broken) Sync<HardEvent::MTE2_MTE3>();
        DataCopy(Gm<float>(gm), ub[1], kCount);
      },
      memory, 1, 0, x);
}

RULE(VectorBeforeScalar,
     "LocalTensor::GetValue: `this` is read on S, but an earlier write on V is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::V_S> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(kCount);
    Duplicate(ub[0], 1.0f, kCount);
    if (!broken) Sync<HardEvent::V_S>();
    ub[0].GetValue(0);
  });
}

RULE(ScalarBeforeVector,
     "Exp: `src` is read on V, but an earlier write on S is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::S_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(8);
    for (uint32_t i = 0; i < 8; ++i) ub[0].SetValue(i, 1.0f);
    if (!broken) Sync<HardEvent::S_V>();
    Exp(ub[1], ub[0], 8);
  });
}

RULE(CopyInBeforeScalar,
     "LocalTensor::GetValue: `this` is read on S, but an earlier write on MTE2 is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::MTE2_S> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(kCount);
    DataCopy(ub[0], Gm<float>(x), kCount);
    if (!broken) Sync<HardEvent::MTE2_S>();
    ub[0].GetValue(0);
  });
}

RULE(ScalarBeforeCopyOut,
     "DataCopyPad: `src` is read on MTE3, but an earlier write on S is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::S_MTE3> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(8);
    ub[0].SetValue(0, 1.0f);
    if (!broken) Sync<HardEvent::S_MTE3>();
    DataCopyPad(Gm<float>(y), ub[0], DataCopyExtParams{1, 4, 0, 0, 0});
  });
}

RULE(EventIdRange, "SetFlag: `eventID` must be in [0, 7], but is 8.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    SetFlag<HardEvent::V_S>(broken ? 8 : 7);
    WaitFlag<HardEvent::V_S>(7);
  });
}

RULE(SetTwice, "SetFlag: event V_S 3 is already set and was not waited for.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    SetFlag<HardEvent::V_S>(3);
    SetFlag<HardEvent::V_S>(broken ? 3 : 4);
    WaitFlag<HardEvent::V_S>(3);
    WaitFlag<HardEvent::V_S>(4);
  });
}

RULE(WaitWithoutSet, "WaitFlag: event V_S 1 was never set, so this waits for ever.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    if (!broken) SetFlag<HardEvent::V_S>(1);
    WaitFlag<HardEvent::V_S>(1);
  });
}

RULE(FlagLeft, "end of kernel: event S_MTE2 0 was set and never waited for.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    SetFlag<HardEvent::S_MTE2>(0);
    if (!broken) WaitFlag<HardEvent::S_MTE2>(0);
  });
}

RULE(NoEventLeft, "TPipe::AllocEventID: all 8 ids of event V_S are in use.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    for (int i = 0; i < (broken ? 9 : 8); ++i) pipe.AllocEventID<HardEvent::V_S>();
  });
}

RULE(AtomicLeft, "end of kernel: SetAtomicAdd is still on: SetAtomicNone is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    SetAtomicAdd<float>();
    if (!broken) SetAtomicNone();
  });
}

RULE(ScalarBeforeCopyIn,
     "DataCopy: `dst` is written on MTE2, but an earlier read on S is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::S_MTE2> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(8);
    DataCopy(ub[0], Gm<float>(x), 8);
    Sync<HardEvent::MTE2_S>();
    ub[0].GetValue(0);
    if (!broken) Sync<HardEvent::S_MTE2>();
    DataCopy(ub[0], Gm<float>(x)[8], 8);
  });
}

RULE(CopyOutBeforeScalar,
     "GlobalTensor::GetValue: `this` (GM `y`) is read on S, but an earlier write on MTE3 is not "
     "known to be complete: SetFlag/WaitFlag<HardEvent::MTE3_S> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(8);
    Duplicate(ub[0], 1.0f, 8);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], 8);
    if (!broken) Sync<HardEvent::MTE3_S>();
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(
        Gm<float>(y));
    Gm<float>(y).GetValue(0);
  });
}

RULE(ScalarGmBeforeCopyIn,
     "DataCopy: `src` (GM `y`) is read on MTE2, but an earlier write on S is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::S_MTE2> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(8);
    GlobalTensor<float> gm = Gm<float>(y);
    for (uint64_t i = 0; i < 8; ++i) gm.SetValue(i, 1.0f);
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(gm);
    if (!broken) Sync<HardEvent::S_MTE2>();
    DataCopy(ub[0], gm, 8);
  });
}

// CreateVecIndex writes its first 32 bytes by the scalar unit, which waits for nobody.
RULE(
    VectorIndexAfterVector,
    "CreateVecIndex: `dst` is written on S, but an earlier write on V is not known to be complete: "
    "SetFlag/WaitFlag<HardEvent::V_S> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(64);
    Duplicate(ub[0], 1.0f, 64);
    PipeBarrier<PIPE_V>();
    if (!broken) Sync<HardEvent::V_S>();
    CreateVecIndex(ub[0], 0.0f, 64);
  });
}

// Behind the first 32 bytes it is the vector unit's work, as of any other instruction.
RULE(VectorIndexBeforeVector,
     "Muls: `src` is read on V, but an earlier write on V is not known to be complete: "
     "PipeBarrier<PIPE_V> is missing.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(64);
    CreateVecIndex(ub[0], 0.0f, 64);
    if (!broken) PipeBarrier<PIPE_V>();
    Muls(ub[0], ub[0], 4.0f, 64);
  });
}

// A reduction's result goes through the scalar unit, with two flags inside that need ids.
RULE(ReductionNeedsFlags, "ReduceSum: all 8 ids of event V_S are in use.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 3> ub(64);
    std::vector<TEventID> ids;
    for (int i = 0; i < (broken ? 8 : 7); ++i) {
      ids.push_back(ub.pipe.AllocEventID<HardEvent::V_S>());
    }
    Duplicate(ub[0], 1.0f, 64);
    PipeBarrier<PIPE_V>();
    ReduceSum(ub[1], ub[0], ub[2], 64);
    for (const TEventID id : ids) ub.pipe.ReleaseEventID<HardEvent::V_S>(id);
  });
}

}  // namespace rules_sync
