// Phase 3: the gradient of every row, clamped and scaled.
#ifndef ASR_ASCEND_RNNT_LOSS_GRADIENT_H_
#define ASR_ASCEND_RNNT_LOSS_GRADIENT_H_

#include "rnnt_loss_row_tiles.h"
#include "rnnt_loss_row_vectors.h"

namespace rnnt_loss {

template <typename T>
class GradientPhase {
 public:
  __aicore__ inline GradientPhase() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    const RnntLossFusedTilingData& tiling = problem->tiling;
    logits_.Init(tiling, problem->arguments.logits);
    grad_.Init(tiling, problem->arguments.grad);
    if (problem->arguments.grad_loss != nullptr) {
      grad_loss_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(problem->arguments.grad_loss),
                                 tiling.batch);
    }
    pitch_ = tiling.row_pitch;
    group_ = tiling.group_rows;
    const int32_t tile = tiling.tile_rows * pitch_;
    pipe->InitBuffer(in_, 2, tile * sizeof(T));
    pipe->InitBuffer(out_, 2, tile * sizeof(T));
    if (sizeof(T) != sizeof(float)) pipe->InitBuffer(work_, tile * sizeof(float));
    pipe->InitBuffer(values_, kValues * group_ * sizeof(float));
    pipe->InitBuffer(lows_, 3 * group_ * sizeof(half));
    pipe->InitBuffer(entries_, 2 * group_ * sizeof(T));
    pipe->InitBuffer(labels_, group_ * sizeof(int32_t));
    pipe->InitBuffer(sample_values_, kFloatsPerSample * sizeof(float));
    state_arrived_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
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
      if (prepare) FetchState(current.group);
      if (more) Fetch(coming);
      if (prepare) PrepareRows(current.group);
      ProcessPiece(current.group, current.piece);
      if (current.ends_group) Order<AscendC::HardEvent::S_V>();
    }
  }
  __aicore__ inline void End(AscendC::TPipe* pipe) {
    pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(state_arrived_);
  }

 private:
  // Vectors with a value for each of a group's rows: the planes of the state, then scratch.
  enum Value {
    kShift = kSplit + 1,  // ln of the occupancy, with FastEmit's weight, less the norm's low part
    kOccupancy,
    kAtBlank,
    kAtLabel,
    kX,
    kY,
    kZ,
    kLabelIsBlank,  // 1 where it is, else 0; with blank_in_targets alone
    kValues
  };
  // What the rows of a sample hold apart from the entries of blank and label.
  enum class Filling { kSoftmax, kZero, kNan };

  __aicore__ inline Floats Values(int32_t value) {
    return values_.GetWithOffset<float>(group_, value * group_ * sizeof(float));
  }

  // What a sample's rows need to know of it.
  struct Sample {
    int64_t index = -1;
    float log_probability_high = 0.0f;
    float log_probability_low = 0.0f;
    float scale = 1.0f;
    Filling filling = Filling::kZero;
    bool has_entries = false;
  };

  __aicore__ inline Sample ReadSample(int64_t index) {
    const Floats values = sample_values_.Get<float>();
    Order<AscendC::HardEvent::S_MTE2>();
    CopyIn(values, problem_->Samples()[index * kFloatsPerSample], kFloatsPerSample);
    Order<AscendC::HardEvent::MTE2_S>();
    Sample sample;
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

  __aicore__ inline void FetchState(const RowGroup& group) {
    Order<AscendC::HardEvent::V_MTE2>();
    FetchHigh(kBlankLogit, group);
    FetchHigh(kLabelLogit, group);
    FetchHigh(kNormHigh, group);
    FetchHigh(kAlphaHigh, group);
    FetchHigh(kBetaHigh, group);
    FetchHigh(kSplit, group);
    FetchLow(0, kNormLow, group);
    FetchLow(1, kAlphaLow, group);
    FetchLow(2, kBetaLow, group);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(state_arrived_);
  }

  // For every row: what is added to its logits before exp, and its entries of blank and label.
  __aicore__ inline void PrepareRows(const RowGroup& group) {
    const int32_t count = group.count;
    ReadLabels(group);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(state_arrived_);
    WidenLow(0, kNormLow, count);
    WidenLow(1, kAlphaLow, count);
    WidenLow(2, kBetaLow, count);
    LimitToHalf(Values(kAlphaLow), count);
    LimitToHalf(Values(kBetaLow), count);
    // occupancy = (alpha - norm) + (beta + norm) - ln P
    TwoSum(Values(kOccupancy), Values(kZ), Values(kAlphaHigh), Values(kBetaHigh), Values(kX),
           Values(kY), count);
    AscendC::Adds(Values(kOccupancy), Values(kOccupancy), -sample_.log_probability_high, count);
    AscendC::Add(Values(kZ), Values(kZ), Values(kAlphaLow), count);
    Barrier();
    AscendC::Add(Values(kZ), Values(kZ), Values(kBetaLow), count);
    Barrier();
    AscendC::Adds(Values(kZ), Values(kZ), -sample_.log_probability_low, count);
    Barrier();
    AscendC::Add(Values(kOccupancy), Values(kOccupancy), Values(kZ), count);
    Barrier();
    AscendC::Sub(Values(kShift), Values(kOccupancy), Values(kNormLow), count);
    AscendC::Muls(Values(kNormHigh), Values(kNormHigh), -1.0f, count);
    AscendC::Exp(Values(kOccupancy), Values(kOccupancy), count);
    Barrier();
    // Of the occupancy, 1 / (1 + exp(-split)) goes on by blank and 1 / (1 + exp(split)) by label.
    AscendC::Muls(Values(kX), Values(kSplit), -1.0f, count);
    const float lambda = problem_->tiling.fastemit_lambda;
    if (lambda > 0.0f) AddLabelWeight(lambda, count);
    PrepareEntry(kAtLabel, kLabelLogit, Values(kSplit), 1.0f + lambda, 1.0f, count);
    PrepareEntry(kAtBlank, kBlankLogit, Values(kX), 1.0f, 1.0f + lambda, count);
    StoreEntries(count);
    Order<AscendC::HardEvent::V_S>();
  }

  __aicore__ inline void FetchHigh(Plane plane, const RowGroup& group) {
    CopyIn(Values(plane), problem_->PlaneOf<float>(plane)[group.first_slot], group.count);
  }
  __aicore__ inline AscendC::LocalTensor<half> Low(int32_t place) {
    return lows_.GetWithOffset<half>(group_, place * group_ * sizeof(half));
  }
  __aicore__ inline void FetchLow(int32_t place, Plane plane, const RowGroup& group) {
    CopyIn(Low(place), problem_->PlaneOf<half>(plane)[group.first_slot], group.count);
  }
  __aicore__ inline void WidenLow(int32_t place, Plane plane, int32_t count) {
    AscendC::Cast(Values(plane), Low(place), AscendC::RoundMode::CAST_NONE,
                  static_cast<uint32_t>(count));
  }

  // FastEmit: what goes on by label counts 1 + lambda times before the softmax, which makes of the
  // occupancy 1 + lambda / (1 + exp(split)) of it.
  __aicore__ inline void AddLabelWeight(float lambda, int32_t count) {
    AscendC::Exp(Values(kZ), Values(kSplit), count);
    AscendC::Duplicate(Values(kY), lambda, count);
    Barrier();
    AscendC::Adds(Values(kZ), Values(kZ), 1.0f, count);
    Barrier();
    AscendC::Div(Values(kZ), Values(kY), Values(kZ), count);
    Barrier();
    AscendC::Adds(Values(kZ), Values(kZ), 1.0f, count);
    Barrier();
    AscendC::Ln(Values(kZ), Values(kZ), count);
    Barrier();
    AscendC::Add(Values(kShift), Values(kShift), Values(kZ), count);
  }

  // result = exp(logit - norm + shift) - weight occupancy / (1 + exp(unlikeliness)). Where label
  // and blank are one symbol, the rest of the occupancy is subtracted too, with its own weight.
  __aicore__ inline void PrepareEntry(Value result, Plane logit, const Floats& unlikeliness,
                                      float weight, float weight_of_rest, int32_t count) {
    Barrier();
    AscendC::Exp(Values(kZ), unlikeliness, count);
    AscendC::Add(Values(result), Values(logit), Values(kNormHigh), count);
    Barrier();
    AscendC::Adds(Values(kZ), Values(kZ), 1.0f, count);
    AscendC::Add(Values(result), Values(result), Values(kShift), count);
    Barrier();
    AscendC::Div(Values(kZ), Values(kOccupancy), Values(kZ), count);
    if (problem_->tiling.fused_log_softmax != 0) {
      AscendC::Exp(Values(result), Values(result), count);
    } else {
      AscendC::Duplicate(Values(result), 0.0f, count);
    }
    Barrier();
    const bool may_be_one_symbol = problem_->tiling.blank_in_targets != 0;
    if (may_be_one_symbol) KeepRest(weight_of_rest, count);
    if (weight != 1.0f) {
      AscendC::Muls(Values(kZ), Values(kZ), weight, count);
      Barrier();
    }
    if (may_be_one_symbol) {
      AscendC::Add(Values(kZ), Values(kZ), Values(kY), count);
      Barrier();
    }
    AscendC::Sub(Values(result), Values(result), Values(kZ), count);
    Barrier();
    if (problem_->tiling.clamp > 0.0f) {
      AscendC::Mins(Values(result), Values(result), problem_->tiling.clamp, count);
      Barrier();
      AscendC::Maxs(Values(result), Values(result), -problem_->tiling.clamp, count);
      Barrier();
    }
    AscendC::Muls(Values(result), Values(result), sample_.scale, count);
    Barrier();
  }

  // What of the occupancy is not in kZ, weighted, in the rows whose label is blank.
  __aicore__ inline void KeepRest(float weight, int32_t count) {
    AscendC::Sub(Values(kY), Values(kOccupancy), Values(kZ), count);
    Barrier();
    AscendC::Mul(Values(kY), Values(kY), Values(kLabelIsBlank), count);
    Barrier();
    AscendC::Muls(Values(kY), Values(kY), weight, count);
    Barrier();
  }

  // Entries in the gradient's type, where the scalar unit takes them from.
  __aicore__ inline void StoreEntries(int32_t count) {
    const AscendC::LocalTensor<T> entries = entries_.Get<T>();
    if constexpr (sizeof(T) == sizeof(float)) {
      AscendC::Adds(entries, Values(kAtBlank), 0.0f, count);
      AscendC::Adds(entries[group_], Values(kAtLabel), 0.0f, count);
    } else {
      AscendC::Cast(entries, Values(kAtBlank), AscendC::RoundMode::CAST_RINT,
                    static_cast<uint32_t>(count));
      AscendC::Cast(entries[group_], Values(kAtLabel), AscendC::RoundMode::CAST_RINT,
                    static_cast<uint32_t>(count));
    }
    Barrier();
  }

  // The label of each row, or -1 where there is none.
  __aicore__ inline void ReadLabels(const RowGroup& group) {
    const AscendC::LocalTensor<int32_t> labels = labels_.Get<int32_t>();
    LaneWalk lanes(group);
    for (int32_t lane = 0; lane < group.count; ++lane) {
      const int64_t u = lanes.NextColumn();
      int32_t label = -1;
      if (u < group.span.lattice.columns - 1) label = problem_->Label(group.span.sample, u);
      labels.SetValue(lane, problem_->IsLabel(label) ? label : -1);
      if (problem_->tiling.blank_in_targets != 0) {
        const bool is_blank = label == problem_->tiling.blank;
        Values(kLabelIsBlank).SetValue(lane, is_blank ? 1.0f : 0.0f);
      }
    }
    if (problem_->tiling.blank_in_targets != 0) Order<AscendC::HardEvent::S_V>();
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
                spreader_.Spread(Values(kAtBlank), piece.begin, piece.rows));
    }
  }

  // to = rows - norm + occupancy, in this order: norm and logits may be large and close.
  __aicore__ inline void ShiftShortRows(const Floats& to, const TileRows& rows, int32_t begin) {
    AddToRows<false>(to, rows, spreader_.Spread(Values(kNormHigh), begin, rows.rows));
    AddToRows<false>(to, TileRows{to, rows.rows, rows.columns, rows.pitch},
                     spreader_.Spread(Values(kShift), begin, rows.rows));
  }
  __aicore__ inline void ShiftRows(const Floats& to, const Floats& rows, const Piece& piece,
                                   int32_t count) {
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t at = row * pitch_;
      AscendC::Adds(to[at], rows[at], Values(kNormHigh).GetValue(piece.begin + row), count);
    }
    Barrier();
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t at = row * pitch_;
      AscendC::Adds(to[at], to[at], Values(kShift).GetValue(piece.begin + row), count);
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
    const AscendC::LocalTensor<T> entries = entries_.Get<T>();
    const AscendC::LocalTensor<int32_t> labels = labels_.Get<int32_t>();
    const int32_t blank = static_cast<int32_t>(problem_->tiling.blank) - piece.column;
    const bool blank_is_set = rows_are_short_ && sample_.filling == Filling::kSoftmax;
    for (int32_t row = 0; row < piece.rows; ++row) {
      const int32_t lane = piece.begin + row;
      if (!blank_is_set && blank >= 0 && blank < piece.columns) {
        out.SetValue(row * pitch_ + blank, entries.GetValue(lane));
      }
      const int32_t label = labels.GetValue(lane);
      if (label >= piece.column && label - piece.column < piece.columns) {
        out.SetValue(row * pitch_ + label - piece.column, entries.GetValue(group_ + lane));
      }
    }
  }

  const Problem* problem_ = nullptr;
  RowMover<T> logits_;
  RowMover<T> grad_;
  AscendC::GlobalTensor<float> grad_loss_;
  AscendC::TQue<AscendC::TPosition::VECIN, 2> in_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 2> out_;
  Buffer work_;
  InBuffer values_;
  InBuffer lows_;
  Buffer entries_;
  Buffer labels_;
  InBuffer sample_values_;
  Spreader spreader_;
  AscendC::TEventID state_arrived_ = 0;
  Sample sample_{};         // of the piece that is computed
  Sample coming_sample_{};  // of the one after it
  int32_t group_ = 0;
  int32_t pitch_ = 0;
  bool rows_are_short_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_GRADIENT_H_
