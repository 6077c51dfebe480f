// Tiling keys: which entry, which type of the logits. Preprocessor names, because the device's
// TILING_KEY_IS wants literals.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_TILING_KEY_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_TILING_KEY_H_

#define RNNT_LOSS_FUSED_FLOAT32 11
#define RNNT_LOSS_FUSED_FLOAT16 12
#define RNNT_LOSS_FUSED_BFLOAT16 13
#define RNNT_LOSS_FORWARD_FLOAT32 21
#define RNNT_LOSS_FORWARD_FLOAT16 22
#define RNNT_LOSS_FORWARD_BFLOAT16 23
#define RNNT_LOSS_BACKWARD_FLOAT32 31
#define RNNT_LOSS_BACKWARD_FLOAT16 32
#define RNNT_LOSS_BACKWARD_BFLOAT16 33

// CANN compiles an entry once for each dtype of its operands, and every key in it is a kernel of
// its own. With this in an #if, an entry has the keys of its dtype only. Where nothing says what
// the dtype is, as on the emulator, it has them all.
#ifdef ORIG_DTYPE_LOGITS
#define RNNT_LOSS_LOGITS_MAY_BE(type) (ORIG_DTYPE_LOGITS == (type))
#else
#define RNNT_LOSS_LOGITS_MAY_BE(type) 1
#endif

// Values of the status output, one per sample.
#define RNNT_LOSS_STATUS_OK 0
#define RNNT_LOSS_STATUS_LOGIT_LENGTH 1   // below 1 or above the frames of the band
#define RNNT_LOSS_STATUS_TARGET_LENGTH 2  // below 0 or above the columns of targets
#define RNNT_LOSS_STATUS_LABEL 3          // outside [0, V) or equal to blank
#define RNNT_LOSS_STATUS_ROW_TOTAL 4      // this sample is fine, but the row total isn't N
#define RNNT_LOSS_STATUS_CROSS_CHECK 5    // alpha and beta disagree about the loss
#define RNNT_LOSS_STATUS_BAND 6           // a frame of the band breaks a rule
#define RNNT_LOSS_STATUS_BAND_WIDTH 7     // the band's anti-diagonals may not fit a core's memory

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_TILING_KEY_H_
