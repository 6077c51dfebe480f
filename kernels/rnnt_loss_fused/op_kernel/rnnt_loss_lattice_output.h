// What the lattice phase writes: alpha or beta of each anti-diagonal, as pairs, and beta's split.
#ifndef ASR_ASCEND_RNNT_LOSS_LATTICE_OUTPUT_H_
#define ASR_ASCEND_RNNT_LOSS_LATTICE_OUTPUT_H_

#include "rnnt_loss_lattice_chunk.h"

namespace rnnt_loss {

constexpr int32_t kPad = 64;  // lanes before and after those of a diagonal

// A copy is charged in blocks of 32 bytes, so diagonals of up to 32 cells are put together in UB
// and written many at a time; longer ones are written one by one.
class LatticeOutput {
 public:
  __aicore__ inline LatticeOutput() {}
  __aicore__ inline void Init(const Problem* problem, AscendC::TPipe* pipe) {
    problem_ = problem;
    lanes_ = problem->tiling.lattice_lanes;
    pitch_ = lanes_ > kPackedCells ? lanes_ : kPackedCells;
    pipe->InitBuffer(out_, 2, kPlanes * pitch_ * sizeof(float));
    pipe->InitBuffer(lanes_buffer_, kPlanes * (lanes_ + 2 * kPad) * sizeof(float));
    pipe->InitBuffer(shifted_, kPlanes * kFloatsPerRepeat * sizeof(float));
    pipe->InitBuffer(packed_lows_, kPackedCells * sizeof(float));
    AscendC::Duplicate(lanes_buffer_.Get<float>(), 0.0f, kPlanes * (lanes_ + 2 * kPad));
    Barrier();
  }

  // Begins another sample.
  __aicore__ inline void Start(int64_t sample, int64_t first_slot, bool is_beta) {
    is_beta_ = is_beta;
    first_slot_ = first_slot;
    is_packed_ = problem_->LongestDiagonal(sample) <= kShortDiagonal;
    if (is_packed_) stretches_.Start(problem_, sample, is_beta, kPackedCells);
  }

  // Where the next diagonal's values are to be computed, and how much likelier the rest is by blank
  // than by label.
  __aicore__ inline Pair Values() {
    if (!IsDirect()) return Pair{LanesOf(kHigh)[kPad], LanesOf(kLow)[kPad]};
    tensor_ = out_.AllocTensor<float>();
    return Pair{tensor_, LanesOf(kLow)[kPad]};
  }
  __aicore__ inline Floats Splits() { return LanesOf(kSplits)[kPad]; }

  // Takes what was computed there; the diagonal isn't empty. `index` holds 0, 4, 8, ...
  __aicore__ inline void Put(const Diagonal& diagonal,
                             const AscendC::LocalTensor<uint32_t>& index) {
    if (problem_->tiling.needs_grad == 0) return;
    if (is_packed_) {
      Pack(diagonal, index);
    } else {
      const int32_t count = RoundUp(diagonal.count, kFloatsPerBlock);
      if (is_beta_) AscendC::Adds(Plane(kSplits), Splits(), 0.0f, count);
      Store(LanesOf(kLow)[kPad], Stretch{diagonal.offset, diagonal.offset + diagonal.count}, count);
    }
  }

 private:
  enum Part { kHigh = 0, kLow, kSplits, kPlanes };
  static constexpr int32_t kShortDiagonal = 32;
  static constexpr int32_t kPackedCells = 256;

  __aicore__ inline bool IsDirect() const {
    return !is_packed_ && problem_->tiling.needs_grad != 0;
  }
  __aicore__ inline Floats LanesOf(Part part) {
    const int32_t pitch = lanes_ + 2 * kPad;
    return lanes_buffer_.GetWithOffset<float>(pitch, part * pitch * sizeof(float));
  }
  __aicore__ inline Floats Plane(Part part) { return tensor_[part * pitch_]; }

  // Puts the diagonal in its place among those of its stretch.
  __aicore__ inline void Pack(const Diagonal& diagonal,
                              const AscendC::LocalTensor<uint32_t>& index) {
    if (stretch_.begin == stretch_.end) {
      stretch_ = stretches_.Take();
      tensor_ = out_.AllocTensor<float>();
    }
    const int32_t parts = is_beta_ ? kPlanes : kSplits;
    const auto at = static_cast<int32_t>(diagonal.offset - stretch_.begin);
    const int32_t lane = at % kFloatsPerBlock;
    for (int32_t part = 0; part < parts; ++part) {
      AscendC::Gather(Shifted(part), LanesOf(static_cast<Part>(part)), index,
                      static_cast<uint32_t>((kPad - lane) * sizeof(float)),
                      static_cast<uint32_t>(lane + diagonal.count));
    }
    Barrier();
    uint64_t bits[2] = {((uint64_t{1} << diagonal.count) - 1) << lane, 0};
    const AscendC::UnaryRepeatParams steps(1, 1, 8, 8);
    for (int32_t part = 0; part < parts; ++part) {
      const Floats to = part == kLow ? packed_lows_.Get<float>() : Plane(static_cast<Part>(part));
      AscendC::Adds(to[at - lane], Shifted(part), 0.0f, bits, 1, steps);
    }
    Barrier();
    const bool ends = is_beta_ ? diagonal.offset == stretch_.begin
                               : diagonal.offset + diagonal.count == stretch_.end;
    if (!ends) return;
    Store(packed_lows_.Get<float>(), stretch_, static_cast<int32_t>(stretch_.end - stretch_.begin));
    stretch_ = Stretch{0, 0};
  }
  __aicore__ inline Floats Shifted(int32_t part) {
    return shifted_.GetWithOffset<float>(kFloatsPerRepeat, part * kFloatsPerRepeat * sizeof(float));
  }

  // Writes the tensor's slots; the first `count` of `lows` are its low parts.
  __aicore__ inline void Store(const Floats& lows, const Stretch& slots, int32_t count) {
    AscendC::Cast(Plane(kLow).ReinterpretCast<half>(), lows, AscendC::RoundMode::CAST_RINT,
                  static_cast<uint32_t>(count));
    out_.EnQue(tensor_);
    tensor_ = out_.DeQue<float>();
    const int64_t slot = first_slot_ + slots.begin;
    const int64_t cells = slots.end - slots.begin;
    CopyOut(problem_->PlaneOf<float>(is_beta_ ? kBetaHigh : kAlphaHigh)[slot], tensor_, cells);
    CopyOut(problem_->PlaneOf<half>(is_beta_ ? kBetaLow : kAlphaLow)[slot],
            Plane(kLow).ReinterpretCast<half>(), cells);
    if (is_beta_) CopyOut(problem_->PlaneOf<float>(kSplit)[slot], Plane(kSplits), cells);
    out_.FreeTensor(tensor_);
  }

  const Problem* problem_ = nullptr;
  StretchWalk stretches_;
  Stretch stretch_{};  // that is being put together; empty if none is
  AscendC::TQue<AscendC::TPosition::VECOUT, 2> out_;
  AscendC::LocalTensor<float> tensor_;
  OutBuffer lanes_buffer_;
  Buffer shifted_;
  Buffer packed_lows_;
  int64_t first_slot_ = 0;
  int32_t lanes_ = 0;
  int32_t pitch_ = 0;
  bool is_beta_ = false;
  bool is_packed_ = false;
};

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_LATTICE_OUTPUT_H_
