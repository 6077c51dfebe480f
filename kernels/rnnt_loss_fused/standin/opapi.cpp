// aclnnRnntLossFused, aclnnRnntLossForward and aclnnRnntLossBackward of the stand-in for CANN.
// Definition, tiling and kernel are the operator's own; the kernel runs on the emulator.
#include <string>

#include "operator_call.h"
#include "rnnt_loss_fused/emulated/kernels.h"

namespace {

std::string RunFused(standin::Prepared& prepared, void* workspace) {
  standin::MappedTensors tensors(prepared);
  KernelAddresses gm = {};
  gm.tiling = tensors.Tiling();
  gm.logits = tensors.Input(0, "logits");
  gm.targets = tensors.Input(1, "targets");
  gm.logit_lengths = tensors.Input(2, "logit_lengths");
  gm.target_lengths = tensors.Input(3, "target_lengths");
  gm.band = tensors.Input(4, "band");
  gm.emission_windows = tensors.Input(5, "emission_windows");
  gm.loss = tensors.Output(0, "loss");
  gm.grad = tensors.Output(1, "grad");
  gm.status = tensors.Output(2, "status");
  gm.state = tensors.Workspace(workspace);
  return tensors.Launch(CallFused, gm);
}

std::string RunForward(standin::Prepared& prepared, void*) {
  standin::MappedTensors tensors(prepared);
  KernelAddresses gm = {};
  gm.tiling = tensors.Tiling();
  gm.logits = tensors.Input(0, "logits");
  gm.targets = tensors.Input(1, "targets");
  gm.logit_lengths = tensors.Input(2, "logit_lengths");
  gm.target_lengths = tensors.Input(3, "target_lengths");
  gm.band = tensors.Input(4, "band");
  gm.emission_windows = tensors.Input(5, "emission_windows");
  gm.loss = tensors.Output(0, "loss");
  gm.state = tensors.Output(1, "state");
  gm.status = tensors.Output(2, "status");
  return tensors.Launch(CallForward, gm);
}

std::string RunBackward(standin::Prepared& prepared, void*) {
  // The gradient may overwrite the logits.
  const bool in_place = standin::Bytes(prepared.outputs[0]) > 0 &&
                        prepared.outputs[0].data == prepared.inputs[0].data;
  standin::MappedTensors tensors(prepared);
  KernelAddresses gm = {};
  gm.tiling = tensors.Tiling();
  gm.logits = tensors.Input(0, "logits", in_place);
  gm.targets = tensors.Input(1, "targets");
  gm.logit_lengths = tensors.Input(2, "logit_lengths");
  gm.target_lengths = tensors.Input(3, "target_lengths");
  gm.state = tensors.Input(4, "state");
  gm.grad_loss = tensors.Input(5, "grad_loss");
  gm.band = tensors.Input(6, "band");
  gm.emission_windows = tensors.Input(7, "emission_windows");
  gm.grad = in_place ? gm.logits : tensors.Output(0, "grad");
  return tensors.Launch(CallBackward, gm);
}

}  // namespace

extern "C" {

int aclnnRnntLossFusedGetWorkspaceSize(
    const aclTensor* logits, const aclTensor* targets, const aclTensor* logitLengths,
    const aclTensor* targetLengths, const aclTensor* bandOptional,
    const aclTensor* emissionWindowsOptional, int64_t blank, double clamp, bool fusedLogSoftmax,
    bool blankInTargets, const aclTensor* lossOut, const aclTensor* gradOut,
    const aclTensor* statusOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return standin::Prepare(
      "RnntLossFused",
      {logits, targets, logitLengths, targetLengths, bandOptional, emissionWindowsOptional},
      {blank, static_cast<float>(clamp), fusedLogSoftmax, blankInTargets},
      {lossOut, gradOut, statusOutOptional}, RunFused, workspaceSize, executor);
}
int aclnnRnntLossFused(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                       void* stream) {
  return standin::Launch("aclnnRnntLossFused", workspace, workspaceSize, executor, stream);
}

int aclnnRnntLossForwardGetWorkspaceSize(
    const aclTensor* logits, const aclTensor* targets, const aclTensor* logitLengths,
    const aclTensor* targetLengths, const aclTensor* bandOptional,
    const aclTensor* emissionWindowsOptional, int64_t blank, bool fusedLogSoftmax, bool needsGrad,
    bool blankInTargets, const aclTensor* lossOut, const aclTensor* stateOut,
    const aclTensor* statusOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return standin::Prepare(
      "RnntLossForward",
      {logits, targets, logitLengths, targetLengths, bandOptional, emissionWindowsOptional},
      {blank, fusedLogSoftmax, needsGrad, blankInTargets}, {lossOut, stateOut, statusOutOptional},
      RunForward, workspaceSize, executor);
}
int aclnnRnntLossForward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                         void* stream) {
  return standin::Launch("aclnnRnntLossForward", workspace, workspaceSize, executor, stream);
}

int aclnnRnntLossBackwardGetWorkspaceSize(const aclTensor* logits, const aclTensor* targets,
                                          const aclTensor* logitLengths,
                                          const aclTensor* targetLengths, const aclTensor* state,
                                          const aclTensor* gradLoss, const aclTensor* bandOptional,
                                          const aclTensor* emissionWindowsOptional, int64_t blank,
                                          double clamp, bool fusedLogSoftmax, double fastemitLambda,
                                          bool blankInTargets, const aclTensor* gradOut,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return standin::Prepare("RnntLossBackward",
                          {logits, targets, logitLengths, targetLengths, state, gradLoss,
                           bandOptional, emissionWindowsOptional},
                          {blank, static_cast<float>(clamp), fusedLogSoftmax,
                           static_cast<float>(fastemitLambda), blankInTargets},
                          {gradOut}, RunBackward, workspaceSize, executor);
}
int aclnnRnntLossBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                          void* stream) {
  return standin::Launch("aclnnRnntLossBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
