// Checks a problem as it comes through the C interface and lays out its samples.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_PROBLEM_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/asr_ascend_cpu.h"
#include "cpu/rnnt_loss/stages.h"

namespace asr_ascend {

struct CheckedProblem {
  std::vector<Sample> samples;
  std::vector<int64_t> band_offsets;  // of all samples' bands
  std::vector<int64_t> band_origins;  // of all their cells
  int64_t rows = 0;                   // N

  bool has_bands() const { return !band_offsets.empty(); }
};

// Every value that is later used as an index or a size is checked here, before anything is read
// through it. grad_layout is null in a forward pass. failure is never null.
asr_ascend_status CheckProblem(const asr_ascend_rnnt_problem& problem,
                               const asr_ascend_rnnt_layout* grad_layout, CheckedProblem* checked,
                               asr_ascend_failure* failure);

// Gives the bands of a checked problem what alpha and beta walk by.
void FindOrigins(CheckedProblem* checked);

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_PROBLEM_H_
