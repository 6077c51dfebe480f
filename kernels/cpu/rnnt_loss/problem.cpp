#include "cpu/rnnt_loss/problem.h"

#include <cmath>

namespace asr_ascend {
namespace {

// Far from overflow in any product with a row's bytes, far above any memory.
constexpr int64_t kMaxElements = int64_t{1} << 55;

bool IsPacked(const asr_ascend_rnnt_layout& layout) { return layout.packed_rows >= 0; }

bool IsShapeSound(const asr_ascend_rnnt_problem& problem) {
  if (problem.batch < 0 || problem.vocab < 1 || problem.vocab > kMaxElements) return false;
  if (problem.blank < 0 || problem.blank >= problem.vocab) return false;
  if (problem.target_columns < 0 || problem.num_threads < 1) return false;
  if (!std::isfinite(problem.fastemit_lambda) || problem.fastemit_lambda < 0.0) return false;
  if (!std::isfinite(problem.delay_penalty) || problem.delay_penalty < 0.0) return false;
  if (problem.dtype < ASR_ASCEND_FLOAT32 || problem.dtype > ASR_ASCEND_BFLOAT16) return false;
  if (problem.band != nullptr) {
    int64_t limits = 0;
    if (problem.band_frames < 0 || problem.logits_layout.packed_rows < 0 ||
        __builtin_mul_overflow(problem.batch, problem.band_frames + 1, &limits) ||
        limits > kMaxElements) {
      return false;
    }
  }
  const bool has_lengths = problem.logit_lengths != nullptr && problem.target_lengths != nullptr;
  return problem.batch == 0 || has_lengths;
}

bool IsLayoutSound(const asr_ascend_rnnt_layout& layout) {
  return layout.packed_rows >= -1 &&
         (IsPacked(layout) || (layout.padded_t >= 0 && layout.padded_u1 >= 0));
}

core::RowAddress AddressOf(const asr_ascend_rnnt_layout& layout, const core::Lattice& lattice,
                           int64_t sample, int64_t first_row) {
  if (IsPacked(layout)) return core::PackedAddress(lattice, first_row, layout.stride_u);
  return core::PaddedAddress(sample, layout.stride_b, layout.stride_t, layout.stride_u);
}

asr_ascend_status CheckLengths(const asr_ascend_rnnt_problem& problem,
                               const asr_ascend_rnnt_layout& layout, int64_t b,
                               asr_ascend_failure* failure) {
  const int64_t frames = problem.logit_lengths[b];
  const int64_t labels = problem.target_lengths[b];
  const bool packed = IsPacked(layout);
  failure->sample = b;
  failure->value = frames;
  if (frames < 1 || (!packed && frames > layout.padded_t) ||
      (problem.band != nullptr && frames > problem.band_frames)) {
    return ASR_ASCEND_BAD_LOGIT_LENGTH;
  }
  failure->value = labels;
  if (labels < 0 || labels > problem.target_columns || (!packed && labels > layout.padded_u1 - 1)) {
    return ASR_ASCEND_BAD_TARGET_LENGTH;
  }
  return ASR_ASCEND_OK;
}

asr_ascend_status CheckTargets(const asr_ascend_rnnt_problem& problem, int64_t b,
                               asr_ascend_failure* failure) {
  const int64_t* targets = problem.targets + b * problem.target_columns;
  for (int64_t u = 0; u < problem.target_lengths[b]; ++u) {
    failure->sample = b;
    failure->position = u;
    failure->value = targets[u];
    if (targets[u] < 0 || targets[u] >= problem.vocab) return ASR_ASCEND_BAD_TARGET;
    if (targets[u] == problem.blank && problem.blank_in_targets == 0) {
      return ASR_ASCEND_TARGET_IS_BLANK;
    }
  }
  return ASR_ASCEND_OK;
}

// The cells of a sample's lattice, or of its band, which is laid out.
asr_ascend_status LayOutCells(const asr_ascend_rnnt_problem& problem, int64_t b,
                              CheckedProblem* checked, Sample* sample,
                              asr_ascend_failure* failure) {
  const core::Lattice& lattice = sample->lattice;
  if (problem.band == nullptr) {
    const bool overflow = __builtin_mul_overflow(lattice.frames, lattice.columns, &sample->cells);
    return overflow ? ASR_ASCEND_BAD_ARGUMENT : ASR_ASCEND_OK;
  }
  const int64_t* limits = problem.band + 2 * b * problem.band_frames;
  const int64_t bad_frame = core::FirstBadFrame(limits, lattice);
  if (bad_frame >= 0) {
    failure->sample = b;
    failure->position = bad_frame;
    return ASR_ASCEND_BAD_BAND;
  }
  int64_t* offsets = checked->band_offsets.data() + b * (problem.band_frames + 1);
  sample->band = core::Band{limits, offsets, nullptr};
  offsets[0] = 0;
  for (int64_t t = 0; t < lattice.frames; ++t) {
    const int64_t columns = limits[2 * t + 1] - limits[2 * t] + 1;
    if (__builtin_add_overflow(offsets[t], columns, &offsets[t + 1]))
      return ASR_ASCEND_BAD_ARGUMENT;
  }
  sample->cells = offsets[lattice.frames];
  return ASR_ASCEND_OK;
}

asr_ascend_status CheckRows(const asr_ascend_rnnt_layout& layout, int64_t rows,
                            asr_ascend_failure* failure) {
  if (!IsPacked(layout) || layout.packed_rows == rows) return ASR_ASCEND_OK;
  failure->value = rows;
  return ASR_ASCEND_BAD_ROWS;
}

}  // namespace

asr_ascend_status CheckProblem(const asr_ascend_rnnt_problem& problem,
                               const asr_ascend_rnnt_layout* grad_layout, CheckedProblem* checked,
                               asr_ascend_failure* failure) {
  const asr_ascend_failure nowhere = {-1, -1, -1};
  *failure = nowhere;
  const asr_ascend_rnnt_layout& layout = problem.logits_layout;
  if (!IsShapeSound(problem) || !IsLayoutSound(layout)) return ASR_ASCEND_BAD_ARGUMENT;
  if (grad_layout != nullptr && !IsLayoutSound(*grad_layout)) return ASR_ASCEND_BAD_ARGUMENT;
  checked->samples.resize(static_cast<std::size_t>(problem.batch));
  if (problem.band != nullptr) {
    checked->band_offsets.resize(
        static_cast<std::size_t>(problem.batch * (problem.band_frames + 1)));
  }
  checked->rows = 0;
  for (int64_t b = 0; b < problem.batch; ++b) {
    asr_ascend_status status = CheckLengths(problem, layout, b, failure);
    if (status == ASR_ASCEND_OK && grad_layout != nullptr) {
      status = CheckLengths(problem, *grad_layout, b, failure);
    }
    if (status != ASR_ASCEND_OK) return status;
    *failure = nowhere;
    if (problem.targets == nullptr && problem.target_lengths[b] > 0) {
      return ASR_ASCEND_BAD_ARGUMENT;
    }
    const core::Lattice lattice = {problem.logit_lengths[b], problem.target_lengths[b] + 1};
    Sample& sample = checked->samples[static_cast<std::size_t>(b)];
    sample = Sample{};
    sample.lattice = lattice;
    status = LayOutCells(problem, b, checked, &sample, failure);
    if (status != ASR_ASCEND_OK) return status;
    int64_t rows = 0;
    int64_t elements = 0;
    if (__builtin_add_overflow(checked->rows, sample.cells, &rows) ||
        __builtin_mul_overflow(rows, problem.vocab, &elements) || elements > kMaxElements) {
      return ASR_ASCEND_BAD_ARGUMENT;
    }
    sample.first_row = checked->rows;
    sample.targets = problem.targets + (problem.targets ? b * problem.target_columns : 0);
    if (problem.emission_windows != nullptr) {
      sample.emission_windows = problem.emission_windows + 2 * b * problem.target_columns;
    }
    sample.logits = AddressOf(layout, lattice, b, checked->rows);
    if (grad_layout != nullptr) sample.grad = AddressOf(*grad_layout, lattice, b, checked->rows);
    checked->rows = rows;
  }
  asr_ascend_status status = CheckRows(layout, checked->rows, failure);
  if (status == ASR_ASCEND_OK && grad_layout != nullptr) {
    status = CheckRows(*grad_layout, checked->rows, failure);
  }
  for (int64_t b = 0; status == ASR_ASCEND_OK && b < problem.batch; ++b) {
    status = CheckTargets(problem, b, failure);
  }
  if (status == ASR_ASCEND_OK) *failure = nowhere;
  return status;
}

void FindOrigins(CheckedProblem* checked) {
  checked->band_origins.resize(static_cast<std::size_t>(checked->rows));
  for (Sample& sample : checked->samples) {
    int64_t* origins = checked->band_origins.data() + sample.first_row;
    sample.band.origins = origins;
    for (int64_t t = 0; t < sample.lattice.frames; ++t) {
      const int64_t last = core::LastColumn(sample.band, t);
      for (int64_t u = core::FirstColumn(sample.band, t); u <= last; ++u) {
        *origins++ = core::CellOrigin(sample.band, t, u);
      }
    }
  }
}

}  // namespace asr_ascend
