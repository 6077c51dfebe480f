#include "cpu/rnnt_loss/label_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace asr_ascend {
namespace {

double Adjusted(const Job& job, const Sample& sample, int64_t t, int64_t u, double label) {
  if (sample.emission_windows != nullptr) {
    const int64_t* window = sample.emission_windows + 2 * u;
    const bool open = t >= window[0] && t <= window[1];
    const bool keeps_nan = job.fused_log_softmax && std::isnan(label);
    if (!open && !keeps_nan) return -std::numeric_limits<double>::infinity();
  }
  if (job.delay_penalty == 0.0) return label;
  const double middle = 0.5 * static_cast<double>(sample.lattice.frames - 1);
  return label + job.delay_penalty * (middle - static_cast<double>(t));
}

void AdjustDiagonals(const Job& job, const Sample& sample) {
  const core::Lattice& lattice = sample.lattice;
  double* label = job.planes.label + sample.first_row;
  const int64_t diagonals = core::DiagonalCount(lattice);
  for (int64_t d = 0; d < diagonals; ++d) {
    const int64_t last = std::min(core::DiagonalLastColumn(lattice, d), lattice.columns - 2);
    for (int64_t u = core::DiagonalFirstColumn(lattice, d); u <= last; ++u, ++label) {
      *label = Adjusted(job, sample, d - u, u, *label);
    }
    if (last < core::DiagonalLastColumn(lattice, d)) ++label;  // the last column has no label
  }
}

// The same in a band, whose labels are in the order of rows.
void AdjustBand(const Job& job, const Sample& sample) {
  double* label = job.planes.label + sample.first_row;
  for (int64_t t = 0; t < sample.lattice.frames; ++t) {
    const int64_t last = core::LastColumn(sample.band, t);
    for (int64_t u = core::FirstColumn(sample.band, t); u < last; ++u, ++label) {
      *label = Adjusted(job, sample, t, u, *label);
    }
    ++label;  // no label leads out of the band
  }
}

}  // namespace

void AdjustLabels(const Job& job, const Sample& sample) {
  if (core::IsFull(sample.band)) {
    AdjustDiagonals(job, sample);
  } else {
    AdjustBand(job, sample);
  }
}

}  // namespace asr_ascend
