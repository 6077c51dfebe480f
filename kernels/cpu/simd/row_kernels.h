// The two stages that read the logits: log-norms with the two gathered log-probabilities, and
// the gradient.
#ifndef ASR_ASCEND_CPU_SIMD_ROW_KERNELS_H_
#define ASR_ASCEND_CPU_SIMD_ROW_KERNELS_H_

#include "cpu/simd/exp_log.h"
#include "cpu/simd/row_cursor.h"
#include "cpu/simd/storage.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Rows whose logarithms are taken together.
constexpr int kRowBlock = 64;

// Columns summed in the arithmetic of the vectors before the sum goes on in double.
constexpr int64_t kSumBlock = 2048;

// A sum of exp(z - pivot) between kLow and kHighPerSymbol * V is good. Below, the terms that matter
// are denormal. Above, a logit lies so far over the pivot that rounding z - pivot shows: it costs
// at most half an ulp of ln(kHighPerSymbol V), 5e-7 in float up to V = 100,000.
template <typename Scalar>
struct SafeSum;
template <>
struct SafeSum<float> {
  static constexpr double kLow = 1e-26;
  static constexpr double kHighPerSymbol = 50.0;
};
template <>
struct SafeSum<double> {
  static constexpr double kLow = 1e-280;
  static constexpr double kHighPerSymbol = 50.0;
};

constexpr size_t kCacheLine = 64;

// The sum of exp(row - shift). Meanwhile the next row comes in, in order: its pivot is wanted
// before its sweep, and jumping there in cold memory upsets the hardware's own prefetching.
template <typename T>
ASR_ASCEND_SIMD_INLINE double SumOfExp(const T* row, const T* next, int64_t vocab,
                                       typename Storage<T>::Vec shift) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  constexpr int kLanes = S::kLanes;
  double total = 0.0;
  int64_t k = 0;
  do {
    const int64_t end = vocab - k > kSumBlock ? k + kSumBlock : vocab;
    Vec sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
    for (; k + 4 * kLanes <= end; k += 4 * kLanes) {
      for (size_t byte = 0; byte < 4 * kLanes * sizeof(T); byte += kCacheLine) {
        __builtin_prefetch((const char*)(next + k) + byte);
      }
      sum0 += Exp(S::Load(row + k) - shift);
      sum1 += Exp(S::Load(row + k + kLanes) - shift);
      sum2 += Exp(S::Load(row + k + 2 * kLanes) - shift);
      sum3 += Exp(S::Load(row + k + 3 * kLanes) - shift);
    }
    for (; k + kLanes <= end; k += kLanes) sum0 += Exp(S::Load(row + k) - shift);
    if (k < end) {
      const Vec x = S::LoadPartial(row + k, (int)(end - k), -__builtin_inff());
      sum1 += Exp(x - shift);
      k = end;
    }
    total += Sum((sum0 + sum1) + (sum2 + sum3));
  } while (k < vocab);
  return total;
}

// The log-norm of a row whose first sum was not good: NaN, or the row is summed again from its
// largest logit. A NaN in the row made the sum NaN, so the maximum need not look for it.
template <typename T>
static __attribute__((noinline)) double ShiftedLogNorm(const T* row, int64_t vocab,
                                                       double first_sum) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  using Scalar = typename S::Scalar;
  constexpr int kLanes = S::kLanes;
  if (__builtin_isnan(first_sum)) return first_sum;
  Vec largest = Fill((Scalar)-__builtin_inff());
  int64_t k = 0;
  for (; k + kLanes <= vocab; k += kLanes) largest = Max(largest, S::Load(row + k));
  if (k < vocab) {
    largest = Max(largest, S::LoadPartial(row + k, (int)(vocab - k), -__builtin_inff()));
  }
  const Scalar shift = LargestLane(largest);
  // +inf has no softmax, and neither has a row of nothing but -inf.
  if (__builtin_isinf(shift)) return __builtin_nan("");
  const double sum = SumOfExp(row, row, vocab, Fill(shift));
  return (double)shift + LogOfNormal(Fill(sum))[0];
}

// A log-probability given by the caller. +inf is not one, and must not turn the cost into -inf.
ASR_ASCEND_SIMD_INLINE double GivenLogProb(double log_prob) {
  return log_prob == kInfinityF64 ? __builtin_nan("") : log_prob;
}

template <typename T>
void Statistics(const Job& job, int64_t first, int64_t last) {
  using S = Storage<T>;
  using Safe = SafeSum<typename S::Scalar>;
  const T* logits = (const T*)job.logits;
  const Planes& planes = job.planes;
  const double highest_sum = Safe::kHighPerSymbol * (double)job.vocab;
  const T* rows[kRowBlock];
  int64_t slots[kRowBlock];
  int64_t targets[kRowBlock];  // -1: none
  bool blank_used[kRowBlock];
  double blanks[kRowBlock];
  double labels[kRowBlock];
  double pivots[kRowBlock];
  alignas(64) double sums[kRowBlock];
  alignas(64) double log_norms[kRowBlock];
  RowCursor cursor = CursorAt(job, first);
  for (int64_t block = first; block < last; block += kRowBlock) {
    const int count = (int)(last - block < kRowBlock ? last - block : kRowBlock);
    for (int i = 0; i < count; ++i) {
      rows[i] = logits + core::RowElement(cursor.sample->logits, cursor.t, cursor.u);
      slots[i] = SlotOf(cursor);
      blank_used[i] = job.fused_log_softmax || !IsUnusedBlank(cursor);
      targets[i] = HasLabel(cursor) ? cursor.sample->targets[cursor.u] : -1;
      Advance(&cursor);
    }
    for (int i = 0; i < count; ++i) {
      const T* row = rows[i];
      const T* next = rows[i + 1 < count ? i + 1 : i];
      blanks[i] = blank_used[i] ? S::Get(row + job.blank) : -kInfinityF64;
      labels[i] = targets[i] >= 0 ? S::Get(row + targets[i]) : -kInfinityF64;
      // One sweep, from a logit that is at hand in place of the largest. Where the path is nearly
      // certain this is the largest, and 1 stands in the sum exactly: no log-probability comes
      // out above zero.
      const double pivot = blanks[i] > labels[i] ? blanks[i] : labels[i];
      pivots[i] = __builtin_isfinite(pivot) ? pivot : 0.0;
      sums[i] = job.fused_log_softmax
                    ? SumOfExp(row, next, job.vocab, Fill((typename S::Scalar)pivots[i]))
                    : 1.0;
    }
    for (int i = count; i % kF64Lanes != 0; ++i) sums[i] = 1.0;
    for (int i = 0; i < count; i += kF64Lanes) {
      Storage<double>::Store(log_norms + i, LogOfNormal(Storage<double>::Load(sums + i)));
    }
    for (int i = 0; i < count; ++i) {
      double log_norm = pivots[i] + log_norms[i];
      if (job.fused_log_softmax) {
        if (!(sums[i] > Safe::kLow && sums[i] < highest_sum)) {
          log_norm = ShiftedLogNorm(rows[i], job.vocab, sums[i]);
        }
        planes.blank[slots[i]] = blanks[i] - log_norm;
        planes.label[slots[i]] = labels[i] - log_norm;
      } else {
        log_norm = 0.0;
        planes.blank[slots[i]] = GivenLogProb(blanks[i]);
        planes.label[slots[i]] = GivenLogProb(labels[i]);
      }
      if (planes.log_norm != nullptr) planes.log_norm[block + i] = log_norm;
    }
  }
}

template <typename T>
ASR_ASCEND_SIMD_INLINE void FillRow(T* row, int64_t vocab, double value) {
  using S = Storage<T>;
  constexpr int kLanes = S::kLanes;
  if (value == 0.0) {
    memset(row, 0, (size_t)vocab * sizeof(T));
    return;
  }
  const typename S::Vec x = Fill((typename S::Scalar)value);
  int64_t k = 0;
  for (; k + kLanes <= vocab; k += kLanes) S::Store(row + k, x);
  if (k < vocab) S::StorePartial(row + k, x, (int)(vocab - k));
}

// What turns a row of logits into its gradient: min(exp((x - high) - low), clamp) * scale.
template <typename T>
struct RowFactors {
  using Vec = typename Storage<T>::Vec;
  Vec high;
  Vec low;
  Vec clamp;
  Vec scale;
};

// An occupancy times a softmax is at most one (1 + lambda with FastEmit), so the exponent is
// bounded.
template <bool kClamp, typename T>
ASR_ASCEND_SIMD_INLINE typename Storage<T>::Vec GradientOf(typename Storage<T>::Vec x,
                                                           const RowFactors<T>& factors) {
  const auto product = ExpOfBounded((x - factors.high) - factors.low);
  return (kClamp ? Min(factors.clamp, product) : product) * factors.scale;
}

// out may be x.
template <bool kClamp, typename T>
ASR_ASCEND_SIMD_INLINE void GradientRow(const T* x, T* out, int64_t vocab,
                                        const RowFactors<T>& factors) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  constexpr int kLanes = S::kLanes;
  int64_t k = 0;
  for (; k + 2 * kLanes <= vocab; k += 2 * kLanes) {
    const Vec g0 = GradientOf<kClamp>(S::Load(x + k), factors);
    const Vec g1 = GradientOf<kClamp>(S::Load(x + k + kLanes), factors);
    S::Store(out + k, g0);
    S::Store(out + k + kLanes, g1);
  }
  for (; k + kLanes <= vocab; k += kLanes) {
    S::Store(out + k, GradientOf<kClamp>(S::Load(x + k), factors));
  }
  if (k < vocab) {
    const int count = (int)(vocab - k);
    const Vec rest = S::LoadPartial(x + k, count, 0.0f);
    S::StorePartial(out + k, GradientOf<kClamp>(rest, factors), count);
  }
}

ASR_ASCEND_SIMD_INLINE double Clamp(double x, double clamp) {
  if (x > clamp) return clamp;
  return x < -clamp ? -clamp : x;
}

template <typename T>
void Gradient(const Job& job, int64_t first, int64_t last) {
  using S = Storage<T>;
  using Scalar = typename S::Scalar;
  const T* logits = (const T*)job.logits;
  T* grad = (T*)job.grad;
  RowCursor cursor = CursorAt(job, first);
  for (int64_t index = first; index < last; ++index, Advance(&cursor)) {
    const Sample& sample = *cursor.sample;
    const T* x = logits + core::RowElement(sample.logits, cursor.t, cursor.u);
    T* out = grad + core::RowElement(sample.grad, cursor.t, cursor.u);
    const int64_t slot = SlotOf(cursor);
    const double occupancy = job.planes.alpha[slot];
    // Zero times a factor that is not finite is NaN, as in the rows that are computed.
    const double nothing = 0.0 * sample.grad_cost;
    if (occupancy != occupancy) {  // this sample's cost is NaN
      FillRow(out, job.vocab, occupancy);
      continue;
    }
    if (sample.grad_cost == 0.0 || occupancy + sample.log_abs_grad_cost < S::kLogSmallest) {
      FillRow(out, job.vocab, nothing);
      continue;
    }
    if (job.fused_log_softmax) {
      const double log_norm = job.planes.log_norm[index];
      const Scalar high = (Scalar)log_norm;
      const Scalar low = (Scalar)((log_norm - (double)high) - occupancy);
      const RowFactors<T> factors = {Fill(high), Fill(low), Fill((Scalar)job.clamp),
                                     Fill((Scalar)sample.grad_cost)};
      if (job.clamp < kInfinityF64) {
        GradientRow<true>(x, out, job.vocab, factors);
      } else {
        GradientRow<false>(x, out, job.vocab, factors);
      }
    } else {
      FillRow(out, job.vocab, nothing);
    }
    S::Put(out + job.blank, Clamp(job.planes.blank[slot], job.clamp) * sample.grad_cost);
    const double label = job.planes.label[slot];
    if (HasLabel(cursor) && label < kInfinityF64) {
      S::Put(out + sample.targets[cursor.u], Clamp(label, job.clamp) * sample.grad_cost);
    }
  }
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_SIMD_ROW_KERNELS_H_
