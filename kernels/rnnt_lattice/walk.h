// Walks over the rows of a batch in the order of lattice slots: sample after sample, anti-diagonal
// after anti-diagonal, and on a diagonal in the order of t, so that the rows of a run are a fixed
// distance apart in memory. For kernels that derive everything from the lengths on the device.
#ifndef ASR_ASCEND_RNNT_LATTICE_WALK_H_
#define ASR_ASCEND_RNNT_LATTICE_WALK_H_

#include <stdint.h>

#include "layout.h"

#ifndef ASR_ASCEND_CORE_METHOD
#define ASR_ASCEND_CORE_METHOD inline
#endif

namespace asr_ascend {
namespace core {

// The lattice with t and u exchanged: its slots lie along a diagonal in the order of t.
ASR_ASCEND_CORE_INLINE Lattice Mirrored(const Lattice& lattice) {
  return Lattice{lattice.columns, lattice.frames};
}

// A place among a sample's slots; u is diagonal - t.
struct SlotCursor {
  int64_t diagonal;
  int64_t t;
};

ASR_ASCEND_CORE_INLINE SlotCursor CursorAt(const Lattice& lattice, int64_t slot) {
  const Lattice mirrored = Mirrored(lattice);
  int64_t low = 0;
  int64_t high = DiagonalCount(lattice) - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (DiagonalOffset(mirrored, middle) <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t lane = slot - DiagonalOffset(mirrored, low);
  return SlotCursor{low, DiagonalFirstColumn(mirrored, low) + lane};
}

// Rows that follow each other in slots and are equally far apart in memory.
struct RowRun {
  int64_t first_row;  // of the sample's rows (t, u) in packed order
  int64_t count;
  int64_t row_step;
};

// The run from `cursor` on, at most `limit` slots long. A lattice of one frame or one column has
// diagonals of one cell each, which are neighbours in memory: they make one run.
ASR_ASCEND_CORE_INLINE RowRun RunAt(const Lattice& lattice, const SlotCursor& cursor,
                                    int64_t limit) {
  const int64_t first_row = cursor.t * lattice.columns + cursor.diagonal - cursor.t;
  const bool thin = lattice.frames == 1 || lattice.columns == 1;
  const int64_t left = thin ? DiagonalCount(lattice) - cursor.diagonal
                            : DiagonalLastColumn(Mirrored(lattice), cursor.diagonal) - cursor.t + 1;
  return RowRun{first_row, left < limit ? left : limit, thin ? 1 : lattice.columns - 1};
}

// `count` slots on; `count` is at most the length of the run at `cursor`.
ASR_ASCEND_CORE_INLINE SlotCursor Advance(const Lattice& lattice, const SlotCursor& cursor,
                                          int64_t count) {
  const Lattice mirrored = Mirrored(lattice);
  if (lattice.frames == 1 || lattice.columns == 1) {
    const int64_t diagonal = cursor.diagonal + count;
    return SlotCursor{diagonal, DiagonalFirstColumn(mirrored, diagonal)};
  }
  const int64_t t = cursor.t + count;
  if (t <= DiagonalLastColumn(mirrored, cursor.diagonal)) return SlotCursor{cursor.diagonal, t};
  const int64_t diagonal = cursor.diagonal + 1;
  return SlotCursor{diagonal, DiagonalFirstColumn(mirrored, diagonal)};
}

// Slots [first, last) of the whole batch for one of `num_cores` cores: as even as can be.
ASR_ASCEND_CORE_INLINE int64_t ShareBegin(int64_t total, int64_t core, int64_t num_cores) {
  return total / num_cores * core + total % num_cores * core / num_cores;
}

// `Lengths` has Frames(b), Labels(b) and Cells(b), which are the rows of a sample; all int64_t.
template <typename Lengths>
ASR_ASCEND_CORE_INLINE Lattice LatticeOf(const Lengths& lengths, int64_t sample) {
  return Lattice{lengths.Frames(sample), lengths.Labels(sample) + 1};
}

// Whether every length is in range and the rows of all samples are num_rows.
template <typename Lengths>
ASR_ASCEND_CORE_INLINE bool LengthsAreValid(const Lengths& lengths, int64_t batch,
                                            int64_t target_columns, int64_t num_rows) {
  int64_t total = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const Lattice lattice = LatticeOf(lengths, b);
    if (lattice.frames < 1 || lattice.columns < 1 || lattice.columns - 1 > target_columns) {
      return false;
    }
    const int64_t cells = lengths.Cells(b);
    if (cells < 1) return false;
    total += cells;
    if (total > num_rows) return false;  // before the sum can overflow
  }
  return total == num_rows;
}

// Slots of one sample.
struct SampleSpan {
  int64_t sample;
  Lattice lattice;
  int64_t first_slot;  // of the sample, in the batch
  int64_t cells;
};

template <typename Lengths>
ASR_ASCEND_CORE_INLINE SampleSpan NextSample(const Lengths& lengths, const SampleSpan& span) {
  const int64_t sample = span.sample + 1;
  return SampleSpan{sample, LatticeOf(lengths, sample), span.first_slot + span.cells,
                    lengths.Cells(sample)};
}

// The sample that holds `slot`, which is below the row total.
template <typename Lengths>
ASR_ASCEND_CORE_INLINE SampleSpan FindSample(const Lengths& lengths, int64_t slot) {
  SampleSpan span{0, LatticeOf(lengths, 0), 0, lengths.Cells(0)};
  while (slot >= span.first_slot + span.cells) span = NextSample(lengths, span);
  return span;
}

}  // namespace core
}  // namespace asr_ascend

#endif  // ASR_ASCEND_RNNT_LATTICE_WALK_H_
