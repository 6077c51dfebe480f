// Rules of copies, atomic additions and the tiling data: each kernel breaks one, and its twin
// doesn't.
#include "harness.h"

namespace rules_copy {

using namespace harness;

namespace {

// Fills `num` UB tensors of `count` elements with ones, then runs `body`.
template <typename T, int num, typename Body>
Report OnOnes(uint32_t count, Body body) {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<T, num> ub(count);
    for (int i = 0; i < num; ++i) Duplicate(ub[i], static_cast<T>(1.0f), count);
    PipeBarrier<PIPE_V>();
    body(ub, x);
  });
}

const DataCopyPadExtParams<float> kNoPadding{};

}  // namespace

RULE(CopyLength, "DataCopy: the length must be a multiple of 32 bytes, but is 36.") {
  return OnOnes<float, 1>(32, [=](auto& ub, GM_ADDR x) {
    Sync<HardEvent::V_MTE2>();
    DataCopy(ub[0], Gm<float>(x), broken ? 9 : 8);
  });
}

RULE(BlockCount, "DataCopyPad: `blockCount` must be at most 4095, but is 4096.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    GlobalTensor<float> nothing;
    LocalTensor<float> tensor;
    const uint16_t count = broken ? 4096 : 4095;
    DataCopyPad(tensor, nothing, DataCopyExtParams{count, 0, 0, 0, 0}, kNoPadding);
  });
}

RULE(BlockLength, "DataCopyPad: `blockLen` must be at most 2097151 bytes, but is 2097152.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    GlobalTensor<int8_t> nothing;
    LocalTensor<int8_t> tensor;
    DataCopyPad(nothing, tensor, DataCopyExtParams{0, broken ? 2097152u : 2097151u, 0, 0, 0});
  });
}

RULE(BlockElements,
     "DataCopyPad: `blockLen` must be a multiple of the element's 4 bytes, but is 6.") {
  return OnOnes<float, 1>(32, [=](auto& ub, GM_ADDR x) {
    Sync<HardEvent::V_MTE2>();
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{1, broken ? 6u : 8u, 0, 0, 0}, kNoPadding);
  });
}

RULE(Padding,
     "DataCopyPad: `leftPadding` and `rightPadding` must be at most 32 bytes each, but are 0 and "
     "36.") {
  return OnOnes<float, 1>(32, [=](auto& ub, GM_ADDR x) {
    Sync<HardEvent::V_MTE2>();
    const uint8_t right = broken ? 9 : 8;
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{1, 8, 0, 0, 0},
                DataCopyPadExtParams<float>{true, 0, right, 0.0f});
  });
}

// On this chip a copy from GM reaches VECIN and VECOUT, and one to GM starts there.
RULE(CopyInPosition,
     "DataCopyPad: `dst` must be at VECIN or VECOUT, since a copy from or to GM doesn't reach "
     "VECCALC.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> work;
    TBuf<TPosition::VECIN> in;
    pipe.InitBuffer(work, 32);
    pipe.InitBuffer(in, 32);
    DataCopyPad(broken ? work.Get<float>() : in.Get<float>(), Gm<float>(x),
                DataCopyExtParams{1, 32, 0, 0, 0}, DataCopyPadExtParams<float>{});
  });
}

RULE(CopyOutPosition,
     "DataCopy: `src` must be at VECIN or VECOUT, since a copy from or to GM doesn't reach "
     "VECCALC.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> work;
    TBuf<TPosition::VECOUT> out;
    pipe.InitBuffer(work, 32);
    pipe.InitBuffer(out, 32);
    const LocalTensor<float> from = broken ? work.Get<float>() : out.Get<float>();
    Duplicate(from, 1.0f, 8);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), from, 8);
  });
}

RULE(AtomicType, "SetAtomicAdd: type uint8_t can't be added atomically.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    if (broken) {
      SetAtomicAdd<uint8_t>();
    } else {
      SetAtomicAdd<int8_t>();
    }
    SetAtomicNone();
  });
}

RULE(AtomicCopyType, "DataCopy: `src` has type float, but SetAtomicAdd was for half.") {
  GlobalMemory memory;
  GM_ADDR sums = memory.InOut("sums", std::vector<float>(8, 1.0f));
  return Launch(
      [=](GM_ADDR y) {
        Scratch<float, 1> ub(8);
        Duplicate(ub[0], 1.0f, 8);
        Sync<HardEvent::V_MTE3>();
        if (broken) {
          SetAtomicAdd<half>();
        } else {
          SetAtomicAdd<float>();
        }
        DataCopy(Gm<float>(y), ub[0], 8);
        SetAtomicNone();
      },
      memory, 1, 0, sums);
}

RULE(AtomicNeverWritten,
     "DataCopy: `dst` (GM `sums`) is added to, but neither the host nor the kernel has written "
     "it.") {
  GlobalMemory memory;
  GM_ADDR sums =
      broken ? memory.Output("sums", 32) : memory.InOut("sums", std::vector<float>(8, 1.0f));
  return Launch(
      [=](GM_ADDR y) {
        Scratch<float, 1> ub(8);
        Duplicate(ub[0], 1.0f, 8);
        Sync<HardEvent::V_MTE3>();
        SetAtomicAdd<float>();
        DataCopy(Gm<float>(y), ub[0], 8);
        SetAtomicNone();
      },
      memory, 1, 0, sums);
}

RULE(TilingSize, "GET_TILING_DATA_WITH_STRUCT: the struct has 16 bytes, but GM `tiling` has 12.") {
  struct Tiling {
    uint32_t rows, columns, blank, flags;
  };
  GlobalMemory memory;
  GM_ADDR tiling = memory.Input("tiling", std::vector<uint32_t>(broken ? 3 : 4, 7u));
  return Launch(
      [](GM_ADDR where) {
        REGISTER_TILING_DEFAULT(Tiling);
        GET_TILING_DATA_WITH_STRUCT(Tiling, data, where);
        ExpectEqual(data.flags, 7u, "flags");
      },
      memory, 1, 0, tiling);
}

RULE(TilingUnknown,
     "GET_TILING_DATA_WITH_STRUCT: `tiling` points into no GM tensor of this launch.") {
  struct Tiling {
    uint32_t rows;
  };
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    static uint8_t host[4];
    GET_TILING_DATA_WITH_STRUCT(Tiling, data, broken ? host : x);
    ExpectEqual(data.rows, 0u, "rows");
  });
}

}  // namespace rules_copy
