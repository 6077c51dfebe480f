// alpha, beta and what the gradient needs of them in a band, one frame after another. The planes of
// a banded sample are in the order of its rows. A band is a few columns wide, so a step by label
// waits for the one before; what can be done for many cells at once is done over blocks of rows.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_BAND_KERNELS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_BAND_KERNELS_H_

#include "cpu/rnnt_loss/lattice_kernels.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Cells whose derivatives are taken together.
constexpr int kBandBlock = 64;

ASR_ASCEND_SIMD_INLINE double LogAddTwo(double a, double b) {
  return LogAddExp(Fill(a), Fill(b))[0];
}

// A row without a softmax spoils its sample, whether or not a path leads through it.
ASR_ASCEND_SIMD_INLINE bool IsSpoiled(double blank, double label) {
  return blank != blank || label != label;
}

static double BandAlpha(const Job& job, const Sample& sample, double* rolling) {
  const core::Lattice& lattice = sample.lattice;
  const core::Band& band = sample.band;
  const double* blank = job.planes.blank + sample.first_row;
  const double* label = job.planes.label + sample.first_row;
  const double impossible = -kInfinityF64;
  // Indexed by column.
  double* current = nullptr;
  bool spoiled = false;
  for (int64_t t = 0; t < lattice.frames; ++t) {
    const double* previous = current;
    const int64_t first = core::FirstColumn(band, t);
    const int64_t last = core::LastColumn(band, t);
    const int64_t row = band.offsets[t] - first;
    current = rolling != nullptr ? rolling + (t & 1) * lattice.columns
                                 : job.planes.alpha + sample.first_row + row;
    const int64_t last_before = t > 0 ? core::LastColumn(band, t - 1) : -1;
    const int64_t row_before = t > 0 ? band.offsets[t - 1] - core::FirstColumn(band, t - 1) : 0;
    double by_label = t > 0 ? impossible : 0.0;  // every path begins at (0, 0)
    for (int64_t u = first; u <= last; ++u) {
      spoiled |= IsSpoiled(blank[row + u], label[row + u]);
      if (u <= last_before) {
        const double by_blank = previous[u] + blank[row_before + u];
        current[u] = u > first ? LogAddTwo(by_blank, by_label) : by_blank;
      } else {
        current[u] = by_label;
      }
      by_label = current[u] + label[row + u];
    }
  }
  const double log_prob = current[lattice.columns - 1] + blank[sample.cells - 1];
  return spoiled ? __builtin_nan("") : log_prob;
}

static double BandBeta(const Job& job, const Sample& sample) {
  const core::Lattice& lattice = sample.lattice;
  const core::Band& band = sample.band;
  const double* blank = job.planes.blank + sample.first_row;
  const double* label = job.planes.label + sample.first_row;
  double* beta = job.planes.beta + sample.first_row;
  bool spoiled = false;
  for (int64_t t = lattice.frames - 1; t >= 0; --t) {
    const int64_t first = core::FirstColumn(band, t);
    const int64_t last = core::LastColumn(band, t);
    const int64_t row = band.offsets[t] - first;
    const bool is_last = t + 1 == lattice.frames;
    const int64_t first_after = is_last ? lattice.columns : core::FirstColumn(band, t + 1);
    const int64_t row_after = is_last ? 0 : band.offsets[t + 1] - first_after;
    // The last blank leads out of the lattice.
    double onward = is_last ? blank[row + last] : -kInfinityF64;
    for (int64_t u = last; u >= first; --u) {
      spoiled |= IsSpoiled(blank[row + u], label[row + u]);
      const double by_label = u < last ? beta[row + u + 1] + label[row + u] : onward;
      if (u < first_after) {
        beta[row + u] = by_label;
      } else {
        const double by_blank = beta[row_after + u] + blank[row + u];
        beta[row + u] = u < last ? LogAddTwo(by_blank, by_label) : by_blank;
      }
    }
  }
  return spoiled ? __builtin_nan("") : beta[0];
}

static void BandOccupancy(const Job& job, const Sample& sample, double log_prob, int64_t first,
                          int64_t last) {
  const core::Lattice& lattice = sample.lattice;
  const core::Band& band = sample.band;
  const OccupancyTerms terms = TermsOf(job, log_prob);
  const double* beta = job.planes.beta + sample.first_row;
  double* alpha = job.planes.alpha + sample.first_row;
  double* blank = job.planes.blank + sample.first_row;
  double* label = job.planes.label + sample.first_row;
  if (!(log_prob - log_prob == 0.0)) {
    FillWithoutPath(log_prob, band.offsets[first], band.offsets[last], alpha, blank, label);
    return;
  }
  double beta_blank[kBandBlock];
  double beta_label[kBandBlock];
  int64_t begin = band.offsets[first];
  int64_t count = 0;
  for (int64_t t = first; t < last; ++t) {
    const int64_t last_column = core::LastColumn(band, t);
    int64_t cell = band.offsets[t];
    for (int64_t u = core::FirstColumn(band, t); u <= last_column; ++u, ++cell) {
      const bool is_end = cell + 1 == sample.cells;
      const double out = is_end ? 0.0 : -kInfinityF64;
      const bool stays = core::BlankStays(band, lattice, t, u);
      beta_blank[count] = stays ? beta[core::BandCell(band, t + 1, u)] : out;
      beta_label[count] = u < last_column ? beta[cell + 1] : -kInfinityF64;
      if (++count < kBandBlock && cell + 1 < band.offsets[last]) continue;
      FinishSpan(
          {alpha + begin, blank + begin, label + begin, beta + begin, beta_blank, beta_label},
          count, terms);
      begin += count;
      count = 0;
    }
  }
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_BAND_KERNELS_H_
