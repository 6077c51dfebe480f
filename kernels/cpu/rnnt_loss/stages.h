// What the driver hands to the vector code, and the table of functions that each instruction set
// fills in. Plain data only: this header is seen by translation units compiled for different sets.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_STAGES_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_STAGES_H_

#include <stdint.h>

#include "rnnt_lattice/band.h"
#include "rnnt_lattice/layout.h"

namespace asr_ascend {

struct Sample {
  core::Lattice lattice;
  core::Band band;    // whose cells are computed
  int64_t cells;      // of the band
  int64_t first_row;  // rows of the samples before this one, and its first slot in every plane
  const int64_t* targets;
  const int64_t* emission_windows;  // first and last frame of each label, or null
  core::RowAddress logits;
  core::RowAddress grad;  // backward only, like the next two
  double grad_cost;
  double log_abs_grad_cost;
};

// The state's planes. log_norm is in the order of rows, the others in compact anti-diagonals, or in
// the order of rows too where a sample has a band.
// The lattice stage leaves alpha and beta; the occupancy stage then replaces
//   alpha by what multiplies the softmax, as a logarithm: alpha + beta - ln P without FastEmit,
//   blank and label by the cost's derivative for these two logits. Where a label is impossible the
//   derivative is +inf instead, for what the row's softmax alone gives. With a delay penalty, which
//   hides a label's place in the softmax, the softmax's part of label's is left to the gradient.
struct Planes {
  double* log_norm;  // may be null in a forward pass without gradient
  double* blank;
  double* label;
  double* alpha;
  double* beta;
};

struct Job {
  int64_t batch;
  int64_t vocab;
  int64_t blank;
  double clamp;  // +inf: off
  double fastemit_lambda;
  double delay_penalty;
  bool fused_log_softmax;
  const Sample* samples;
  Planes planes;
  const void* logits;
  void* grad;
};

constexpr int kDtypeCount = 4;
constexpr int kMaxLanes = 8;  // doubles in a vector, at most

struct SimdKernels {
  const char* name;
  // Rows [first, last) of all samples' lattices together, indexed by enum asr_ascend_dtype.
  void (*statistics[kDtypeCount])(const Job& job, int64_t first, int64_t last);
  void (*gradient[kDtypeCount])(const Job& job, int64_t first, int64_t last);
  // ln P from alpha, of a sample without a band. rolling: room for two diagonals to keep alpha in,
  // or null to fill the plane.
  double (*alpha)(const Job& job, const Sample& sample, double* rolling);
  // ln P from beta, of a sample without a band.
  double (*beta)(const Job& job, const Sample& sample);
  // The same of up to `lanes` samples with bands, side by side; both fill their plane.
  int64_t lanes;
  void (*band_alphas)(const Job& job, const Sample* const* samples, int64_t count,
                      double* log_probs);
  void (*band_betas)(const Job& job, const Sample* const* samples, int64_t count,
                     double* log_probs);
  // Diagonals (in a band: frames) [first, last) of one sample.
  void (*occupancy)(const Job& job, const Sample& sample, double log_prob, int64_t first,
                    int64_t last);
};

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_STAGES_H_
