// Walks over the cells of a band in the order of lattice slots, as walk.h does over all cells of a
// lattice: anti-diagonal after anti-diagonal, and on a diagonal in the order of t. `Limits` has
// First(t) and Last(t), the columns of a frame, and RowBase(t), the row of (t, 0) if it had one:
// rows of the frames before, less First(t). All are int64_t. No std, no allocation.
#ifndef ASR_ASCEND_RNNT_LATTICE_BAND_WALK_H_
#define ASR_ASCEND_RNNT_LATTICE_BAND_WALK_H_

#include <stdint.h>

#include "walk.h"

namespace asr_ascend {
namespace core {

// Frames [first_t, last_t] of an anti-diagonal have a cell in the band. Both ends move by one
// frame at most from a diagonal to the next. Where two frames meet at a step of one label, there
// is a diagonal without a cell: last_t is first_t - 1.
struct BandDiagonal {
  int64_t diagonal;
  int64_t first_t;
  int64_t last_t;
  int64_t offset;  // cells on the diagonals before it
};

ASR_ASCEND_CORE_INLINE int64_t CellsOn(const BandDiagonal& place) {
  return place.last_t - place.first_t + 1;
}

ASR_ASCEND_CORE_INLINE BandDiagonal FirstBandDiagonal() { return BandDiagonal{0, 0, 0, 0}; }

ASR_ASCEND_CORE_INLINE BandDiagonal LastBandDiagonal(const Lattice& lattice, int64_t cells) {
  const int64_t last = lattice.frames - 1;
  return BandDiagonal{DiagonalCount(lattice) - 1, last, last, cells - 1};
}

// Not from the last diagonal. Stays inside of the lattice whatever the limits are.
template <typename Limits>
ASR_ASCEND_CORE_INLINE BandDiagonal NextDiagonal(const Limits& limits, const Lattice& lattice,
                                                 const BandDiagonal& place) {
  BandDiagonal next = place;
  next.offset += CellsOn(place);
  ++next.diagonal;
  const int64_t t = next.last_t + 1;
  if (t < lattice.frames && limits.First(t) + t <= next.diagonal) next.last_t = t;
  const bool is_left = limits.Last(next.first_t) + next.first_t < next.diagonal;
  if (is_left && next.first_t + 1 < lattice.frames) ++next.first_t;
  return next;
}

// Not from the first diagonal.
template <typename Limits>
ASR_ASCEND_CORE_INLINE BandDiagonal PreviousDiagonal(const Limits& limits,
                                                     const BandDiagonal& place) {
  BandDiagonal previous = place;
  --previous.diagonal;
  const int64_t last = previous.last_t;
  if (last > 0 && limits.First(last) + last > previous.diagonal) --previous.last_t;
  const int64_t t = previous.first_t - 1;
  if (t >= 0 && limits.Last(t) + t >= previous.diagonal) previous.first_t = t;
  previous.offset -= CellsOn(previous);
  return previous;
}

// Frames whose last column, or else whose first, is on a diagonal before this one.
template <bool by_last, typename Limits>
ASR_ASCEND_CORE_INLINE int64_t FramesBefore(const Limits& limits, const Lattice& lattice,
                                            int64_t diagonal) {
  int64_t low = 0;
  int64_t high = lattice.frames;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const int64_t column = by_last ? limits.Last(middle) : limits.First(middle);
    if (column + middle < diagonal) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A diagonal of the lattice, wherever it is.
template <typename Limits>
ASR_ASCEND_CORE_INLINE BandDiagonal BandDiagonalAt(const Limits& limits, const Lattice& lattice,
                                                   int64_t diagonal) {
  const int64_t first_t = FramesBefore<true>(limits, lattice, diagonal);
  const int64_t last_t = FramesBefore<false>(limits, lattice, diagonal + 1) - 1;
  BandDiagonal place{diagonal, first_t, last_t, 0};
  if (first_t < lattice.frames) place.offset = limits.RowBase(first_t) + limits.First(first_t);
  for (int64_t t = first_t; t <= last_t; ++t) place.offset += diagonal - t - limits.First(t);
  return place;
}

// A place among a sample's slots; u is the diagonal less t.
struct BandCursor {
  BandDiagonal place;
  int64_t t;
};

template <typename Limits>
ASR_ASCEND_CORE_INLINE BandCursor BandCursorAt(const Limits& limits, const Lattice& lattice,
                                               int64_t slot) {
  int64_t low = 0;
  int64_t high = DiagonalCount(lattice) - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (BandDiagonalAt(limits, lattice, middle).offset <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const BandDiagonal place = BandDiagonalAt(limits, lattice, low);
  const int64_t t = place.first_t + slot - place.offset;
  const bool inside = t >= 0 && t < lattice.frames;
  return BandCursor{place, inside ? t : 0};
}

// `count` slots on; the sample's last slot is followed by itself.
template <typename Limits>
ASR_ASCEND_CORE_INLINE BandCursor AdvanceInBand(const Limits& limits, const Lattice& lattice,
                                                const BandCursor& cursor, int64_t count) {
  BandCursor next = cursor;
  int64_t left = count;
  while (left > 0) {
    const int64_t on_diagonal = next.place.last_t - next.t;
    if (left <= on_diagonal) {
      next.t += left;
      return next;
    }
    left -= on_diagonal + 1;
    do {
      if (next.place.diagonal + 1 >= DiagonalCount(lattice)) return next;
      next.place = NextDiagonal(limits, lattice, next.place);
    } while (CellsOn(next.place) < 1);
    next.t = next.place.first_t;
  }
  return next;
}

// The row of a cursor's cell; inside of the sample's `cells` rows whatever the limits are.
template <typename Limits>
ASR_ASCEND_CORE_INLINE int64_t RowOf(const Limits& limits, const BandCursor& cursor,
                                     int64_t cells) {
  const int64_t row = limits.RowBase(cursor.t) + cursor.place.diagonal - cursor.t;
  return row >= 0 && row < cells ? row : 0;
}

// Rows from `cursor` on that are equally far apart, at most `limit` of them.
template <typename Limits>
ASR_ASCEND_CORE_INLINE RowRun RunInBand(const Limits& limits, const Lattice& lattice, int64_t cells,
                                        const BandCursor& cursor, int64_t limit) {
  RowRun run{RowOf(limits, cursor, cells), 1, 1};
  BandCursor next = cursor;
  int64_t row = run.first_row;
  while (run.count < limit) {
    next = AdvanceInBand(limits, lattice, next, 1);
    const int64_t step = RowOf(limits, next, cells) - row;
    if (step < 1 || (run.count > 1 && step != run.row_step)) break;
    run.row_step = step;
    row += step;
    ++run.count;
  }
  return run;
}

}  // namespace core
}  // namespace asr_ascend

#endif  // ASR_ASCEND_RNNT_LATTICE_BAND_WALK_H_
