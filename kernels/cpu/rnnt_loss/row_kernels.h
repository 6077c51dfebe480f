// The two stages that read the logits: log-norms with the two gathered log-probabilities, and
// the gradient.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_ROW_KERNELS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_ROW_KERNELS_H_

#include "cpu/rnnt_loss/row_cursor.h"
#include "cpu/rnnt_loss/row_sum.h"
#include "cpu/simd/exp_log.h"
#include "cpu/simd/storage.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Rows whose logarithms are taken together.
constexpr int kRowBlock = 64;

// Rows whose state is fetched together for the gradient: few, because fetching it holds up the
// stream of logits.
constexpr int kGradientBlock = 8;

// A log-probability given by the caller. +inf is not one, and must not turn the cost into -inf.
ASR_ASCEND_SIMD_INLINE double GivenLogProb(double log_prob) {
  return log_prob == kInfinityF64 ? __builtin_nan("") : log_prob;
}

template <typename T>
void Statistics(const Job& job, int64_t first, int64_t last) {
  using S = Storage<T>;
  const T* logits = (const T*)job.logits;
  const Planes& planes = job.planes;
  const T* rows[kRowBlock + 1];
  int64_t slots[kRowBlock];
  int64_t targets[kRowBlock];  // -1: none
  bool blank_used[kRowBlock];
  double blanks[kRowBlock];
  double labels[kRowBlock];
  double shifts[kRowBlock];
  alignas(64) double rests[kRowBlock];
  alignas(64) double log_sums[kRowBlock];
  RowCursor cursor = CursorAt(job, first);
  rows[0] = logits + ElementOf(cursor.sample->logits, cursor);
  RowSummer<T> summer = RowSummer<T>::StartAt(rows[0], job.fused_log_softmax ? job.vocab : 0);
  for (int64_t block = first; block < last; block += kRowBlock) {
    const int count = (int)(last - block < kRowBlock ? last - block : kRowBlock);
    for (int i = 0; i < count; ++i) {
      slots[i] = cursor.slot;
      blank_used[i] = job.fused_log_softmax || !IsUnusedBlank(cursor);
      targets[i] = HasLabel(cursor) ? cursor.sample->targets[cursor.u] : -1;
      rows[i + 1] = nullptr;
      if (block + i + 1 == last) break;
      Advance(&cursor);
      rows[i + 1] = logits + ElementOf(cursor.sample->logits, cursor);
    }
    for (int i = 0; i < count; ++i) {
      const T* row = rows[i];
      rests[i] = 0.0;
      shifts[i] = 0.0;
      if (job.fused_log_softmax) {
        summer.Take(row, rows[i + 1]);
        rests[i] = summer.rest;
        shifts[i] = summer.shift;
      }
      blanks[i] = blank_used[i] ? S::Get(row + job.blank) : -kInfinityF64;
      labels[i] = targets[i] >= 0 ? S::Get(row + targets[i]) : -kInfinityF64;
    }
    rows[0] = rows[count];
    for (int i = count; i % kF64Lanes != 0; ++i) rests[i] = 0.0;
    for (int i = 0; i < count; i += kF64Lanes) {
      Storage<double>::Store(log_sums + i, LogOnePlus(Storage<double>::Load(rests + i)));
    }
    for (int i = 0; i < count; ++i) {
      double log_norm = 0.0;
      if (job.fused_log_softmax) {
        // Not so for a NaN, for +inf, and for a row of nothing but -inf: none has a softmax.
        const bool is_sound = rests[i] >= 0.0;
        const double log_sum = is_sound ? log_sums[i] : __builtin_nan("");
        log_norm = shifts[i] + log_sum;
        // The first difference is exact: a log-probability near zero keeps its last bits.
        planes.blank[slots[i]] = (blanks[i] - shifts[i]) - log_sum;
        planes.label[slots[i]] = (labels[i] - shifts[i]) - log_sum;
      } else {
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

// What turns a row of logits into its gradient: factor * exp(x - high). An occupancy times a
// softmax is at most one (1 + lambda with FastEmit), so exponents are bounded.
template <typename T>
struct ScaledRow {
  using Vec = typename Storage<T>::Vec;
  Vec high;
  Vec negligible;  // exponents below this give 0
  ScaledExp<Vec> exp;

  __attribute__((always_inline)) Vec operator()(Vec x) const {
    const Vec exponent = x - high;
    return exponent < negligible ? Vec{} : exp(exponent);
  }
};

// The same with a clamp between, or a factor beyond what ScaledExp takes:
// min(exp((x - high) - low), clamp) * scale.
template <typename T>
struct ClampedRow {
  using Vec = typename Storage<T>::Vec;
  Vec high;
  Vec low;
  Vec clamp;
  Vec scale;

  __attribute__((always_inline)) Vec operator()(Vec x) const {
    const Vec exponent = (x - high) - low;
    const Vec negligible = Fill((typename Storage<T>::Scalar)Storage<T>::kLogNegligible);
    return (exponent < negligible ? Vec{} : Min(clamp, ExpOfBounded(exponent))) * scale;
  }
};

// out may be x.
template <typename T, typename Gradient>
ASR_ASCEND_SIMD_INLINE void GradientRow(const T* x, T* out, int64_t vocab,
                                        const Gradient& gradient) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  constexpr int kLanes = S::kLanes;
  if (vocab < kLanes) {
    const int count = (int)vocab;
    S::StorePartial(out, gradient(S::LoadPartial(x, count, 0.0f)), count);
    return;
  }
  int64_t k = 0;
  for (; k + 5 * kLanes <= vocab; k += 4 * kLanes) {
    const VecPair<Vec> x01 = LoadPair(x + k);
    const VecPair<Vec> x23 = LoadPair(x + k + 2 * kLanes);
    StorePair(out + k, {gradient(x01.first), gradient(x01.second)});
    StorePair(out + k + 2 * kLanes, {gradient(x23.first), gradient(x23.second)});
  }
  // The last columns make a whole vector with some before them, which come out the same twice. A
  // partial store would hold up the next row's first load, which follows it in the same bytes.
  const Vec last = S::Load(x + vocab - kLanes);
  for (; k + 2 * kLanes <= vocab; k += 2 * kLanes) {
    const VecPair<Vec> x01 = LoadPair(x + k);
    StorePair(out + k, {gradient(x01.first), gradient(x01.second)});
  }
  if (k + kLanes <= vocab) {
    S::Store(out + k, gradient(S::Load(x + k)));
    k += kLanes;
  }
  if (k < vocab) S::Store(out + vocab - kLanes, gradient(last));
}

// What a factor of ScaledRow stays below.
constexpr double kLargestFactor = 0x1p100;

ASR_ASCEND_SIMD_INLINE double Clamp(double x, double clamp) {
  if (x > clamp) return clamp;
  return x < -clamp ? -clamp : x;
}

// The derivative of the label's logit, or +inf where a label is impossible.
template <typename T>
ASR_ASCEND_SIMD_INLINE double LabelDerivative(const Job& job, const RowCursor& cursor,
                                              double log_norm, const T* x) {
  const double label = job.planes.label[cursor.slot];
  const bool is_whole = job.delay_penalty == 0.0 || !job.fused_log_softmax;
  if (is_whole || !HasLabel(cursor) || !(label < kInfinityF64)) return label;
  const double log_prob = Storage<T>::Get(x + cursor.sample->targets[cursor.u]) - log_norm;
  return label + __builtin_exp(job.planes.alpha[cursor.slot] + log_prob);
}

// The derivative of blank's logit. Where the row's label is blank too it has both parts, but what
// comes through the softmax, of which each part holds all, counts once.
template <typename T>
ASR_ASCEND_SIMD_INLINE double BlankDerivative(const Job& job, const RowCursor& cursor, double label,
                                              double log_norm, const T* x) {
  const double blank = job.planes.blank[cursor.slot];
  if (!LabelIsBlank(job, cursor) || !(label < kInfinityF64)) return blank;
  if (!job.fused_log_softmax) return blank + label;
  const double log_prob = Storage<T>::Get(x + job.blank) - log_norm;
  return blank + label - __builtin_exp(job.planes.alpha[cursor.slot] + log_prob);
}

// The same for the two logits on whose log-probabilities the cost depends directly.
template <typename T>
ASR_ASCEND_SIMD_INLINE void PutDerivatives(const Job& job, const RowCursor& cursor, double blank,
                                           double label, T* out) {
  using S = Storage<T>;
  const double scale = cursor.sample->grad_cost;
  S::Put(out + job.blank, Clamp(blank, job.clamp) * scale);
  if (HasLabel(cursor) && label < kInfinityF64 && !LabelIsBlank(job, cursor)) {
    S::Put(out + cursor.sample->targets[cursor.u], Clamp(label, job.clamp) * scale);
  }
}

template <typename T>
void Gradient(const Job& job, int64_t first, int64_t last) {
  using S = Storage<T>;
  using Scalar = typename S::Scalar;
  using Factor = ScaledExp<typename S::Vec>;
  const T* logits = (const T*)job.logits;
  T* grad = (T*)job.grad;
  RowCursor cursors[kGradientBlock];
  Scalar highs[kGradientBlock];
  alignas(64) double lows[kGradientBlock];
  alignas(64) double exps[kGradientBlock];
  RowCursor cursor = CursorAt(job, first);
  for (int64_t block = first; block < last; block += kGradientBlock) {
    const int count = (int)(last - block < kGradientBlock ? last - block : kGradientBlock);
    for (int i = 0; i < count; ++i) {
      cursors[i] = cursor;
      // High and low apart keep the accuracy of large logits.
      const double log_norm = job.planes.log_norm[block + i];
      highs[i] = (Scalar)log_norm;
      lows[i] = (log_norm - (double)highs[i]) - job.planes.alpha[cursor.slot];
      Advance(&cursor);
    }
    for (int i = count; i % kF64Lanes != 0; ++i) lows[i] = 0.0;
    for (int i = 0; i < count; i += kF64Lanes) {
      Storage<double>::Store(exps + i, Exp(-Storage<double>::Load(lows + i)));
    }
    for (int i = 0; i < count; ++i) {
      const Sample& sample = *cursors[i].sample;
      const T* x = logits + ElementOf(sample.logits, cursors[i]);
      T* out = grad + ElementOf(sample.grad, cursors[i]);
      const double occupancy = job.planes.alpha[cursors[i].slot];
      // Zero times a factor that is not finite is NaN, as in the rows that are computed.
      const double nothing = 0.0 * sample.grad_cost;
      if (occupancy != occupancy) {  // this sample's cost is NaN
        FillRow(out, job.vocab, occupancy);
        continue;
      }
      if (sample.grad_cost == 0.0 || occupancy < S::kLogNegligible ||
          occupancy + sample.log_abs_grad_cost < S::kLogSmallest) {
        FillRow(out, job.vocab, nothing);
        continue;
      }
      // Before the gradient may take the logits' place.
      const double log_norm = job.planes.log_norm[block + i];
      const double label = LabelDerivative(job, cursors[i], log_norm, x);
      const double blank = BlankDerivative(job, cursors[i], label, log_norm, x);
      const double factor = exps[i] * sample.grad_cost;
      if (!job.fused_log_softmax) {
        FillRow(out, job.vocab, nothing);
      } else if (job.clamp == kInfinityF64 && factor < kLargestFactor && factor > -kLargestFactor) {
        GradientRow(x, out, job.vocab,
                    ScaledRow<T>{Fill(highs[i]), Fill((Scalar)(S::kLogNegligible + lows[i])),
                                 Factor::Of(Fill((Scalar)factor))});
      } else {
        GradientRow(x, out, job.vocab,
                    ClampedRow<T>{Fill(highs[i]), Fill((Scalar)lows[i]), Fill((Scalar)job.clamp),
                                  Fill((Scalar)sample.grad_cost)});
      }
      PutDerivatives(job, cursors[i], blank, label, out);
    }
  }
}

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_ROW_KERNELS_H_
