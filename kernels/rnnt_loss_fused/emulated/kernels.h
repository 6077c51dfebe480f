// The kernels' entries behind plain functions: their names are also the host's namespace, so a
// translation unit has one or the other.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_EMULATED_KERNELS_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_EMULATED_KERNELS_H_

#include "kernel_operator.h"

struct KernelAddresses {
  GM_ADDR logits;
  GM_ADDR targets;
  GM_ADDR logit_lengths;
  GM_ADDR target_lengths;
  GM_ADDR band;              // or nullptr
  GM_ADDR emission_windows;  // or nullptr
  GM_ADDR grad_loss;
  GM_ADDR loss;
  GM_ADDR grad;
  GM_ADDR status;
  GM_ADDR state;  // of the fused entry: its workspace
  GM_ADDR tiling;
};

void CallFused(const KernelAddresses& gm);
void CallForward(const KernelAddresses& gm);
void CallBackward(const KernelAddresses& gm);

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_EMULATED_KERNELS_H_
