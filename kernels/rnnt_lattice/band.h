// A band: the range of columns of each frame in which a sample's lattice is computed. Its cells are
// the rows of packed logits, frame by frame; every other cell is impossible. No std, no allocation.
#ifndef ASR_ASCEND_RNNT_LATTICE_BAND_H_
#define ASR_ASCEND_RNNT_LATTICE_BAND_H_

#include <stdint.h>

#include "layout.h"

namespace asr_ascend {
namespace core {

struct Band {
  const int64_t* limits;   // (T_b, 2): first and last column of each frame, inclusive; null: all
  const int64_t* offsets;  // (T_b + 1): cells of the frames before each
  const int64_t* origins;  // (cells): see CellOrigin; null where alpha and beta are not wanted
};

ASR_ASCEND_CORE_INLINE bool IsFull(const Band& band) { return band.limits == nullptr; }

ASR_ASCEND_CORE_INLINE int64_t FirstColumn(const Band& band, int64_t t) {
  return band.limits[2 * t];
}

ASR_ASCEND_CORE_INLINE int64_t LastColumn(const Band& band, int64_t t) {
  return band.limits[2 * t + 1];
}

// The place of cell (t, u), which is in the band, among the sample's cells.
ASR_ASCEND_CORE_INLINE int64_t BandCell(const Band& band, int64_t t, int64_t u) {
  return band.offsets[t] + u - FirstColumn(band, t);
}

// Whether the blank of a cell of the band leads to another one: (t + 1, u).
ASR_ASCEND_CORE_INLINE bool BlankStays(const Band& band, const Lattice& lattice, int64_t t,
                                       int64_t u) {
  return t + 1 < lattice.frames && u >= FirstColumn(band, t + 1);
}

// Where the steps into a cell come from, in one number: twice the place of (t - 1, u), or -2 where
// that is outside the band, and one more where the cell begins its frame, so that no label leads
// in.
ASR_ASCEND_CORE_INLINE int64_t CellOrigin(const Band& band, int64_t t, int64_t u) {
  const bool by_blank = t > 0 && u <= LastColumn(band, t - 1);
  const int64_t begins = u == FirstColumn(band, t) ? 1 : 0;
  return 2 * (by_blank ? BandCell(band, t - 1, u) : -1) + begins;
}
ASR_ASCEND_CORE_INLINE int64_t CellBefore(int64_t origin) { return origin >> 1; }
ASR_ASCEND_CORE_INLINE bool BeginsFrame(int64_t origin) { return (origin & 1) != 0; }

// Whether a frame's limits fit those of the frame before it: columns of the lattice that never
// fall, an overlap or a step of one label. Before the first frame are 0 and -1, so that it holds
// column 0.
ASR_ASCEND_CORE_INLINE bool FrameFits(int64_t first, int64_t last, int64_t first_before,
                                      int64_t last_before, int64_t columns) {
  const bool inside = first >= 0 && first <= last && last < columns;
  return inside && first >= first_before && last >= last_before && first <= last_before + 1;
}

// The first frame where the limits break a rule, or -1; the last frame holds the last column.
ASR_ASCEND_CORE_INLINE int64_t FirstBadFrame(const int64_t* limits, const Lattice& lattice) {
  int64_t first_before = 0;
  int64_t last_before = -1;
  for (int64_t t = 0; t < lattice.frames; ++t) {
    const int64_t first = limits[2 * t];
    const int64_t last = limits[2 * t + 1];
    if (!FrameFits(first, last, first_before, last_before, lattice.columns)) return t;
    first_before = first;
    last_before = last;
  }
  return last_before == lattice.columns - 1 ? -1 : lattice.frames - 1;
}

}  // namespace core
}  // namespace asr_ascend

#endif  // ASR_ASCEND_RNNT_LATTICE_BAND_H_
