// Element operations per second with all checks on: prints one number per kind of kernel.
#include <chrono>

#include "harness.h"

using namespace harness;

namespace {

// Rows of softmax statistics and of a gradient-like expression, as the operator will have them.
void Rows(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) {
  TPipe pipe;
  TQue<TPosition::VECIN, 2> in;
  TQue<TPosition::VECOUT, 2> out;
  TBuf<> work, scratch;
  pipe.InitBuffer(in, 2, columns * sizeof(float));
  pipe.InitBuffer(out, 2, columns * sizeof(float));
  pipe.InitBuffer(work, columns * sizeof(float));
  pipe.InitBuffer(scratch, 256);
  const auto n = static_cast<int32_t>(columns);
  const auto bytes = static_cast<uint32_t>(columns * sizeof(float));
  const auto cores = static_cast<uint64_t>(GetBlockNum());
  for (auto row = static_cast<uint64_t>(GetBlockIdx()); row < rows; row += cores) {
    LocalTensor<float> z = in.AllocTensor<float>();
    DataCopyPad(z, Gm<float>(x)[row * columns], DataCopyExtParams{1, bytes, 0, 0, 0},
                DataCopyPadExtParams<float>{});
    in.EnQue(z);
    z = in.DeQue<float>();
    LocalTensor<float> g = out.AllocTensor<float>();
    LocalTensor<float> w = work.Get<float>();
    ReduceMax(scratch.Get<float>(), z, scratch.Get<float>(), n);
    PipeBarrier<PIPE_V>();
    Adds(w, z, -1.0f, n);
    PipeBarrier<PIPE_V>();
    Exp(w, w, n);
    PipeBarrier<PIPE_V>();
    ReduceSum(scratch.Get<float>(), w, scratch.Get<float>(), n);
    PipeBarrier<PIPE_V>();
    Muls(g, w, 0.5f, n);
    in.FreeTensor(z);
    PipeBarrier<PIPE_V>();
    Mins(g, g, 1.0f, n);
    PipeBarrier<PIPE_V>();
    Maxs(g, g, -1.0f, n);
    PipeBarrier<PIPE_V>();
    Muls(g, g, 2.0f, n);
    out.EnQue(g);
    g = out.DeQue<float>();
    DataCopyPad(Gm<float>(y)[row * columns], g, DataCopyExtParams{1, bytes, 0, 0, 0});
    out.FreeTensor(g);
  }
}

void Measure(uint32_t rows, uint32_t columns, int cores) {
  GlobalMemory memory;
  GM_ADDR x = memory.Input("x", std::vector<float>(uint64_t{rows} * columns, 0.5f));
  GM_ADDR y = memory.Output("y", uint64_t{rows} * columns * sizeof(float));
  const auto start = std::chrono::steady_clock::now();
  const Report report = Launch(Rows, memory, cores, 1, x, y, rows, columns);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto elements = static_cast<double>(report.counters.Total().vector_elements);
  std::printf("columns=%u cores=%d million_element_operations_per_second=%.1f %s\n", columns, cores,
              elements / seconds.count() * 1e-6, report.ToString().c_str());
}

}  // namespace

int main() {
  Measure(20000, 512, 8);
  Measure(50000, 64, 40);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RunXy([](GM_ADDR, GM_ADDR) {}, 40, Synchronised(seed));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("empty_launch_of_40_cores_ms=%.2f\n", seconds.count() * 10.0);
  return 0;
}
