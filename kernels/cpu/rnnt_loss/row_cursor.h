// Walks the rows of all samples in order.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_ROW_CURSOR_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_ROW_CURSOR_H_

#include "cpu/rnnt_loss/stages.h"
#include "cpu/simd/simd.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

struct RowCursor {
  const Sample* sample;
  int64_t t;
  int64_t u;
  int64_t slot;  // in the planes
};

ASR_ASCEND_SIMD_INLINE RowCursor BandCursorAt(const Sample* sample, int64_t cell) {
  const core::Band& band = sample->band;
  int64_t low = 0;
  int64_t high = sample->lattice.frames;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (band.offsets[middle] <= cell) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t u = core::FirstColumn(band, low) + cell - band.offsets[low];
  return RowCursor{sample, low, u, sample->first_row + cell};
}

ASR_ASCEND_SIMD_INLINE void AdvanceInBand(RowCursor* cursor) {
  const core::Band& band = cursor->sample->band;
  ++cursor->slot;
  if (cursor->u < core::LastColumn(band, cursor->t)) {
    ++cursor->u;
    return;
  }
  if (++cursor->t == cursor->sample->lattice.frames) {
    // A sample's first cell is (0, 0).
    cursor->t = 0;
    cursor->u = 0;
    ++cursor->sample;
    return;
  }
  cursor->u = core::FirstColumn(band, cursor->t);
}

ASR_ASCEND_SIMD_INLINE RowCursor CursorAt(const Job& job, int64_t row) {
  int64_t low = 0;
  int64_t high = job.batch;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (job.samples[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const Sample* sample = job.samples + low;
  const int64_t within = row - sample->first_row;
  if (!core::IsFull(sample->band)) return BandCursorAt(sample, within);
  const int64_t t = within / sample->lattice.columns;
  const int64_t u = within % sample->lattice.columns;
  return RowCursor{sample, t, u, sample->first_row + core::Slot(sample->lattice, t, u)};
}

ASR_ASCEND_SIMD_INLINE void Advance(RowCursor* cursor) {
  if (!core::IsFull(cursor->sample->band)) return AdvanceInBand(cursor);
  const core::Lattice& lattice = cursor->sample->lattice;
  if (cursor->u + 1 < lattice.columns) {
    cursor->slot += core::SlotStep(lattice, cursor->t + cursor->u);
    ++cursor->u;
    return;
  }
  cursor->u = 0;
  if (++cursor->t == lattice.frames) {
    cursor->t = 0;
    ++cursor->sample;
    // Of a sample after the last one nothing is read.
    cursor->slot += 1;
    return;
  }
  cursor->slot = cursor->sample->first_row + core::Slot(lattice, cursor->t, 0);
}

// Where its V values start. The rows of a band are neighbours.
ASR_ASCEND_SIMD_INLINE int64_t ElementOf(const core::RowAddress& address, const RowCursor& cursor) {
  const Sample& sample = *cursor.sample;
  if (core::IsFull(sample.band)) return core::RowElement(address, cursor.t, cursor.u);
  return address.base + (cursor.slot - sample.first_row) * address.stride_u;
}

// Whether a label leads to another cell.
ASR_ASCEND_SIMD_INLINE bool HasLabel(const RowCursor& cursor) {
  const core::Band& band = cursor.sample->band;
  if (!core::IsFull(band)) return cursor.u < core::LastColumn(band, cursor.t);
  return cursor.u + 1 < cursor.sample->lattice.columns;
}

// Only where the caller allows blank among the targets.
ASR_ASCEND_SIMD_INLINE bool LabelIsBlank(const Job& job, const RowCursor& cursor) {
  return HasLabel(cursor) && cursor.sample->targets[cursor.u] == job.blank;
}

// A blank in the last frame leads nowhere while labels are left, nor does one out of the band.
ASR_ASCEND_SIMD_INLINE bool IsUnusedBlank(const RowCursor& cursor) {
  const core::Lattice& lattice = cursor.sample->lattice;
  if (!core::IsFull(cursor.sample->band) && cursor.t + 1 < lattice.frames) {
    return !core::BlankStays(cursor.sample->band, lattice, cursor.t, cursor.u);
  }
  return HasLabel(cursor) && cursor.t + 1 == cursor.sample->lattice.frames;
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_ROW_CURSOR_H_
