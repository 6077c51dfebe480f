// Walks a core's share of the rows: groups of rows whose small values move together, and in a
// group pieces, tiles of logits that fit UB.
#ifndef ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_
#define ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_

#include "rnnt_loss_problem.h"

namespace rnnt_loss {

using asr_ascend::core::RowRun;
using asr_ascend::core::SampleSpan;
using asr_ascend::core::SlotCursor;

// Neighbouring slots of one sample.
struct RowGroup {
  SampleSpan span;
  int64_t first_slot;  // in the batch
  int32_t count;
  SlotCursor cursor;  // of the first slot
};

// Rows [begin, begin + rows) of a group, columns [column, column + columns) of them.
struct Piece {
  int32_t begin;
  int32_t rows;
  int32_t column;
  int32_t columns;
  SlotCursor cursor;
};

// The columns u of a group's rows, one after another.
class LaneWalk {
 public:
  __aicore__ inline explicit LaneWalk(const RowGroup& group)
      : lattice_(group.span.lattice), cursor_(group.cursor) {}
  __aicore__ inline int64_t NextColumn() {
    const int64_t u = cursor_.diagonal - cursor_.t;
    cursor_ = asr_ascend::core::Advance(lattice_, cursor_, 1);
    return u;
  }

 private:
  Lattice lattice_;
  SlotCursor cursor_;
};

// This core's groups, one after another.
class GroupWalk {
 public:
  __aicore__ inline GroupWalk() {}
  __aicore__ inline void Start(const Problem* problem) {
    problem_ = problem;
    slot_ = problem->ShareBegin(problem->tiling.num_rows);
    end_ = problem->ShareEnd(problem->tiling.num_rows);
    if (slot_ >= end_) return;
    span_ = asr_ascend::core::FindSample(problem->lengths, slot_);
    cursor_ = asr_ascend::core::CursorAt(span_.lattice, slot_ - span_.first_slot);
  }
  __aicore__ inline bool Next(RowGroup* group) {
    if (slot_ >= end_) return false;
    int64_t sample_end = span_.first_slot + asr_ascend::core::CellCount(span_.lattice);
    if (slot_ == sample_end) {
      span_.first_slot = sample_end;
      ++span_.sample;
      span_.lattice = asr_ascend::core::LatticeOf(problem_->lengths, span_.sample);
      sample_end += asr_ascend::core::CellCount(span_.lattice);
      cursor_ = SlotCursor{0, 0};
    }
    int64_t count = (sample_end < end_ ? sample_end : end_) - slot_;
    if (count > problem_->tiling.group_rows) count = problem_->tiling.group_rows;
    *group = RowGroup{span_, slot_, static_cast<int32_t>(count), cursor_};
    slot_ += count;
    for (int64_t left = count; left > 0;) {
      const int64_t step = asr_ascend::core::RunAt(span_.lattice, cursor_, left).count;
      cursor_ = asr_ascend::core::Advance(span_.lattice, cursor_, step);
      left -= step;
    }
    return true;
  }

 private:
  const Problem* problem_ = nullptr;
  SampleSpan span_{};
  SlotCursor cursor_{};
  int64_t slot_ = 0;
  int64_t end_ = 0;
};

// A group's pieces, one after another: row by row, and in a row window by window.
class PieceWalk {
 public:
  __aicore__ inline PieceWalk() {}
  __aicore__ inline void Start(const RnntLossFusedTilingData& tiling, const RowGroup& group) {
    tile_rows_ = tiling.tile_rows;
    tile_columns_ = tiling.tile_columns;
    vocab_ = static_cast<int32_t>(tiling.vocab);
    group_rows_ = group.count;
    lattice_ = group.span.lattice;
    next_ = Piece{0, 0, 0, 0, group.cursor};
  }
  __aicore__ inline bool Next(Piece* piece) {
    if (next_.begin >= group_rows_) return false;
    const int32_t rows = group_rows_ - next_.begin;
    const int32_t columns = vocab_ - next_.column;
    next_.rows = rows < tile_rows_ ? rows : tile_rows_;
    next_.columns = columns < tile_columns_ ? columns : tile_columns_;
    *piece = next_;
    next_.column += next_.columns;
    if (next_.column < vocab_) return true;
    next_.column = 0;
    next_.begin += next_.rows;
    for (int64_t left = next_.rows; left > 0 && next_.begin < group_rows_;) {
      const int64_t step = asr_ascend::core::RunAt(lattice_, next_.cursor, left).count;
      next_.cursor = asr_ascend::core::Advance(lattice_, next_.cursor, step);
      left -= step;
    }
    return true;
  }

 private:
  Piece next_{};
  Lattice lattice_{};
  int32_t tile_rows_ = 0;
  int32_t tile_columns_ = 0;
  int32_t vocab_ = 0;
  int32_t group_rows_ = 0;
};

// All pieces of this core, group after group, so that a piece can be fetched while the one before
// it, of the same group or not, is computed.
struct RowPiece {
  RowGroup group;
  Piece piece;
  bool begins_group;
  bool ends_group;
};

class PieceStream {
 public:
  __aicore__ inline PieceStream() {}
  __aicore__ inline void Start(const Problem* problem) {
    problem_ = problem;
    groups_.Start(problem);
  }
  __aicore__ inline bool Next(RowPiece* row_piece) {
    Piece piece;
    if (!pieces_.Next(&piece)) {
      if (!groups_.Next(&group_)) return false;
      pieces_.Start(problem_->tiling, group_);
      pieces_.Next(&piece);
    }
    const bool last_window = piece.column + piece.columns == problem_->tiling.vocab;
    *row_piece = RowPiece{group_, piece, piece.begin == 0 && piece.column == 0,
                          last_window && piece.begin + piece.rows == group_.count};
    return true;
  }

 private:
  const Problem* problem_ = nullptr;
  GroupWalk groups_;
  PieceWalk pieces_;
  RowGroup group_{};
};

// Rows of a piece that one copy moves.
struct RowBlock {
  int64_t element;  // of the (N, V) tensor, the first one
  int32_t row;      // of the tile
  int32_t rows;
  uint32_t gap_bytes;  // between two rows in the (N, V) tensor
};

// A piece's blocks, one after another. A gap that a copy can't express makes blocks of one row.
class BlockWalk {
 public:
  __aicore__ inline BlockWalk(const RowGroup& group, const Piece& piece, int64_t vocab,
                              int64_t element_bytes)
      : lattice_(group.span.lattice),
        cursor_(piece.cursor),
        first_element_(group.span.first_slot * vocab + piece.column),
        vocab_(vocab),
        element_bytes_(element_bytes),
        rows_(piece.rows),
        columns_(piece.columns) {}

  __aicore__ inline bool Next(RowBlock* block) {
    constexpr int64_t kMaxGap = 0xffffffff;
    constexpr int64_t kMaxRows = 4095;
    if (row_ >= rows_) return false;
    const RowRun run = asr_ascend::core::RunAt(lattice_, cursor_, rows_ - row_);
    const int64_t gap = (run.row_step * vocab_ - columns_) * element_bytes_;
    int64_t rows = run.count < kMaxRows ? run.count : kMaxRows;
    if (gap > kMaxGap) rows = 1;
    *block = RowBlock{first_element_ + run.first_row * vocab_, row_, static_cast<int32_t>(rows),
                      rows > 1 ? static_cast<uint32_t>(gap) : 0};
    cursor_ = asr_ascend::core::Advance(lattice_, cursor_, rows);
    row_ += static_cast<int32_t>(rows);
    return true;
  }

 private:
  Lattice lattice_;
  SlotCursor cursor_;
  int64_t first_element_;
  int64_t vocab_;
  int64_t element_bytes_;
  int32_t rows_;
  int32_t columns_;
  int32_t row_ = 0;
};

// Moves pieces between a (N, V) tensor and UB, where a row has `row_pitch` elements.
template <typename T>
class RowMover {
 public:
  __aicore__ inline RowMover() {}
  __aicore__ inline void Init(const RnntLossFusedTilingData& tiling, GM_ADDR rows) {
    vocab_ = tiling.vocab;
    pitch_ = tiling.row_pitch;
    rows_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(rows), tiling.num_rows * tiling.vocab);
  }
  __aicore__ inline void In(const AscendC::LocalTensor<T>& tile, const RowGroup& group,
                            const Piece& piece) const {
    const int32_t padding = Padding(piece);
    BlockWalk walk(group, piece, vocab_, sizeof(T));
    RowBlock block;
    while (walk.Next(&block)) {
      AscendC::DataCopyPad(
          tile[block.row * pitch_], rows_[block.element],
          AscendC::DataCopyExtParams{static_cast<uint16_t>(block.rows), RowBytes(piece),
                                     block.gap_bytes, Gap(piece), 0},
          AscendC::DataCopyPadExtParams<T>{padding > 0, 0, static_cast<uint8_t>(padding), T()});
    }
  }
  __aicore__ inline void Out(const AscendC::LocalTensor<T>& tile, const RowGroup& group,
                             const Piece& piece) const {
    BlockWalk walk(group, piece, vocab_, sizeof(T));
    RowBlock block;
    while (walk.Next(&block)) {
      AscendC::DataCopyPad(
          rows_[block.element], tile[block.row * pitch_],
          AscendC::DataCopyExtParams{static_cast<uint16_t>(block.rows), RowBytes(piece), Gap(piece),
                                     block.gap_bytes, 0});
    }
  }

 private:
  static constexpr int32_t kPerBlock = 32 / sizeof(T);

  __aicore__ inline uint32_t RowBytes(const Piece& piece) const {
    return static_cast<uint32_t>(piece.columns * sizeof(T));
  }
  // Elements that complete a row's last block.
  __aicore__ inline int32_t Padding(const Piece& piece) const {
    return RoundUp(piece.columns, kPerBlock) - piece.columns;
  }
  // Blocks of UB between two rows.
  __aicore__ inline uint32_t Gap(const Piece& piece) const {
    return static_cast<uint32_t>((pitch_ - RoundUp(piece.columns, kPerBlock)) / kPerBlock);
  }

  AscendC::GlobalTensor<T> rows_;
  int64_t vocab_ = 0;
  int32_t pitch_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_
