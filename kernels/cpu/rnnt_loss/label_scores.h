// What changes the labels' log-probabilities once the softmax is done: windows and delay penalty.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_LABEL_SCORES_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_LABEL_SCORES_H_

#include "cpu/rnnt_loss/stages.h"

namespace asr_ascend {

// Labels outside of their windows become impossible, and the others gain delay_penalty for each
// frame that they come before the middle one. A NaN that stands for a row without a softmax stays:
// it spoils its sample wherever it is.
void AdjustLabels(const Job& job, const Sample& sample);

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_LABEL_SCORES_H_
