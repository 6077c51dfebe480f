// Where the numbers of an RNN-T lattice lie. Shared by every kernel, so: no std, no allocation,
// free functions with internal linkage only (a translation unit compiled for a wider instruction
// set must not lend its copy to the others).
#ifndef ASR_ASCEND_RNNT_LATTICE_LAYOUT_H_
#define ASR_ASCEND_RNNT_LATTICE_LAYOUT_H_

#include <stdint.h>

#ifndef ASR_ASCEND_CORE_INLINE
#define ASR_ASCEND_CORE_INLINE static inline
#endif

namespace asr_ascend {
namespace core {

// One sample's lattice: cells (t, u) with 0 <= t < frames and 0 <= u < columns.
struct Lattice {
  int64_t frames;   // T_b
  int64_t columns;  // U_b + 1
};

// Where a sample's rows of V logits start, in elements.
struct RowAddress {
  int64_t base;
  int64_t stride_t;
  int64_t stride_u;
};

ASR_ASCEND_CORE_INLINE int64_t RowElement(const RowAddress& address, int64_t t, int64_t u) {
  return address.base + t * address.stride_t + u * address.stride_u;
}

// Rows of a sample are contiguous in a packed tensor; row_stride is the distance between two.
ASR_ASCEND_CORE_INLINE RowAddress PackedAddress(const Lattice& lattice, int64_t first_row,
                                                int64_t row_stride) {
  return RowAddress{first_row * row_stride, lattice.columns * row_stride, row_stride};
}

ASR_ASCEND_CORE_INLINE RowAddress PaddedAddress(int64_t sample, int64_t stride_b, int64_t stride_t,
                                                int64_t stride_u) {
  return RowAddress{sample * stride_b, stride_t, stride_u};
}

ASR_ASCEND_CORE_INLINE int64_t CellCount(const Lattice& lattice) {
  return lattice.frames * lattice.columns;
}

// Anti-diagonal d holds the cells with t + u == d, in the order of u.
ASR_ASCEND_CORE_INLINE int64_t DiagonalCount(const Lattice& lattice) {
  return lattice.frames + lattice.columns - 1;
}

ASR_ASCEND_CORE_INLINE int64_t DiagonalFirstColumn(const Lattice& lattice, int64_t diagonal) {
  const int64_t below = diagonal - (lattice.frames - 1);
  return below > 0 ? below : 0;
}

ASR_ASCEND_CORE_INLINE int64_t DiagonalLastColumn(const Lattice& lattice, int64_t diagonal) {
  return diagonal < lattice.columns - 1 ? diagonal : lattice.columns - 1;
}

// Cells on the diagonals before this one: they grow by one, stay at min(T, U1), shrink by one.
ASR_ASCEND_CORE_INLINE int64_t DiagonalOffset(const Lattice& lattice, int64_t diagonal) {
  const bool tall = lattice.frames > lattice.columns;
  const int64_t shorter = tall ? lattice.columns : lattice.frames;
  const int64_t longer = tall ? lattice.frames : lattice.columns;
  if (diagonal <= shorter) return diagonal * (diagonal + 1) / 2;
  if (diagonal <= longer) return shorter * (shorter + 1) / 2 + (diagonal - shorter) * shorter;
  const int64_t remaining = DiagonalCount(lattice) - diagonal;
  return CellCount(lattice) - remaining * (remaining + 1) / 2;
}

// The place of cell (t, u) among the sample's CellCount slots.
ASR_ASCEND_CORE_INLINE int64_t Slot(const Lattice& lattice, int64_t t, int64_t u) {
  return DiagonalOffset(lattice, t + u) + u - DiagonalFirstColumn(lattice, t + u);
}

// Slot(t, u + 1) - Slot(t, u) for a cell of this diagonal.
ASR_ASCEND_CORE_INLINE int64_t SlotStep(const Lattice& lattice, int64_t diagonal) {
  return DiagonalLastColumn(lattice, diagonal) + 2 - DiagonalFirstColumn(lattice, diagonal + 1);
}

}  // namespace core
}  // namespace asr_ascend

#endif  // ASR_ASCEND_RNNT_LATTICE_LAYOUT_H_
