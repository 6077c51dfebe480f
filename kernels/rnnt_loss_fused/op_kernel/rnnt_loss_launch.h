// The operators' entries, put together from the phases.
#ifndef ASR_ASCEND_RNNT_LOSS_LAUNCH_H_
#define ASR_ASCEND_RNNT_LOSS_LAUNCH_H_

#include "rnnt_loss_band.h"
#include "rnnt_loss_gradient.h"
#include "rnnt_loss_lattice.h"
#include "rnnt_loss_rows.h"
#include "rnnt_loss_verdict.h"

namespace rnnt_loss {

// Phase 0, of a band alone: where its rows lie.
__aicore__ inline void TabulateBand(const Problem& problem) {
  AscendC::TPipe pipe;
  BandPhase band;
  band.Init(&problem, &pipe);
  band.Process();
  EndPipe();
  AscendC::SyncAll();
  problem.band_table.ForgetCached();
}

// Phases 1 and 2. Returns, on every core the same, whether lengths and band are valid.
template <typename T>
__aicore__ inline bool RunForwardPhases(const Problem& problem) {
  if (problem.HasBand()) TabulateBand(problem);
  const bool lengths_are_valid = problem.LengthsAreValid();
  if (lengths_are_valid) {
    AscendC::TPipe pipe;
    RowStatistics<T> rows;
    rows.Init(&problem, &pipe);
    rows.Process();
    EndPipe();
  }
  // One verdict for all cores, whatever happens to the lengths while they run.
  WriteFlag(problem, AscendC::GetBlockIdx(), lengths_are_valid);
  AscendC::SyncAll();
  const bool valid = lengths_are_valid && FlagsAreSet(problem, 0, problem.tiling.used_cores);
  if (valid) {
    AscendC::TPipe pipe;
    LatticePhase lattice;
    lattice.Init(&problem, &pipe);
    lattice.Process();
    lattice.End(&pipe);
    EndPipe();
  }
  AscendC::SyncAll();
  return valid;
}

__aicore__ inline void WriteResults(const Problem& problem, bool valid) {
  AscendC::TPipe pipe;
  SampleResults results;
  results.Init(&problem, &pipe);
  results.Process(valid);
  EndPipe();
}

template <typename T>
__aicore__ inline void WriteGradient(const Problem& problem, bool valid) {
  if (!valid) {
    WriteZeros<T>(problem);
    return;
  }
  AscendC::TPipe pipe;
  GradientPhase<T> gradient;
  gradient.Init(&problem, &pipe);
  gradient.Process();
  gradient.End(&pipe);
  EndPipe();
}

template <typename T>
__aicore__ inline void RunFused(const Arguments& arguments, const RnntLossFusedTilingData& tiling) {
  Problem problem;
  problem.Init(arguments, tiling);
  const bool valid = RunForwardPhases<T>(problem);
  WriteResults(problem, valid);
  WriteGradient<T>(problem, valid);
}

// Leaves in the state all that the backward entry needs, and after the cores' flags one that says
// whether the input was valid.
template <typename T>
__aicore__ inline void RunForward(const Arguments& arguments,
                                  const RnntLossFusedTilingData& tiling) {
  Problem problem;
  problem.Init(arguments, tiling);
  const bool valid = RunForwardPhases<T>(problem);
  WriteResults(problem, valid);
  if (AscendC::GetBlockIdx() == 0) WriteFlag(problem, asr_ascend::core::kMaxCores, valid);
}

template <typename T>
__aicore__ inline void RunBackward(const Arguments& arguments,
                                   const RnntLossFusedTilingData& tiling) {
  Problem problem;
  problem.Init(arguments, tiling);
  const bool valid =
      problem.LengthsAreValid() && FlagsAreSet(problem, asr_ascend::core::kMaxCores, 1);
  WriteGradient<T>(problem, valid);
}

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_LAUNCH_H_
