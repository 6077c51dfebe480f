// The loss's vector code, once for each instruction set.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_VERSIONS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_VERSIONS_H_

#include "cpu/rnnt_loss/stages.h"

namespace asr_ascend {

// The version that runtime/isa.h has chosen, or null where it could choose none.
const SimdKernels* ChosenKernels();

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_VERSIONS_H_
