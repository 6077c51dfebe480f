// The C interface of libasr_ascend_cpu.so: the RNN-T loss and its gradient on a CPU.
//
// No torch and no C++ type crosses this line, so any torch (or none) can load the library.
// Every pointer is host memory. Every count, length and stride is int64_t; strides are in
// elements, and the vocabulary dimension is always contiguous.
#ifndef ASR_ASCEND_CPU_H_
#define ASR_ASCEND_CPU_H_

#include <stdint.h>

#if defined(__GNUC__)
#define ASR_ASCEND_EXPORT __attribute__((visibility("default")))
#else
#define ASR_ASCEND_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Raised by one whenever a struct or a signature below changes.
#define ASR_ASCEND_CPU_ABI_VERSION 5

enum asr_ascend_dtype {
  ASR_ASCEND_FLOAT32 = 0,
  ASR_ASCEND_FLOAT64 = 1,
  ASR_ASCEND_FLOAT16 = 2,
  ASR_ASCEND_BFLOAT16 = 3,
};

enum asr_ascend_status {
  ASR_ASCEND_OK = 0,
  ASR_ASCEND_BAD_ARGUMENT = 1,       // null pointer, unknown dtype, V < 1, blank outside [0, V),
                                     // fastemit_lambda or delay_penalty not finite or below 0
  ASR_ASCEND_BAD_LOGIT_LENGTH = 2,   // sample: T_b < 1, or above padded_t
  ASR_ASCEND_BAD_TARGET_LENGTH = 3,  // sample: U_b < 0, above padded_u1 - 1 or above target_columns
  ASR_ASCEND_BAD_TARGET = 4,         // sample, position: label outside [0, V)
  ASR_ASCEND_TARGET_IS_BLANK = 5,    // sample, position: label equal to blank, not allowed
  ASR_ASCEND_BAD_ROWS = 6,           // value: number of cells, which is not packed_rows
  ASR_ASCEND_CROSS_CHECK_FAILED = 7,  // sample: forward and backward scores disagree
  ASR_ASCEND_NO_MEMORY = 8,
  ASR_ASCEND_BAD_ISA = 9,    // ASR_ASCEND_ISA names a version this CPU or build does not have
  ASR_ASCEND_BAD_BAND = 10,  // sample, position: frame where the band breaks a rule
};

// Where a status other than OK was found. Unused fields are -1.
typedef struct asr_ascend_failure {
  int64_t sample;
  int64_t position;
  int64_t value;
} asr_ascend_failure;

// A batch of B lattices. Cell (b, t, u) is the row of V values that starts at element
//   padded: b * stride_b + t * stride_t + u * stride_u
//   packed: (row_offset_b + t * (U_b + 1) + u) * stride_u, row_offset_b = sum of T * (U + 1) before
//   b
// and with a band: (cells of the samples and frames before + u - first column of t) * stride_u
typedef struct asr_ascend_rnnt_layout {
  int64_t packed_rows;  // N of a packed (N, V) tensor, or -1 for a padded (B, T, U1, V) one
  int64_t padded_t;     // T of a padded tensor; unused when packed
  int64_t padded_u1;    // U + 1 of a padded tensor; unused when packed
  int64_t stride_b;     // unused when packed
  int64_t stride_t;     // unused when packed
  int64_t stride_u;
} asr_ascend_rnnt_layout;

typedef struct asr_ascend_rnnt_problem {
  int64_t batch;                  // B >= 0
  int64_t vocab;                  // V >= 1
  int64_t blank;                  // in [0, V)
  const int64_t* logit_lengths;   // (B)
  const int64_t* target_lengths;  // (B)
  const int64_t* targets;         // (B, target_columns); columns past U_b are never read
  int64_t target_columns;
  // (B, target_columns, 2): first and last frame, inclusive, in which label u may be emitted; any
  // other transition by it is impossible, and the softmax is what it was. NULL: in every frame.
  // Any values: frames outside [0, T_b) add nothing, first > last leaves the label no frame.
  const int64_t* emission_windows;
  // (B, band_frames, 2): first and last column, inclusive, of each frame t < T_b; packed logits
  // have the rows of these cells alone, and every other cell is impossible. Both never fall; a
  // frame's columns overlap the next's or lie a step of one label below; (0, 0) and (T_b - 1, U_b)
  // are inside. NULL: every cell.
  const int64_t* band;
  int64_t band_frames;
  double clamp;  // <= 0: off
  // FastEmit: in the gradient, the derivative by a label's log-probability counts 1 + this much
  // (1 + 1e38 at most). The costs are what they were. 0: off.
  double fastemit_lambda;
  // delay_penalty * ((T_b - 1) / 2 - t) is added to the log-probability of every label emitted in
  // frame t, in the costs too, which may then be negative. 0: off.
  double delay_penalty;
  int32_t fused_log_softmax;  // 0: the logits are log-probabilities already
  int32_t dtype;              // enum asr_ascend_dtype, of the logits and of the gradient
  // 0: a label equal to blank is refused. 1: it is an ordinary label, whose logit is blank's too.
  int32_t blank_in_targets;
  int64_t num_threads;  // >= 1; the result's bits do not depend on it
  asr_ascend_rnnt_layout logits_layout;
} asr_ascend_rnnt_problem;

// What the gradient needs from the forward pass: five planes of N doubles each, N cells, in one
// buffer that the caller owns. Opaque but for its size.
#define ASR_ASCEND_STATE_PLANES 5

ASR_ASCEND_EXPORT int32_t asr_ascend_abi_version(void);

// The version of the kernel in use ("avx512", "avx2", "neon", "plain"), chosen once from the CPU
// or from the environment variable ASR_ASCEND_ISA; NULL where that names one that can't run here.
ASR_ASCEND_EXPORT const char* asr_ascend_isa(void);

// Comma-separated names of the versions that can run here, best first.
ASR_ASCEND_EXPORT const char* asr_ascend_isas(void);

// Checks the values of lengths and targets, then costs[b] = -ln P(targets_b | logits_b) in nats.
// state: ASR_ASCEND_STATE_PLANES * N doubles to be kept for the gradient, or NULL when no gradient
// is wanted (only alpha is computed then). failure may be NULL.
ASR_ASCEND_EXPORT int32_t asr_ascend_rnnt_forward(const asr_ascend_rnnt_problem* problem,
                                                  const void* logits, double* costs, double* state,
                                                  asr_ascend_failure* failure);

// grad = d (sum_b grad_costs[b] * costs[b]) / d logits, each component clamped before it is
// multiplied by grad_costs[b]. grad may be logits itself (same layout): the gradient then takes
// the logits' place. Rows outside a sample's lattice get exactly zero.
ASR_ASCEND_EXPORT int32_t asr_ascend_rnnt_backward(const asr_ascend_rnnt_problem* problem,
                                                   const void* logits, const double* state,
                                                   const double* grad_costs, void* grad,
                                                   const asr_ascend_rnnt_layout* grad_layout,
                                                   asr_ascend_failure* failure);

// The likeliest path through each lattice. frames (B, target_columns): the frame in which it emits
// each label, -1 past U_b; log_probs (B): ln of its probability. Of equally likely paths the one
// whose labels come earliest. Where there is none, log_probs is -inf, or NaN where the cost would
// be NaN, and all of the sample's frames are -1. clamp and fastemit_lambda change nothing.
ASR_ASCEND_EXPORT int32_t asr_ascend_rnnt_alignment(const asr_ascend_rnnt_problem* problem,
                                                    const void* logits, int64_t* frames,
                                                    double* log_probs, asr_ascend_failure* failure);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // ASR_ASCEND_CPU_H_
