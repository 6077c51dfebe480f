// The likeliest path through one sample's lattice (Viterbi).
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_BEST_PATH_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_BEST_PATH_H_

#include <cstdint>

#include "cpu/rnnt_loss/stages.h"

namespace asr_ascend {

// From the blank and label planes; the alpha plane is overwritten. Writes the frame in which the
// path emits each label and returns ln of its probability. Of equally likely paths it takes the one
// whose labels come earliest. Without a path: -inf, or NaN where the cost would be NaN, and the
// frames are -1.
double BestPath(const Job& job, const Sample& sample, int64_t* frames);

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_BEST_PATH_H_
