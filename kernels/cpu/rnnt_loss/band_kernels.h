// alpha, beta and what the gradient needs of them in a band. The planes of a banded sample are in
// the order of its rows. A band is a few columns wide, so each cell waits for the one before:
// alpha and beta take the next cell of several samples at a time, one in each lane of a vector, and
// what the gradient needs is made over blocks of rows.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_BAND_KERNELS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_BAND_KERNELS_H_

#include "cpu/rnnt_loss/lattice_kernels.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Cells whose derivatives are taken together.
constexpr int kBandBlock = 64;

// One sample of those that are side by side.
struct BandLane {
  const double* blank;
  const double* label;
  const int64_t* origins;
  double* scores;  // alpha or beta
  int64_t cells;
};

struct BandLanes {
  BandLane lane[kF64Lanes];
  int64_t longest;
};

// Lanes without a sample of their own have no cells.
ASR_ASCEND_SIMD_INLINE BandLanes LanesOf(const Job& job, const Sample* const* samples,
                                         int64_t count, double* plane) {
  BandLanes lanes = {};
  for (int64_t i = 0; i < count; ++i) {
    const Sample& sample = *samples[i];
    lanes.lane[i] =
        BandLane{job.planes.blank + sample.first_row, job.planes.label + sample.first_row,
                 sample.band.origins, plane + sample.first_row, sample.cells};
    if (sample.cells > lanes.longest) lanes.longest = sample.cells;
  }
  return lanes;
}

// A row without a softmax spoils its sample, whether or not a path leads through it.
ASR_ASCEND_SIMD_INLINE bool IsSpoiled(const BandLane& lane) {
  bool spoiled = false;
  for (int64_t i = 0; i < lane.cells; ++i) {
    spoiled |= lane.blank[i] != lane.blank[i] || lane.label[i] != lane.label[i];
  }
  return spoiled;
}

static void BandAlphas(const Job& job, const Sample* const* samples, int64_t count,
                       double* log_probs) {
  using S = Storage<double>;
  const double impossible = -kInfinityF64;
  const BandLanes lanes = LanesOf(job, samples, count, job.planes.alpha);
  alignas(64) double by_blank[kF64Lanes];
  alignas(64) double label[kF64Lanes];
  alignas(64) double begins[kF64Lanes];
  alignas(64) double alpha[kF64Lanes];
  F64 before = Fill(impossible);  // alpha of each lane's cell before this one
  for (int64_t i = 0; i < lanes.longest; ++i) {
    for (int64_t k = 0; k < kF64Lanes; ++k) {
      const BandLane& lane = lanes.lane[k];
      by_blank[k] = i == 0 ? 0.0 : impossible;  // every path begins at (0, 0)
      label[k] = 0.0;
      begins[k] = 1.0;
      if (i == 0 || i >= lane.cells) continue;
      const int64_t from = core::CellBefore(lane.origins[i]);
      if (from >= 0) by_blank[k] = lane.scores[from] + lane.blank[from];
      label[k] = lane.label[i - 1];
      begins[k] = core::BeginsFrame(lane.origins[i]) ? 1.0 : 0.0;
    }
    const F64 by_label = S::Load(begins) == Fill(1.0) ? Fill(impossible) : before + S::Load(label);
    before = LogAddExp(S::Load(by_blank), by_label);
    S::Store(alpha, before);
    for (int64_t k = 0; k < kF64Lanes; ++k) {
      if (i < lanes.lane[k].cells) lanes.lane[k].scores[i] = alpha[k];
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const BandLane& lane = lanes.lane[k];
    const int64_t end = lane.cells - 1;
    log_probs[k] = IsSpoiled(lane) ? __builtin_nan("") : lane.scores[end] + lane.blank[end];
  }
}

static void BandBetas(const Job& job, const Sample* const* samples, int64_t count,
                      double* log_probs) {
  using S = Storage<double>;
  const double impossible = -kInfinityF64;
  const BandLanes lanes = LanesOf(job, samples, count, job.planes.beta);
  // A cell's score by its blank waits in the cell's place until its turn comes.
  for (int64_t k = 0; k < count; ++k) {
    const BandLane& lane = lanes.lane[k];
    for (int64_t i = 0; i + 1 < lane.cells; ++i) lane.scores[i] = impossible;
    // The last blank leads out of the lattice.
    lane.scores[lane.cells - 1] = lane.blank[lane.cells - 1];
  }
  alignas(64) double by_blank[kF64Lanes];
  alignas(64) double label[kF64Lanes];
  alignas(64) double ends[kF64Lanes];
  alignas(64) double beta[kF64Lanes];
  F64 after = Fill(impossible);  // beta of each lane's cell after this one
  for (int64_t step = 0; step < lanes.longest; ++step) {
    for (int64_t k = 0; k < kF64Lanes; ++k) {
      const BandLane& lane = lanes.lane[k];
      const int64_t i = lane.cells - 1 - step;
      by_blank[k] = i >= 0 ? lane.scores[i] : impossible;
      label[k] = i >= 0 ? lane.label[i] : 0.0;
      const bool goes_on = i >= 0 && step > 0 && !core::BeginsFrame(lane.origins[i + 1]);
      ends[k] = goes_on ? 0.0 : 1.0;
    }
    const F64 by_label = S::Load(ends) == Fill(1.0) ? Fill(impossible) : after + S::Load(label);
    after = LogAddExp(S::Load(by_blank), by_label);
    S::Store(beta, after);
    for (int64_t k = 0; k < kF64Lanes; ++k) {
      const BandLane& lane = lanes.lane[k];
      const int64_t i = lane.cells - 1 - step;
      if (i < 0) continue;
      lane.scores[i] = beta[k];
      const int64_t from = core::CellBefore(lane.origins[i]);
      if (from >= 0) lane.scores[from] = beta[k] + lane.blank[from];
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const BandLane& lane = lanes.lane[k];
    log_probs[k] = IsSpoiled(lane) ? __builtin_nan("") : lane.scores[0];
  }
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
