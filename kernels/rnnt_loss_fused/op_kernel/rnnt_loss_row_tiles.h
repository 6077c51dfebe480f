// Walks a core's share of the rows: groups of rows whose small values move together, and in a
// group pieces, tiles of logits that fit UB.
#ifndef ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_
#define ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_

#include "rnnt_loss_cells.h"

namespace rnnt_loss {

// Neighbouring slots of one sample.
struct RowGroup {
  SampleSpan span;
  int64_t first_slot;  // in the batch
  int32_t count;
  CellCursor cursor;  // of the first slot
};

// Rows [begin, begin + rows) of a group, columns [column, column + columns) of them.
struct Piece {
  int32_t begin;
  int32_t rows;
  int32_t column;
  int32_t columns;
  CellCursor cursor;
};

// The labels of a group's rows, one after another.
class LaneWalk {
 public:
  static constexpr int32_t kNoLabel = -1;     // none leads on from there
  static constexpr int32_t kWrongLabel = -2;  // it isn't one

  __aicore__ inline LaneWalk(const Problem* problem, const RowGroup& group)
      : problem_(problem), span_(group.span), cells_(problem, group.span), cursor_(group.cursor) {}
  __aicore__ inline int32_t NextLabel() {
    const int64_t t = cursor_.t;
    const int64_t u = cursor_.place.diagonal - t;
    cursor_ = cells_.Advance(cursor_, 1);
    if (u < 0 || u >= cells_.LastColumn(t)) return kNoLabel;
    const int32_t label = problem_->Label(span_.sample, u);
    if (!problem_->IsLabel(label)) return kWrongLabel;
    return problem_->IsOpen(span_.sample, t, u) ? label : kNoLabel;
  }

 private:
  const Problem* problem_;
  SampleSpan span_;
  Cells cells_;
  CellCursor cursor_;
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
    cursor_ = Cells(problem_, span_).At(slot_ - span_.first_slot);
  }
  __aicore__ inline bool Next(RowGroup* group) {
    if (slot_ >= end_) return false;
    int64_t sample_end = span_.first_slot + span_.cells;
    if (slot_ == sample_end) {
      span_ = asr_ascend::core::NextSample(problem_->lengths, span_);
      sample_end += span_.cells;
      cursor_ = CellCursor{};
    }
    int64_t count = (sample_end < end_ ? sample_end : end_) - slot_;
    if (count > problem_->tiling.group_rows) count = problem_->tiling.group_rows;
    *group = RowGroup{span_, slot_, static_cast<int32_t>(count), cursor_};
    slot_ += count;
    cursor_ = Cells(problem_, span_).Advance(cursor_, count);
    return true;
  }

 private:
  const Problem* problem_ = nullptr;
  SampleSpan span_{};
  CellCursor cursor_{};
  int64_t slot_ = 0;
  int64_t end_ = 0;
};

// A group's pieces, one after another: row by row, and in a row window by window.
class PieceWalk {
 public:
  __aicore__ inline PieceWalk() {}
  __aicore__ inline void Start(const Problem* problem, const RowGroup& group) {
    const RnntLossFusedTilingData& tiling = problem->tiling;
    problem_ = problem;
    tile_rows_ = tiling.tile_rows;
    tile_columns_ = tiling.tile_columns;
    vocab_ = static_cast<int32_t>(tiling.vocab);
    group_rows_ = group.count;
    span_ = group.span;
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
    if (next_.begin < group_rows_) {
      next_.cursor = Cells(problem_, span_).Advance(next_.cursor, next_.rows);
    }
    return true;
  }

 private:
  const Problem* problem_ = nullptr;
  Piece next_{};
  SampleSpan span_{};
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
    Piece piece{};
    if (!pieces_.Next(&piece)) {
      if (!groups_.Next(&group_)) return false;
      pieces_.Start(problem_, group_);
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
  __aicore__ inline BlockWalk(const Problem* problem, const RowGroup& group, const Piece& piece,
                              int64_t vocab, int64_t element_bytes)
      : cells_(problem, group.span),
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
    const RowRun run = cells_.RunAt(cursor_, rows_ - row_);
    const int64_t gap = (run.row_step * vocab_ - columns_) * element_bytes_;
    int64_t rows = run.count < kMaxRows ? run.count : kMaxRows;
    if (gap > kMaxGap) rows = 1;
    *block = RowBlock{first_element_ + run.first_row * vocab_, row_, static_cast<int32_t>(rows),
                      rows > 1 ? static_cast<uint32_t>(gap) : 0};
    cursor_ = cells_.Advance(cursor_, rows);
    row_ += static_cast<int32_t>(rows);
    return true;
  }

 private:
  Cells cells_;
  CellCursor cursor_;
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
  __aicore__ inline void Init(const Problem* problem, GM_ADDR rows) {
    const RnntLossFusedTilingData& tiling = problem->tiling;
    problem_ = problem;
    vocab_ = tiling.vocab;
    pitch_ = tiling.row_pitch;
    rows_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(rows), tiling.num_rows * tiling.vocab);
  }
  __aicore__ inline void In(const AscendC::LocalTensor<T>& tile, const RowGroup& group,
                            const Piece& piece) const {
    const int32_t padding = Padding(piece);
    BlockWalk walk(problem_, group, piece, vocab_, sizeof(T));
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
    BlockWalk walk(problem_, group, piece, vocab_, sizeof(T));
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

  const Problem* problem_ = nullptr;
  AscendC::GlobalTensor<T> rows_;
  int64_t vocab_ = 0;
  int32_t pitch_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_ROW_TILES_H_
