// Phase 1: of every row ln of the sum of exp, and the logits of blank and label.
#ifndef ASR_ASCEND_RNNT_LOSS_ROWS_H_
#define ASR_ASCEND_RNNT_LOSS_ROWS_H_

#include "rnnt_loss_row_tiles.h"
#include "rnnt_loss_row_vectors.h"

namespace rnnt_loss {

template <typename T>
class RowStatistics {
 public:
  __aicore__ inline RowStatistics() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    const RnntLossFusedTilingData& tiling = problem->tiling;
    mover_.Init(problem, problem->arguments.logits);
    pitch_ = tiling.row_pitch;
    group_ = tiling.group_rows;
    const int32_t tile = tiling.tile_rows * pitch_;
    pipe->InitBuffer(in_, 2, tile * sizeof(T));
    if (sizeof(T) != sizeof(float)) pipe->InitBuffer(work_, tile * sizeof(float));
    pipe->InitBuffer(values_, kValues * group_ * sizeof(float));
    pipe->InitBuffer(norm_low_, group_ * sizeof(half));
    pipe->InitBuffer(mask_, group_ / 8);
    pipe->InitBuffer(labels_, group_ * sizeof(int32_t));
    pipe->InitBuffer(without_logit_, group_ * sizeof(int32_t));
    pipe->InitBuffer(windows_, 2 * kWindows * sizeof(float));
    pipe->InitBuffer(reduce_, kReduceFloats * sizeof(float));
    tile_rows_ = tiling.tile_rows;
    rows_are_short_ = RowsAreShort(tile_rows_, pitch_);
    if (rows_are_short_) {
      const bool wide = tiling.vocab > kFloatsPerRepeat;
      pipe->InitBuffer(partial_, (wide ? tile_rows_ : 1) * kFloatsPerRepeat * sizeof(float));
      pipe->InitBuffer(row_offsets_, tile_rows_ * sizeof(uint32_t));
      spreader_.Init(pipe, tile_rows_);
      const AscendC::LocalTensor<int32_t> offsets = row_offsets_.Get<int32_t>();
      AscendC::CreateVecIndex(offsets, 0, static_cast<uint32_t>(tile_rows_));
      Barrier();
      AscendC::Muls(offsets, offsets, static_cast<int32_t>(pitch_ * sizeof(float)), tile_rows_);
    }
    AscendC::Duplicate(values_.Get<float>(), 0.0f, kValues * group_);
    Barrier();
    AscendC::Duplicate(Values(kFloor), kImpossible, group_);
    Barrier();
    Order<AscendC::HardEvent::V_S>();
  }

  __aicore__ inline void Process() {
    PieceStream stream;
    stream.Start(problem_);
    RowPiece coming;
    bool more = stream.Next(&coming);
    if (more) Fetch(coming);
    while (more) {
      const RowPiece current = coming;
      more = stream.Next(&coming);
      if (more) Fetch(coming);
      if (current.begins_group) ReadLabels(current.group);
      ProcessPiece(current.piece);
      if (current.ends_group) Finish(current.group);
    }
  }

 private:
  // Vectors with a value for each of a group's rows.
  enum Value { kBlank = 0, kLabel, kHigh, kLow, kMax, kSum, kX, kY, kFloor, kValues };
  static constexpr int32_t kWindows = 64;
  static constexpr int32_t kReduceFloats = 512;

  __aicore__ inline Floats Values(Value value) {
    return values_.GetWithOffset<float>(group_, value * group_ * sizeof(float));
  }

  __aicore__ inline void Fetch(const RowPiece& coming) {
    AscendC::LocalTensor<T> tile = in_.template AllocTensor<T>();
    mover_.In(tile, coming.group, coming.piece);
    in_.EnQue(tile);
  }

  // The label of each row; of short rows, where in the tile its logit is. Below 0 where there is
  // none. A label out of place has the logit NaN, and so costs its own sample alone.
  __aicore__ inline void ReadLabels(const RowGroup& group) {
    AscendC::LocalTensor<int32_t> labels = labels_.Get<int32_t>();
    LaneWalk lanes(problem_, group);
    num_without_logit_ = 0;
    for (int32_t lane = 0; lane < group.count; ++lane) {
      int32_t label = lanes.NextLabel();
      if (rows_are_short_) {
        if (label < 0) {
          const int32_t entry = label == LaneWalk::kNoLabel ? lane : ~lane;
          without_logit_.Get<int32_t>().SetValue(num_without_logit_++, entry);
        }
        const int32_t element = lane % tile_rows_ * pitch_ + (label < 0 ? 0 : label);
        label = element * static_cast<int32_t>(sizeof(float));
      }
      labels.SetValue(lane, label);
    }
    Order<AscendC::HardEvent::S_V>();
  }

  __aicore__ inline void ProcessPiece(const Piece& piece) {
    AscendC::LocalTensor<T> tile = in_.template DeQue<T>();
    const Floats rows = ToFloats(tile, piece);
    if (rows_are_short_) {
      ProcessShortRows(TileRows{rows, piece.rows, piece.columns, pitch_}, piece);
    } else if (piece.columns == problem_->tiling.vocab) {
      for (int32_t row = 0; row < piece.rows; ++row) RowMax(rows, piece, row, Max(piece, row));
      Order<AscendC::HardEvent::V_S>();
      PickLogits(rows, piece);
      Order<AscendC::HardEvent::S_V>();
      for (int32_t row = 0; row < piece.rows; ++row) SubtractMax(rows, piece, row, Max(piece, row));
      Barrier();
      AscendC::Exp(rows, rows, piece.rows * pitch_);
      Barrier();
      for (int32_t row = 0; row < piece.rows; ++row) RowSum(rows, piece, row, Sum(piece, row));
      Order<AscendC::HardEvent::S_V>();
    } else {
      ProcessWindow(rows, piece);
    }
    in_.FreeTensor(tile);
  }

  __aicore__ inline void ProcessShortRows(const TileRows& tile, const Piece& piece) {
    const auto rows = static_cast<uint32_t>(piece.rows);
    const Floats partial = partial_.Get<float>();
    AscendC::Gather(Values(kBlank)[piece.begin], tile.memory, row_offsets_.Get<uint32_t>(),
                    static_cast<uint32_t>(problem_->tiling.blank * sizeof(float)), rows);
    AscendC::Gather(Values(kLabel)[piece.begin], tile.memory, labels_.Get<uint32_t>()[piece.begin],
                    0, rows);
    ReduceRows<Reduction::kMax>(Max(piece, 0), tile, partial);
    AddToRows<true>(tile.memory, tile, spreader_.Spread(Values(kMax), piece.begin, piece.rows));
    AscendC::Exp(tile.memory, tile.memory, (piece.rows - 1) * pitch_ + piece.columns);
    Barrier();
    ReduceRows<Reduction::kSum>(Sum(piece, 0), tile, partial);
  }

  // One row in windows: each has its own greatest logit and sum, put together at the end.
  __aicore__ inline void ProcessWindow(const Floats& rows, const Piece& piece) {
    if (piece.column == 0) num_windows_ = 0;
    if (num_windows_ == kWindows) JoinWindows(piece);
    const Floats greatest = windows_.Get<float>();
    const Floats sums = greatest[kWindows];
    RowMax(rows, piece, 0, greatest[num_windows_]);
    Order<AscendC::HardEvent::V_S>();
    PickLogits(rows, piece);
    Order<AscendC::HardEvent::S_V>();
    SubtractMax(rows, piece, 0, greatest[num_windows_]);
    Barrier();
    AscendC::Exp(rows, rows, piece.columns);
    Barrier();
    RowSum(rows, piece, 0, sums[num_windows_]);
    Order<AscendC::HardEvent::S_V>();
    ++num_windows_;
    if (piece.column + piece.columns == problem_->tiling.vocab) JoinWindows(piece);
  }

  // The row's greatest logit and sum so far; they become the first window.
  __aicore__ inline void JoinWindows(const Piece& piece) {
    const Floats greatest = windows_.Get<float>();
    const Floats sums = greatest[kWindows];
    const Floats scratch = reduce_.Get<float>();
    AscendC::Maxs(greatest, greatest, kLowest, num_windows_);
    Barrier();
    AscendC::ReduceMax(Max(piece, 0), greatest, scratch, num_windows_);
    Barrier();
    Order<AscendC::HardEvent::V_S>();
    const float row_max = Max(piece, 0).GetValue(0);
    AscendC::Adds(greatest, greatest, -row_max, num_windows_);
    Barrier();
    AscendC::Exp(greatest, greatest, num_windows_);
    Barrier();
    AscendC::Mul(sums, sums, greatest, num_windows_);
    Barrier();
    AscendC::ReduceSum(Sum(piece, 0), sums, scratch, num_windows_);
    Barrier();
    Order<AscendC::HardEvent::V_S>();
    greatest.SetValue(0, row_max);
    sums.SetValue(0, Sum(piece, 0).GetValue(0));
    Order<AscendC::HardEvent::S_V>();
    num_windows_ = 1;
  }

  __aicore__ inline Floats Max(const Piece& piece, int32_t row) {
    return Values(kMax)[piece.begin + row];
  }
  __aicore__ inline Floats Sum(const Piece& piece, int32_t row) {
    return Values(kSum)[piece.begin + row];
  }
  __aicore__ inline Floats ToFloats(const AscendC::LocalTensor<T>& tile, const Piece& piece) {
    if constexpr (sizeof(T) == sizeof(float)) {
      return tile;
    } else {
      const Floats rows = work_.Get<float>();
      const int32_t used = RoundUp(piece.columns, 32 / sizeof(T));
      const int32_t count = piece.rows > 1 ? piece.rows * pitch_ : used;
      AscendC::Cast(rows, tile, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
      Barrier();
      return rows;
    }
  }
  __aicore__ inline void RowMax(const Floats& rows, const Piece& piece, int32_t row,
                                const Floats& result) {
    AscendC::ReduceMax(result, rows[row * pitch_], reduce_.Get<float>(), piece.columns);
    Barrier();
  }
  __aicore__ inline void RowSum(const Floats& rows, const Piece& piece, int32_t row,
                                const Floats& result) {
    AscendC::ReduceSum(result, rows[row * pitch_], reduce_.Get<float>(), piece.columns);
    Barrier();
  }
  // A maximum of -inf must not make NaN of a window whose row has other logits.
  __aicore__ inline void SubtractMax(const Floats& rows, const Piece& piece, int32_t row,
                                     const Floats& row_max) {
    float greatest = row_max.GetValue(0);
    if (greatest < kLowest) greatest = kLowest;
    AscendC::Adds(rows[row * pitch_], rows[row * pitch_], -greatest, piece.columns);
  }

  // Before `rows` are overwritten.
  __aicore__ inline void PickLogits(const Floats& rows, const Piece& piece) {
    const AscendC::LocalTensor<int32_t> labels = labels_.Get<int32_t>();
    const int32_t blank = static_cast<int32_t>(problem_->tiling.blank) - piece.column;
    const Floats blanks = Values(kBlank);
    const Floats label_logits = Values(kLabel);
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t lane = piece.begin + row;
      if (blank >= 0 && blank < piece.columns) {
        blanks.SetValue(lane, rows.GetValue(row * pitch_ + blank));
      }
      const int32_t label = labels.GetValue(lane);
      if (label < 0) {
        SetMissingLabel(lane, label == LaneWalk::kNoLabel);
      } else if (label >= piece.column && label - piece.column < piece.columns) {
        label_logits.SetValue(lane, rows.GetValue(row * pitch_ + label - piece.column));
      }
    }
  }

  __aicore__ inline void Finish(const RowGroup& group) {
    const int32_t count = group.count;
    if (num_without_logit_ > 0) SetMissingLabels();
    Order<AscendC::HardEvent::S_V>();
    if (problem_->tiling.fused_log_softmax != 0) {
      AscendC::Ln(Values(kSum), Values(kSum), count);
      Barrier();
      TwoSum(Values(kHigh), Values(kLow), Values(kMax), Values(kSum), Values(kX), Values(kY),
             count);
    }
    LimitToHalf(Values(kLow), count);
    AscendC::Cast(norm_low_.Get<half>(), Values(kLow), AscendC::RoundMode::CAST_RINT,
                  static_cast<uint32_t>(count));
    RaiseToImpossible(Values(kBlank), count);
    RaiseToImpossible(Values(kLabel), count);
    Order<AscendC::HardEvent::V_MTE3>();
    const int64_t slot = group.first_slot;
    CopyOut(problem_->PlaneOf<float>(kBlankLogit)[slot], Values(kBlank), count);
    CopyOut(problem_->PlaneOf<float>(kLabelLogit)[slot], Values(kLabel), count);
    CopyOut(problem_->PlaneOf<float>(kNormHigh)[slot], Values(kHigh), count);
    CopyOut(problem_->PlaneOf<half>(kNormLow)[slot], norm_low_.Get<half>(), count);
    Order<AscendC::HardEvent::MTE3_V>();
    Order<AscendC::HardEvent::V_S>();
  }

  // In short rows something was taken for the label that isn't there.
  __aicore__ inline void SetMissingLabels() {
    Order<AscendC::HardEvent::V_S>();
    for (int32_t i = 0; i < num_without_logit_; ++i) {
      const int32_t entry = without_logit_.Get<int32_t>().GetValue(i);
      SetMissingLabel(entry < 0 ? ~entry : entry, entry >= 0);
    }
  }

  // Without a label, leaving by it is impossible; a wrong label's logit is NaN.
  __aicore__ inline void SetMissingLabel(int32_t lane, bool is_none) {
    if (is_none) {
      Values(kLabel).SetValue(lane, kImpossible);
    } else {
      Values(kLabel).template ReinterpretCast<int32_t>().SetValue(lane, kNanBits);
    }
  }

  // -inf becomes kImpossible; a NaN stays one, whatever the vector unit's Max makes of it.
  __aicore__ inline void RaiseToImpossible(const Floats& values, int32_t count) {
    const AscendC::LocalTensor<uint8_t> mask = mask_.Get<uint8_t>();
    AscendC::CompareScalar(mask, values, kImpossible, AscendC::CMPMODE::LT,
                           static_cast<uint32_t>(RoundUp(count, kFloatsPerRepeat)));
    Barrier();
    AscendC::Select(values, mask, Values(kFloor), values, AscendC::SELMODE::VSEL_TENSOR_TENSOR_MODE,
                    static_cast<uint32_t>(count));
    Barrier();
  }

  const Problem* problem_ = nullptr;
  RowMover<T> mover_;
  AscendC::TQue<AscendC::TPosition::VECIN, 2> in_;
  Buffer work_;
  OutBuffer values_;
  OutBuffer norm_low_;
  Buffer mask_;
  Buffer labels_;
  Buffer without_logit_;  // lanes without a label; ~lane where the label is wrong
  Buffer partial_;
  Buffer row_offsets_;
  Spreader spreader_;
  Buffer windows_;
  Buffer reduce_;
  int32_t group_ = 0;
  int32_t pitch_ = 0;
  int32_t tile_rows_ = 0;
  int32_t num_windows_ = 0;
  int32_t num_without_logit_ = 0;
  bool rows_are_short_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_ROWS_H_
