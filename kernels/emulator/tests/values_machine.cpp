// Queues, cores, counters and the launch itself.
#include "harness.h"

namespace values_machine {

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
  GM_ADDR in = memory.Input("x", x, 4);
  GM_ADDR out = memory.Output("y", 2048, 12);
  GM_ADDR workspace = memory.Output("workspace", 64);
  GM_ADDR tiling = memory.Input("tiling", std::vector<Tiling>{{128, 32}});
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
    GM_ADDR workspace = memory.Output("workspace", 8 * 32);
    GM_ADDR y = memory.Output("y", 8 * 4);
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
  GM_ADDR y = memory.Output("y", 32);
  GM_ADDR z = memory.Output("z", 32);
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

CASE(ScalarWaitsAreCounted) {
  const Report report = RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 3> ub(128);
    CreateVecIndex(ub[0], 0.0f, 128);  // 8 elements by the scalar unit, one wait of V for it
    PipeBarrier<PIPE_V>();
    ReduceSum(ub[1], ub[0], ub[2], 128);        // two waits, one read, one write
    ReduceMax(ub[1], ub[0], ub[2], 128, true);  // of two results each
    Sync<HardEvent::V_S>();
    Sync<HardEvent::MTE3_S>();  // of no vector
  });
  ExpectOk(report);
  const emulator::Counters total = report.counters.Total();
  ExpectEqual(total.scalar_vector_waits, 1u + 2u + 2u + 1u, "waits");
  ExpectEqual(total.ub_scalar_reads, 1u + 2u, "reads");
  ExpectEqual(total.ub_scalar_writes, 8u + 1u + 2u, "writes");
  // Blocks 1 to 7 and the second repeat, each made of the one before it; then the reductions.
  ExpectEqual(total.vector_instructions, 7u + 1u + 2u, "instructions");
}

}  // namespace values_machine
