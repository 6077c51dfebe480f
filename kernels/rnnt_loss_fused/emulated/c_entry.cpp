// C entry to the operators on the emulator: plain arrays in and out, for tests through ctypes.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../op_host/rnnt_loss_fused_tiling_plan.h"
#include "kernels.h"

extern "C" {

// Sizes, attributes and the emulated machine. Types: 0 float32, 1 float16, 2 bfloat16. Entries: 1
// fused, 2 forward and backward launched after each other, on `backward_cores`, 3 forward without
// a gradient.
struct EmulatedCall {
  int64_t num_rows;
  int64_t vocab;
  int64_t batch;
  int64_t target_columns;
  int64_t band_frames;  // 0: no band
  int64_t blank;
  float clamp;
  float fastemit_lambda;  // of the backward entry
  int32_t fused_log_softmax;
  int32_t type;
  int32_t entry;
  int32_t cores;
  int32_t backward_cores;
  int32_t nan_rule;
  int32_t blank_in_targets;
  int32_t in_place;  // the gradient overwrites the logits; forward and backward only
  uint64_t seed;
  int64_t ub_bytes;  // that the tiling may plan with; 0: all of it
  int64_t offset;    // bytes that every tensor starts beyond an aligned address
};

struct EmulatedTraffic {
  uint64_t logits_read;
  uint64_t grad_written;
  uint64_t state_bytes;    // of the lattice state, both ways, as asked for
  uint64_t state_charged;  // the same as the hardware moves it
  uint64_t total_charged;  // all tensors, both ways
  uint64_t descriptors;
  uint64_t vector_instructions[4];  // per phase
  uint64_t vector_repeats[4];
  uint64_t phase_bytes_least[4];  // of the core that moved least in the phase, and most
  uint64_t phase_bytes_most[4];
};
}

namespace {

using emulator::Access;
using emulator::GlobalMemory;
using rnnt_loss_fused::ElementType;
using rnnt_loss_fused::Entry;

struct Host {
  const void* logits;
  const int32_t* targets;
  const int32_t* logit_lengths;
  const int32_t* target_lengths;
  const int32_t* band;
  const int32_t* backward_band;  // of the backward launch, which should be the same
  const int32_t* emission_windows;
  const float* grad_loss;
  float* loss;
  void* grad;
  int32_t* status;
};

ElementType TypeOf(const EmulatedCall& call) {
  return call.type == 0   ? ElementType::kFloat32
         : call.type == 1 ? ElementType::kFloat16
                          : ElementType::kBfloat16;
}

class Run {
 public:
  Run(const EmulatedCall& call, const Host& host) : call_(call), host_(host) {
    element_bytes_ = rnnt_loss_fused::ElementBytes(TypeOf(call));
    logits_bytes_ = static_cast<uint64_t>(call.num_rows * call.vocab * element_bytes_);
    const auto input = [&](const char* name, const void* data, int64_t count, int64_t bytes) {
      return memory_.Create(name, Access::kInput, data, static_cast<uint64_t>(count * bytes),
                            static_cast<uint64_t>(call_.offset));
    };
    gm_.logits = memory_.Create("logits", call.in_place ? Access::kInOut : Access::kInput,
                                host.logits, logits_bytes_, static_cast<uint64_t>(call.offset));
    gm_.targets = input("targets", host.targets, call.batch * call.target_columns, 4);
    gm_.logit_lengths = input("logit_lengths", host.logit_lengths, call.batch, 4);
    gm_.target_lengths = input("target_lengths", host.target_lengths, call.batch, 4);
    const int64_t limits = call.batch * call.band_frames * 2;
    if (host.band != nullptr) gm_.band = input("band", host.band, limits, 4);
    if (host.backward_band != nullptr) {
      backward_band_ = input("backward_band", host.backward_band, limits, 4);
    }
    if (host.emission_windows != nullptr) {
      gm_.emission_windows =
          input("emission_windows", host.emission_windows, call.batch * call.target_columns * 2, 4);
    }
    gm_.loss = Output("loss", call.batch * 4);
    gm_.status = host.status == nullptr ? nullptr : Output("status", call.batch * 4);
    if (call.entry == 3) return;
    gm_.grad = call.in_place ? gm_.logits : Output("grad", static_cast<int64_t>(logits_bytes_));
    if (host.grad_loss != nullptr)
      gm_.grad_loss = input("grad_loss", host.grad_loss, call.batch, 4);
  }

  // Empty, or what the emulator found wrong.
  std::string Fused() {
    const rnnt_loss_fused::TilingPlan plan = Plan(Entry::kFused, call_.cores);
    gm_.state = memory_.Output("state", static_cast<uint64_t>(plan.workspace_bytes));
    return Launch(plan, CallFused);
  }

  std::string ForwardAndBackward() {
    const rnnt_loss_fused::TilingPlan forward = Plan(Entry::kForward, call_.cores);
    gm_.state = Output("state", forward.data.state_bytes);
    const std::string problem = Launch(forward, CallForward);
    if (!problem.empty()) return problem;
    memory_.SetAccess("state", Access::kInput);
    if (backward_band_ != nullptr) gm_.band = backward_band_;
    return Launch(Plan(Entry::kBackward, call_.backward_cores), CallBackward);
  }

  std::string ForwardAlone() {
    const rnnt_loss_fused::TilingPlan plan = Plan(Entry::kForward, call_.cores);
    gm_.state = Output("state", plan.data.state_bytes);
    return Launch(plan, CallForward);
  }

  void CopyResults() const {
    const auto copy = [](GM_ADDR from, void* to, uint64_t bytes) {
      if (to != nullptr && bytes > 0) std::memcpy(to, from, bytes);
    };
    copy(gm_.loss, host_.loss, static_cast<uint64_t>(call_.batch) * 4);
    copy(gm_.status, host_.status, static_cast<uint64_t>(call_.batch) * 4);
    if (gm_.grad != nullptr) copy(gm_.grad, host_.grad, logits_bytes_);
  }

  const EmulatedTraffic& traffic() const { return traffic_; }

 private:
  GM_ADDR Output(const char* name, int64_t bytes) {
    return memory_.Output(name, static_cast<uint64_t>(bytes), static_cast<uint64_t>(call_.offset));
  }

  rnnt_loss_fused::TilingPlan Plan(Entry entry, int32_t cores) const {
    rnnt_loss_fused::Problem problem;
    problem.entry = entry;
    problem.type = TypeOf(call_);
    problem.sizes = {call_.num_rows, call_.vocab, call_.batch, call_.target_columns,
                     call_.band_frames};
    problem.has_windows = host_.emission_windows != nullptr;
    problem.blank = call_.blank;
    problem.clamp = call_.clamp;
    problem.fused_log_softmax = call_.fused_log_softmax != 0;
    problem.needs_grad = call_.entry != 3;
    problem.blank_in_targets = call_.blank_in_targets != 0;
    if (entry == Entry::kBackward) problem.fastemit_lambda = call_.fastemit_lambda;
    problem.has_status = host_.status != nullptr && entry != Entry::kBackward;
    rnnt_loss_fused::Platform platform;
    platform.num_cores = cores;
    if (call_.ub_bytes > 0) platform.ub_bytes = call_.ub_bytes;
    return rnnt_loss_fused::MakeTiling(problem, platform);
  }

  std::string Launch(const rnnt_loss_fused::TilingPlan& plan,
                     void (*kernel)(const KernelAddresses&)) {
    const std::string name = "tiling" + std::to_string(plan.tiling_key);
    gm_.tiling = memory_.Input(name, std::vector<RnntLossFusedTilingData>{plan.data});
    emulator::LaunchOptions options;
    options.block_dim = plan.data.used_cores;
    options.physical_cores = plan.data.used_cores;
    options.seed = call_.seed;
    options.schedule_mode = 1;
    options.tiling_key = plan.tiling_key;
    options.nan_rule = static_cast<emulator::NanRule>(call_.nan_rule);
    options.phase_names = {"rows", "lattice", "gradient"};
    if (call_.band_frames > 0) options.phase_names.insert(options.phase_names.begin(), "band");
    const emulator::Report report = emulator::Launch(kernel, memory_, options, gm_);
    Count(report);
    return report.ok() ? "" : report.ToString();
  }

  void Count(const emulator::Report& report) {
    const emulator::RegionTraffic state = report.Traffic("state");
    traffic_.logits_read += report.Traffic("logits").exact_read_bytes;
    traffic_.grad_written += report.Traffic(call_.in_place ? "logits" : "grad").exact_written_bytes;
    traffic_.state_bytes += state.exact_read_bytes + state.exact_written_bytes;
    traffic_.state_charged += state.read_bytes + state.written_bytes;
    const emulator::Counters total = report.counters.Total();
    traffic_.total_charged += total.gm_to_ub_bytes + total.ub_to_gm_bytes;
    traffic_.descriptors += total.gm_to_ub_descriptors + total.ub_to_gm_descriptors;
    const uint32_t phases = report.counters.NumPhases() < 4 ? report.counters.NumPhases() : 4;
    for (uint32_t phase = 0; phase < phases; ++phase) {
      const emulator::Counters counters = report.counters.Phase(phase);
      traffic_.vector_instructions[phase] += counters.vector_instructions;
      traffic_.vector_repeats[phase] += counters.vector_repeats;
      uint64_t least = UINT64_MAX;
      uint64_t most = 0;
      for (int core = 0; core < report.counters.NumCores(); ++core) {
        const emulator::Counters one = report.counters.Get(core, phase);
        const uint64_t bytes = one.gm_to_ub_bytes + one.ub_to_gm_bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
      }
      traffic_.phase_bytes_least[phase] = least;
      traffic_.phase_bytes_most[phase] = most;
    }
  }

  EmulatedCall call_;
  Host host_;
  GlobalMemory memory_;
  EmulatedTraffic traffic_{};
  int64_t element_bytes_ = 0;
  uint64_t logits_bytes_ = 0;
  KernelAddresses gm_{};
  GM_ADDR backward_band_ = nullptr;
};

}  // namespace

// Writes loss (B,), grad (N, V; not by entry 3) and, unless null, status (B,). Returns 0, or 1 with
// the emulator's complaint in `message`, which has `message_bytes`.
extern "C" int EmulatedRnntLoss(const EmulatedCall* call, const void* logits,
                                const int32_t* targets, const int32_t* logit_lengths,
                                const int32_t* target_lengths, const int32_t* band,
                                const int32_t* backward_band, const int32_t* emission_windows,
                                const float* grad_loss, float* loss, void* grad, int32_t* status,
                                EmulatedTraffic* traffic, char* message, int64_t message_bytes) {
  Run run(*call, Host{logits, targets, logit_lengths, target_lengths, band, backward_band,
                      emission_windows, grad_loss, loss, grad, status});
  const std::string problem = call->entry == 1   ? run.Fused()
                              : call->entry == 2 ? run.ForwardAndBackward()
                                                 : run.ForwardAlone();
  run.CopyResults();
  *traffic = run.traffic();
  std::strncpy(message, problem.c_str(), static_cast<size_t>(message_bytes - 1));
  message[message_bytes - 1] = '\0';
  return problem.empty() ? 0 : 1;
}
