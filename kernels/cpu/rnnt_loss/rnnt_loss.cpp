// The C interface: checks, memory, and the order of the stages.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/asr_ascend_cpu.h"
#include "cpu/rnnt_loss/best_path.h"
#include "cpu/rnnt_loss/label_scores.h"
#include "cpu/rnnt_loss/problem.h"
#include "cpu/rnnt_loss/versions.h"
#include "cpu/runtime/isa.h"
#include "cpu/runtime/pages.h"
#include "cpu/runtime/threads.h"

namespace asr_ascend {
namespace {

// Logits in one task, and logits that are worth one more thread: a tenth of a millisecond of work,
// which is what waking a thread can cost.
constexpr int64_t kTaskElements = 64 * 1024;
constexpr int64_t kThreadElements = 256 * 1024;
// The same for lattice cells.
constexpr int64_t kTaskCells = 8 * 1024;
constexpr int64_t kThreadCells = 4 * 1024;

constexpr double kCrossCheckTolerance = 1e-6;

constexpr double kLargestFastEmit = 1e38;  // exp(log(1 + this)) must fit a float

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ThreadsFor(int64_t work, int64_t work_per_thread, int64_t num_threads) {
  return std::max<int64_t>(1, std::min(num_threads, work / work_per_thread));
}

size_t ElementSize(int32_t dtype) {
  if (dtype == ASR_ASCEND_FLOAT64) return 8;
  return dtype == ASR_ASCEND_FLOAT32 ? 4 : 2;
}

Job MakeJob(const asr_ascend_rnnt_problem& problem, const CheckedProblem& checked,
            const void* logits) {
  Job job = {};
  job.batch = problem.batch;
  job.vocab = problem.vocab;
  job.blank = problem.blank;
  job.clamp = problem.clamp > 0.0 ? problem.clamp : std::numeric_limits<double>::infinity();
  job.fastemit_lambda = std::min(problem.fastemit_lambda, kLargestFastEmit);
  job.delay_penalty = problem.delay_penalty;
  job.fused_log_softmax = problem.fused_log_softmax != 0;
  job.samples = checked.samples.data();
  job.logits = logits;
  return job;
}

static_assert(sizeof(Planes) == ASR_ASCEND_STATE_PLANES * sizeof(double*), "one pointer a plane");

Planes StatePlanes(double* state, int64_t rows) {
  return Planes{state, state + rows, state + 2 * rows, state + 3 * rows, state + 4 * rows};
}

// Calls stage(job, first, last) for all rows of the batch, cut into tasks of about one size.
void ForRows(void (*stage)(const Job&, int64_t, int64_t), const Job& job, int64_t rows,
             int64_t num_threads) {
  const int64_t rows_per_task = CeilDiv(kTaskElements, job.vocab);
  const int64_t threads = ThreadsFor(rows * job.vocab, kThreadElements, num_threads);
  ParallelFor(CeilDiv(rows, rows_per_task), threads, [&](int64_t task) {
    const int64_t first = task * rows_per_task;
    stage(job, first, std::min(rows, first + rows_per_task));
  });
}

std::vector<int64_t> LargestFirst(const std::vector<Sample>& samples) {
  std::vector<int64_t> order(samples.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return samples[static_cast<size_t>(a)].cells > samples[static_cast<size_t>(b)].cells;
  });
  return order;
}

// What is done to the labels' log-probabilities alone.
void AdjustAllLabels(const asr_ascend_rnnt_problem& problem, const Job& job,
                     const CheckedProblem& checked) {
  if (problem.emission_windows == nullptr && job.delay_penalty == 0.0) return;
  const int64_t threads = ThreadsFor(checked.rows, kThreadCells, problem.num_threads);
  ParallelFor(problem.batch, threads,
              [&](int64_t b) { AdjustLabels(job, checked.samples[static_cast<size_t>(b)]); });
}

// Alpha alone, two diagonals of it at a time.
void CostsOnly(const SimdKernels& kernels, const Job& job, const CheckedProblem& checked,
               int64_t num_threads, double* costs) {
  std::vector<int64_t> offsets(checked.samples.size());
  int64_t room = 0;
  for (size_t b = 0; b < offsets.size(); ++b) {
    const core::Lattice& lattice = checked.samples[b].lattice;
    offsets[b] = room;
    room += 2 * std::min(lattice.frames, lattice.columns);
  }
  std::vector<double> rolling(static_cast<size_t>(room));
  const std::vector<int64_t> order = LargestFirst(checked.samples);
  const int64_t threads = ThreadsFor(checked.rows, kThreadCells, num_threads);
  ParallelFor(job.batch, threads, [&](int64_t task) {
    const size_t b = static_cast<size_t>(order[static_cast<size_t>(task)]);
    costs[b] = 0.0 - kernels.alpha(job, checked.samples[b], rolling.data() + offsets[b]);
  });
}

// Costs from alpha, and unless it is null ln P from beta, of samples with bands: a task for as many
// samples as go side by side, neighbours in length.
void BandScores(const SimdKernels& kernels, const Job& job, const std::vector<Sample>& samples,
                int64_t threads, double* costs, double* from_beta) {
  const std::vector<int64_t> order = LargestFirst(samples);
  const int64_t groups = CeilDiv(job.batch, kernels.lanes);
  ParallelFor(from_beta != nullptr ? 2 * groups : groups, threads, [&](int64_t task) {
    const bool is_beta = task >= groups;
    const int64_t first = task % groups * kernels.lanes;
    const int64_t count = std::min(kernels.lanes, job.batch - first);
    const Sample* group[kMaxLanes] = {};
    double log_probs[kMaxLanes] = {};
    for (int64_t k = 0; k < count; ++k) {
      group[k] = &samples[static_cast<size_t>(order[static_cast<size_t>(first + k)])];
    }
    (is_beta ? kernels.band_betas : kernels.band_alphas)(job, group, count, log_probs);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t b = order[static_cast<size_t>(first + k)];
      if (is_beta) {
        from_beta[b] = log_probs[k];
      } else {
        costs[b] = 0.0 - log_probs[k];
      }
    }
  });
}

// Alpha and beta as two tasks of each sample, then what the gradient needs of them.
asr_ascend_status CostsAndOccupancies(const SimdKernels& kernels, const Job& job,
                                      const CheckedProblem& checked, int64_t num_threads,
                                      double* costs, asr_ascend_failure* failure) {
  const std::vector<Sample>& samples = checked.samples;
  const std::vector<int64_t> order = LargestFirst(samples);
  std::vector<double> from_beta(samples.size());
  const int64_t threads = ThreadsFor(2 * checked.rows, kThreadCells, num_threads);
  if (checked.has_bands()) {
    BandScores(kernels, job, samples, threads, costs, from_beta.data());
  } else {
    ParallelFor(2 * job.batch, threads, [&](int64_t task) {
      const size_t b = static_cast<size_t>(order[static_cast<size_t>(task / 2)]);
      if (task % 2 == 0) {
        costs[b] = 0.0 - kernels.alpha(job, samples[b], nullptr);
      } else {
        from_beta[b] = kernels.beta(job, samples[b]);
      }
    });
  }
  std::vector<int64_t> first_task(samples.size() + 1, 0);
  for (size_t b = 0; b < samples.size(); ++b) {
    const double difference = std::fabs(costs[b] + from_beta[b]);
    if (difference > kCrossCheckTolerance * std::max(1.0, std::fabs(costs[b])) &&
        std::isfinite(costs[b]) && std::isfinite(from_beta[b])) {
      failure->sample = static_cast<int64_t>(b);
      return ASR_ASCEND_CROSS_CHECK_FAILED;
    }
    first_task[b + 1] = first_task[b] + CeilDiv(samples[b].cells, kTaskCells);
  }
  ParallelFor(first_task.back(), threads, [&](int64_t task) {
    const auto after = std::upper_bound(first_task.begin(), first_task.end(), task);
    const size_t b = static_cast<size_t>(after - first_task.begin() - 1);
    const int64_t parts = first_task[b + 1] - first_task[b];
    const int64_t part = task - first_task[b];
    const core::Lattice& lattice = samples[b].lattice;
    const int64_t steps =
        core::IsFull(samples[b].band) ? core::DiagonalCount(lattice) : lattice.frames;
    kernels.occupancy(job, samples[b], -costs[b], steps * part / parts, steps * (part + 1) / parts);
  });
  return ASR_ASCEND_OK;
}

// A sum of products of probabilities is at most 1, but rounding can put it above. NaN stays.
void NoCostBelowZero(int64_t batch, double* costs) {
  for (int64_t b = 0; b < batch; ++b) {
    if (costs[b] < 0.0) costs[b] = 0.0;
  }
}

// Bytes from the first element of a layout to its last.
size_t SpanBytes(const asr_ascend_rnnt_problem& problem, const asr_ascend_rnnt_layout& layout,
                 int64_t rows) {
  const bool packed = layout.packed_rows >= 0;
  const int64_t before_last_row = packed ? (rows - 1) * layout.stride_u
                                         : (problem.batch - 1) * layout.stride_b +
                                               (layout.padded_t - 1) * layout.stride_t +
                                               (layout.padded_u1 - 1) * layout.stride_u;
  return static_cast<size_t>(before_last_row + problem.vocab) * ElementSize(problem.dtype);
}

// Rows of a padded gradient that belong to no cell become zero.
void ZeroPadding(const asr_ascend_rnnt_problem& problem, const asr_ascend_rnnt_layout& layout,
                 const CheckedProblem& checked, void* grad) {
  const size_t element_bytes = ElementSize(problem.dtype);
  const size_t row_bytes = static_cast<size_t>(problem.vocab) * element_bytes;
  const int64_t frames = problem.batch * layout.padded_t;
  const int64_t padding = frames * layout.padded_u1 - checked.rows;
  if (padding == 0) return;
  const int64_t frames_per_task =
      CeilDiv(kTaskElements, std::max<int64_t>(1, layout.padded_u1 * problem.vocab));
  const int64_t threads = ThreadsFor(padding * problem.vocab, kThreadElements, problem.num_threads);
  ParallelFor(CeilDiv(frames, frames_per_task), threads, [&](int64_t task) {
    const int64_t end = std::min(frames, (task + 1) * frames_per_task);
    for (int64_t frame = task * frames_per_task; frame < end; ++frame) {
      const Sample& sample = checked.samples[static_cast<size_t>(frame / layout.padded_t)];
      const int64_t t = frame % layout.padded_t;
      const int64_t first = t < sample.lattice.frames ? sample.lattice.columns : 0;
      if (first == layout.padded_u1) continue;
      char* row = static_cast<char*>(grad) +
                  core::RowElement(sample.grad, t, first) * static_cast<int64_t>(element_bytes);
      const int64_t count = layout.padded_u1 - first;
      if (layout.stride_u == problem.vocab) {
        std::memset(row, 0, static_cast<size_t>(count) * row_bytes);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        std::memset(row + i * layout.stride_u * static_cast<int64_t>(element_bytes), 0, row_bytes);
      }
    }
  });
}

bool IsSameLayout(const asr_ascend_rnnt_layout& a, const asr_ascend_rnnt_layout& b) {
  if (a.packed_rows != b.packed_rows || a.stride_u != b.stride_u) return false;
  return a.packed_rows >= 0 || (a.padded_t == b.padded_t && a.padded_u1 == b.padded_u1 &&
                                a.stride_b == b.stride_b && a.stride_t == b.stride_t);
}

asr_ascend_status Forward(const asr_ascend_rnnt_problem& problem, const void* logits, double* costs,
                          double* state, asr_ascend_failure* failure) {
  const SimdKernels* kernels = ChosenKernels();
  if (kernels == nullptr) return ASR_ASCEND_BAD_ISA;
  CheckedProblem checked;
  const asr_ascend_status status = CheckProblem(problem, nullptr, &checked, failure);
  if (status != ASR_ASCEND_OK || problem.batch == 0) return status;
  if (logits == nullptr || costs == nullptr) return ASR_ASCEND_BAD_ARGUMENT;
  Job job = MakeJob(problem, checked, logits);
  std::unique_ptr<double[]> scratch;
  if (state != nullptr) {
    AdviseHugePages(state, static_cast<size_t>(checked.rows) * ASR_ASCEND_STATE_PLANES * 8);
    job.planes = StatePlanes(state, checked.rows);
  } else {
    const int64_t planes = checked.has_bands() ? 3 : 2;
    scratch.reset(new double[static_cast<size_t>(planes * checked.rows)]);
    job.planes.blank = scratch.get();
    job.planes.label = scratch.get() + checked.rows;
    if (checked.has_bands()) job.planes.alpha = scratch.get() + 2 * checked.rows;
  }
  ForRows(kernels->statistics[problem.dtype], job, checked.rows, problem.num_threads);
  AdjustAllLabels(problem, job, checked);
  if (checked.has_bands()) FindOrigins(&checked);
  asr_ascend_status result = ASR_ASCEND_OK;
  if (state == nullptr && checked.has_bands()) {
    const int64_t threads = ThreadsFor(checked.rows, kThreadCells, problem.num_threads);
    BandScores(*kernels, job, checked.samples, threads, costs, nullptr);
  } else if (state == nullptr) {
    CostsOnly(*kernels, job, checked, problem.num_threads, costs);
  } else {
    result = CostsAndOccupancies(*kernels, job, checked, problem.num_threads, costs, failure);
  }
  if (job.fused_log_softmax && job.delay_penalty == 0.0) NoCostBelowZero(problem.batch, costs);
  return result;
}

asr_ascend_status Backward(const asr_ascend_rnnt_problem& problem, const void* logits,
                           const double* state, const double* grad_costs, void* grad,
                           const asr_ascend_rnnt_layout& grad_layout, asr_ascend_failure* failure) {
  const SimdKernels* kernels = ChosenKernels();
  if (kernels == nullptr) return ASR_ASCEND_BAD_ISA;
  CheckedProblem checked;
  const asr_ascend_status status = CheckProblem(problem, &grad_layout, &checked, failure);
  if (status != ASR_ASCEND_OK || problem.batch == 0) return status;
  if (logits == nullptr || state == nullptr || grad_costs == nullptr || grad == nullptr) {
    return ASR_ASCEND_BAD_ARGUMENT;
  }
  if (grad == logits && !IsSameLayout(problem.logits_layout, grad_layout)) {
    return ASR_ASCEND_BAD_ARGUMENT;
  }
  for (size_t b = 0; b < checked.samples.size(); ++b) {
    checked.samples[b].grad_cost = grad_costs[b];
    checked.samples[b].log_abs_grad_cost = std::log(std::fabs(grad_costs[b]));
  }
  Job job = MakeJob(problem, checked, logits);
  job.planes = StatePlanes(const_cast<double*>(state), checked.rows);  // only read from here on
  job.grad = grad;
  if (grad != logits) AdviseHugePages(grad, SpanBytes(problem, grad_layout, checked.rows));
  ForRows(kernels->gradient[problem.dtype], job, checked.rows, problem.num_threads);
  if (grad_layout.packed_rows < 0) ZeroPadding(problem, grad_layout, checked, grad);
  return ASR_ASCEND_OK;
}

asr_ascend_status Alignment(const asr_ascend_rnnt_problem& problem, const void* logits,
                            int64_t* frames, double* log_probs, asr_ascend_failure* failure) {
  const SimdKernels* kernels = ChosenKernels();
  if (kernels == nullptr) return ASR_ASCEND_BAD_ISA;
  CheckedProblem checked;
  const asr_ascend_status status = CheckProblem(problem, nullptr, &checked, failure);
  if (status != ASR_ASCEND_OK || problem.batch == 0) return status;
  const bool has_frames = frames != nullptr || problem.target_columns == 0;
  if (logits == nullptr || log_probs == nullptr || !has_frames) return ASR_ASCEND_BAD_ARGUMENT;
  Job job = MakeJob(problem, checked, logits);
  job.delay_penalty = 0.0;
  const std::unique_ptr<double[]> scratch(new double[static_cast<size_t>(3 * checked.rows)]);
  job.planes.blank = scratch.get();
  job.planes.label = scratch.get() + checked.rows;
  job.planes.alpha = scratch.get() + 2 * checked.rows;
  ForRows(kernels->statistics[problem.dtype], job, checked.rows, problem.num_threads);
  AdjustAllLabels(problem, job, checked);
  std::fill(frames, frames + problem.batch * problem.target_columns, int64_t{-1});
  const std::vector<int64_t> order = LargestFirst(checked.samples);
  const int64_t threads = ThreadsFor(checked.rows, kThreadCells, problem.num_threads);
  ParallelFor(problem.batch, threads, [&](int64_t task) {
    const int64_t b = order[static_cast<size_t>(task)];
    log_probs[b] =
        BestPath(job, checked.samples[static_cast<size_t>(b)], frames + b * problem.target_columns);
  });
  return ASR_ASCEND_OK;
}

// No exception crosses the interface.
template <typename Call>
int32_t Guarded(const Call& call) {
  try {
    return call();
  } catch (...) {
    return ASR_ASCEND_NO_MEMORY;  // nothing here throws but allocation
  }
}

}  // namespace
}  // namespace asr_ascend

extern "C" {

int32_t asr_ascend_abi_version(void) { return ASR_ASCEND_CPU_ABI_VERSION; }

const char* asr_ascend_isa(void) {
  const asr_ascend::SimdKernels* kernels = asr_ascend::ChosenKernels();
  return kernels == nullptr ? nullptr : kernels->name;
}

const char* asr_ascend_isas(void) { return asr_ascend::RunnableIsas(); }

int32_t asr_ascend_rnnt_forward(const asr_ascend_rnnt_problem* problem, const void* logits,
                                double* costs, double* state, asr_ascend_failure* failure) {
  asr_ascend_failure unread = {-1, -1, -1};
  if (failure == nullptr) failure = &unread;
  *failure = unread;
  if (problem == nullptr) return ASR_ASCEND_BAD_ARGUMENT;
  return asr_ascend::Guarded(
      [&] { return asr_ascend::Forward(*problem, logits, costs, state, failure); });
}

int32_t asr_ascend_rnnt_backward(const asr_ascend_rnnt_problem* problem, const void* logits,
                                 const double* state, const double* grad_costs, void* grad,
                                 const asr_ascend_rnnt_layout* grad_layout,
                                 asr_ascend_failure* failure) {
  asr_ascend_failure unread = {-1, -1, -1};
  if (failure == nullptr) failure = &unread;
  *failure = unread;
  if (problem == nullptr || grad_layout == nullptr) return ASR_ASCEND_BAD_ARGUMENT;
  return asr_ascend::Guarded([&] {
    return asr_ascend::Backward(*problem, logits, state, grad_costs, grad, *grad_layout, failure);
  });
}

int32_t asr_ascend_rnnt_alignment(const asr_ascend_rnnt_problem* problem, const void* logits,
                                  int64_t* frames, double* log_probs, asr_ascend_failure* failure) {
  asr_ascend_failure unread = {-1, -1, -1};
  if (failure == nullptr) failure = &unread;
  *failure = unread;
  if (problem == nullptr) return ASR_ASCEND_BAD_ARGUMENT;
  return asr_ascend::Guarded(
      [&] { return asr_ascend::Alignment(*problem, logits, frames, log_probs, failure); });
}

}  // extern "C"
