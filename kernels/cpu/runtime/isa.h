// Which of the compiled versions of the vector code runs. An operator keeps a table of its own
// versions and takes the one that has the name given here.
#ifndef ASR_ASCEND_CPU_RUNTIME_ISA_H_
#define ASR_ASCEND_CPU_RUNTIME_ISA_H_

namespace asr_ascend {

// Name of the version in use, chosen once: the best that this CPU has, or what ASR_ASCEND_ISA
// names. Null where that names one that isn't built or can't run here.
const char* ChosenIsa();

// Names of the versions that can run here, best first, comma-separated.
const char* RunnableIsas();

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RUNTIME_ISA_H_
