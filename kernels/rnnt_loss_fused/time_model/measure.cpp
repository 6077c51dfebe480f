// Runs the fused operator once on the emulator and prints its counters as JSON: what a time model
// and the tables of the documentation are made from.
//   measure float32|float16|bfloat16 CORES V T1,U1 [T2,U2 ...]
// With T1,U1,E,L for each the lattice is the band of emission windows that begin E frames before
// evenly spaced labels and end L after them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "emulated/kernels.h"
#include "emulator/launch.h"
#include "op_host/rnnt_loss_fused_tiling_plan.h"

namespace {

using rnnt_loss_fused::ElementType;
using rnnt_loss_fused::Platform;
using rnnt_loss_fused::Problem;
using rnnt_loss_fused::TilingPlan;

struct Batch {
  std::vector<int32_t> frames;
  std::vector<int32_t> labels;
  int64_t rows = 0;
  int64_t target_columns = 0;
  std::vector<std::vector<int32_t>> bands;  // first and last column, frame by frame; or none
};

// Column u begins with label u and ends where label u + 1 must have come.
std::vector<int32_t> BandOfWindows(int frames, int labels, int early, int late) {
  std::vector<int32_t> limits;
  for (int t = 0; t < frames; ++t) {
    int first = 0;
    int last = 0;
    for (int u = 0; u < labels; ++u) {
      const int label_frame = static_cast<int>((2 * int64_t{u} + 1) * frames / (2 * labels));
      if (std::min(label_frame + late, frames - 1) < t) ++first;
      if (label_frame - early <= t) ++last;
    }
    limits.insert(limits.end(), {first, last});
  }
  return limits;
}

bool ReadBatch(int argc, char** argv, int first, Batch* batch) {
  for (int i = first; i < argc; ++i) {
    int frames = 0;
    int labels = 0;
    int early = 0;
    int late = 0;
    const int given = std::sscanf(argv[i], "%d,%d,%d,%d", &frames, &labels, &early, &late);
    if ((given != 2 && given != 4) || frames < 1 || labels < 0) return false;
    if (given == 4) batch->bands.push_back(BandOfWindows(frames, labels, early, late));
    batch->frames.push_back(frames);
    batch->labels.push_back(labels);
    if (given == 2) {
      batch->rows += int64_t{frames} * (labels + 1);
    } else {
      const std::vector<int32_t>& limits = batch->bands.back();
      for (size_t t = 0; t < limits.size(); t += 2) batch->rows += limits[t + 1] - limits[t] + 1;
    }
    batch->target_columns = std::max<int64_t>(batch->target_columns, labels);
  }
  return batch->bands.empty() || batch->bands.size() == batch->frames.size();
}

// (B, T, 2), T being that of the longest utterance.
std::vector<int32_t> BandTensor(const Batch& batch, int64_t frames) {
  std::vector<int32_t> tensor;
  for (std::vector<int32_t> limits : batch.bands) {
    limits.resize(static_cast<size_t>(2 * frames));
    tensor.insert(tensor.end(), limits.begin(), limits.end());
  }
  return tensor;
}

std::vector<int32_t> Targets(const Batch& batch, int64_t vocab) {
  std::vector<int32_t> targets;
  for (size_t b = 0; b < batch.frames.size(); ++b) {
    for (int64_t u = 0; u < batch.target_columns; ++u) {
      targets.push_back(static_cast<int32_t>((7 * u + 3 * static_cast<int64_t>(b)) % (vocab - 1)));
    }
  }
  return targets;
}

void PrintCounters(const emulator::Counters& c) {
  std::printf(
      "{\"read_bytes\": %llu, \"written_bytes\": %llu, \"copies\": %llu, \"blocks\": %llu, "
      "\"instructions\": %llu, \"repeats\": %llu, \"scalar_accesses\": %llu, "
      "\"scalar_vector_waits\": %llu}",
      static_cast<unsigned long long>(c.gm_to_ub_bytes),
      static_cast<unsigned long long>(c.ub_to_gm_bytes), static_cast<unsigned long long>(c.copies),
      static_cast<unsigned long long>(c.gm_to_ub_descriptors + c.ub_to_gm_descriptors),
      static_cast<unsigned long long>(c.vector_instructions),
      static_cast<unsigned long long>(c.vector_repeats),
      static_cast<unsigned long long>(c.ub_scalar_reads + c.ub_scalar_writes + c.gm_scalar_reads +
                                      c.gm_scalar_writes),
      static_cast<unsigned long long>(c.scalar_vector_waits));
}

// Per phase, each core's counters.
void PrintPhases(const emulator::Report& report, int cores) {
  constexpr uint32_t kMostPhases = 16;
  uint32_t phases = 0;
  for (uint32_t phase = 0; phase < kMostPhases; ++phase) {
    const emulator::Counters sum = report.counters.Phase(phase);
    if (sum.copies > 0 || sum.vector_instructions > 0) phases = phase + 1;
  }
  std::printf("\"phases\": [");
  for (uint32_t phase = 0; phase < phases; ++phase) {
    std::printf("%s[", phase > 0 ? ", " : "");
    for (int core = 0; core < cores; ++core) {
      if (core > 0) std::printf(", ");
      PrintCounters(report.counters.Get(core, phase));
    }
    std::printf("]");
  }
  std::printf("]");
}

// Of each GM tensor the bytes read and written in each phase.
void PrintTraffic(const emulator::Report& report) {
  std::printf("\"traffic\": {");
  bool first_tensor = true;
  for (const auto& [tensor, phases] : report.traffic) {
    std::printf("%s\"%s\": [", first_tensor ? "" : ", ", tensor.c_str());
    first_tensor = false;
    for (size_t phase = 0; phase < phases.size(); ++phase) {
      std::printf("%s[%llu, %llu]", phase > 0 ? ", " : "",
                  static_cast<unsigned long long>(phases[phase].read_bytes),
                  static_cast<unsigned long long>(phases[phase].written_bytes));
    }
    std::printf("]");
  }
  std::printf("}");
}

template <typename T>
int Run(ElementType type, int cores, int64_t vocab, const Batch& batch) {
  Problem problem;
  problem.type = type;
  const int64_t longest = *std::max_element(batch.frames.begin(), batch.frames.end());
  problem.sizes = {batch.rows, vocab, static_cast<int64_t>(batch.frames.size()),
                   batch.target_columns, batch.bands.empty() ? 0 : longest};
  Platform platform;
  platform.num_cores = cores;
  const TilingPlan plan = MakeTiling(problem, platform);

  std::vector<T> logits(static_cast<size_t>(batch.rows * vocab));
  uint32_t random = 1;
  for (T& logit : logits) {
    random = random * 1664525u + 1013904223u;
    const float value = static_cast<float>(random >> 16) / 16384.0f - 2.0f;
    if constexpr (std::is_same_v<T, bfloat16_t>) {
      logit = AscendC::ToBfloat16(value);
    } else {
      logit = static_cast<T>(value);
    }
  }
  emulator::GlobalMemory memory;
  KernelAddresses gm{};
  gm.logits =
      memory.Map("logits", emulator::Access::kInput, logits.data(), logits.size() * sizeof(T));
  gm.targets = memory.Input("targets", Targets(batch, vocab));
  gm.logit_lengths = memory.Input("logit_lengths", batch.frames);
  gm.target_lengths = memory.Input("target_lengths", batch.labels);
  if (!batch.bands.empty()) gm.band = memory.Input("band", BandTensor(batch, longest));
  gm.loss = memory.Output("loss", batch.frames.size() * sizeof(float));
  gm.grad = memory.Output("grad", logits.size() * sizeof(T));
  gm.state = memory.Output("state", static_cast<uint64_t>(plan.workspace_bytes));
  gm.tiling = memory.Input("tiling", std::vector<RnntLossFusedTilingData>{plan.data});
  emulator::LaunchOptions options;
  options.block_dim = plan.data.used_cores;
  options.physical_cores = std::max(40, cores);
  options.schedule_mode = 1;
  options.tiling_key = plan.tiling_key;
  const emulator::Report report = emulator::Launch(CallFused, memory, options, gm);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.ToString().c_str());
    return 1;
  }
  for (const float value : memory.Values<float>("loss")) {
    if (!(value > 0.0f && std::isfinite(value))) {
      std::fprintf(stderr, "A loss is %g.\n", double{value});
      return 1;
    }
  }
  std::printf("{\"rows\": %lld, \"workspace_bytes\": %lld, ", static_cast<long long>(batch.rows),
              static_cast<long long>(plan.workspace_bytes));
  PrintTraffic(report);
  std::printf(", ");
  PrintPhases(report, plan.data.used_cores);
  std::printf("}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Batch batch;
  const int cores = argc > 2 ? std::atoi(argv[2]) : 0;
  const int64_t vocab = argc > 3 ? std::atoll(argv[3]) : 0;
  if (cores < 1 || vocab < 2 || !ReadBatch(argc, argv, 4, &batch) || batch.frames.empty()) {
    std::fprintf(stderr,
                 "usage: measure float32|float16|bfloat16 CORES V T1,U1[,E1,L1] [T2,U2 ...]\n");
    return 2;
  }
  const std::string type = argv[1];
  if (type == "float32") return Run<float>(ElementType::kFloat32, cores, vocab, batch);
  if (type == "float16") return Run<half>(ElementType::kFloat16, cores, vocab, batch);
  return Run<bfloat16_t>(ElementType::kBfloat16, cores, vocab, batch);
}
