// The cells of a sample in the order of slots: all of its lattice, or those of its band.
#ifndef ASR_ASCEND_RNNT_LOSS_CELLS_H_
#define ASR_ASCEND_RNNT_LOSS_CELLS_H_

#include "rnnt_loss_problem.h"

namespace rnnt_loss {

using asr_ascend::core::BandDiagonal;
using asr_ascend::core::RowRun;
using asr_ascend::core::SampleSpan;
using asr_ascend::core::SlotCursor;
// Without a band, diagonal and t alone count.
using CellCursor = asr_ascend::core::BandCursor;

class Cells {
 public:
  __aicore__ inline Cells(const Problem* problem, const SampleSpan& span)
      : lattice_(span.lattice), cells_(span.cells), has_band_(problem->HasBand()) {
    if (has_band_) band_ = problem->BandOf(span.sample);
  }

  __aicore__ inline CellCursor At(int64_t slot) const {
    if (has_band_) return asr_ascend::core::BandCursorAt(band_, lattice_, slot);
    return Wide(asr_ascend::core::CursorAt(lattice_, slot));
  }
  // `count` slots on, which are the sample's.
  __aicore__ inline CellCursor Advance(const CellCursor& cursor, int64_t count) const {
    if (has_band_) return asr_ascend::core::AdvanceInBand(band_, lattice_, cursor, count);
    SlotCursor next = Narrow(cursor);
    for (int64_t left = count; left > 0;) {
      const int64_t step = asr_ascend::core::RunAt(lattice_, next, left).count;
      next = asr_ascend::core::Advance(lattice_, next, step);
      left -= step;
    }
    return Wide(next);
  }
  // Of frame t: from there no label leads on.
  __aicore__ inline int64_t LastColumn(int64_t t) const {
    const int64_t last = lattice_.columns - 1;
    if (!has_band_) return last;
    const int64_t limit = band_.Last(t);
    return limit < last ? limit : last;
  }
  // The rows from `cursor` on that one copy can move, at most `limit`.
  __aicore__ inline RowRun RunAt(const CellCursor& cursor, int64_t limit) const {
    if (has_band_) {
      return asr_ascend::core::RunInBand(band_, lattice_, cells_, cursor, limit);
    }
    return asr_ascend::core::RunAt(lattice_, Narrow(cursor), limit);
  }

 private:
  __aicore__ static inline SlotCursor Narrow(const CellCursor& cursor) {
    return SlotCursor{cursor.place.diagonal, cursor.t};
  }
  __aicore__ static inline CellCursor Wide(const SlotCursor& cursor) {
    return CellCursor{BandDiagonal{cursor.diagonal, 0, 0, 0}, cursor.t};
  }

  Lattice lattice_;
  BandLimits band_{};
  int64_t cells_;
  bool has_band_;
};

// Where an anti-diagonal lies: its first slot in the sample, its cells, the t of the first.
struct Diagonal {
  int64_t offset;
  int32_t count;
  int64_t first_frame;
};

__aicore__ inline Diagonal DiagonalAt(const Lattice& lattice, int64_t diagonal) {
  const Lattice mirrored = asr_ascend::core::Mirrored(lattice);
  const int64_t first = asr_ascend::core::DiagonalFirstColumn(mirrored, diagonal);
  const int64_t last = asr_ascend::core::DiagonalLastColumn(mirrored, diagonal);
  return Diagonal{asr_ascend::core::DiagonalOffset(mirrored, diagonal),
                  static_cast<int32_t>(last - first + 1), first};
}

// A sample's anti-diagonals, from the first one on or from the last. One of a band may be empty,
// but never the first or the last.
class DiagonalWalk {
 public:
  __aicore__ inline DiagonalWalk() {}
  __aicore__ inline void Start(const Problem* problem, int64_t sample, bool backwards) {
    lattice_ = asr_ascend::core::LatticeOf(problem->lengths, sample);
    left_ = asr_ascend::core::DiagonalCount(lattice_);
    backwards_ = backwards;
    has_band_ = problem->HasBand();
    next_ = backwards ? asr_ascend::core::LastBandDiagonal(lattice_, problem->lengths.Cells(sample))
                      : asr_ascend::core::FirstBandDiagonal();
    if (has_band_) band_ = problem->BandOf(sample);
  }
  __aicore__ inline bool HasMore() const { return left_ > 0; }
  // The one that is next; there is one.
  __aicore__ inline Diagonal Next() const {
    if (!has_band_) return DiagonalAt(lattice_, next_.diagonal);
    return Diagonal{next_.offset, static_cast<int32_t>(asr_ascend::core::CellsOn(next_)),
                    next_.first_t};
  }
  __aicore__ inline void Skip() {
    --left_;
    if (left_ == 0) return;
    if (!has_band_) {
      next_.diagonal += backwards_ ? -1 : 1;
    } else if (backwards_) {
      next_ = asr_ascend::core::PreviousDiagonal(band_, next_);
    } else {
      next_ = asr_ascend::core::NextDiagonal(band_, lattice_, next_);
    }
  }

 private:
  Lattice lattice_{};
  BandLimits band_{};
  BandDiagonal next_{};
  int64_t left_ = 0;
  bool has_band_ = false;
  bool backwards_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_CELLS_H_
