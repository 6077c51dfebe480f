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
  static constexpr int32_t kPlanes = 4;  // kBlankLogit to kNormLow

  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    capacity_ = problem->tiling.lattice_chunk;
    pitch_ = capacity_ + kSlack;
    pipe->InitBuffer(buffer_, kPlanes * pitch_ * sizeof(float));
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

  // Brings this diagonal in unless it is there.
  __aicore__ inline void Hold(const Diagonal& diagonal) {
    if (diagonal.offset >= begin_ && diagonal.offset + diagonal.count <= end_) return;
    const int64_t cells = asr_ascend::core::CellCount(lattice_);
    if (backwards_) {
      end_ = diagonal.offset + diagonal.count;
      begin_ = end_ > capacity_ ? end_ - capacity_ : 0;
    } else {
      begin_ = diagonal.offset;
      end_ = cells - begin_ > capacity_ ? begin_ + capacity_ : cells;
    }
    Order<AscendC::HardEvent::V_MTE2>();
    for (int32_t plane = 0; plane < kPlanes; ++plane) {
      CopyIn(Part(plane), problem_->PlaneOf(static_cast<Plane>(plane))[first_slot_ + begin_],
             end_ - begin_);
    }
    Order<AscendC::HardEvent::MTE2_V>();
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

  __aicore__ inline Floats Part(int32_t plane) {
    return buffer_.GetWithOffset<float>(pitch_, plane * pitch_ * sizeof(float));
  }

  const Problem* problem_ = nullptr;
  AscendC::TBuf<> buffer_;
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
