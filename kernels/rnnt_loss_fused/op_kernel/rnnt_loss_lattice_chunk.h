// A stretch of whole anti-diagonals of one sample in UB: what the lattice is computed from.
#ifndef ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_
#define ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_

#include "rnnt_loss_cells.h"

namespace rnnt_loss {

// Slots [begin, end) of a sample.
struct Stretch {
  int64_t begin;
  int64_t end;
};

// A sample's stretches of whole diagonals, from the first diagonal on or from the last: each has as
// many as fit, at least one.
class StretchWalk {
 public:
  __aicore__ inline StretchWalk() {}
  __aicore__ inline void Start(const Problem* problem, int64_t sample, bool backwards,
                               int64_t capacity) {
    diagonals_.Start(problem, sample, backwards);
    backwards_ = backwards;
    capacity_ = capacity;
  }
  __aicore__ inline bool HasMore() const { return diagonals_.HasMore(); }
  __aicore__ inline Stretch Take() {
    const Diagonal first = diagonals_.Next();
    Stretch stretch{first.offset, first.offset + first.count};
    for (diagonals_.Skip(); HasMore(); diagonals_.Skip()) {
      const Diagonal next = diagonals_.Next();
      if (stretch.end - stretch.begin + next.count > capacity_) break;
      if (backwards_) {
        stretch.begin -= next.count;
      } else {
        stretch.end += next.count;
      }
    }
    return stretch;
  }

 private:
  DiagonalWalk diagonals_;
  int64_t capacity_ = 0;
  bool backwards_ = false;
};

// Two stretches: while one is computed from, the next one is on its way.
class LatticeChunk {
 public:
  static constexpr int32_t kPlanes = 4;  // kBlankLogit to kNormLow

  __aicore__ inline LatticeChunk() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    capacity_ = problem->tiling.lattice_chunk;
    pitch_ = capacity_ + kSlack;
    for (int32_t i = 0; i < 2; ++i) {
      pipe->InitBuffer(buffer_[i], kPlanes * pitch_ * sizeof(float));
      pipe->InitBuffer(norm_low_[i], pitch_ * sizeof(half));
      AscendC::Duplicate(buffer_[i].Get<float>(), 0.0f, kPlanes * pitch_);
      arrived_[i] = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
    }
    Barrier();
  }
  __aicore__ inline void End(AscendC::TPipe* pipe) {
    for (int32_t i = 0; i < 2; ++i) {
      pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(arrived_[i]);
    }
  }

  // Begins another sample, at its first diagonal or at its last.
  __aicore__ inline void Start(int64_t sample, int64_t first_slot, bool backwards) {
    first_slot_ = first_slot;
    held_ = Stretch{0, 0};
    stretches_.Start(problem_, sample, backwards, capacity_);
    Fetch();
  }

  // Waits for this diagonal, the one that comes next in the sample; it isn't empty.
  __aicore__ inline void Hold(const Diagonal& diagonal) {
    if (diagonal.offset >= held_.begin && diagonal.offset + diagonal.count <= held_.end) return;
    current_ = 1 - current_;
    held_ = coming_;
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(arrived_[current_]);
    AscendC::Cast(Part(kNormLow), norm_low_[current_].Get<half>(), AscendC::RoundMode::CAST_NONE,
                  static_cast<uint32_t>(held_.end - held_.begin));
    Barrier();
    if (stretches_.HasMore()) Fetch();
  }

  // The diagonal's values of a plane, aligned. `index` holds 0, 4, 8, ...; `count` may go a little
  // beyond the diagonal.
  __aicore__ inline void Take(const Floats& to, Plane plane, const Diagonal& diagonal,
                              const AscendC::LocalTensor<uint32_t>& index, int32_t count) {
    const auto at = static_cast<uint32_t>((diagonal.offset - held_.begin) * sizeof(float));
    AscendC::Gather(to, Part(plane), index, at, static_cast<uint32_t>(count));
  }

 private:
  static constexpr int32_t kSlack = 64;

  __aicore__ inline Floats PartOf(int32_t buffer, int32_t plane) {
    return buffer_[buffer].GetWithOffset<float>(pitch_, plane * pitch_ * sizeof(float));
  }
  __aicore__ inline Floats Part(int32_t plane) { return PartOf(current_, plane); }

  // Brings the next stretch into the buffer that isn't computed from.
  __aicore__ inline void Fetch() {
    const int32_t other = 1 - current_;
    coming_ = stretches_.Take();
    const int64_t slot = first_slot_ + coming_.begin;
    const int64_t count = coming_.end - coming_.begin;
    Order<AscendC::HardEvent::V_MTE2>();
    CopyIn(PartOf(other, kBlankLogit), problem_->PlaneOf<float>(kBlankLogit)[slot], count);
    CopyIn(PartOf(other, kLabelLogit), problem_->PlaneOf<float>(kLabelLogit)[slot], count);
    CopyIn(PartOf(other, kNormHigh), problem_->PlaneOf<float>(kNormHigh)[slot], count);
    CopyIn(norm_low_[other].Get<half>(), problem_->PlaneOf<half>(kNormLow)[slot], count);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(arrived_[other]);
  }

  const Problem* problem_ = nullptr;
  InBuffer buffer_[2];
  InBuffer norm_low_[2];
  AscendC::TEventID arrived_[2] = {0, 0};
  StretchWalk stretches_;
  Stretch held_{};
  Stretch coming_{};
  int64_t first_slot_ = 0;
  int32_t current_ = 0;
  int32_t capacity_ = 0;
  int32_t pitch_ = 0;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_
