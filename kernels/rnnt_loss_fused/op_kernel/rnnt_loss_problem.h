// The operator's inputs as a core sees them, and the lattice state in global memory.
#ifndef ASR_ASCEND_RNNT_LOSS_PROBLEM_H_
#define ASR_ASCEND_RNNT_LOSS_PROBLEM_H_

#include "kernel_operator.h"
#include "rnnt_loss_fused_tiling_data.h"
#include "rnnt_loss_fused_tiling_key.h"

#define ASR_ASCEND_CORE_INLINE __aicore__ static inline
#define ASR_ASCEND_CORE_METHOD __aicore__ inline
#include "../../rnnt_lattice/band.h"
#include "../../rnnt_lattice/band_walk.h"
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
  GM_ADDR band;
  GM_ADDR emission_windows;
  GM_ADDR grad_loss;  // upstream gradient, float32
  GM_ADDR loss;
  GM_ADDR grad;
  GM_ADDR status;
  GM_ADDR state;
};

constexpr int64_t kIntegersPerSample =
    2;  // of a band: cells, or less than 0 a status; widest frame

// What phase 0 wrote about a band: int64_t values, each as two halves, since a tensor may start at
// any multiple of 4 bytes.
class BandTable {
 public:
  __aicore__ inline BandTable() {}
  __aicore__ inline void Init(GM_ADDR address, const RnntLossFusedTilingData& tiling) {
    frames_ = tiling.band_frames;
    bases_ = tiling.batch * kIntegersPerSample;
    halves_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(address),
                            2 * (bases_ + tiling.batch * frames_));
  }
  __aicore__ inline int64_t SamplePlace(int64_t sample) const {
    return sample * kIntegersPerSample;
  }
  __aicore__ inline int64_t FramePlace(int64_t sample, int64_t t) const {
    return bases_ + sample * frames_ + t;
  }
  __aicore__ inline int64_t Get(int64_t place) const {
    const int64_t high = halves_.GetValue(2 * place + 1);
    const auto low = static_cast<uint32_t>(halves_.GetValue(2 * place));
    return high * (int64_t{1} << 32) + low;
  }
  __aicore__ inline AscendC::GlobalTensor<int32_t> HalvesFrom(int64_t place) const {
    return halves_[2 * place];
  }
  // After the SyncAll that follows phase 0.
  __aicore__ inline void ForgetCached() const {
    AscendC::DataCacheCleanAndInvalid<int32_t, AscendC::CacheLine::ENTIRE_DATA_CACHE,
                                      AscendC::DcciDst::CACHELINE_OUT>(halves_);
  }

 private:
  AscendC::GlobalTensor<int32_t> halves_;
  int64_t frames_ = 0;
  int64_t bases_ = 0;  // place of the first frame
};

// Reads the lengths where they are.
class Lengths {
 public:
  __aicore__ inline Lengths() {}
  __aicore__ inline void Init(const Arguments& arguments, const RnntLossFusedTilingData& tiling) {
    logit_lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(arguments.logit_lengths),
                                   tiling.batch);
    target_lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(arguments.target_lengths),
                                    tiling.batch);
    has_band_ = tiling.band_frames > 0;
    if (has_band_) table_.Init(arguments.state + tiling.state_band_offset, tiling);
  }
  __aicore__ inline int64_t Frames(int64_t sample) const { return logit_lengths_.GetValue(sample); }
  __aicore__ inline int64_t Labels(int64_t sample) const {
    return target_lengths_.GetValue(sample);
  }
  __aicore__ inline int64_t Cells(int64_t sample) const {
    if (has_band_) return table_.Get(table_.SamplePlace(sample));
    return Frames(sample) * (Labels(sample) + 1);
  }

 private:
  AscendC::GlobalTensor<int32_t> logit_lengths_;
  AscendC::GlobalTensor<int32_t> target_lengths_;
  BandTable table_;
  bool has_band_ = false;
};

// A sample's band, frame by frame.
struct BandLimits {
  AscendC::GlobalTensor<int32_t> limits;
  BandTable table;
  int64_t sample;

  __aicore__ inline int64_t First(int64_t t) const { return limits.GetValue(2 * t); }
  __aicore__ inline int64_t Last(int64_t t) const { return limits.GetValue(2 * t + 1); }
  __aicore__ inline int64_t RowBase(int64_t t) const {
    return table.Get(table.FramePlace(sample, t));
  }
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
  BandTable band_table;
  AscendC::GlobalTensor<int32_t> targets;
  AscendC::GlobalTensor<int32_t> band;
  AscendC::GlobalTensor<int32_t> windows;

  __aicore__ inline Problem() {}
  __aicore__ inline void Init(const Arguments& given, const RnntLossFusedTilingData& data) {
    arguments = given;
    tiling = data;
    lengths.Init(given, data);
    targets.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(given.targets),
                            data.batch * data.target_columns);
    if (HasBand()) {
      band.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(given.band),
                           data.batch * data.band_frames * 2);
      band_table.Init(given.state + data.state_band_offset, data);
    }
    if (data.has_windows != 0) {
      windows.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(given.emission_windows),
                              data.batch * data.target_columns * 2);
    }
  }
  __aicore__ inline bool HasBand() const { return tiling.band_frames > 0; }
  __aicore__ inline BandLimits BandOf(int64_t sample) const {
    return BandLimits{band[sample * tiling.band_frames * 2], band_table, sample};
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

  // Whether a sample's frames are those of a tensor.
  __aicore__ inline bool HasFrames(int64_t sample) const {
    const int64_t frames = lengths.Frames(sample);
    return frames >= 1 && (!HasBand() || frames <= tiling.band_frames);
  }
  __aicore__ inline bool LengthsAreValid() const {
    for (int64_t b = 0; HasBand() && b < tiling.batch; ++b) {
      if (!HasFrames(b)) return false;
    }
    return asr_ascend::core::LengthsAreValid(lengths, tiling.batch, tiling.target_columns,
                                             tiling.num_rows);
  }
  // Cells of a sample's longest anti-diagonal, at most. In a band it is as long as the widest
  // frame: that of its first cell holds the columns of all others.
  __aicore__ inline int64_t LongestDiagonal(int64_t sample) const {
    const Lattice lattice = asr_ascend::core::LatticeOf(lengths, sample);
    const int64_t widest =
        HasBand() ? band_table.Get(band_table.SamplePlace(sample) + 1) : lattice.columns;
    return lattice.frames < widest ? lattice.frames : widest;
  }
  // Whether label u of a sample may be emitted in frame t.
  __aicore__ inline bool IsOpen(int64_t sample, int64_t t, int64_t u) const {
    if (tiling.has_windows == 0) return true;
    const int64_t place = (sample * tiling.target_columns + u) * 2;
    return t >= windows.GetValue(place) && t <= windows.GetValue(place + 1);
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
