// What copies, scalar accesses and atomic additions do to memory.
#include "harness.h"

namespace values_copy {

using namespace harness;

namespace {

using Floats = std::vector<float>;

}  // namespace

CASE(CopyPadValues) {
  // Blocks of 3 floats every 5 in GM; in UB each with one float before and two after it.
  GlobalMemory memory;
  GM_ADDR x = memory.Input("x", Ramp(16), 4);
  GM_ADDR y = memory.Output("y", 64 * sizeof(float));
  const auto kernel = [](GM_ADDR from, GM_ADDR to) {
    Scratch<float, 1> ub(64);
    Duplicate(ub[0], -1.0f, 64);
    Sync<HardEvent::V_MTE2>();
    DataCopyPad(ub[0], Gm<float>(from)[1], DataCopyExtParams{2, 12, 8, 1, 0},
                DataCopyPadExtParams<float>{true, 1, 2, 9.0f});
    // isPad, but nothing to pad: the rest of the block repeats its first element.
    DataCopyPad(ub[0][32], Gm<float>(from)[4], DataCopyExtParams{1, 8, 0, 0, 0},
                DataCopyPadExtParams<float>{true, 0, 0, 0.0f});
    Sync<HardEvent::MTE2_MTE3>();
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(to), ub[0], 64);
  };
  ExpectOk(Launch(kernel, memory, 1, 0, x, y));
  Floats expected(64, -1.0f);
  const Floats first{9, 1, 2, 3, 9, 9, 9, 9}, second{9, 6, 7, 8, 9, 9, 9, 9};
  const Floats third{4, 5, 4, 4, 4, 4, 4, 4};
  for (size_t i = 0; i < 8; ++i) {
    expected[i] = first[i];
    expected[16 + i] = second[i];
    expected[32 + i] = third[i];
  }
  ExpectValues(memory.Values<float>("y"), expected, "y");
}

CASE(CopyOutPadValues) {
  GlobalMemory memory;
  GM_ADDR y = memory.InOut("y", Floats(12, -1.0f), 8);
  const auto kernel = [](GM_ADDR to) {
    Scratch<float, 1> ub(32);
    for (uint32_t i = 0; i < 32; ++i) ub[0].SetValue(i, static_cast<float>(i));
    Sync<HardEvent::S_MTE3>();
    // Blocks of 2 floats, every second 32-byte block of UB, every third float pair of GM.
    DataCopyPad(Gm<float>(to)[1], ub[0], DataCopyExtParams{2, 8, 1, 12, 0});
  };
  ExpectOk(Launch(kernel, memory, 1, 0, y));
  ExpectValues(memory.Values<float>("y"), Floats{-1, 0, 1, -1, -1, -1, 16, 17, -1, -1, -1, -1},
               "y");
}

CASE(CopyOutOfSmallSlice) {
  // The slice is shorter than a block, which is read whole and cut.
  GlobalMemory memory;
  GM_ADDR y = memory.Output("y", 4);
  const auto kernel = [](GM_ADDR to) {
    TPipe pipe;
    CopyBuffer buffer;
    pipe.InitBuffer(buffer, 32);
    const LocalTensor<float> slice = buffer.Get<float>(1);
    slice.SetValue(0, 2.5f);
    Sync<HardEvent::S_MTE3>();
    DataCopyPad(Gm<float>(to), slice, DataCopyExtParams{1, 4, 0, 0, 0});
  };
  ExpectOk(Launch(kernel, memory, 1, 0, y));
  ExpectValues(memory.Values<float>("y"), Floats{2.5f}, "y");
}

CASE(CopyBlocksValues) {
  // DataCopyParams count 32-byte blocks on both sides.
  GlobalMemory memory;
  GM_ADDR x = memory.Input("x", Ramp(48));
  GM_ADDR y = memory.InOut("y", Floats(32, -1.0f));
  const auto kernel = [](GM_ADDR from, GM_ADDR to) {
    Scratch<float, 1> ub(16);
    DataCopy(ub[0], Gm<float>(from), DataCopyParams{2, 1, 2, 0});
    Sync<HardEvent::MTE2_MTE3>();
    DataCopy(Gm<float>(to), ub[0], DataCopyParams{2, 1, 0, 1});
  };
  const Report report = Launch(kernel, memory, 1, 0, x, y);
  ExpectOk(report);
  const Floats out = memory.Values<float>("y");
  for (size_t i = 0; i < 8; ++i) {
    ExpectEqual(out[i], static_cast<float>(i), "first block");
    ExpectEqual(out[8 + i], -1.0f, "gap");
    ExpectEqual(out[16 + i], static_cast<float>(24 + i), "second block");
  }
  ExpectEqual(report.counters.Total().gm_to_ub_descriptors, 2u, "blocks in");
}

CASE(NothingToCopy) {
  ExpectOk(RunXy([](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(8);
    DataCopy(ub[0], Gm<float>(x), 0);
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{0, 8, 0, 0, 0},
                DataCopyPadExtParams<float>{});
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{1, 0, 0, 0, 0},
                DataCopyPadExtParams<float>{});
  }));
}

CASE(QueueThroughUb) {
  GlobalMemory memory;
  GM_ADDR x = memory.Input("x", Ramp(16));
  GM_ADDR y = memory.Output("y", 64);
  const auto kernel = [](GM_ADDR from, GM_ADDR to) {
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    for (uint64_t i = 0; i < 2; ++i) {
      LocalTensor<float> tensor = queue.AllocTensor<float>();
      DataCopy(tensor, Gm<float>(from)[8 * i], 8);
      queue.EnQue(tensor);
      tensor = queue.DeQue<float>();
      DataCopy(Gm<float>(to)[8 * i], tensor, 8);
      queue.FreeTensor(tensor);
    }
  };
  ExpectOk(Launch(kernel, memory, 1, 0, x, y));
  ExpectValues(memory.Values<float>("y"), Ramp(16), "y");
}

CASE(LocalAndGlobalScalars) {
  GlobalMemory memory;
  GM_ADDR lengths = memory.Input("lengths", std::vector<int32_t>{3, 5, 7});
  GM_ADDR y = memory.Output("y", 64);
  const auto kernel = [](GM_ADDR from, GM_ADDR to) {
    const GlobalTensor<int32_t> in = Gm<int32_t>(from);
    int32_t sum = 0;
    for (uint64_t i = 0; i < 3; ++i) sum += in.GetValue(i);
    GlobalTensor<int32_t> out = Gm<int32_t>(to);
    out.SetValue(2, sum);
    DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(out);
    ExpectEqual(out.GetValue(2), 15, "own value");
    Scratch<float, 1> ub(8);
    ub[0].SetValue(1, 2.5f);
    ExpectEqual(ub[0].GetValue(1), 2.5f, "UB value");
    ExpectEqual(ub[0].GetSize(), 8u, "size");
    ExpectEqual(ub[0][3].GetSize(), 5u, "size of the rest");
  };
  const Report report = Launch(kernel, memory, 1, 0, lengths, y);
  ExpectOk(report);
  ExpectEqual(memory.Values<int32_t>("y")[2], 15, "y[2]");
  const emulator::Counters total = report.counters.Total();
  ExpectEqual(total.gm_scalar_reads, 4u, "GM reads");
  ExpectEqual(total.gm_scalar_writes, 1u, "GM writes");
  ExpectEqual(total.ub_scalar_reads, 1u, "UB reads");
  ExpectEqual(total.ub_scalar_writes, 1u, "UB writes");
}

CASE(AtomicAddsFromAllCores) {
  GlobalMemory memory;
  GM_ADDR sums = memory.InOut("sums", Floats(8, 0.5f));
  const auto kernel = [](GM_ADDR y) {
    Scratch<float, 1> ub(8);
    Duplicate(ub[0], static_cast<float>(GetBlockIdx() + 1), 8);
    Sync<HardEvent::V_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(Gm<float>(y), ub[0], 8);
    SetAtomicNone();
  };
  ExpectOk(Launch(kernel, memory, 5, 3, sums));
  ExpectValues(memory.Values<float>("sums"), Floats(8, 15.5f), "sums");
}

CASE(AtomicAddsHalf) {
  GlobalMemory memory;
  GM_ADDR sums = memory.InOut("sums", std::vector<half>(16, static_cast<half>(1.0f)));
  const auto kernel = [](GM_ADDR y) {
    Scratch<half, 1> ub(16);
    Duplicate(ub[0], static_cast<half>(0.25f), 16);
    Sync<HardEvent::V_MTE3>();
    SetAtomicAdd<half>();
    DataCopy(Gm<half>(y), ub[0], 16);
    SetAtomicNone();
  };
  ExpectOk(Launch(kernel, memory, 2, 0, sums));
  ExpectValues(memory.Values<half>("sums"), Floats(16, 1.5f), "sums");
}

}  // namespace values_copy
