// Which core computes which lattice: two tasks (alpha, beta) per sample, or beta alone, largest
// first, each to the least loaded core. Every core runs the same code on the same lengths, so
// nothing is sent.
#ifndef ASR_ASCEND_RNNT_LATTICE_SCHEDULE_H_
#define ASR_ASCEND_RNNT_LATTICE_SCHEDULE_H_

#include <stdint.h>

#include "walk.h"

namespace asr_ascend {
namespace core {

// What a diagonal costs besides its cells: the latency of its dependent steps, in cells.
constexpr int64_t kDiagonalCost = 512;

constexpr int64_t kMaxCores = 64;

ASR_ASCEND_CORE_INLINE int64_t TaskCost(const Lattice& lattice, int64_t cells) {
  return cells + kDiagonalCost * DiagonalCount(lattice);
}

// A binary heap, greatest on top, in memory of the caller's: `Storage` has Get(i) and Set(i, value)
// of int64_t.
template <typename Storage>
class MaxHeap {
 public:
  ASR_ASCEND_CORE_METHOD MaxHeap() {}
  ASR_ASCEND_CORE_METHOD void Build(const Storage& storage, int64_t size) {
    storage_ = storage;
    size_ = size;
    for (int64_t place = size / 2; place > 0; --place) SiftDown(place - 1, storage_.Get(place - 1));
  }
  ASR_ASCEND_CORE_METHOD bool empty() const { return size_ == 0; }
  ASR_ASCEND_CORE_METHOD int64_t Top() const { return storage_.Get(0); }
  ASR_ASCEND_CORE_METHOD void ReplaceTop(int64_t value) { SiftDown(0, value); }
  ASR_ASCEND_CORE_METHOD void Pop() {
    --size_;
    if (size_ > 0) SiftDown(0, storage_.Get(size_));
  }

 private:
  ASR_ASCEND_CORE_METHOD void SiftDown(int64_t place, int64_t value) {
    for (;;) {
      int64_t child = 2 * place + 1;
      if (child >= size_) break;
      int64_t greatest = storage_.Get(child);
      if (child + 1 < size_ && storage_.Get(child + 1) > greatest) {
        ++child;
        greatest = storage_.Get(child);
      }
      if (greatest <= value) break;
      storage_.Set(place, greatest);
      place = child;
    }
    storage_.Set(place, value);
  }

  Storage storage_;
  int64_t size_ = 0;
};

struct LatticeTask {
  int64_t sample;
  bool is_beta;
  int64_t core;
  int64_t first_slot;  // of the sample
};

// Gives the tasks one by one with the core that computes each. Samples are sorted `window` (a power
// of two) at a time, as many as the caller's memory for them holds: `keys` and `slots` have
// `window` places, `loads` num_cores.
template <typename Lengths, typename Storage>
class LatticeSchedule {
 public:
  ASR_ASCEND_CORE_METHOD LatticeSchedule() {}
  ASR_ASCEND_CORE_METHOD void Start(const Lengths& lengths, int64_t batch, int64_t num_cores,
                                    int64_t window, bool beta_alone, const Storage& keys,
                                    const Storage& slots, const Storage& loads) {
    lengths_ = lengths;
    batch_ = batch;
    window_ = window;
    beta_alone_ = beta_alone;
    key_storage_ = keys;
    slots_ = slots;
    Storage load_storage = loads;
    for (int64_t core = 0; core < num_cores; ++core) load_storage.Set(core, -core);
    loads_.Build(loads, num_cores);
  }

  // False after the last task.
  ASR_ASCEND_CORE_METHOD bool Next(LatticeTask* task) {
    if (beta_is_next_) {
      beta_is_next_ = false;
      *task = Assign(true);
      return true;
    }
    if (keys_.empty() && !FillWindow()) return false;
    const int64_t key = keys_.Top();
    keys_.Pop();
    place_ = window_ - 1 - key % window_;
    cost_ = key / window_;
    beta_is_next_ = !beta_alone_;
    *task = Assign(beta_alone_);
    return true;
  }

 private:
  // Keys order by cost, then by sample, the first one first.
  ASR_ASCEND_CORE_METHOD bool FillWindow() {
    window_begin_ = next_sample_;
    const int64_t left = batch_ - next_sample_;
    const int64_t count = left < window_ ? left : window_;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = next_sample_ + i;
      const int64_t cells = lengths_.Cells(sample);
      const int64_t cost = TaskCost(LatticeOf(lengths_, sample), cells);
      key_storage_.Set(i, cost * window_ + window_ - 1 - i);
      slots_.Set(i, next_slot_);
      next_slot_ += cells;
    }
    next_sample_ += count;
    keys_.Build(key_storage_, count);
    return count > 0;
  }

  // The heap of loads holds -(load * kMaxCores + core): least load on top, of equals the first.
  ASR_ASCEND_CORE_METHOD LatticeTask Assign(bool is_beta) {
    const int64_t least = -loads_.Top();
    loads_.ReplaceTop(-(least + cost_ * kMaxCores));
    return LatticeTask{window_begin_ + place_, is_beta, least % kMaxCores, slots_.Get(place_)};
  }

  Lengths lengths_;
  Storage key_storage_;
  Storage slots_;
  MaxHeap<Storage> keys_;
  MaxHeap<Storage> loads_;
  int64_t batch_ = 0;
  int64_t window_ = 1;
  int64_t next_sample_ = 0;
  int64_t next_slot_ = 0;
  int64_t window_begin_ = 0;
  int64_t place_ = 0;
  int64_t cost_ = 0;
  bool beta_is_next_ = false;
  bool beta_alone_ = false;
};

}  // namespace core
}  // namespace asr_ascend

#endif  // ASR_ASCEND_RNNT_LATTICE_SCHEDULE_H_
