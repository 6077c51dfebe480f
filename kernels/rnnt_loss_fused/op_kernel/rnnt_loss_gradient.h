// Phase 3: the gradient of every row, clamped and scaled.
#ifndef ASR_ASCEND_RNNT_LOSS_GRADIENT_H_
#define ASR_ASCEND_RNNT_LOSS_GRADIENT_H_

#include "rnnt_loss_row_entries.h"

namespace rnnt_loss {

template <typename T>
class GradientPhase {
 public:
  __aicore__ inline GradientPhase() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    const RnntLossFusedTilingData& tiling = problem->tiling;
    logits_.Init(problem, problem->arguments.logits);
    grad_.Init(problem, problem->arguments.grad);
    if (problem->arguments.grad_loss != nullptr) {
      grad_loss_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(problem->arguments.grad_loss),
                                 tiling.batch);
    }
    pitch_ = tiling.row_pitch;
    const int32_t tile = tiling.tile_rows * pitch_;
    pipe->InitBuffer(in_, 2, tile * sizeof(T));
    pipe->InitBuffer(out_, 2, tile * sizeof(T));
    if (sizeof(T) != sizeof(float)) pipe->InitBuffer(work_, tile * sizeof(float));
    rows_.Init(problem, pipe);
    pipe->InitBuffer(sample_values_, kFloatsPerSample * sizeof(float));
    rows_are_short_ = RowsAreShort(tiling.tile_rows, pitch_);
    if (rows_are_short_) spreader_.Init(pipe, tiling.tile_rows);
  }

  __aicore__ inline void Process() {
    PieceStream stream;
    stream.Start(problem_);
    RowPiece coming;
    bool more = stream.Next(&coming);
    if (more) Fetch(coming);
    while (more) {
      const RowPiece current = coming;
      sample_ = coming_sample_;
      more = stream.Next(&coming);
      const bool prepare = current.begins_group && sample_.has_entries;
      if (prepare) rows_.Fetch(current.group);
      if (more) Fetch(coming);
      if (prepare) rows_.Prepare(current.group, sample_);
      ProcessPiece(current.group, current.piece);
      if (current.ends_group) Order<AscendC::HardEvent::S_V>();
    }
  }
  __aicore__ inline void End(AscendC::TPipe* pipe) { rows_.End(pipe); }

 private:
  using Entries = RowEntries<T>;

  __aicore__ inline GradientSample ReadSample(int64_t index) {
    const Floats values = sample_values_.Get<float>();
    Order<AscendC::HardEvent::S_MTE2>();
    CopyIn(values, problem_->Samples()[index * kFloatsPerSample], kFloatsPerSample);
    Order<AscendC::HardEvent::MTE2_S>();
    GradientSample sample;
    sample.index = index;
    sample.log_probability_high = values.GetValue(2);
    sample.log_probability_low = values.GetValue(3);
    if (problem_->arguments.grad_loss != nullptr) sample.scale = grad_loss_.GetValue(index);
    const float high = sample.log_probability_high;
    if (high != high) {
      sample.filling = Filling::kNan;
    } else if (!(high < kImpossibleBelow)) {
      sample.has_entries = true;
      if (problem_->tiling.fused_log_softmax != 0) sample.filling = Filling::kSoftmax;
    }
    return sample;
  }

  __aicore__ inline void Fetch(const RowPiece& coming) {
    if (coming.group.span.sample != coming_sample_.index) {
      coming_sample_ = ReadSample(coming.group.span.sample);
    }
    if (coming_sample_.filling != Filling::kSoftmax) return;
    AscendC::LocalTensor<T> tile = in_.template AllocTensor<T>();
    logits_.In(tile, coming.group, coming.piece);
    in_.EnQue(tile);
  }

  __aicore__ inline void ProcessPiece(const RowGroup& group, const Piece& piece) {
    AscendC::LocalTensor<T> out = out_.template AllocTensor<T>();
    if (sample_.filling == Filling::kSoftmax) {
      AscendC::LocalTensor<T> tile = in_.template DeQue<T>();
      Softmax(out, tile, piece);
      in_.FreeTensor(tile);
    } else {
      Fill(out, piece);
    }
    Order<AscendC::HardEvent::V_S>();
    if (sample_.has_entries) SetEntries(out, piece);
    Order<AscendC::HardEvent::S_MTE3>();
    out_.EnQue(out);
    out = out_.template DeQue<T>();
    grad_.Out(out, group, piece);
    out_.FreeTensor(out);
  }

  // Elements of the tile that hold something.
  __aicore__ inline int32_t TileCount(const Piece& piece) const {
    if (piece.rows > 1) return piece.rows * pitch_;
    return RoundUp(piece.columns, 32 / sizeof(T));
  }

  __aicore__ inline void Softmax(const AscendC::LocalTensor<T>& out,
                                 const AscendC::LocalTensor<T>& tile, const Piece& piece) {
    const int32_t count = TileCount(piece);
    if constexpr (sizeof(T) == sizeof(float)) {
      Exponentials(out, tile, piece, count);
    } else {
      const Floats rows = work_.Get<float>();
      AscendC::Cast(rows, tile, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
      Barrier();
      Exponentials(rows, rows, piece, count);
      AscendC::Cast(out, rows, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
      Barrier();
    }
  }

  // to = exp(rows - norm + occupancy), clamped and scaled.
  __aicore__ inline void Exponentials(const Floats& to, const Floats& rows, const Piece& piece,
                                      int32_t count) {
    if (rows_are_short_) {
      ShiftShortRows(to, TileRows{rows, piece.rows, RoundUp(piece.columns, 32 / sizeof(T)), pitch_},
                     piece.begin);
    } else {
      ShiftRows(to, rows, piece, piece.rows > 1 ? pitch_ : count);
    }
    AscendC::Exp(to, to, count);
    Barrier();
    if (problem_->tiling.clamp > 0.0f) {
      AscendC::Mins(to, to, problem_->tiling.clamp, count);
      Barrier();
    }
    if (sample_.scale != 1.0f) {
      AscendC::Muls(to, to, sample_.scale, count);
      Barrier();
    }
    if (rows_are_short_) {
      SetColumn(TileRows{to, piece.rows, piece.columns, pitch_},
                static_cast<int32_t>(problem_->tiling.blank),
                spreader_.Spread(rows_.Values(Entries::kAtBlank), piece.begin, piece.rows));
    }
  }

  // to = rows - norm + occupancy, in this order: norm and logits may be large and close.
  __aicore__ inline void ShiftShortRows(const Floats& to, const TileRows& rows, int32_t begin) {
    AddToRows<false>(to, rows, spreader_.Spread(rows_.Values(kNormHigh), begin, rows.rows));
    AddToRows<false>(to, TileRows{to, rows.rows, rows.columns, rows.pitch},
                     spreader_.Spread(rows_.Values(Entries::kShift), begin, rows.rows));
  }
  __aicore__ inline void ShiftRows(const Floats& to, const Floats& rows, const Piece& piece,
                                   int32_t count) {
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t at = row * pitch_;
      AscendC::Adds(to[at], rows[at], rows_.Values(kNormHigh).GetValue(piece.begin + row), count);
    }
    Barrier();
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t at = row * pitch_;
      AscendC::Adds(to[at], to[at], rows_.Values(Entries::kShift).GetValue(piece.begin + row),
                    count);
    }
    Barrier();
  }

  __aicore__ inline void Fill(const AscendC::LocalTensor<T>& out, const Piece& piece) {
    const int32_t count = TileCount(piece);
    if constexpr (sizeof(T) == sizeof(float)) {
      const int32_t bits = sample_.filling == Filling::kNan ? 0x7fc00000 : 0;
      AscendC::Duplicate(out.template ReinterpretCast<int32_t>(), bits, count);
    } else {
      // The quiet NaN of bfloat16, and a NaN of float16 as well.
      const int16_t bits = sample_.filling == Filling::kNan ? 0x7fc0 : 0;
      AscendC::Duplicate(out.template ReinterpretCast<int16_t>(), bits, count);
    }
    Barrier();
  }

  __aicore__ inline void SetEntries(const AscendC::LocalTensor<T>& out, const Piece& piece) {
    const int32_t blank = static_cast<int32_t>(problem_->tiling.blank) - piece.column;
    const bool blank_is_set = rows_are_short_ && sample_.filling == Filling::kSoftmax;
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t lane = piece.begin + row;
      if (!blank_is_set && blank >= 0 && blank < piece.columns) {
        out.SetValue(row * pitch_ + blank, rows_.AtBlank(lane));
      }
      const int32_t label = rows_.Label(lane);
      if (label >= piece.column && label - piece.column < piece.columns) {
        out.SetValue(row * pitch_ + label - piece.column, rows_.AtLabel(lane));
      }
    }
  }

  const Problem* problem_ = nullptr;
  Entries rows_;
  RowMover<T> logits_;
  RowMover<T> grad_;
  AscendC::GlobalTensor<float> grad_loss_;
  AscendC::TQue<AscendC::TPosition::VECIN, 2> in_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 2> out_;
  Buffer work_;
  InBuffer sample_values_;
  Spreader spreader_;
  GradientSample sample_{};         // of the piece that is computed
  GradientSample coming_sample_{};  // of the one after it
  int32_t pitch_ = 0;
  bool rows_are_short_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_GRADIENT_H_
