// One loss and its gradient on one thread, for a tool that counts instructions:
//   instruction_count float32|float16|bfloat16 T U V
// prints the number of logits. What is not the loss is outside of asr_ascend_rnnt_forward and
// asr_ascend_rnnt_backward.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cpu/rnnt_loss/tests/cases.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string dtype = argv[1];
  CaseOptions options;
  options.dtype = dtype == "float32"    ? ASR_ASCEND_FLOAT32
                  : dtype == "float16"  ? ASR_ASCEND_FLOAT16
                  : dtype == "bfloat16" ? ASR_ASCEND_BFLOAT16
                                        : -1;
  if (options.dtype < 0) return 2;
  if (asr_ascend_isa() == nullptr) {
    std::puts("ASR_ASCEND_ISA names a version that can't run here");
    return 0;
  }
  options.in_place = true;
  options.logit_scale = 1.0;
  const int64_t frames = std::atoll(argv[2]), labels = std::atoll(argv[3]);
  const int64_t vocab = std::atoll(argv[4]);
  const Outcome outcome = Run(MakeCase(options, vocab, 0, {frames}, {labels}, 1));
  if (outcome.status != ASR_ASCEND_OK) return 1;
  std::printf("%s %lld\n", asr_ascend_isa(), static_cast<long long>(frames * (labels + 1) * vocab));
  return 0;
}
