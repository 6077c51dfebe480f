// Which of the compiled versions of the vector code runs.
#ifndef ASR_ASCEND_CPU_RUNTIME_ISA_H_
#define ASR_ASCEND_CPU_RUNTIME_ISA_H_

#include "cpu/rnnt_loss/stages.h"

namespace asr_ascend {

// The version in use, chosen once: the best that this CPU has, or what ASR_ASCEND_ISA names.
// Null where that names one that isn't built or can't run here.
const SimdKernels* ChosenKernels();

// Names of the versions that can run here, best first, comma-separated.
const char* RunnableIsas();

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RUNTIME_ISA_H_
