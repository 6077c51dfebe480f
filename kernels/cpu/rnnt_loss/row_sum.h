// The sum of a row's exponentials, taken from the row's largest logit.
//
// The largest term is exactly 1. What is kept is the rest, without that 1: the logarithm of a row
// that is nearly certain is as small as the rest, and its bits would be lost beside the 1.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_ROW_SUM_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_ROW_SUM_H_

#include "cpu/rnnt_loss/row_maximum.h"
#include "cpu/simd/exp_log.h"
#include "cpu/simd/storage.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

// Columns that are summed in the arithmetic of the vectors, from one maximum, before the sum goes
// on in double. They stay in the first level of cache from their maximum to their sum.
constexpr int64_t kChunk = 1024;

// Rows of float up to this many columns are summed in double: so few rounding errors don't cancel
// out, and the cost of a small lattice would miss its last bit.
constexpr int64_t kNarrow = 16;

// After a chunk with a small rest so many are expected to have one: where they are mixed with
// others, it is dearer to come back for a rest than to have summed one for nothing.
constexpr int kSmallRun = 16;

// A chunk's sum below this may be made of what TermOfSum gives for numbers below -60.
constexpr double kDistant = 0x1p-50;

ASR_ASCEND_SIMD_INLINE int64_t ChunkAt(int64_t k, int64_t vocab) {
  return vocab - k < kChunk ? vocab - k : kChunk;
}

// Sees columns [k, count).
template <typename T>
ASR_ASCEND_SIMD_INLINE void SeeColumns(const T* x, int64_t k, int64_t count,
                                       RowMaximum<T>* largest) {
  constexpr int kStep = RowMaximum<T>::kStep;
  for (; k + kStep <= count; k += kStep) largest->See(x + k);
  if (k < count) largest->SeePartial(x + k, (int)(count - k));
}

// Over a chunk: the sum of exp(x - shift), and the same without the terms of what equals shift, for
// which shift must be the largest of all. In the sum a lane that has a 1 loses the last bits of the
// small terms in it; the rest has them, but not a NaN.
struct ChunkSum {
  double sum;
  double rest;
};

template <typename Vec, bool kWithRest>
struct TermSums {
  Vec sums[4];
  Vec rests[2];

  __attribute__((always_inline)) void Add(int i, Vec from_shift) {
    const Vec term = TermOfSum(from_shift);
    sums[i] += term;
    if (kWithRest) rests[i % 2] = AddWhereNegative(rests[i % 2], from_shift, term);
  }
};

// Meanwhile the next chunk comes in for its maximum, so that memory is read once, in order, while
// the arithmetic goes on.
template <bool kWithRest, typename T>
ASR_ASCEND_SIMD_INLINE ChunkSum SumOfExp(const T* x, int64_t count, typename Storage<T>::Vec shift,
                                         const T* next, int64_t next_count,
                                         RowMaximum<T>* next_largest) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  constexpr int kLanes = S::kLanes;
  constexpr int kStep = RowMaximum<T>::kStep;
  const int64_t both = count < next_count ? count : next_count;
  TermSums<Vec, kWithRest> terms = {};
  RowMaximum<T> largest[2] = {RowMaximum<T>::Lowest(), RowMaximum<T>::Lowest()};
  int64_t k = 0;
  for (; k + 4 * kLanes <= both; k += 4 * kLanes) {
    for (int i = 0; i < 4 * kLanes / kStep; ++i) largest[i % 2].See(next + k + i * kStep);
    const VecPair<Vec> x01 = LoadPair(x + k);
    const VecPair<Vec> x23 = LoadPair(x + k + 2 * kLanes);
    terms.Add(0, x01.first - shift);
    terms.Add(1, x01.second - shift);
    terms.Add(2, x23.first - shift);
    terms.Add(3, x23.second - shift);
  }
  largest[0].Join(largest[1]);
  SeeColumns(next, k, next_count, &largest[0]);
  *next_largest = largest[0];
  for (; k + 2 * kLanes <= count; k += 2 * kLanes) {
    const VecPair<Vec> x01 = LoadPair(x + k);
    terms.Add(0, x01.first - shift);
    terms.Add(1, x01.second - shift);
  }
  if (k + kLanes <= count) {
    terms.Add(2, S::Load(x + k) - shift);
    k += kLanes;
  }
  if (k < count) {
    terms.Add(3, S::LoadPartial(x + k, (int)(count - k), -__builtin_inff()) - shift);
  }
  const Vec(&sums)[4] = terms.sums;
  return {Sum((sums[0] + sums[1]) + (sums[2] + sums[3])),
          kWithRest ? Sum(terms.rests[0] + terms.rests[1]) : 0.0};
}

// The rest that comes with a sum which was taken alone.
template <typename T>
__attribute__((noinline)) double RestOfExp(const T* x, int64_t count,
                                           typename Storage<T>::Vec shift, int64_t next_count) {
  RowMaximum<T> unused;
  return SumOfExp<true>(x, count, shift, x, count < next_count ? count : next_count, &unused).rest;
}

// The sum over a chunk whose terms other than the maximum's are less than kDistant: from exp(-92)
// on, and nothing of what is below.
template <typename T>
__attribute__((noinline)) double SumOfDistant(const T* x, int64_t count,
                                              typename Storage<T>::Vec shift) {
  using S = Storage<T>;
  using Vec = typename S::Vec;
  using Scalar = typename S::Scalar;
  constexpr int kLanes = S::kLanes;
  constexpr Scalar kLower = 32;
  const Vec lowest = Fill(-60 - kLower);
  Vec sums[4] = {};
  for (int64_t k = 0; k < count; k += kLanes) {
    const Vec x_here = k + kLanes <= count
                           ? S::Load(x + k)
                           : S::LoadPartial(x + k, (int)(count - k), -__builtin_inff());
    const Vec from_shift = x_here - shift;
    const Vec term = from_shift < Vec{} ? TermOfSum(from_shift + kLower) : Vec{};
    sums[k / kLanes % 4] += from_shift >= lowest ? term : Vec{};
  }
  const Vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return Sum(sum) * 0x1.c8464f7616468p-47;  // exp(-32)
}

// Sums rows one after the other. No row's values count in another's sum; the last row of all, which
// has none after it, is added up in another order.
template <typename T>
struct RowSummer {
  using S = Storage<T>;
  using Scalar = typename S::Scalar;
  using Vec = typename S::Vec;
  int64_t vocab;
  RowMaximum<T> largest;  // of the first chunk of the row that comes next
  // Of the last row, whose sum of exponentials is (1 + rest) * exp(shift). rest is NaN if the row
  // has no softmax.
  Scalar shift;
  double rest;
  // How many chunks more are summed together with their rest, because one before had a small one.
  // No bit of any outcome depends on this.
  int chunks_with_rest;

  ASR_ASCEND_SIMD_INLINE RowSummer StartAt(const T* row, int64_t vocab) {
    RowSummer summer = {vocab, RowMaximum<T>::Lowest(), 0, 0.0, 0};
    SeeColumns(row, 0, ChunkAt(0, vocab), &summer.largest);
    return summer;
  }

  // next: the row after this one, null after the last.
  __attribute__((always_inline)) void Take(const T* row, const T* next) {
    if (sizeof(Scalar) == 4 && vocab <= kNarrow) {
      TakeNarrow(row, next);
      return;
    }
    constexpr Scalar kLowest = (Scalar)-__builtin_inff();
    constexpr Scalar kMostNegative =
        sizeof(Scalar) == 4 ? (Scalar)-0x1.fffffep127 : (Scalar)-0x1.fffffffffffffp1023;
    shift = kLowest;
    rest = 0.0;
    int64_t k = 0;
    do {
      const Scalar chunk_shift = largest.Value();
      const bool is_new_maximum = chunk_shift > shift;
      if (is_new_maximum) {
        if (k > 0) rest = (1.0 + rest) * Exp(Fill((double)shift - (double)chunk_shift))[0];
        shift = chunk_shift;
      }
      const int64_t count = ChunkAt(k, vocab);
      const T* x = row + k;
      k += count;
      const bool is_last = k == vocab;
      const T* ahead = is_last ? next : row + k;
      const int64_t ahead_count = ahead == nullptr ? 0 : ChunkAt(is_last ? 0 : k, vocab);
      // Finite for a chunk of nothing but -inf, which adds nothing.
      const Vec from = Max(Fill(kMostNegative), Fill(shift));
      const bool with_rest = chunks_with_rest > 0;
      const ChunkSum chunk = with_rest
                                 ? SumOfExp<true>(x, count, from, ahead, ahead_count, &largest)
                                 : SumOfExp<false>(x, count, from, ahead, ahead_count, &largest);
      double part = chunk.sum;
      if (is_new_maximum) {
        const bool is_small = chunk.sum < 2.0;
        if (with_rest) {
          // By index, because a branch would be mispredicted where small rests are mixed with
          // others.
          const double parts[2] = {chunk.sum - 1.0, chunk.rest};
          const int chunks[2] = {chunks_with_rest - 1, kSmallRun};
          part = parts[is_small];
          chunks_with_rest = chunks[is_small];
        } else if (is_small) {
          part = RestOfExp(x, count, from, ahead_count);
          chunks_with_rest = kSmallRun;
        } else {
          part = chunk.sum - 1.0;
        }
      }
      // What TermOfSum has cut off.
      if (sizeof(Scalar) == 4 && part < kDistant) part = SumOfDistant(x, count, from);
      rest += part;
    } while (k < vocab);
    if (!(shift > kLowest)) rest = __builtin_nan("");
  }

  void TakeNarrow(const T* row, const T* next) {
    shift = largest.Value();
    F64 others = {};
    F64 maxima = {};
    for (int64_t k = 0; k < vocab; k += kF64Lanes) {
      F64 x = Fill(-kInfinityF64);
      for (int i = 0; i < kF64Lanes && k + i < vocab; ++i) x[i] = S::Get(row + k + i);
      const F64 from_shift = x - (double)shift;
      others += from_shift == F64{} ? F64{} : Exp(from_shift);
      maxima += from_shift == F64{} ? Fill(1.0) : F64{};
    }
    rest = Sum(others) + (Sum(maxima) - 1.0);
    largest = RowMaximum<T>::Lowest();
    if (next != nullptr) SeeColumns(next, 0, vocab, &largest);
  }
};

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_ROW_SUM_H_
