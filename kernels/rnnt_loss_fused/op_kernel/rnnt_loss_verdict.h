// What the cores agree on between the phases, and what they write when the input is wrong.
#ifndef ASR_ASCEND_RNNT_LOSS_VERDICT_H_
#define ASR_ASCEND_RNNT_LOSS_VERDICT_H_

#include "rnnt_loss_problem.h"

namespace rnnt_loss {

// Cross-check: the losses of alpha and beta may differ by this, relative to max(1, loss).
constexpr float kCrossCheckTolerance = 1e-5f;
constexpr int32_t kInfinityBits = 0x7f800000;

// Flag `place` says, after the next SyncAll or to the next launch, whether something is valid.
__aicore__ inline void WriteFlag(const Problem& problem, int64_t place, bool valid) {
  AscendC::TPipe pipe;
  OutBuffer buffer;
  pipe.InitBuffer(buffer, kIntsPerFlag * sizeof(int32_t));
  const AscendC::LocalTensor<int32_t> flag = buffer.Get<int32_t>();
  AscendC::Duplicate(flag, valid ? 1 : 0, kIntsPerFlag);
  Order<AscendC::HardEvent::V_MTE3>();
  CopyOut(problem.Flags()[place * kIntsPerFlag], flag, kIntsPerFlag);
  EndPipe();
}

// Flags [first, first + count) are all set.
__aicore__ inline bool FlagsAreSet(const Problem& problem, int64_t first, int32_t count) {
  AscendC::TPipe pipe;
  InBuffer buffer;
  pipe.InitBuffer(buffer, count * kIntsPerFlag * sizeof(int32_t));
  const AscendC::LocalTensor<int32_t> flags = buffer.Get<int32_t>();
  CopyIn(flags, problem.Flags()[first * kIntsPerFlag], count * kIntsPerFlag);
  Order<AscendC::HardEvent::MTE2_S>();
  bool all = true;
  for (int32_t i = 0; i < count; ++i) all = all && flags.GetValue(i * kIntsPerFlag) == 1;
  EndPipe();
  return all;
}

// Losses and status of this core's samples.
class SampleResults {
 public:
  __aicore__ inline SampleResults() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    loss_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(problem->arguments.loss),
                          problem->tiling.batch);
    if (problem->tiling.has_status != 0) {
      status_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(problem->arguments.status),
                              problem->tiling.batch);
    }
    pipe->InitBuffer(samples_, kSamples * kFloatsPerSample * sizeof(float));
    pipe->InitBuffer(losses_, kSamples * sizeof(float));
    pipe->InitBuffer(statuses_, kSamples * sizeof(int32_t));
  }

  __aicore__ inline void Process(bool input_is_valid) {
    if (!input_is_valid) lengths_are_valid_ = problem_->LengthsAreValid();
    const int64_t end = problem_->ShareEnd(problem_->tiling.batch);
    for (int64_t first = problem_->ShareBegin(problem_->tiling.batch); first < end;
         first += kSamples) {
      const int64_t count = end - first < kSamples ? end - first : kSamples;
      if (input_is_valid) {
        ReadLosses(first, static_cast<int32_t>(count));
      } else {
        JudgeSamples(first, static_cast<int32_t>(count));
      }
      Order<AscendC::HardEvent::S_MTE3>();
      CopyOut(loss_[first], losses_.Get<int32_t>(), count);
      if (problem_->tiling.has_status != 0) {
        CopyOut(status_[first], statuses_.Get<int32_t>(), count);
      }
      Order<AscendC::HardEvent::MTE3_S>();
    }
  }

 private:
  static constexpr int32_t kSamples = 64;

  __aicore__ inline void ReadLosses(int64_t first, int32_t count) {
    const Floats samples = samples_.Get<float>();
    const Floats losses = losses_.Get<float>();
    Order<AscendC::HardEvent::S_MTE2>();
    CopyIn(samples, problem_->Samples()[first * kFloatsPerSample], count * kFloatsPerSample);
    Order<AscendC::HardEvent::MTE2_S>();
    for (int32_t i = 0; i < count; ++i) {
      const int32_t at = i * kFloatsPerSample;
      const float alpha_high = samples.GetValue(at);
      const float alpha_low = samples.GetValue(at + 1);
      const float beta_high = samples.GetValue(at + 2);
      const float beta_low = samples.GetValue(at + 3);
      int32_t status = RNNT_LOSS_STATUS_OK;
      const float loss = 0.0f - (beta_high + beta_low);
      if (loss > -kImpossibleBelow) {
        losses_.Get<int32_t>().SetValue(i, kInfinityBits);
      } else {
        losses.SetValue(i, loss);
        float difference = (alpha_high - beta_high) + (alpha_low - beta_low);
        if (difference < 0.0f) difference = -difference;
        float size = loss < 0.0f ? -loss : loss;
        if (size < 1.0f) size = 1.0f;
        // Never so where something is NaN.
        if (difference > kCrossCheckTolerance * size) status = RNNT_LOSS_STATUS_CROSS_CHECK;
        // By the sample's logits, or by a label that is none.
        if (loss != loss) status = StatusOf(first + i);
      }
      statuses_.Get<int32_t>().SetValue(i, status);
    }
  }

  __aicore__ inline void JudgeSamples(int64_t first, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      losses_.Get<int32_t>().SetValue(i, kNanBits);
      statuses_.Get<int32_t>().SetValue(i, StatusOf(first + i));
    }
  }

  // What is wrong with a sample, or with the batch's row total.
  __aicore__ inline int32_t StatusOf(int64_t sample) const {
    if (problem_->tiling.has_status == 0) return RNNT_LOSS_STATUS_OK;
    const int64_t labels = problem_->lengths.Labels(sample);
    if (!problem_->HasFrames(sample)) return RNNT_LOSS_STATUS_LOGIT_LENGTH;
    if (labels < 0 || labels > problem_->tiling.target_columns) {
      return RNNT_LOSS_STATUS_TARGET_LENGTH;
    }
    if (problem_->lengths.Cells(sample) < 0) {
      return static_cast<int32_t>(-problem_->lengths.Cells(sample));
    }
    for (int64_t u = 0; u < labels; ++u) {
      if (!problem_->IsLabel(problem_->Label(sample, u))) return RNNT_LOSS_STATUS_LABEL;
    }
    return lengths_are_valid_ ? RNNT_LOSS_STATUS_OK : RNNT_LOSS_STATUS_ROW_TOTAL;
  }

  const Problem* problem_ = nullptr;
  AscendC::GlobalTensor<int32_t> loss_;
  AscendC::GlobalTensor<int32_t> status_;
  InBuffer samples_;
  OutBuffer losses_;
  OutBuffer statuses_;
  bool lengths_are_valid_ = true;
};

// Zeros in this core's share of the gradient.
template <typename T>
__aicore__ inline void WriteZeros(const Problem& problem) {
  constexpr int32_t kBytes = 32 * 1024;
  constexpr int64_t kElements = kBytes / sizeof(T);
  AscendC::TPipe pipe;
  OutBuffer buffer;
  pipe.InitBuffer(buffer, kBytes);
  AscendC::Duplicate(buffer.Get<float>(), 0.0f, kBytes / static_cast<int32_t>(sizeof(float)));
  Order<AscendC::HardEvent::V_MTE3>();
  const int64_t total = problem.tiling.num_rows * problem.tiling.vocab;
  AscendC::GlobalTensor<T> grad;
  grad.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(problem.arguments.grad), total);
  const int64_t end = problem.ShareEnd(total);
  for (int64_t at = problem.ShareBegin(total); at < end; at += kElements) {
    CopyOut(grad[at], buffer.Get<T>(), end - at < kElements ? end - at : kElements);
  }
  EndPipe();
}

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_VERDICT_H_
