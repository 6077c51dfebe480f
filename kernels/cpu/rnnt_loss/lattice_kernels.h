// alpha, beta and what the gradient needs of them, one anti-diagonal after another.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_LATTICE_KERNELS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_LATTICE_KERNELS_H_

#include "cpu/rnnt_loss/row_cursor.h"
#include "cpu/simd/exp_log.h"
#include "cpu/simd/storage.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// out[i] = log(exp(a[i] + p[i]) + exp(b[i] + q[i]))
ASR_ASCEND_SIMD_INLINE void LogAddSpan(double* out, const double* a, const double* p,
                                       const double* b, const double* q, int64_t count) {
  using S = Storage<double>;
  int64_t i = 0;
  for (; i + kF64Lanes <= count; i += kF64Lanes) {
    S::Store(out + i, LogAddExp(S::Load(a + i) + S::Load(p + i), S::Load(b + i) + S::Load(q + i)));
  }
  if (i < count) {
    const int rest = (int)(count - i);
    const F64 left = S::LoadPartial(a + i, rest, 0.0) + S::LoadPartial(p + i, rest, 0.0);
    const F64 right = S::LoadPartial(b + i, rest, 0.0) + S::LoadPartial(q + i, rest, 0.0);
    S::StorePartial(out + i, LogAddExp(left, right), rest);
  }
}

static double Alpha(const Job& job, const Sample& sample, double* rolling) {
  const core::Lattice& lattice = sample.lattice;
  const double* blank = job.planes.blank + sample.first_row;
  const double* label = job.planes.label + sample.first_row;
  const int64_t shorter = lattice.frames < lattice.columns ? lattice.frames : lattice.columns;
  double* current = rolling != nullptr ? rolling : job.planes.alpha + sample.first_row;
  current[0] = 0.0;
  const int64_t diagonals = core::DiagonalCount(lattice);
  for (int64_t d = 1; d < diagonals; ++d) {
    const int64_t before = core::DiagonalOffset(lattice, d - 1);
    const int64_t before_low = core::DiagonalFirstColumn(lattice, d - 1);
    const double* previous = current;
    if (rolling != nullptr) {
      current = rolling + (d & 1) * shorter;
    } else {
      current = job.planes.alpha + sample.first_row + core::DiagonalOffset(lattice, d);
    }
    const int64_t low = core::DiagonalFirstColumn(lattice, d);
    const int64_t high = core::DiagonalLastColumn(lattice, d);
    // Only the blank leads into column 0, only the label into frame 0.
    int64_t from = low;
    int64_t to = high;
    if (low == 0) {
      current[0] = previous[0] + blank[before];
      from = 1;
    }
    if (high == d) {
      const int64_t i = d - 1 - before_low;
      current[high - low] = previous[i] + label[before + i];
      to = high - 1;
    }
    const int64_t i = from - before_low;
    LogAddSpan(current + (from - low), previous + i, blank + before + i, previous + i - 1,
               label + before + i - 1, to - from + 1);
  }
  return current[0] + blank[core::CellCount(lattice) - 1];
}

static double Beta(const Job& job, const Sample& sample) {
  const core::Lattice& lattice = sample.lattice;
  const double* blank = job.planes.blank + sample.first_row;
  const double* label = job.planes.label + sample.first_row;
  double* beta = job.planes.beta + sample.first_row;
  const int64_t cells = core::CellCount(lattice);
  beta[cells - 1] = blank[cells - 1];
  for (int64_t d = core::DiagonalCount(lattice) - 2; d >= 0; --d) {
    const int64_t here = core::DiagonalOffset(lattice, d);
    const int64_t low = core::DiagonalFirstColumn(lattice, d);
    const int64_t high = core::DiagonalLastColumn(lattice, d);
    const int64_t next_low = core::DiagonalFirstColumn(lattice, d + 1);
    const double* next = beta + core::DiagonalOffset(lattice, d + 1);
    int64_t from = low;
    int64_t to = high;
    if (d - low == lattice.frames - 1) {  // the last frame: only the label leads on
      beta[here] = next[low + 1 - next_low] + label[here];
      from = low + 1;
    }
    if (high == lattice.columns - 1) {  // the last column: only the blank leads on
      const int64_t i = here + high - low;
      beta[i] = next[high - next_low] + blank[i];
      to = high - 1;
    }
    const int64_t i = here + from - low;
    const double* onward = next + (from - next_low);
    LogAddSpan(beta + i, onward, blank + i, onward + 1, label + i, to - from + 1);
  }
  return beta[0];
}

// What the derivatives of a sample's cells share.
struct OccupancyTerms {
  double log_prob;      // ln P
  double with_softmax;  // 0 where the logits are log-probabilities, 1 elsewhere
  bool label_apart;     // the label's part of the softmax is left to the gradient
  double label_weight;  // 1 + lambda of FastEmit
  double log_lambda;    // -inf: no FastEmit
};

// For the cells i of a span, from alpha, beta and the two log-probabilities:
//   occupancy = alpha + beta - ln P, replaces alpha
//   exp(occupancy + log_prob) - exp(alpha + log_prob + beta_onward - ln P), replaces log_prob
// The first term falls away where the logits are log-probabilities. With FastEmit the share of the
// occupancy that the label carries on counts 1 + lambda times, in both terms.
struct OccupancySpan {
  double* alpha;
  double* blank;
  double* label;
  const double* beta;
  const double* beta_blank;  // of the cell that a blank leads to
  const double* beta_label;
};

struct CellValues {
  F64 alpha;
  F64 blank;
  F64 label;
};

ASR_ASCEND_SIMD_INLINE CellValues FinishCells(const CellValues& cells, F64 beta, F64 beta_blank,
                                              F64 beta_label, const OccupancyTerms& terms) {
  // Scores of 1e14 and more round by so much that a posterior could come out above 1.
  const F64 certain = Fill(0.0);
  const F64 forward = cells.alpha - terms.log_prob;
  const F64 by_blank = Min(certain, forward + beta_blank + cells.blank);
  const F64 by_label = Min(certain, forward + beta_label + cells.label);
  F64 occupancy = Min(certain, forward + beta);
  if (terms.log_lambda > -kInfinityF64) {
    occupancy = LogAddExp(occupancy, by_label + terms.log_lambda);
  }
  const F64 blank = Exp(occupancy + cells.blank) * terms.with_softmax - Exp(by_blank);
  F64 label;
  if (terms.label_apart) {
    label = Fill(0.0) - Exp(by_label) * terms.label_weight;
  } else {
    label = Exp(occupancy + cells.label) * terms.with_softmax - Exp(by_label) * terms.label_weight;
  }
  // A closed window has hidden the label's place in the softmax.
  const F64 impossible = Fill(-kInfinityF64);
  return CellValues{occupancy, blank, cells.label == impossible ? -impossible : label};
}

ASR_ASCEND_SIMD_INLINE void FinishSpan(const OccupancySpan& span, int64_t count,
                                       const OccupancyTerms& terms) {
  using S = Storage<double>;
  int64_t i = 0;
  for (; i + kF64Lanes <= count; i += kF64Lanes) {
    const CellValues done = FinishCells(
        CellValues{S::Load(span.alpha + i), S::Load(span.blank + i), S::Load(span.label + i)},
        S::Load(span.beta + i), S::Load(span.beta_blank + i), S::Load(span.beta_label + i), terms);
    S::Store(span.alpha + i, done.alpha);
    S::Store(span.blank + i, done.blank);
    S::Store(span.label + i, done.label);
  }
  if (i < count) {
    const int rest = (int)(count - i);
    const CellValues done = FinishCells(CellValues{S::LoadPartial(span.alpha + i, rest, 0.0),
                                                   S::LoadPartial(span.blank + i, rest, 0.0),
                                                   S::LoadPartial(span.label + i, rest, 0.0)},
                                        S::LoadPartial(span.beta + i, rest, 0.0),
                                        S::LoadPartial(span.beta_blank + i, rest, 0.0),
                                        S::LoadPartial(span.beta_label + i, rest, 0.0), terms);
    S::StorePartial(span.alpha + i, done.alpha, rest);
    S::StorePartial(span.blank + i, done.blank, rest);
    S::StorePartial(span.label + i, done.label, rest);
  }
}

ASR_ASCEND_SIMD_INLINE OccupancyTerms TermsOf(const Job& job, double log_prob) {
  const double lambda = job.fastemit_lambda;
  const double log_lambda = lambda > 0.0 ? __builtin_log(lambda) : -kInfinityF64;
  return OccupancyTerms{log_prob, job.fused_log_softmax ? 1.0 : 0.0, job.delay_penalty != 0.0,
                        1.0 + lambda, log_lambda};
}

// Cells [first, last) where ln P is no number: -inf, and nothing flows; NaN, and everything is.
ASR_ASCEND_SIMD_INLINE void FillWithoutPath(double log_prob, int64_t first, int64_t last,
                                            double* alpha, double* blank, double* label) {
  for (int64_t i = first; i < last; ++i) {
    alpha[i] = log_prob;
    blank[i] = 0.0;
    label[i] = 0.0;
  }
}

static void Occupancy(const Job& job, const Sample& sample, double log_prob, int64_t first,
                      int64_t last) {
  const core::Lattice& lattice = sample.lattice;
  const OccupancyTerms terms = TermsOf(job, log_prob);
  const double* beta = job.planes.beta + sample.first_row;
  double* alpha = job.planes.alpha + sample.first_row;
  double* blank = job.planes.blank + sample.first_row;
  double* label = job.planes.label + sample.first_row;
  if (!(log_prob - log_prob == 0.0)) {
    FillWithoutPath(log_prob, core::DiagonalOffset(lattice, first),
                    core::DiagonalOffset(lattice, last), alpha, blank, label);
    return;
  }
  const double impossible = -kInfinityF64;
  const double certain = 0.0;
  for (int64_t d = first; d < last; ++d) {
    const int64_t here = core::DiagonalOffset(lattice, d);
    const int64_t low = core::DiagonalFirstColumn(lattice, d);
    const int64_t high = core::DiagonalLastColumn(lattice, d);
    const int64_t next_low = core::DiagonalFirstColumn(lattice, d + 1);
    const double* next = beta + core::DiagonalOffset(lattice, d + 1);
    const bool last_frame = d - low == lattice.frames - 1;
    const bool last_column = high == lattice.columns - 1;
    int64_t from = low;
    int64_t to = high;
    if (last_frame) {
      const bool end = last_column && high == low;
      const OccupancySpan edge = {alpha + here,
                                  blank + here,
                                  label + here,
                                  beta + here,
                                  end ? &certain : &impossible,
                                  end ? &impossible : next + (low + 1 - next_low)};
      FinishSpan(edge, 1, terms);
      from = low + 1;
    }
    if (last_column && to >= from) {
      const int64_t i = here + high - low;
      const OccupancySpan edge = {
          alpha + i, blank + i, label + i, beta + i, next + (high - next_low), &impossible};
      FinishSpan(edge, 1, terms);
      to = high - 1;
    }
    const int64_t i = here + from - low;
    const double* onward = next + (from - next_low);
    const OccupancySpan interior = {alpha + i, blank + i, label + i, beta + i, onward, onward + 1};
    FinishSpan(interior, to - from + 1, terms);
  }
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_LATTICE_KERNELS_H_
