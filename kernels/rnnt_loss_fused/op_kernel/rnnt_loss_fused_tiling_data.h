// What the host tells the kernel. A plain struct of fixed-size members, shared by the host's
// tiling, the device's kernel and the tests.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_TILING_DATA_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_TILING_DATA_H_

#include <stdint.h>

// Lattice state: planes with a value for each row, `state_plane_bytes` apart, which is room for
// float32; the low parts of pairs are float16. It lies in the workspace (fused), or in a tensor
// that forward writes and backward reads. Without a gradient the first four planes are all of it.
#define RNNT_LOSS_STATE_PLANES 9
#define RNNT_LOSS_STATE_PLANES_OF_ROWS 4

struct RnntLossFusedTilingData {
  int64_t num_rows;           // N
  int64_t vocab;              // V
  int64_t batch;              // B
  int64_t target_columns;     // second dimension of targets
  int64_t band_frames;        // second dimension of band; 0 where there is no band
  int64_t blank;              // in [0, V)
  float clamp;                // no clamp where it is not above zero
  float fastemit_lambda;      // at least 0
  int32_t fused_log_softmax;  // 0 or 1
  int32_t used_cores;         // block dimension, at most the chip's vector cores
  int32_t has_status;         // 1: the status output is wanted
  int32_t needs_grad;         // 0: beta alone, of which nothing is kept but the loss
  int32_t blank_in_targets;   // 1: a label may be blank, with both parts of the gradient
  int32_t has_windows;        // 1: emission_windows is there

  // UB tile of the logits: `tile_rows` rows of `row_pitch` elements, or, where a row doesn't fit,
  // one row in windows of `tile_columns` elements.
  int32_t tile_rows;
  int32_t tile_columns;
  int32_t row_pitch;
  int32_t group_rows;  // rows whose small values move together; a multiple of 64

  // Lattice: cells of an anti-diagonal at most, and cells that one copy brings in; multiples of 64.
  int32_t lattice_lanes;
  int32_t lattice_chunk;
  int32_t schedule_window;  // samples scheduled at a time, a power of two

  // Byte offsets into the lattice state.
  int64_t state_plane_bytes;
  int64_t state_samples_offset;  // 16 bytes per sample: ln P of alpha, of beta, as float pairs
  int64_t state_flags_offset;    // 32 bytes per core, then 32 bytes that say whether all is valid
  int64_t state_band_offset;     // of a band: two int64 per sample, then one per frame
  int64_t state_bytes;
};

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_TILING_DATA_H_
