// Phase 2: alpha and beta of every sample, anti-diagonal by anti-diagonal, on float pairs.
//
// A diagonal's cells lie in the order of t. Where diagonal d + 1 begins in the same frame (without
// a band: t = 0, d < U), the cell above by blank, (t + 1, u), is one lane further on and the one by
// label, (t, u + 1), in the same lane; where it begins one frame later, the first is in the same
// lane and the second one lane before. The lanes before and after a diagonal are impossible.
#ifndef ASR_ASCEND_RNNT_LOSS_LATTICE_H_
#define ASR_ASCEND_RNNT_LOSS_LATTICE_H_

#include "rnnt_loss_lattice_output.h"

namespace rnnt_loss {

// int64_t values in UB, for the schedule.
struct UbIntegers {
  AscendC::LocalTensor<int64_t> memory;

  __aicore__ inline int64_t Get(int64_t place) const {
    return memory.GetValue(static_cast<uint32_t>(place));
  }
  __aicore__ inline void Set(int64_t place, int64_t value) {
    memory.SetValue(static_cast<uint32_t>(place), value);
  }
};

class LatticePhase {
 public:
  __aicore__ inline LatticePhase() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    lanes_ = problem->tiling.lattice_lanes;
    stacked_ = 2 * lanes_ + 3 * kPad;
    chunk_.Init(problem, pipe);
    output_.Init(problem, pipe);
    pipe->InitBuffer(buffer_, BufferFloats() * sizeof(float));
    pipe->InitBuffer(mask_, stacked_ / 8 + 32);
    pipe->InitBuffer(index_, (lanes_ + kPad) * sizeof(uint32_t));
    const int32_t window = problem->tiling.schedule_window;
    pipe->InitBuffer(schedule_, (2 * window + asr_ascend::core::kMaxCores) * sizeof(int64_t));
    AscendC::Duplicate(buffer_.Get<float>(), 0.0f, BufferFloats());
    const AscendC::LocalTensor<int32_t> index = index_.Get<int32_t>();
    AscendC::CreateVecIndex(index, 0, static_cast<uint32_t>(lanes_ + kPad));
    Barrier();
    AscendC::Muls(index, index, static_cast<int32_t>(sizeof(float)), lanes_ + kPad);
    // The lane before the first one stays so.
    AscendC::Duplicate(Stacked(kSum), kImpossible, kPad);
    AscendC::Duplicate(Previous().high, kImpossible, kPad);
    Barrier();
  }

  __aicore__ inline void End(AscendC::TPipe* pipe) { chunk_.End(pipe); }

  __aicore__ inline void Process() {
    const int32_t window = problem_->tiling.schedule_window;
    const AscendC::LocalTensor<int64_t> memory = schedule_.Get<int64_t>();
    asr_ascend::core::LatticeSchedule<Lengths, UbIntegers> schedule;
    schedule.Start(problem_->lengths, problem_->tiling.batch, problem_->tiling.used_cores, window,
                   problem_->tiling.needs_grad == 0, UbIntegers{memory}, UbIntegers{memory[window]},
                   UbIntegers{memory[2 * window]});
    asr_ascend::core::LatticeTask task;
    while (schedule.Next(&task)) {
      if (task.core != AscendC::GetBlockIdx()) continue;
      chunk_.Start(task.sample, task.first_slot, task.is_beta);
      output_.Start(task.sample, task.first_slot, task.is_beta);
      if (task.is_beta) {
        ComputeBeta(task);
      } else {
        ComputeAlpha(task);
      }
    }
  }

 private:
  using Task = asr_ascend::core::LatticeTask;
  // Vectors of two diagonals side by side (blank's, then label's), with room before and after.
  enum StackedName { kFromHigh = 0, kFromLow, kLogits, kSum, kError, kX, kY, kStackedNames };
  // Vectors of one diagonal.
  enum LaneName { kPreviousHigh = 0, kPreviousLow, kNorm, kNormRest, kLaneNames };

  __aicore__ inline int32_t BufferFloats() const {
    return kStackedNames * stacked_ + kLaneNames * (lanes_ + 2 * kPad);
  }
  __aicore__ inline Floats Stacked(StackedName name) {
    return buffer_.GetWithOffset<float>(stacked_, name * stacked_ * sizeof(float));
  }
  __aicore__ inline Floats Lanes(LaneName name) {
    const int32_t pitch = lanes_ + 2 * kPad;
    return buffer_.GetWithOffset<float>(pitch,
                                        (kStackedNames * stacked_ + name * pitch) * sizeof(float));
  }
  // alpha of this diagonal, or beta of the one computed before; lane 0 is at kPad.
  __aicore__ inline Pair Previous() { return Pair{Lanes(kPreviousHigh), Lanes(kPreviousLow)}; }
  // In the stacked vectors that are free by then, as two vectors of one diagonal each.
  __aicore__ inline LogAddScratch Scratch() {
    const int32_t second = lanes_ + kPad;
    return LogAddScratch{Stacked(kX), Stacked(kY), Stacked(kX)[second],
                         Pair{Stacked(kLogits), Stacked(kLogits)[second]}, mask_.Get<uint8_t>()};
  }
  __aicore__ inline AscendC::LocalTensor<uint32_t> Index() { return index_.Get<uint32_t>(); }

  // One lane of a vector, which may be anywhere.
  __aicore__ inline void SetLane(const Floats& vector, int32_t lane, float value) {
    uint64_t bits[2] = {uint64_t{1} << (lane % kFloatsPerBlock), 0};
    AscendC::Duplicate(vector[lane / kFloatsPerBlock * kFloatsPerBlock], value, bits, 1, 1, 8);
  }
  __aicore__ inline void ShiftInto(const Floats& to, const Floats& from, int32_t lane,
                                   int32_t count) {
    AscendC::Gather(to, from, Index(), static_cast<uint32_t>(lane * sizeof(float)),
                    static_cast<uint32_t>(count));
  }

  __aicore__ inline void StoreLogProbability(int64_t sample, int64_t place, const Floats& high,
                                             const Floats& low) {
    Order<AscendC::HardEvent::V_MTE3>();
    const int64_t at = sample * kFloatsPerSample + place;
    CopyOut(problem_->Samples()[at], high, 1);
    CopyOut(problem_->Samples()[at + 1], low, 1);
    Order<AscendC::HardEvent::MTE3_V>();
  }

  // beta(t, u) + norm(t, u) = ln(exp(beta(t+1, u) + blank logit) + exp(beta(t, u+1) + label logit))
  __aicore__ inline void ComputeBeta(const Task& task) {
    const Pair beta = Previous();
    // Beyond the last diagonal: beta(T, U) = 0.
    AscendC::Duplicate(beta.high[kPad], 0.0f, 1);
    AscendC::Duplicate(beta.low[kPad], 0.0f, kFloatsPerBlock);
    Barrier();
    SetLane(beta.high[kPad], 1, kImpossible);
    Barrier();
    int64_t frame_after = problem_->lengths.Frames(task.sample);
    DiagonalWalk diagonals;
    for (diagonals.Start(problem_, task.sample, true); diagonals.HasMore(); diagonals.Skip()) {
      const Diagonal diagonal = diagonals.Next();
      if (diagonal.count == 0) {
        BreakOff(beta, beta);
      } else {
        chunk_.Hold(diagonal);
        StepBeta(diagonal, diagonal.first_frame == frame_after);
      }
      frame_after = diagonal.first_frame;
    }
    StoreLogProbability(task.sample, 2, beta.high[kPad], beta.low[kPad]);
    // Alone it has nothing to be compared with but itself.
    if (problem_->tiling.needs_grad == 0) {
      StoreLogProbability(task.sample, 0, beta.high[kPad], beta.low[kPad]);
    }
  }

  __aicore__ inline void StepBeta(const Diagonal& diagonal, bool growing) {
    const int32_t count = RoundUp(diagonal.count, kFloatsPerBlock);
    const Pair beta = Previous();
    const Floats from_high = Stacked(kFromHigh);
    const Floats from_low = Stacked(kFromLow);
    const Floats logits = Stacked(kLogits);
    const int32_t by_blank = kPad + (growing ? 1 : 0);
    const int32_t by_label = kPad - (growing ? 0 : 1);
    ShiftInto(from_high, beta.high, by_blank, count);
    ShiftInto(from_high[count], beta.high, by_label, count);
    ShiftInto(from_low, beta.low, by_blank, count);
    ShiftInto(from_low[count], beta.low, by_label, count);
    chunk_.Take(logits, kBlankLogit, diagonal, Index(), count);
    chunk_.Take(logits[count], kLabelLogit, diagonal, Index(), count);
    chunk_.Take(Lanes(kNorm), kNormHigh, diagonal, Index(), count);
    chunk_.Take(Lanes(kNormRest), kNormLow, diagonal, Index(), count);
    Barrier();
    const Floats sum = Stacked(kSum)[kPad];
    const Floats error = Stacked(kError)[kPad];
    TwoSum(sum, error, from_high, logits, Stacked(kX), Stacked(kY), 2 * count);
    AscendC::Add(error, error, from_low, 2 * count);
    Barrier();
    const Pair result = output_.Values();
    LogAdd(result, output_.Splits(), Pair{sum, error}, Pair{sum[count], error[count]}, Scratch(),
           count);
    SubtractNorm(Pair{beta.high[kPad], beta.low[kPad]}, result, count);
    SetLane(beta.high[kPad], diagonal.count, kImpossible);
    SetLane(beta.low[kPad], diagonal.count, 0.0f);
    Barrier();
    output_.Put(diagonal, Index());
  }

  // alpha(t, u) = ln(exp(alpha(t-1, u) - norm + blank logit) + exp(alpha(t, u-1) - norm + label
  // logit)), norm and logits being those of the cell that is left.
  __aicore__ inline void ComputeAlpha(const Task& task) {
    const Pair alpha = Previous();
    AscendC::Duplicate(alpha.high[kPad], 0.0f, kFloatsPerBlock);
    AscendC::Duplicate(alpha.low[kPad], 0.0f, kFloatsPerBlock);
    Barrier();
    DiagonalWalk diagonals;
    diagonals.Start(problem_, task.sample, false);
    while (diagonals.HasMore()) {
      const Diagonal diagonal = diagonals.Next();
      diagonals.Skip();
      if (diagonal.count == 0) continue;
      chunk_.Hold(diagonal);
      LeaveDiagonal(diagonal);
      if (!diagonals.HasMore()) break;
      const Diagonal next = diagonals.Next();
      if (next.count == 0) {
        BreakOff(alpha, Pair{Stacked(kSum), Stacked(kError)});
      } else {
        EnterDiagonal(diagonal, next, next.first_frame == diagonal.first_frame);
      }
    }
    // What leaves the last cell by blank.
    StoreLogProbability(task.sample, 0, Stacked(kSum)[kPad], Stacked(kError)[kPad]);
  }

  // No path crosses a diagonal without cells: the one cell next to it is impossible, or NaN where
  // what was computed last is. `result` may be that.
  __aicore__ inline void BreakOff(const Pair& result, const Pair& last) {
    AscendC::Muls(result.high[kPad], last.high[kPad], 0.0f, kFloatsPerBlock);
    AscendC::Duplicate(result.low[kPad], 0.0f, kFloatsPerBlock);
    Barrier();
    AscendC::Adds(result.high[kPad], result.high[kPad], kImpossible, kFloatsPerBlock);
    Barrier();
  }

  // Scores of leaving the diagonal's cells by blank and by label.
  __aicore__ inline void LeaveDiagonal(const Diagonal& diagonal) {
    const int32_t count = RoundUp(diagonal.count, kFloatsPerBlock);
    const Pair alpha = Previous();
    const Floats from = Stacked(kFromHigh);
    const Floats logits = Stacked(kLogits);
    chunk_.Take(logits, kBlankLogit, diagonal, Index(), count);
    chunk_.Take(logits[count], kLabelLogit, diagonal, Index(), count);
    chunk_.Take(Lanes(kNorm), kNormHigh, diagonal, Index(), count);
    chunk_.Take(Lanes(kNormRest), kNormLow, diagonal, Index(), count);
    Barrier();
    const Pair left = output_.Values();
    SubtractNorm(left, Pair{alpha.high[kPad], alpha.low[kPad]}, count);
    AscendC::Adds(from, left.high, 0.0f, count);
    AscendC::Adds(from[count], left.high, 0.0f, count);
    Barrier();
    const Floats sum = Stacked(kSum)[kPad];
    const Floats error = Stacked(kError)[kPad];
    TwoSum(sum, error, from, logits, Stacked(kX), Stacked(kY), 2 * count);
    AscendC::Add(error, error, left.low, count);
    AscendC::Add(error[count], error[count], left.low, count);
    Barrier();
    output_.Put(diagonal, Index());
  }

  __aicore__ inline void EnterDiagonal(const Diagonal& left, const Diagonal& next, bool growing) {
    const int32_t left_count = RoundUp(left.count, kFloatsPerBlock);
    const int32_t count = RoundUp(next.count, kFloatsPerBlock);
    const int32_t label_lane = kPad + left_count;
    const Pair alpha = Previous();
    Pair by_blank{Stacked(kSum)[kPad], Stacked(kError)[kPad]};
    Pair by_label{Stacked(kSum)[label_lane], Stacked(kError)[label_lane]};
    SetLane(by_label.high, left.count, kImpossible);
    SetLane(by_label.low, left.count, 0.0f);
    Barrier();
    const Pair shifted{Stacked(kFromHigh), Stacked(kFromLow)};
    const int32_t lane = growing ? kPad - 1 : label_lane + 1;
    ShiftInto(shifted.high, Stacked(kSum), lane, count);
    ShiftInto(shifted.low, Stacked(kError), lane, count);
    Barrier();
    if (growing) {
      by_blank = shifted;
    } else {
      by_label = shifted;
    }
    LogAdd(Pair{alpha.high[kPad], alpha.low[kPad]}, output_.Splits(), by_blank, by_label, Scratch(),
           count);
  }

  // result = value - norm, the norm being in its lanes. `result` is not `value`.
  __aicore__ inline void SubtractNorm(const Pair& result, const Pair& value, int32_t count) {
    TwoDifference(result.high, result.low, value.high, Lanes(kNorm), Stacked(kX), Stacked(kY),
                  count);
    AscendC::Add(result.low, result.low, value.low, count);
    Barrier();
    AscendC::Sub(result.low, result.low, Lanes(kNormRest), count);
    Barrier();
  }

  const Problem* problem_ = nullptr;
  LatticeChunk chunk_;
  LatticeOutput output_;
  OutBuffer buffer_;
  Buffer mask_;
  Buffer index_;
  Buffer schedule_;
  int32_t lanes_ = 0;
  int32_t stacked_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_LATTICE_H_
