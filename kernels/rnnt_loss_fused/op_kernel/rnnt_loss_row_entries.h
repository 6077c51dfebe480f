// Phase 3, by row: what is added to a row's logits before exp, and its entries of blank and label.
#ifndef ASR_ASCEND_RNNT_LOSS_ROW_ENTRIES_H_
#define ASR_ASCEND_RNNT_LOSS_ROW_ENTRIES_H_

#include "rnnt_loss_row_tiles.h"
#include "rnnt_loss_row_vectors.h"

namespace rnnt_loss {

// What the rows of a sample hold apart from the entries of blank and label.
enum class Filling { kSoftmax, kZero, kNan };

// What a sample's rows need to know of it.
struct GradientSample {
  int64_t index = -1;
  float log_probability_high = 0.0f;
  float log_probability_low = 0.0f;
  float scale = 1.0f;
  Filling filling = Filling::kZero;
  bool has_entries = false;
};

template <typename T>
class RowEntries {
 public:
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

  __aicore__ inline RowEntries() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    group_ = problem->tiling.group_rows;
    pipe->InitBuffer(values_, kValues * group_ * sizeof(float));
    pipe->InitBuffer(lows_, 3 * group_ * sizeof(half));
    pipe->InitBuffer(entries_, 2 * group_ * sizeof(T));
    pipe->InitBuffer(labels_, group_ * sizeof(int32_t));
    state_arrived_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
  }
  __aicore__ inline void End(AscendC::TPipe* pipe) {
    pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(state_arrived_);
  }

  // A value of every row of the group that was prepared last.
  __aicore__ inline Floats Values(int32_t value) {
    return values_.GetWithOffset<float>(group_, value * group_ * sizeof(float));
  }
  __aicore__ inline T AtBlank(int32_t lane) { return entries_.Get<T>().GetValue(lane); }
  __aicore__ inline T AtLabel(int32_t lane) { return entries_.Get<T>().GetValue(group_ + lane); }
  // Of a row, or -1 where it has none.
  __aicore__ inline int32_t Label(int32_t lane) { return labels_.Get<int32_t>().GetValue(lane); }

  __aicore__ inline void Fetch(const RowGroup& group) {
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
  __aicore__ inline void Prepare(const RowGroup& group, const GradientSample& sample) {
    const int32_t count = group.count;
    scale_ = sample.scale;
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
    AscendC::Adds(Values(kOccupancy), Values(kOccupancy), -sample.log_probability_high, count);
    AscendC::Add(Values(kZ), Values(kZ), Values(kAlphaLow), count);
    Barrier();
    AscendC::Add(Values(kZ), Values(kZ), Values(kBetaLow), count);
    Barrier();
    AscendC::Adds(Values(kZ), Values(kZ), -sample.log_probability_low, count);
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

 private:
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
    AscendC::Muls(Values(result), Values(result), scale_, count);
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
    LaneWalk lanes(problem_, group);
    for (int32_t lane = 0; lane < group.count; ++lane) {
      const int32_t label = lanes.NextLabel();
      labels.SetValue(lane, label < 0 ? -1 : label);
      if (problem_->tiling.blank_in_targets != 0) {
        const bool is_blank = label == problem_->tiling.blank;
        Values(kLabelIsBlank).SetValue(lane, is_blank ? 1.0f : 0.0f);
      }
    }
    if (problem_->tiling.blank_in_targets != 0) Order<AscendC::HardEvent::S_V>();
  }

  const Problem* problem_ = nullptr;
  InBuffer values_;
  InBuffer lows_;
  Buffer entries_;
  Buffer labels_;
  AscendC::TEventID state_arrived_ = 0;
  float scale_ = 1.0f;  // of the sample whose rows are prepared
  int32_t group_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_ROW_ENTRIES_H_
