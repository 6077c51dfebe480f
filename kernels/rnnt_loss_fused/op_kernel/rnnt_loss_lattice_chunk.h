// A stretch of whole anti-diagonals of one sample in UB: what the lattice is computed from.
#ifndef ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_
#define ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_

#include "rnnt_loss_problem.h"

namespace rnnt_loss {

// Where a diagonal lies: its first slot in the sample, its cells, the t of the first.
struct Diagonal {
  int64_t offset;
  int32_t count;
  int64_t first_frame;
};

__aicore__ inline Diagonal DiagonalAt(const Lattice& lattice, int64_t diagonal) {
  const Lattice mirrored = asr_ascend::core::Mirrored(lattice);
  const int64_t first = asr_ascend::core::DiagonalFirstColumn(mirrored, diagonal);
  const int64_t last = asr_ascend::core::DiagonalLastColumn(mirrored, diagonal);
  return Diagonal{asr_ascend::core::DiagonalOffset(mirrored, diagonal),
                  static_cast<int32_t>(last - first + 1), first};
}

class LatticeChunk {
 public:
  __aicore__ inline LatticeChunk() {}
  static constexpr int32_t kPlanes = 4;  // kBlankLogit to kNormLow

  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    capacity_ = problem->tiling.lattice_chunk;
    pitch_ = capacity_ + kSlack;
    pipe->InitBuffer(buffer_, kPlanes * pitch_ * sizeof(float));
    pipe->InitBuffer(norm_low_, pitch_ * sizeof(half));
    AscendC::Duplicate(buffer_.Get<float>(), 0.0f, kPlanes * pitch_);
    Barrier();
  }

  // Begins another sample, at its first diagonal or at its last.
  __aicore__ inline void Start(const Lattice& lattice, int64_t first_slot, bool backwards) {
    lattice_ = lattice;
    first_slot_ = first_slot;
    backwards_ = backwards;
    begin_ = end_ = 0;
  }

  // Brings diagonal `index` in unless it is there, and with it those that come next, as many as
  // fit.
  __aicore__ inline void Hold(int64_t index, const Diagonal& diagonal) {
    if (diagonal.offset >= begin_ && diagonal.offset + diagonal.count <= end_) return;
    begin_ = diagonal.offset;
    end_ = diagonal.offset + diagonal.count;
    const Lattice mirrored = asr_ascend::core::Mirrored(lattice_);
    if (backwards_) {
      for (int64_t d = index - 1; d >= 0; --d) {
        const int64_t begin = asr_ascend::core::DiagonalOffset(mirrored, d);
        if (end_ - begin > capacity_) break;
        begin_ = begin;
      }
    } else {
      for (int64_t d = index + 1; d < asr_ascend::core::DiagonalCount(lattice_); ++d) {
        const int64_t end = asr_ascend::core::DiagonalOffset(mirrored, d + 1);
        if (end - begin_ > capacity_) break;
        end_ = end;
      }
    }
    Load();
  }

  // The diagonal's values of a plane, aligned. `index` holds 0, 4, 8, ...; `count` may go a little
  // beyond the diagonal.
  __aicore__ inline void Take(const Floats& to, Plane plane, const Diagonal& diagonal,
                              const AscendC::LocalTensor<uint32_t>& index, int32_t count) {
    const auto at = static_cast<uint32_t>((diagonal.offset - begin_) * sizeof(float));
    AscendC::Gather(to, Part(plane), index, at, static_cast<uint32_t>(count));
  }

 private:
  static constexpr int32_t kSlack = 64;

  __aicore__ inline void Load() {
    const int64_t slot = first_slot_ + begin_;
    const int64_t count = end_ - begin_;
    const AscendC::LocalTensor<half> low = norm_low_.Get<half>();
    Order<AscendC::HardEvent::V_MTE2>();
    CopyIn(Part(kBlankLogit), problem_->PlaneOf<float>(kBlankLogit)[slot], count);
    CopyIn(Part(kLabelLogit), problem_->PlaneOf<float>(kLabelLogit)[slot], count);
    CopyIn(Part(kNormHigh), problem_->PlaneOf<float>(kNormHigh)[slot], count);
    CopyIn(low, problem_->PlaneOf<half>(kNormLow)[slot], count);
    Order<AscendC::HardEvent::MTE2_V>();
    AscendC::Cast(Part(kNormLow), low, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
    Barrier();
  }

  __aicore__ inline Floats Part(int32_t plane) {
    return buffer_.GetWithOffset<float>(pitch_, plane * pitch_ * sizeof(float));
  }

  const Problem* problem_ = nullptr;
  AscendC::TBuf<> buffer_;
  AscendC::TBuf<> norm_low_;
  Lattice lattice_{};
  int64_t first_slot_ = 0;
  int64_t begin_ = 0;  // slots [begin, end) of the sample are in UB
  int64_t end_ = 0;
  int32_t capacity_ = 0;
  int32_t pitch_ = 0;
  bool backwards_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_LATTICE_CHUNK_H_
