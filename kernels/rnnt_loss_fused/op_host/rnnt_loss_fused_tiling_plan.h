// From shapes, dtype, attributes and the chip to the kernel's tiling data, key, block dimension and
// workspace. Plain C++: the CANN tiling, the emulator's entry and the tests get the same numbers.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_TILING_PLAN_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_TILING_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "../../rnnt_lattice/schedule.h"
#include "../op_kernel/rnnt_loss_fused_tiling_data.h"
#include "../op_kernel/rnnt_loss_fused_tiling_key.h"
#include "rnnt_loss_fused_check.h"

namespace rnnt_loss_fused {

enum class Entry { kFused = 1, kForward = 2, kBackward = 3 };

// UB of the Atlas A2, less the 256 bytes that CANN keeps: the kernel's buffers are made for it.
constexpr int64_t kMinUbBytes = 196608 - 256;

struct Platform {
  int64_t num_cores = 40;  // vector cores
  int64_t ub_bytes = kMinUbBytes;
};

inline std::string CheckPlatform(const Platform& platform) {
  if (platform.num_cores >= 1 && platform.ub_bytes >= kMinUbBytes) return "";
  return "The chip must have at least 1 vector core and " + std::to_string(kMinUbBytes) +
         " bytes of UB, but has " + std::to_string(platform.num_cores) + " and " +
         std::to_string(platform.ub_bytes) + ".";
}

struct Problem {
  Entry entry = Entry::kFused;
  ElementType type = ElementType::kFloat32;
  Sizes sizes;         // all known, CheckKnown
  int64_t blank = -1;  // in [-V, V-1], CheckBlank
  float clamp = -1.0f;
  bool fused_log_softmax = true;
  bool needs_grad = true;        // false: of the forward entry alone
  float fastemit_lambda = 0.0f;  // of the backward entry alone, CheckFastemitLambda
  bool blank_in_targets = false;
  bool has_status = false;
  bool has_windows = false;
};

struct TilingPlan {
  RnntLossFusedTilingData data;
  uint64_t tiling_key;
  int64_t workspace_bytes;  // the user's part; CANN's own part comes on top
};

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline int64_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

inline uint64_t TilingKey(Entry entry, ElementType type) {
  const uint64_t last = type == ElementType::kFloat32 ? 1 : type == ElementType::kFloat16 ? 2 : 3;
  return static_cast<uint64_t>(entry) * 10 + last;
}

// The state's size may not depend on the chip: graphs infer its shape without knowing one.
constexpr int64_t kMaxCores = asr_ascend::core::kMaxCores;
constexpr int64_t kBlockBytes = 32;
constexpr int64_t kCacheLineBytes = 64;

inline void PlanState(bool needs_grad, RnntLossFusedTilingData* data) {
  const int64_t planes = needs_grad ? RNNT_LOSS_STATE_PLANES : RNNT_LOSS_STATE_PLANES_OF_ROWS;
  data->state_plane_bytes = RoundUp(data->num_rows * 4, kCacheLineBytes);
  data->state_samples_offset = planes * data->state_plane_bytes;
  data->state_flags_offset =
      RoundUp(data->state_samples_offset + data->batch * kBlockBytes, kCacheLineBytes);
  data->state_bytes = data->state_flags_offset + (kMaxCores + 1) * kBlockBytes;
  data->state_bytes = RoundUp(data->state_bytes, kCacheLineBytes);
  if (data->band_frames == 0) return;
  data->state_band_offset = data->state_bytes;
  data->state_bytes += RoundUp(data->batch * (2 + data->band_frames) * 8, kCacheLineBytes);
}

// Shape of the state tensor, in float32.
inline Shape StateShape(int64_t num_rows, int64_t batch, bool needs_grad = true,
                        int64_t band_frames = 0) {
  if (num_rows == kUnknownSize || batch == kUnknownSize || band_frames == kUnknownSize) {
    return {kUnknownSize};
  }
  RnntLossFusedTilingData data = {};
  data.num_rows = num_rows;
  data.batch = batch;
  data.band_frames = band_frames;
  PlanState(needs_grad, &data);
  return {data.state_bytes / 4};
}

// The longest anti-diagonal that the lattice phase's buffers hold.
constexpr int64_t kMaxLatticeLanes = kMaxTargetColumns + 1;

// UB tiles: these numbers and the buffers of the kernel's classes belong together.
inline void PlanTiles(ElementType type, const Platform& platform, RnntLossFusedTilingData* data) {
  const int64_t bytes = ElementBytes(type);
  // Two tiles in and two out; half types are computed on in a float32 tile. 48 KB are left: 8 for
  // Select, the rest for the small values of a group of rows.
  const int64_t bytes_an_element = 4 * bytes + (bytes == 2 ? 4 : 0);
  const int64_t tile_elements = (platform.ub_bytes - 48 * 1024) / bytes_an_element / 64 * 64;
  data->group_rows = 256;
  data->row_pitch = static_cast<int32_t>(
      std::min(RoundUp(std::max<int64_t>(data->vocab, 1), kBlockBytes / bytes), tile_elements));
  data->tile_columns = static_cast<int32_t>(std::min<int64_t>(data->vocab, data->row_pitch));
  int64_t rows = std::min<int64_t>(data->group_rows, tile_elements / data->row_pitch);
  if (rows >= 8) rows = rows / 8 * 8;
  data->tile_rows = static_cast<int32_t>(rows);

  int64_t lanes = std::min(data->target_columns + 1, data->num_rows);
  if (data->band_frames > 0) lanes = std::min({lanes, data->band_frames, kMaxLatticeLanes});
  data->lattice_lanes = static_cast<int32_t>(std::max<int64_t>(RoundUp(lanes, 64), 64));
  // The lattice's vectors take 113 bytes a lane at most and 16 KB (22 KB where there are few
  // lanes), Select 8 KB; two stretches of inputs, 36 bytes a cell, share the rest. A stretch holds
  // a diagonal at least.
  const int64_t chunk_bytes = platform.ub_bytes - 24 * 1024 - 113 * int64_t{data->lattice_lanes};
  data->lattice_chunk = static_cast<int32_t>(std::min<int64_t>(chunk_bytes / 36 / 64 * 64, 2048));
  data->schedule_window = 128;
}

inline TilingPlan MakeTiling(const Problem& problem, const Platform& platform) {
  TilingPlan plan = {};
  RnntLossFusedTilingData& data = plan.data;
  data.num_rows = problem.sizes.num_rows;
  data.vocab = problem.sizes.vocab;
  data.batch = problem.sizes.batch;
  data.target_columns = problem.sizes.target_columns;
  data.band_frames = problem.sizes.band_frames;
  data.blank = problem.blank < 0 ? problem.blank + data.vocab : problem.blank;
  data.clamp = problem.clamp;
  data.fastemit_lambda = problem.fastemit_lambda;
  data.fused_log_softmax = problem.fused_log_softmax ? 1 : 0;
  data.needs_grad = problem.needs_grad ? 1 : 0;
  data.has_status = problem.has_status ? 1 : 0;
  data.blank_in_targets = problem.blank_in_targets ? 1 : 0;
  data.has_windows = problem.has_windows ? 1 : 0;
  data.used_cores = static_cast<int32_t>(std::min(platform.num_cores, kMaxCores));
  PlanState(problem.needs_grad, &data);
  PlanTiles(problem.type, platform, &data);
  plan.tiling_key = TilingKey(problem.entry, problem.type);
  plan.workspace_bytes = problem.entry == Entry::kFused ? data.state_bytes : 0;
  return plan;
}

}  // namespace rnnt_loss_fused

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_TILING_PLAN_H_
