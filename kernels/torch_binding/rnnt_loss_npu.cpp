// The operators of asr_ascend/losses/operators.py for NPU tensors, by the aclnn functions of
// kernels/rnnt_loss_fused. Python owns the schemas and has checked options; what the kernels rely
// on is checked here again, since an operator may be called by anybody.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "../rnnt_loss_fused/op_host/rnnt_loss_fused_check.h"
#include "../rnnt_loss_fused/op_host/rnnt_loss_fused_tiling_plan.h"
#include "third_party/op-plugin/op_plugin/include/npu_cpp_extension.h"

namespace {

using at::Tensor;

// Of the operators' arguments the part that says which problem the logits belong to.
struct Problem {
  Tensor targets;         // (B, S) int32
  Tensor logit_lengths;   // (B,) int32
  Tensor target_lengths;  // (B,) int32
  int64_t blank;
  double clamp;
  bool fused_log_softmax;
  double fastemit_lambda;
  bool blank_in_targets;
  std::optional<Tensor> emission_windows;  // (B, S, 2) int32
  std::optional<Tensor> band;              // (B, T, 2) int32
};

rnnt_loss_fused::ElementType TypeOf(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return rnnt_loss_fused::ElementType::kFloat32;
    case at::kHalf:
      return rnnt_loss_fused::ElementType::kFloat16;
    case at::kBFloat16:
      return rnnt_loss_fused::ElementType::kBfloat16;
    case at::kInt:
      return rnnt_loss_fused::ElementType::kInt32;
    default:
      return rnnt_loss_fused::ElementType::kOther;
  }
}

rnnt_loss_fused::Shape ShapeOf(const Tensor& tensor) { return tensor.sizes().vec(); }

void Expect(const std::string& error) { TORCH_CHECK_VALUE(error.empty(), error); }

// int32 on the device of the logits. What is there already is not copied; from the CPU only a
// pinned copy of it can follow without a wait.
Tensor OnDevice(const Tensor& indices, const Tensor& logits) {
  if (indices.device() == logits.device()) return indices.to(at::kInt);
  return indices.to(at::kInt).pin_memory().to(logits.device(), /*non_blocking=*/true);
}

std::optional<Tensor> OnDevice(const std::optional<Tensor>& indices, const Tensor& logits) {
  if (!indices.has_value()) return std::nullopt;
  return OnDevice(*indices, logits);
}

// torch_npu's own sentence names a symbol, not what to do.
void ExpectPackage() {
  static const bool is_there = GetOpApiFuncAddr("aclnnRnntLossForwardGetWorkspaceSize") != nullptr;
  TORCH_CHECK(
      is_there,
      "The operator package of asr_ascend is not found: kernels/build.sh builds and installs "
      "it, and ASCEND_CUSTOM_OPP_PATH must name its folder under vendors/.");
}

Problem Check(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
              const Tensor& target_lengths, int64_t blank, double clamp, bool fused_log_softmax,
              double fastemit_lambda, double delay_penalty, bool blank_in_targets,
              const std::optional<Tensor>& emission_windows, const std::optional<Tensor>& band) {
  ExpectPackage();
  TORCH_CHECK_NOT_IMPLEMENTED(delay_penalty == 0.0, "The NPU operator has no `delay_penalty`.");
  rnnt_loss_fused::InputShapes shapes = {ShapeOf(logits), ShapeOf(targets), ShapeOf(logit_lengths),
                                         ShapeOf(target_lengths)};
  if (band.has_value()) shapes.band = ShapeOf(*band);
  if (emission_windows.has_value()) shapes.emission_windows = ShapeOf(*emission_windows);
  Expect(rnnt_loss_fused::CheckInputShapes(shapes));
  TORCH_CHECK_TYPE(rnnt_loss_fused::IsLogitsType(TypeOf(logits)),
                   "`logits` on an NPU must be float32, float16 or bfloat16, but is ",
                   logits.scalar_type(), ".");
  Expect(rnnt_loss_fused::CheckKnown(rnnt_loss_fused::InferSizes(shapes)));
  Expect(rnnt_loss_fused::CheckBlank(blank, logits.size(1)));
  return {OnDevice(targets, logits),
          OnDevice(logit_lengths, logits),
          OnDevice(target_lengths, logits),
          blank,
          clamp,
          fused_log_softmax,
          fastemit_lambda,
          blank_in_targets,
          OnDevice(emission_windows, logits),
          OnDevice(band, logits)};
}

// Contiguous. empty_like with a memory format makes torch_npu warn about formats of its own.
Tensor NewLike(const Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

int64_t StateSize(const Tensor& logits, const Problem& problem, bool needs_grad) {
  const int64_t band_frames = problem.band.has_value() ? problem.band->size(1) : 0;
  return rnnt_loss_fused::StateShape(logits.size(0), problem.targets.size(0), needs_grad,
                                     band_frames)[0];
}

// What the latest calls said about their samples. It stays on the device until somebody asks.
class Statuses {
 public:
  static constexpr int64_t kCalls = 64;

  void Note(const Tensor& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    statuses_.push_back(status);
    if (static_cast<int64_t>(statuses_.size()) > kCalls) statuses_.pop_front();
  }

  // Newest first, of one device, at most `count`; they are forgotten.
  std::vector<Tensor> Take(at::Device device, int64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Tensor> taken;
    std::deque<Tensor> others;
    for (auto status = statuses_.rbegin(); status != statuses_.rend(); ++status) {
      if (status->device() == device && static_cast<int64_t>(taken.size()) < count) {
        taken.push_back(*status);
      } else {
        others.push_front(*status);
      }
    }
    statuses_.swap(others);
    return taken;
  }

 private:
  std::mutex mutex_;
  std::deque<Tensor> statuses_;
};

// Never destroyed: at exit the device may be gone before it.
Statuses& LatestStatuses() {
  static auto* statuses = new Statuses;
  return *statuses;
}

std::tuple<Tensor, Tensor> Forward(const Tensor& logits, const Tensor& targets,
                                   const Tensor& logit_lengths, const Tensor& target_lengths,
                                   int64_t blank, double clamp, bool fused_log_softmax,
                                   double fastemit_lambda, double delay_penalty,
                                   bool blank_in_targets,
                                   const std::optional<Tensor>& emission_windows,
                                   const std::optional<Tensor>& band, bool needs_grad,
                                   bool /*reuse_logits*/) {
  const c10::OptionalDeviceGuard guard(at::device_of(logits));
  const Problem problem =
      Check(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax,
            fastemit_lambda, delay_penalty, blank_in_targets, emission_windows, band);
  const auto floats = logits.options().dtype(at::kFloat);
  Tensor costs = at::empty({problem.targets.size(0)}, floats);
  Tensor state = at::empty({StateSize(logits, problem, needs_grad)}, floats);
  Tensor status = NewLike(problem.logit_lengths);
  EXEC_NPU_CMD_EXT(aclnnRnntLossForward, logits, problem.targets, problem.logit_lengths,
                   problem.target_lengths, problem.band, problem.emission_windows, problem.blank,
                   problem.fused_log_softmax, needs_grad, problem.blank_in_targets, costs, state,
                   status);
  LatestStatuses().Note(status);
  // Without a gradient the state was memory to work in.
  return {costs, needs_grad ? state : at::empty({0}, floats)};
}

void LaunchBackward(const Tensor& grad_costs, const Tensor& logits, const Tensor& state,
                    const Problem& problem, Tensor& grad) {
  TORCH_CHECK(grad_costs.sizes() == problem.logit_lengths.sizes() && state.dim() == 1 &&
                  state.size(0) == StateSize(logits, problem, /*needs_grad=*/true) &&
                  state.scalar_type() == at::kFloat,
              "grad_costs and state must be those of rnnt_loss_forward's outputs.");
  const Tensor upstream = grad_costs.to(at::kFloat);
  EXEC_NPU_CMD_EXT(aclnnRnntLossBackward, logits, problem.targets, problem.logit_lengths,
                   problem.target_lengths, state, upstream, problem.band, problem.emission_windows,
                   problem.blank, problem.clamp, problem.fused_log_softmax, problem.fastemit_lambda,
                   problem.blank_in_targets, grad);
}

Tensor Backward(const Tensor& grad_costs, const Tensor& logits, const Tensor& state,
                const Tensor& targets, const Tensor& logit_lengths, const Tensor& target_lengths,
                int64_t blank, double clamp, bool fused_log_softmax, double fastemit_lambda,
                double delay_penalty, bool blank_in_targets,
                const std::optional<Tensor>& emission_windows, const std::optional<Tensor>& band) {
  const c10::OptionalDeviceGuard guard(at::device_of(logits));
  const Problem problem =
      Check(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax,
            fastemit_lambda, delay_penalty, blank_in_targets, emission_windows, band);
  Tensor grad = NewLike(logits);
  LaunchBackward(grad_costs, logits, state, problem, grad);
  return grad;
}

void BackwardInPlace(const Tensor& grad_costs, Tensor& logits, const Tensor& state,
                     const Tensor& targets, const Tensor& logit_lengths,
                     const Tensor& target_lengths, int64_t blank, double clamp,
                     bool fused_log_softmax, double fastemit_lambda, double delay_penalty,
                     bool blank_in_targets, const std::optional<Tensor>& emission_windows,
                     const std::optional<Tensor>& band) {
  const c10::OptionalDeviceGuard guard(at::device_of(logits));
  const Problem problem =
      Check(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax,
            fastemit_lambda, delay_penalty, blank_in_targets, emission_windows, band);
  if (!logits.is_contiguous()) {  // aclnn writes contiguous outputs only
    Tensor grad = NewLike(logits);
    LaunchBackward(grad_costs, logits, state, problem, grad);
    logits.copy_(grad);
    return;
  }
  LaunchBackward(grad_costs, logits, state, problem, logits);
  // Autograd can't see a write through a raw pointer.
  if (!logits.is_inference()) logits.unsafeGetTensorImpl()->bump_version();
}

std::tuple<Tensor, Tensor> Fused(const Tensor& logits, const Tensor& targets,
                                 const Tensor& logit_lengths, const Tensor& target_lengths,
                                 int64_t blank, double clamp, bool fused_log_softmax,
                                 double fastemit_lambda, double delay_penalty,
                                 bool blank_in_targets,
                                 const std::optional<Tensor>& emission_windows,
                                 const std::optional<Tensor>& band) {
  const c10::OptionalDeviceGuard guard(at::device_of(logits));
  TORCH_CHECK_NOT_IMPLEMENTED(fastemit_lambda == 0.0, "RnntLossFused has no `fastemit_lambda`.");
  const Problem problem =
      Check(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax,
            fastemit_lambda, delay_penalty, blank_in_targets, emission_windows, band);
  Tensor costs = at::empty({problem.targets.size(0)}, logits.options().dtype(at::kFloat));
  Tensor grad = NewLike(logits);
  Tensor status = NewLike(problem.logit_lengths);
  EXEC_NPU_CMD_EXT(aclnnRnntLossFused, logits, problem.targets, problem.logit_lengths,
                   problem.target_lengths, problem.band, problem.emission_windows, problem.blank,
                   problem.clamp, problem.fused_log_softmax, problem.blank_in_targets, costs, grad,
                   status);
  LatestStatuses().Note(status);
  return {costs, grad};
}

std::vector<Tensor> TakeStatuses(at::Device device, int64_t count) {
  return LatestStatuses().Take(device, count);
}

}  // namespace

TORCH_LIBRARY_IMPL(asr_ascend, PrivateUse1, m) {
  m.impl("rnnt_loss_forward", &Forward);
  m.impl("rnnt_loss_backward", &Backward);
  m.impl("rnnt_loss_backward_", &BackwardInPlace);
  m.impl("rnnt_loss_fused", &Fused);
}

TORCH_LIBRARY_IMPL(asr_ascend, CompositeExplicitAutograd, m) {
  m.impl("rnnt_loss_take_statuses", &TakeStatuses);
}
