#include "kernels.h"

#include "../op_kernel/rnnt_loss_backward.cpp"
#include "../op_kernel/rnnt_loss_forward.cpp"
#include "../op_kernel/rnnt_loss_fused.cpp"

void CallFused(const KernelAddresses& gm) {
  rnnt_loss_fused(gm.logits, gm.targets, gm.logit_lengths, gm.target_lengths, gm.band,
                  gm.emission_windows, gm.loss, gm.grad, gm.status, gm.state, gm.tiling);
}

void CallForward(const KernelAddresses& gm) {
  rnnt_loss_forward(gm.logits, gm.targets, gm.logit_lengths, gm.target_lengths, gm.band,
                    gm.emission_windows, gm.loss, gm.state, gm.status, nullptr, gm.tiling);
}

void CallBackward(const KernelAddresses& gm) {
  rnnt_loss_backward(gm.logits, gm.targets, gm.logit_lengths, gm.target_lengths, gm.state,
                     gm.grad_loss, gm.band, gm.emission_windows, gm.grad, nullptr, gm.tiling);
}
