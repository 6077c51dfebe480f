// Walks the rows of all samples in order.
#ifndef ASR_ASCEND_CPU_SIMD_ROW_CURSOR_H_
#define ASR_ASCEND_CPU_SIMD_ROW_CURSOR_H_

#include "cpu/simd/simd.h"
#include "cpu/stages.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

struct RowCursor {
  const Sample* sample;
  int64_t t;
  int64_t u;
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
  return RowCursor{sample, within / sample->lattice.columns, within % sample->lattice.columns};
}

ASR_ASCEND_SIMD_INLINE void Advance(RowCursor* cursor) {
  if (++cursor->u < cursor->sample->lattice.columns) return;
  cursor->u = 0;
  if (++cursor->t < cursor->sample->lattice.frames) return;
  cursor->t = 0;
  ++cursor->sample;
}

ASR_ASCEND_SIMD_INLINE bool HasLabel(const RowCursor& cursor) {
  return cursor.u + 1 < cursor.sample->lattice.columns;
}

// A blank in the last frame leads nowhere while labels are left.
ASR_ASCEND_SIMD_INLINE bool IsUnusedBlank(const RowCursor& cursor) {
  return HasLabel(cursor) && cursor.t + 1 == cursor.sample->lattice.frames;
}

ASR_ASCEND_SIMD_INLINE int64_t SlotOf(const RowCursor& cursor) {
  return cursor.sample->first_row + core::Slot(cursor.sample->lattice, cursor.t, cursor.u);
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_SIMD_ROW_CURSOR_H_
