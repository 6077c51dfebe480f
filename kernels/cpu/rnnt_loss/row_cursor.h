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
  const int64_t t = within / sample->lattice.columns;
  const int64_t u = within % sample->lattice.columns;
  return RowCursor{sample, t, u, sample->first_row + core::Slot(sample->lattice, t, u)};
}

ASR_ASCEND_SIMD_INLINE void Advance(RowCursor* cursor) {
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

ASR_ASCEND_SIMD_INLINE bool HasLabel(const RowCursor& cursor) {
  return cursor.u + 1 < cursor.sample->lattice.columns;
}

// Only where the caller allows blank among the targets.
ASR_ASCEND_SIMD_INLINE bool LabelIsBlank(const Job& job, const RowCursor& cursor) {
  return HasLabel(cursor) && cursor.sample->targets[cursor.u] == job.blank;
}

// A blank in the last frame leads nowhere while labels are left.
ASR_ASCEND_SIMD_INLINE bool IsUnusedBlank(const RowCursor& cursor) {
  return HasLabel(cursor) && cursor.t + 1 == cursor.sample->lattice.frames;
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_ROW_CURSOR_H_
