// Loss and gradient in one launch; the lattice state lies in the workspace.
#include "rnnt_loss_launch.h"

extern "C" __global__ __aicore__ void rnnt_loss_fused(GM_ADDR logits, GM_ADDR targets,
                                                      GM_ADDR logit_lengths, GM_ADDR target_lengths,
                                                      GM_ADDR band, GM_ADDR emission_windows,
                                                      GM_ADDR loss, GM_ADDR grad, GM_ADDR status,
                                                      GM_ADDR workspace, GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(RnntLossFusedTilingData);
  GET_TILING_DATA_WITH_STRUCT(RnntLossFusedTilingData, tiling_data, tiling);
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
  const rnnt_loss::Arguments arguments{logits,
                                       targets,
                                       logit_lengths,
                                       target_lengths,
                                       band,
                                       emission_windows,
                                       nullptr,
                                       loss,
                                       grad,
                                       status,
                                       AscendC::GetUserWorkspace(workspace)};
#if RNNT_LOSS_LOGITS_MAY_BE(DT_FLOAT)
  if (TILING_KEY_IS(RNNT_LOSS_FUSED_FLOAT32)) {
    rnnt_loss::RunFused<float>(arguments, tiling_data);
  }
#endif
#if RNNT_LOSS_LOGITS_MAY_BE(DT_FLOAT16)
  if (TILING_KEY_IS(RNNT_LOSS_FUSED_FLOAT16)) {
    rnnt_loss::RunFused<half>(arguments, tiling_data);
  }
#endif
#if RNNT_LOSS_LOGITS_MAY_BE(DT_BF16)
  if (TILING_KEY_IS(RNNT_LOSS_FUSED_BFLOAT16)) {
    rnnt_loss::RunFused<bfloat16_t>(arguments, tiling_data);
  }
#endif
}
