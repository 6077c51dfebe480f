#include "cpu/rnnt_loss/best_path.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace asr_ascend {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Scores {
  core::Lattice lattice;
  const double* blank;
  const double* label;
  double* alpha;
};

bool HasNan(const double* values, int64_t count) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) found |= std::isnan(values[i]);
  return found;
}

// alpha(t, u): the best score of a path to (t, u), along anti-diagonals.
void BestScores(const Scores& scores) {
  const core::Lattice& lattice = scores.lattice;
  scores.alpha[0] = 0.0;
  const int64_t diagonals = core::DiagonalCount(lattice);
  for (int64_t d = 1; d < diagonals; ++d) {
    const int64_t low = core::DiagonalFirstColumn(lattice, d);
    const int64_t high = core::DiagonalLastColumn(lattice, d);
    const int64_t before_low = core::DiagonalFirstColumn(lattice, d - 1);
    const int64_t before_high = core::DiagonalLastColumn(lattice, d - 1);
    // Indexed by column from here on.
    const int64_t before = core::DiagonalOffset(lattice, d - 1) - before_low;
    const double* previous = scores.alpha + before;
    const double* blank = scores.blank + before;
    const double* label = scores.label + before;
    double* current = scores.alpha + core::DiagonalOffset(lattice, d) - low;
    // Only the blank leads into column 0, only the label into frame 0.
    if (low == 0) current[0] = previous[0] + blank[0];
    if (high == d) current[high] = previous[high - 1] + label[high - 1];
    const int64_t last = std::min(high, before_high);
    for (int64_t u = std::max(low, before_low + 1); u <= last; ++u) {
      const double by_blank = previous[u] + blank[u];
      const double by_label = previous[u - 1] + label[u - 1];
      current[u] = by_label > by_blank ? by_label : by_blank;
    }
  }
}

// Back from the end, by the very sums that BestScores compared. A blank wins a tie, so the label
// before it came earlier.
void Trace(const Scores& scores, int64_t* frames) {
  const core::Lattice& lattice = scores.lattice;
  int64_t t = lattice.frames - 1;
  int64_t u = lattice.columns - 1;
  while (u > 0) {
    const int64_t by_label = core::Slot(lattice, t, u - 1);
    double blank_score = kImpossible;
    if (t > 0) {
      const int64_t by_blank = core::Slot(lattice, t - 1, u);
      blank_score = scores.alpha[by_blank] + scores.blank[by_blank];
    }
    if (scores.alpha[by_label] + scores.label[by_label] > blank_score) {
      frames[--u] = t;
    } else {
      --t;
    }
  }
}

// The same in a band, frame by frame.
void BestScoresInBand(const Scores& scores, const core::Band& band) {
  for (int64_t t = 0; t < scores.lattice.frames; ++t) {
    const int64_t first = core::FirstColumn(band, t);
    const int64_t last_before = t > 0 ? core::LastColumn(band, t - 1) : -1;
    int64_t cell = band.offsets[t];
    for (int64_t u = first; u <= core::LastColumn(band, t); ++u, ++cell) {
      double best = cell == 0 ? 0.0 : kImpossible;
      if (u <= last_before) {
        const int64_t by_blank = core::BandCell(band, t - 1, u);
        best = scores.alpha[by_blank] + scores.blank[by_blank];
      }
      if (u > first) best = std::max(best, scores.alpha[cell - 1] + scores.label[cell - 1]);
      scores.alpha[cell] = best;
    }
  }
}

// A step by label is taken where it is what the best score came from, and a blank wins a tie.
void TraceInBand(const Scores& scores, const core::Band& band, int64_t* frames) {
  int64_t t = scores.lattice.frames - 1;
  int64_t u = scores.lattice.columns - 1;
  while (u > 0) {
    double blank_score = kImpossible;
    if (t > 0 && u <= core::LastColumn(band, t - 1)) {
      const int64_t by_blank = core::BandCell(band, t - 1, u);
      blank_score = scores.alpha[by_blank] + scores.blank[by_blank];
    }
    double label_score = kImpossible;
    if (u > core::FirstColumn(band, t)) {
      const int64_t by_label = core::BandCell(band, t, u - 1);
      label_score = scores.alpha[by_label] + scores.label[by_label];
    }
    if (label_score > blank_score) {
      frames[--u] = t;
    } else {
      --t;
    }
  }
}

}  // namespace

double BestPath(const Job& job, const Sample& sample, int64_t* frames) {
  const Scores scores = {sample.lattice, job.planes.blank + sample.first_row,
                         job.planes.label + sample.first_row, job.planes.alpha + sample.first_row};
  const int64_t cells = sample.cells;
  std::fill(frames, frames + sample.lattice.columns - 1, int64_t{-1});
  if (HasNan(scores.blank, cells) || HasNan(scores.label, cells)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const bool full = core::IsFull(sample.band);
  if (full) {
    BestScores(scores);
  } else {
    BestScoresInBand(scores, sample.band);
  }
  const double log_prob = scores.alpha[cells - 1] + scores.blank[cells - 1];
  if (log_prob > kImpossible && full) Trace(scores, frames);
  if (log_prob > kImpossible && !full) TraceInBand(scores, sample.band, frames);
  return log_prob;
}

}  // namespace asr_ascend
