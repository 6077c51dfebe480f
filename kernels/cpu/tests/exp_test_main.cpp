// Asks whether this CPU has the instruction set of exp_test.cpp before any of its code runs. The
// build compiles this file for every CPU: in a `main` of exp_test.cpp, the compiler may put an
// instruction of the set in front of the question.
#include <cstring>

#include "cpu/runtime/isa.h"
#include "cpu/tests/check.h"
#include "cpu/tests/exp_test.h"

int main() {
  if (std::strstr(asr_ascend::RunnableIsas(), ASR_ASCEND_TESTED_ISA) == nullptr) {
    return Skip("exp_test", ASR_ASCEND_TESTED_ISA);
  }
  return RunExpTests();
}
