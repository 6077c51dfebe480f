// The operator's inputs as a core sees them, and the lattice state in global memory.
#ifndef ASR_ASCEND_RNNT_LOSS_PROBLEM_H_
#define ASR_ASCEND_RNNT_LOSS_PROBLEM_H_

#include "kernel_operator.h"
#include "rnnt_loss_fused_tiling_data.h"
#include "rnnt_loss_fused_tiling_key.h"

#define ASR_ASCEND_CORE_INLINE __aicore__ static inline
#define ASR_ASCEND_CORE_METHOD __aicore__ inline
#include "../../rnnt_lattice/layout.h"
#include "../../rnnt_lattice/schedule.h"
#include "../../rnnt_lattice/walk.h"
#include "rnnt_loss_vector.h"

namespace rnnt_loss {

using asr_ascend::core::Lattice;

// The addresses that an entry was given; those it doesn't have are null.
struct Arguments {
  GM_ADDR logits;
  GM_ADDR targets;
  GM_ADDR logit_lengths;
  GM_ADDR target_lengths;
  GM_ADDR grad_loss;  // upstream gradient, float32
  GM_ADDR loss;
  GM_ADDR grad;
  GM_ADDR status;
  GM_ADDR state;
};

// Reads the lengths where they are.
class Lengths {
 public:
  __aicore__ inline Lengths() {}
  __aicore__ inline void Init(const Arguments& arguments, int64_t batch) {
    logit_lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(arguments.logit_lengths),
                                   batch);
    target_lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(arguments.target_lengths),
                                    batch);
  }
  __aicore__ inline int64_t Frames(int64_t sample) const { return logit_lengths_.GetValue(sample); }
  __aicore__ inline int64_t Labels(int64_t sample) const {
    return target_lengths_.GetValue(sample);
  }

 private:
  AscendC::GlobalTensor<int32_t> logit_lengths_;
  AscendC::GlobalTensor<int32_t> target_lengths_;
};

// One value for each row, in the order of slots. High parts are float32; the low parts of pairs are
// float16, which is 2^-12 of half a unit in the high part's last place.
enum Plane {
  kBlankLogit = 0,
  kLabelLogit,
  kNormHigh,  // ln of the sum over the row
  kNormLow,
  kAlphaHigh,  // alpha - norm
  kAlphaLow,
  kBetaHigh,  // beta + norm
  kBetaLow,
  kSplit,  // ln of how much likelier the rest is by blank than by label
};

constexpr int32_t kNanBits = 0x7fc00000;
constexpr int64_t kFloatsPerSample = 4;  // ln P of alpha, of beta, as pairs
constexpr int64_t kIntsPerFlag = 8;      // a core's verdict has 32 bytes of its own

struct Problem {
  Arguments arguments;
  RnntLossFusedTilingData tiling;
  Lengths lengths;
  AscendC::GlobalTensor<int32_t> targets;

  __aicore__ inline Problem() {}
  __aicore__ inline void Init(const Arguments& given, const RnntLossFusedTilingData& data) {
    arguments = given;
    tiling = data;
    lengths.Init(given, data.batch);
    targets.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(given.targets),
                            data.batch * data.target_columns);
  }
  template <typename T>
  __aicore__ inline AscendC::GlobalTensor<T> PlaneOf(Plane plane) const {
    AscendC::GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(
        reinterpret_cast<__gm__ T*>(arguments.state + plane * tiling.state_plane_bytes),
        tiling.num_rows);
    return tensor;
  }
  __aicore__ inline AscendC::GlobalTensor<float> Samples() const {
    AscendC::GlobalTensor<float> tensor;
    tensor.SetGlobalBuffer(
        reinterpret_cast<__gm__ float*>(arguments.state + tiling.state_samples_offset),
        tiling.batch * kFloatsPerSample);
    return tensor;
  }
  __aicore__ inline AscendC::GlobalTensor<int32_t> Flags() const {
    AscendC::GlobalTensor<int32_t> tensor;
    tensor.SetGlobalBuffer(
        reinterpret_cast<__gm__ int32_t*>(arguments.state + tiling.state_flags_offset),
        (asr_ascend::core::kMaxCores + 1) * kIntsPerFlag);
    return tensor;
  }

  __aicore__ inline bool LengthsAreValid() const {
    return asr_ascend::core::LengthsAreValid(lengths, tiling.batch, tiling.target_columns,
                                             tiling.num_rows);
  }
  __aicore__ inline int32_t Label(int64_t sample, int64_t u) const {
    return targets.GetValue(sample * tiling.target_columns + u);
  }
  __aicore__ inline bool IsLabel(int32_t value) const {
    return value >= 0 && value < tiling.vocab &&
           (value != tiling.blank || tiling.blank_in_targets != 0);
  }
  // This core's part of `total` equal things.
  __aicore__ inline int64_t ShareBegin(int64_t total) const {
    return asr_ascend::core::ShareBegin(total, AscendC::GetBlockIdx(), tiling.used_cores);
  }
  __aicore__ inline int64_t ShareEnd(int64_t total) const {
    return asr_ascend::core::ShareBegin(total, AscendC::GetBlockIdx() + 1, tiling.used_cores);
  }
};

// A copy of `count` neighbouring elements. Zeros complete the last 32 bytes, since code that takes
// whole blocks reads them.
template <typename T>
__aicore__ inline void CopyIn(const AscendC::LocalTensor<T>& to,
                              const AscendC::GlobalTensor<T>& from, int64_t count) {
  constexpr int64_t kPerBlock = 32 / sizeof(T);
  const int64_t zeros = (kPerBlock - count % kPerBlock) % kPerBlock;
  AscendC::DataCopyPad(
      to, from, AscendC::DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0},
      AscendC::DataCopyPadExtParams<T>{zeros > 0, 0, static_cast<uint8_t>(zeros), T()});
}
template <typename T>
__aicore__ inline void CopyOut(const AscendC::GlobalTensor<T>& to,
                               const AscendC::LocalTensor<T>& from, int64_t count) {
  AscendC::DataCopyPad(
      to, from, AscendC::DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0});
}

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_PROBLEM_H_
