// Gradient, times the upstream gradient of each sample; it may overwrite the logits.
#include "rnnt_loss_launch.h"

extern "C" __global__ __aicore__ void rnnt_loss_backward(GM_ADDR logits, GM_ADDR targets,
                                                         GM_ADDR logit_lengths,
                                                         GM_ADDR target_lengths, GM_ADDR state,
                                                         GM_ADDR grad_loss, GM_ADDR band,
                                                         GM_ADDR emission_windows, GM_ADDR grad,
                                                         GM_ADDR /*workspace*/, GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(RnntLossFusedTilingData);
  GET_TILING_DATA_WITH_STRUCT(RnntLossFusedTilingData, tiling_data, tiling);
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
  const rnnt_loss::Arguments arguments{logits, targets,          logit_lengths, target_lengths,
                                       band,   emission_windows, grad_loss,     nullptr,
                                       grad,   nullptr,          state};
#if RNNT_LOSS_LOGITS_MAY_BE(DT_FLOAT)
  if (TILING_KEY_IS(RNNT_LOSS_BACKWARD_FLOAT32)) {
    rnnt_loss::RunBackward<float>(arguments, tiling_data);
  }
#endif
#if RNNT_LOSS_LOGITS_MAY_BE(DT_FLOAT16)
  if (TILING_KEY_IS(RNNT_LOSS_BACKWARD_FLOAT16)) {
    rnnt_loss::RunBackward<half>(arguments, tiling_data);
  }
#endif
#if RNNT_LOSS_LOGITS_MAY_BE(DT_BF16)
  if (TILING_KEY_IS(RNNT_LOSS_BACKWARD_BFLOAT16)) {
    rnnt_loss::RunBackward<bfloat16_t>(arguments, tiling_data);
  }
#endif
}
