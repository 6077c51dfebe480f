// Calls aclnnRnntLossFused on two utterances and compares loss and gradient with a plain C++
// computation in double precision. Exit status 0 if they agree, 1 if not or if a call failed.
//
// Build on a machine with CANN and the operator package installed:
//   g++ -std=c++17 test_aclnn_rnnt_loss_fused.cpp -o test_aclnn_rnnt_loss_fused
//     -I$ASCEND_HOME_PATH/include -I$ASCEND_CUSTOM_OPP_PATH/op_api/include
//     -L$ASCEND_HOME_PATH/lib64 -L$ASCEND_CUSTOM_OPP_PATH/op_api/lib
//     -lcust_opapi -lnnopbase -lascendcl
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn_rnnt_loss_fused.h"

namespace {

constexpr int64_t kVocab = 5;
constexpr int64_t kBlank = -1;  // counted from the end: index 4
constexpr double kClamp = -1.0;
constexpr bool kFusedLogSoftmax = true;
constexpr bool kBlankInTargets = false;
constexpr double kTolerance = 1e-5;
const std::vector<int32_t> kLogitLengths = {4, 3};
const std::vector<int32_t> kTargetLengths = {2, 1};
const std::vector<int32_t> kTargets = {1, 3, 2, 0};  // (2, 2); the last one is padding
constexpr int64_t kTargetColumns = 2;

const char* StatusText() {
  const char* message = aclGetRecentErrMsg();
  return message == nullptr ? "" : message;
}

bool Succeeded(int status, const char* call) {
  if (status == 0) return true;
  std::fprintf(stderr, "%s returned %d. %s\n", call, status, StatusText());
  return false;
}

// Device, stream; released in reverse.
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (stream_ != nullptr) aclrtDestroyStream(stream_);
    if (device_set_) aclrtResetDevice(kDevice);
    if (initialised_) aclFinalize();
  }
  bool Open() {
    initialised_ = Succeeded(aclInit(nullptr), "aclInit");
    device_set_ = initialised_ && Succeeded(aclrtSetDevice(kDevice), "aclrtSetDevice");
    return device_set_ && Succeeded(aclrtCreateStream(&stream_), "aclrtCreateStream");
  }
  aclrtStream stream() const { return stream_; }

 private:
  static constexpr int32_t kDevice = 0;
  bool initialised_ = false;
  bool device_set_ = false;
  aclrtStream stream_ = nullptr;
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (data_ != nullptr) aclrtFree(data_);
  }
  bool Allocate(size_t bytes) {
    return Succeeded(aclrtMalloc(&data_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// A contiguous tensor on the device, made from host values or to be read back to them.
template <typename T>
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (tensor_ != nullptr) aclDestroyTensor(tensor_);
  }

  bool Create(const std::vector<T>& values, const std::vector<int64_t>& shape, aclDataType type) {
    const size_t bytes = values.size() * sizeof(T);
    if (!memory_.Allocate(bytes)) return false;
    const aclError copied =
        aclrtMemcpy(memory_.data(), bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE);
    if (!Succeeded(copied, "aclrtMemcpy to the device")) return false;
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    tensor_ = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND,
                              shape.data(), shape.size(), memory_.data());
    return Succeeded(tensor_ == nullptr ? 1 : 0, "aclCreateTensor");
  }
  bool Read(std::vector<T>& values) const {
    const size_t bytes = values.size() * sizeof(T);
    const aclError copied =
        aclrtMemcpy(values.data(), bytes, memory_.data(), bytes, ACL_MEMCPY_DEVICE_TO_HOST);
    return Succeeded(copied, "aclrtMemcpy from the device");
  }
  aclTensor* get() const { return tensor_; }

 private:
  DeviceMemory memory_;
  aclTensor* tensor_ = nullptr;
};

double LogAddExp(double a, double b) {
  const double high = std::fmax(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(std::fmin(a, b) - high));
}

// One utterance by the definition: returns its loss and writes its rows of the gradient.
double Golden(const float* logits, const int32_t* targets, int64_t frames, int64_t columns,
              double* grad) {
  const double impossible = -std::numeric_limits<double>::infinity();
  const int64_t blank = kBlank < 0 ? kBlank + kVocab : kBlank;
  const int64_t cells = frames * columns;
  const auto probability = [&](int64_t cell, int64_t k) {
    double sum = 0;
    for (int64_t j = 0; j < kVocab; ++j) sum += std::exp(double{logits[cell * kVocab + j]});
    return double{logits[cell * kVocab + k]} - std::log(sum);
  };
  std::vector<double> alpha(cells, impossible);
  std::vector<double> beta(cells, impossible);
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t u = 0; u < columns; ++u) {
      const int64_t cell = t * columns + u;
      if (cell == 0) alpha[cell] = 0;
      if (t > 0) alpha[cell] = alpha[cell - columns] + probability(cell - columns, blank);
      if (u > 0) {
        const double emitted = alpha[cell - 1] + probability(cell - 1, targets[u - 1]);
        alpha[cell] = LogAddExp(alpha[cell], emitted);
      }
    }
  }
  const auto beta_at = [&](int64_t t, int64_t u) {
    if (t == frames) return u == columns - 1 ? 0.0 : impossible;
    return u == columns ? impossible : beta[t * columns + u];
  };
  for (int64_t cell = cells; cell-- > 0;) {
    const int64_t t = cell / columns;
    const int64_t u = cell % columns;
    beta[cell] = probability(cell, blank) + beta_at(t + 1, u);
    if (u + 1 < columns) {
      beta[cell] = LogAddExp(beta[cell], probability(cell, targets[u]) + beta_at(t, u + 1));
    }
  }
  const double log_likelihood = beta[0];
  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t t = cell / columns;
    const int64_t u = cell % columns;
    for (int64_t k = 0; k < kVocab; ++k) {
      const double reached = alpha[cell] + probability(cell, k) - log_likelihood;
      double derivative = std::exp(reached + beta[cell]);
      if (k == blank) derivative -= std::exp(reached + beta_at(t + 1, u));
      if (u + 1 < columns && k == targets[u]) derivative -= std::exp(reached + beta_at(t, u + 1));
      grad[cell * kVocab + k] = derivative;
    }
  }
  return -log_likelihood;
}

bool Agree(const std::vector<float>& actual, const std::vector<double>& expected,
           const char* name) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!(std::fabs(actual[i] - expected[i]) <= kTolerance * std::fmax(1.0, expected[i]))) {
      std::fprintf(stderr, "%s[%zu] is %.9g, but should be %.9g.\n", name, i, double{actual[i]},
                   expected[i]);
      return false;
    }
  }
  return true;
}

bool Run() {
  const auto batch = static_cast<int64_t>(kLogitLengths.size());
  int64_t rows = 0;
  for (int64_t b = 0; b < batch; ++b) rows += int64_t{kLogitLengths[b]} * (kTargetLengths[b] + 1);
  std::vector<float> logits(rows * kVocab);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 2.0f * std::sin(1.7f * static_cast<float>(i));
  }
  std::vector<float> loss(batch, 0);
  std::vector<float> grad(logits.size(), 0);
  std::vector<int32_t> status(batch, -1);

  Session session;  // first in, last out: tensors are destroyed before the device is reset
  if (!session.Open()) return false;
  Tensor<float> logits_tensor, loss_tensor, grad_tensor;
  Tensor<int32_t> targets_tensor, logit_lengths_tensor, target_lengths_tensor, status_tensor;
  if (!logits_tensor.Create(logits, {rows, kVocab}, ACL_FLOAT) ||
      !targets_tensor.Create(kTargets, {batch, kTargetColumns}, ACL_INT32) ||
      !logit_lengths_tensor.Create(kLogitLengths, {batch}, ACL_INT32) ||
      !target_lengths_tensor.Create(kTargetLengths, {batch}, ACL_INT32) ||
      !loss_tensor.Create(loss, {batch}, ACL_FLOAT) ||
      !grad_tensor.Create(grad, {rows, kVocab}, ACL_FLOAT) ||
      !status_tensor.Create(status, {batch}, ACL_INT32)) {
    return false;
  }

  uint64_t workspace_bytes = 0;
  aclOpExecutor* executor = nullptr;
  if (!Succeeded(aclnnRnntLossFusedGetWorkspaceSize(
                     logits_tensor.get(), targets_tensor.get(), logit_lengths_tensor.get(),
                     target_lengths_tensor.get(), /*bandOptional=*/nullptr,
                     /*emissionWindowsOptional=*/nullptr, kBlank, kClamp, kFusedLogSoftmax,
                     kBlankInTargets, loss_tensor.get(), grad_tensor.get(), status_tensor.get(),
                     &workspace_bytes, &executor),
                 "aclnnRnntLossFusedGetWorkspaceSize")) {
    return false;
  }
  DeviceMemory workspace;
  if (workspace_bytes > 0 && !workspace.Allocate(workspace_bytes)) return false;
  if (!Succeeded(aclnnRnntLossFused(workspace.data(), workspace_bytes, executor, session.stream()),
                 "aclnnRnntLossFused") ||
      !Succeeded(aclrtSynchronizeStream(session.stream()), "aclrtSynchronizeStream")) {
    return false;
  }
  if (!loss_tensor.Read(loss) || !grad_tensor.Read(grad) || !status_tensor.Read(status)) {
    return false;
  }

  std::vector<double> expected_loss(batch);
  std::vector<double> expected_grad(grad.size());
  int64_t first = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t columns = kTargetLengths[b] + 1;
    expected_loss[b] = Golden(&logits[first * kVocab], &kTargets[b * kTargetColumns],
                              kLogitLengths[b], columns, &expected_grad[first * kVocab]);
    first += kLogitLengths[b] * columns;
    std::printf("utterance %lld: loss %.6f, expected %.6f, status %d\n", static_cast<long long>(b),
                double{loss[b]}, expected_loss[b], status[b]);
    if (status[b] != 0) return false;
  }
  return Agree(loss, expected_loss, "loss") && Agree(grad, expected_grad, "grad");
}

}  // namespace

int main() {
  const bool passed = Run();
  std::puts(passed ? "passed" : "failed");
  return passed ? 0 : 1;
}
