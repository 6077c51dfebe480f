// Copies, queues, cores, counters and the launch itself.
#include "harness.h"

using namespace harness;

namespace {

using Floats = std::vector<float>;

void DeclareMixed() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0); }

// x * 2 + 1 over `count` floats of each core, through queues.
class Affine {
 public:
  void Init(GM_ADDR x, GM_ADDR y, uint32_t count, uint32_t tile) {
    const auto start = static_cast<uint64_t>(GetBlockIdx()) * count;
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x) + start, count);
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + start, count);
    count_ = count;
    tile_ = tile;
    pipe_.InitBuffer(in_, 2, tile * sizeof(float));
    pipe_.InitBuffer(out_, 2, tile * sizeof(float));
  }
  void Process() {
    for (uint32_t begin = 0; begin < count_; begin += tile_) {
      LocalTensor<float> in = in_.AllocTensor<float>();
      DataCopy(in, x_[begin], tile_);
      in_.EnQue(in);
      in = in_.DeQue<float>();
      LocalTensor<float> out = out_.AllocTensor<float>();
      Muls(out, in, 2.0f, static_cast<int32_t>(tile_));
      in_.FreeTensor(in);
      PipeBarrier<PIPE_V>();
      Adds(out, out, 1.0f, static_cast<int32_t>(tile_));
      out_.EnQue(out);
      out = out_.DeQue<float>();
      DataCopy(y_[begin], out, tile_);
      out_.FreeTensor(out);
    }
  }

 private:
  TPipe pipe_;
  TQue<QuePosition::VECIN, 2> in_;
  TQue<QuePosition::VECOUT, 2> out_;
  GlobalTensor<float> x_, y_;
  uint32_t count_ = 0;
  uint32_t tile_ = 0;
};

struct Tiling {
  uint32_t count;
  uint32_t tile;
};

extern "C" __global__ __aicore__ void affine(GM_ADDR x, GM_ADDR y, GM_ADDR workspace,
                                             GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(Tiling);
  GET_TILING_DATA_WITH_STRUCT(Tiling, data, tiling);
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  if (GetUserWorkspace(workspace) != workspace) return;
  Affine kernel;
  if (TILING_KEY_IS(3)) {
    kernel.Init(x, y, data.count, data.tile);
    kernel.Process();
  }
}

}  // namespace

CASE(KernelWithQueues) {
  GlobalMemory memory;
  const Floats x = Ramp(512);
  const GM_ADDR in = memory.Input("x", x, 4);
  const GM_ADDR out = memory.Output("y", 2048, 12);
  const GM_ADDR workspace = memory.Output("workspace", 64);
  const GM_ADDR tiling = memory.Input("tiling", std::vector<Tiling>{{128, 32}});
  LaunchOptions options;
  options.block_dim = 4;
  options.tiling_key = 3;
  const Report report = Launch(affine, memory, options, in, out, workspace, tiling);
  ExpectOk(report);
  Floats expected(x);
  for (float& value : expected) value = value * 2.0f + 1.0f;
  ExpectValues(memory.Values<float>("y"), expected, "y");
  const emulator::Counters core = report.counters.Core(2);
  ExpectEqual(core.gm_to_ub_bytes, 512u, "bytes in");
  ExpectEqual(core.ub_to_gm_bytes, 512u, "bytes out");
  ExpectEqual(core.copies, 8u, "copies");
  ExpectEqual(core.vector_instructions, 8u, "vector instructions");
  ExpectEqual(core.vector_elements, 256u, "vector elements");
  ExpectEqual(core.vector_repeats, 8u, "vector repeats");
  ExpectEqual(report.counters.Total().gm_to_ub_bytes, 2048u, "bytes in, all cores");
}

CASE(CopyPadValues) {
  // Blocks of 3 floats every 5 in GM; in UB each with one float before and two after it.
  GlobalMemory memory;
  const GM_ADDR x = memory.Input("x", Ramp(16), 4);
  const GM_ADDR y = memory.Output("y", 64 * sizeof(float));
  const auto kernel = [](GM_ADDR from, GM_ADDR to) {
    Scratch<float, 1> ub(64);
    Duplicate(ub[0], -1.0f, 64);
    Sync<HardEvent::V_MTE2>();
    DataCopyPad(ub[0], Gm<float>(from)[1], DataCopyExtParams{2, 12, 8, 1, 0},
                DataCopyPadExtParams<float>{true, 1, 2, 9.0f});
    // No padding: the rest of the block repeats its first element.
    DataCopyPad(ub[0][32], Gm<float>(from)[4], DataCopyExtParams{1, 8, 0, 0, 0},
                DataCopyPadExtParams<float>{false, 0, 0, 0.0f});
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
  const GM_ADDR y = memory.InOut("y", Floats(12, -1.0f), 8);
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

CASE(CopyBlocksValues) {
  // DataCopyParams count 32-byte blocks on both sides.
  GlobalMemory memory;
  const GM_ADDR x = memory.Input("x", Ramp(48));
  const GM_ADDR y = memory.InOut("y", Floats(32, -1.0f));
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
  const GM_ADDR x = memory.Input("x", Ramp(16));
  const GM_ADDR y = memory.Output("y", 64);
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
  const GM_ADDR lengths = memory.Input("lengths", std::vector<int32_t>{3, 5, 7});
  const GM_ADDR y = memory.Output("y", 64);
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

namespace {

// Every core writes its index, then, after SyncAll, adds up what all cores wrote.
void Exchange(GM_ADDR workspace, GM_ADDR y) {
  DeclareMixed();
  Scratch<float, 2> ub(64);
  const auto me = static_cast<uint64_t>(GetBlockIdx());
  Duplicate(ub[0], static_cast<float>(me), 8);
  Sync<HardEvent::V_MTE3>();
  DataCopy(Gm<float>(workspace)[8 * me], ub[0], 8);
  SyncAll();
  const auto n = static_cast<int32_t>(8 * GetBlockNum());
  DataCopy(ub[1], Gm<float>(workspace), static_cast<uint32_t>(n));
  Sync<HardEvent::MTE2_V>();
  ReduceSum(ub[0], ub[1], ub[0], n);
  Sync<HardEvent::V_MTE3>();
  DataCopyPad(Gm<float>(y)[me], ub[0], DataCopyExtParams{1, 4, 0, 0, 0});
}

}  // namespace

CASE(SyncAllExchanges) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GlobalMemory memory;
    const GM_ADDR workspace = memory.Output("workspace", 8 * 32);
    const GM_ADDR y = memory.Output("y", 8 * 4);
    const Report report = Launch(Exchange, memory, 8, seed, workspace, y);
    ExpectOk(report);
    ExpectValues(memory.Values<float>("y"), Floats(8, 8.0f * 28.0f), "y");
    ExpectEqual(report.counters.NumPhases(), 2u, "phases");
    ExpectEqual(report.counters.Phase(0).ub_to_gm_bytes, 8u * 32u, "bytes out of phase 0");
    ExpectEqual(report.counters.Phase(1).gm_to_ub_bytes, 8u * 256u, "bytes into phase 1");
    // 4 bytes cost a whole block.
    ExpectEqual(report.counters.Phase(1).ub_to_gm_bytes, 8u * 32u, "bytes out of phase 1");
    ExpectEqual(report.Traffic("y").exact_written_bytes, 32u, "exact bytes of y");
    ExpectEqual(report.Traffic("y").written_bytes, 256u, "bytes of y");
  }
}

namespace {

// The order in which four cores reach a point, as the digits of a number.
uint64_t OrderOf(uint64_t seed) {
  uint64_t order = 0;
  RunXy(
      [&order](GM_ADDR x, GM_ADDR) {
        for (uint64_t i = 0; i < 8; ++i) {
          Gm<float>(x).GetValue(i);
          order = order * 7 + static_cast<uint64_t>(GetBlockIdx()) + 1;
        }
      },
      4, Synchronised(seed));
  return order;
}

}  // namespace

CASE(SeedsRepeat) {
  int different = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ExpectEqual(OrderOf(seed), OrderOf(seed), "the order of seed " + Show(seed));
    different += OrderOf(seed) != OrderOf(seed + 1);
  }
  if (different < 8) Fail("seeds hardly change the order");
}

CASE(AtomicAddsFromAllCores) {
  GlobalMemory memory;
  const GM_ADDR sums = memory.InOut("sums", Floats(8, 0.5f));
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
  const GM_ADDR sums = memory.InOut("sums", std::vector<half>(16, static_cast<half>(1.0f)));
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

CASE(FlagsCarryWhatTheSourceKnew) {
  // MTE2 to V to MTE3: the copy out is ordered after the copy in as well.
  ExpectOk(RunXy([](GM_ADDR x, GM_ADDR y) {
    Scratch<float, 1> ub(8);
    DataCopy(ub[0], Gm<float>(x), 8);
    Sync<HardEvent::MTE2_V>();
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], 8);
  }));
}

CASE(ReportAfterViolation) {
  const Report report = RunXy(
      [](GM_ADDR, GM_ADDR) {
        DeclareMixed();
        SyncAll();
        if (GetBlockIdx() == 2) SetFlag<HardEvent::V_S>(9);
        SyncAll();
      },
      3, Synchronised(5));
  ExpectEqual(report.ok(), false, "ok");
  ExpectEqual(report.core, 2, "core");
  ExpectEqual(report.phase, 1u, "phase");
  if (report.ToString() != "SetFlag: `eventID` must be in [0, 7], but is 9. [core 2, phase 1]") {
    Fail("the report reads: " + report.ToString());
  }
}

CASE(KernelThatThrows) {
  const Report report = RunXy([](GM_ADDR, GM_ADDR) { throw std::runtime_error("no luck"); });
  if (report.message != "the kernel threw: no luck.") Fail(report.message);
}

CASE(CallOutsideLaunch) {
  std::string text;
  try {
    GetBlockIdx();
  } catch (const std::logic_error& error) {
    text = error.what();
  }
  if (text != "an AscendC function was called outside emulator::Launch.") Fail(text);
}

CASE(BlockDimension) {
  std::string text;
  try {
    RunXy([](GM_ADDR, GM_ADDR) {}, 0);
  } catch (const std::invalid_argument& error) {
    text = error.what();
  }
  if (text != "`block_dim` must be at least 1, but is 0.") Fail(text);
}

CASE(NextLaunchReadsOutputs) {
  GlobalMemory memory;
  const GM_ADDR y = memory.Output("y", 32);
  const GM_ADDR z = memory.Output("z", 32);
  const auto fill = [](GM_ADDR to) {
    Scratch<float, 1> ub(8);
    Duplicate(ub[0], 4.0f, 8);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(to), ub[0], 8);
  };
  const auto copy = [](GM_ADDR from, GM_ADDR to) {
    Scratch<float, 1> ub(8);
    DataCopy(ub[0], Gm<float>(from), 8);
    Sync<HardEvent::MTE2_MTE3>();
    DataCopy(Gm<float>(to), ub[0], 8);
  };
  ExpectOk(Launch(fill, memory, 1, 0, y));
  memory.SetAccess("y", Access::kInput);
  ExpectOk(Launch(copy, memory, 1, 0, y, z));
  ExpectValues(memory.Values<float>("z"), Floats(8, 4.0f), "z");
}

CASE(PrintedTable) {
  LaunchOptions options = Synchronised();
  options.phase_names = {"rows"};
  const Report report = RunXy(
      [](GM_ADDR x, GM_ADDR) {
        DeclareMixed();
        Scratch<float, 1> ub(16);
        DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{2, 4, 4, 0, 0},
                    DataCopyPadExtParams<float>{});
        SyncAll();
        Gm<float>(x).GetValue(0);
      },
      1, options);
  ExpectOk(report);
  const std::string table = report.Table();
  const std::string expected_row =
      "rows          all            64             0             2             0             1"
      "             0             0             0             0             0\n";
  if (table.find(expected_row) == std::string::npos) Fail("no row of phase 0 in:\n" + table);
}

CASE(ManyLaunches) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const bool broken = seed % 2 == 1;
    const Report report = RunXy(
        [broken](GM_ADDR, GM_ADDR) {
          DeclareMixed();
          SyncAll();
          if (broken && GetBlockIdx() == 3) WaitFlag<HardEvent::V_S>(0);
          SyncAll();
        },
        8, Synchronised(seed));
    ExpectEqual(report.ok(), !broken, "ok");
  }
}

int main(int argc, char** argv) { return Main(argc, argv); }
