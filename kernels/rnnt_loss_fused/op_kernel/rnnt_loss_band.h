// Phase 0, of a band alone: checks it, and writes where the rows of each frame begin.
#ifndef ASR_ASCEND_RNNT_LOSS_BAND_H_
#define ASR_ASCEND_RNNT_LOSS_BAND_H_

#include "rnnt_loss_problem.h"

namespace rnnt_loss {

class BandPhase {
 public:
  __aicore__ inline BandPhase() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    pipe->InitBuffer(limits_, 2 * kFrames * sizeof(int32_t));
    pipe->InitBuffer(bases_, kFrames * sizeof(int64_t));
    pipe->InitBuffer(sample_, kIntegersPerSample * sizeof(int64_t));
  }

  // This core's samples.
  __aicore__ inline void Process() {
    const int64_t end = problem_->ShareEnd(problem_->tiling.batch);
    for (int64_t b = problem_->ShareBegin(problem_->tiling.batch); b < end; ++b) {
      const int32_t status = Tabulate(b);
      const AscendC::LocalTensor<int64_t> values = sample_.Get<int64_t>();
      values.SetValue(0, status == RNNT_LOSS_STATUS_OK ? cells_ : -int64_t{status});
      values.SetValue(1, widest_);
      Write(problem_->band_table.SamplePlace(b), values, kIntegersPerSample);
    }
  }

 private:
  static constexpr int32_t kFrames = 512;  // that a copy brings in

  // What is wrong with a sample's lengths or band. If nothing is, its rows are written.
  __aicore__ inline int32_t Tabulate(int64_t sample) {
    const Lattice lattice = asr_ascend::core::LatticeOf(problem_->lengths, sample);
    first_ = 0;
    last_ = -1;
    cells_ = 0;
    widest_ = 0;
    if (!problem_->HasFrames(sample)) return RNNT_LOSS_STATUS_LOGIT_LENGTH;
    if (lattice.columns < 1 || lattice.columns - 1 > problem_->tiling.target_columns) {
      return RNNT_LOSS_STATUS_TARGET_LENGTH;
    }
    for (int64_t t = 0; t < lattice.frames; t += kFrames) {
      const int64_t left = lattice.frames - t;
      const auto count = static_cast<int32_t>(left < kFrames ? left : kFrames);
      if (!TabulateFrames(sample, t, count, lattice.columns)) return RNNT_LOSS_STATUS_BAND;
    }
    if (last_ != lattice.columns - 1) return RNNT_LOSS_STATUS_BAND;
    const int64_t longest = lattice.frames < widest_ ? lattice.frames : widest_;
    return longest <= problem_->tiling.lattice_lanes ? RNNT_LOSS_STATUS_OK
                                                     : RNNT_LOSS_STATUS_BAND_WIDTH;
  }

  // Frames [begin, begin + count). False at the first that breaks a rule.
  __aicore__ inline bool TabulateFrames(int64_t sample, int64_t begin, int32_t count,
                                        int64_t columns) {
    const AscendC::LocalTensor<int32_t> limits = limits_.Get<int32_t>();
    const AscendC::LocalTensor<int64_t> bases = bases_.Get<int64_t>();
    Order<AscendC::HardEvent::S_MTE2>();
    CopyIn(limits, problem_->BandOf(sample).limits[2 * begin], 2 * int64_t{count});
    Order<AscendC::HardEvent::MTE2_S>();
    for (int32_t i = 0; i < count; ++i) {
      const int64_t first = limits.GetValue(2 * i);
      const int64_t last = limits.GetValue(2 * i + 1);
      if (!asr_ascend::core::FrameFits(first, last, first_, last_, columns)) return false;
      bases.SetValue(i, cells_ - first);
      const int64_t width = last - first + 1;
      cells_ += width;
      widest_ = width > widest_ ? width : widest_;
      first_ = first;
      last_ = last;
    }
    Write(problem_->band_table.FramePlace(sample, begin), bases, count);
    return true;
  }

  __aicore__ inline void Write(int64_t place, const AscendC::LocalTensor<int64_t>& values,
                               int32_t count) {
    Order<AscendC::HardEvent::S_MTE3>();
    CopyOut(problem_->band_table.HalvesFrom(place), values.ReinterpretCast<int32_t>(),
            2 * int64_t{count});
    Order<AscendC::HardEvent::MTE3_S>();
  }

  const Problem* problem_ = nullptr;
  InBuffer limits_;
  OutBuffer bases_;
  OutBuffer sample_;
  int64_t first_ = 0;  // of the frame before
  int64_t last_ = -1;
  int64_t cells_ = 0;  // of the frames before
  int64_t widest_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_BAND_H_
