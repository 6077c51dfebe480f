#include "cpu/runtime/threads.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace asr_ascend {
namespace {

// Long enough to bridge the gap between the stages of one call, short enough not to be felt by
// whoever needs the core next.
constexpr int kSpins = 2000;
constexpr int64_t kMaxWorkers = 255;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The one word that a call and the workers agree through. A worker that comes too late finds the
// call closed and never holds it up.
//   bits 32..63 number of the call | bit 31 open | bits 16..30 seats left | bits 0..15 at work
using Word = uint64_t;
constexpr Word kAtWork = 1;
constexpr Word kSeat = Word{1} << 16;
constexpr Word kOpen = Word{1} << 31;
constexpr Word kAtWorkMask = 0xffff;

int64_t Seats(Word word) { return static_cast<int64_t>((word >> 16) & 0x7fff); }
uint32_t CallNumber(Word word) { return static_cast<uint32_t>(word >> 32); }

class Pool {
 public:
  explicit Pool(const Pool* parents) : parents_pool(parents) {}

  // Kept reachable, so that leak checkers see it was meant.
  const Pool* const parents_pool;

  // False where another call has the workers.
  bool Run(int64_t tasks, int64_t threads, void (*body)(void*, int64_t), void* context) {
    if (taken_.exchange(true, std::memory_order_acquire)) return false;
    const int64_t seats = StartWorkers(threads - 1);
    body_ = body;
    context_ = context;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    const Word number = static_cast<Word>(CallNumber(word_.load(std::memory_order_relaxed)) + 1u);
    word_.store((number << 32) | kOpen | (static_cast<Word>(seats) * kSeat));
    if (sleepers_.load() > 0) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      }
      wake_.notify_all();
    }
    Work();
    word_.fetch_and(~kOpen);
    AwaitWorkers();
    taken_.store(false, std::memory_order_release);
    return true;
  }

 private:
  int64_t StartWorkers(int64_t wanted) {
    if (wanted > kMaxWorkers) wanted = kMaxWorkers;
    while (workers_ < wanted) {
      try {
        std::thread([this] { WorkerMain(); }).detach();
      } catch (const std::system_error&) {
        break;  // the system gives no more threads: the work is done by fewer
      }
      ++workers_;
    }
    return workers_ < wanted ? workers_ : wanted;
  }

  void Work() {
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      body_(context_, task);
    }
  }

  void AwaitWorkers() {
    for (int i = 0; i < kSpins; ++i) {
      if ((word_.load(std::memory_order_acquire) & kAtWorkMask) == 0) return;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return (word_.load() & kAtWorkMask) == 0; });
  }

  static bool IsOpen(Word word, uint32_t last_call) {
    return (word & kOpen) != 0 && Seats(word) > 0 && CallNumber(word) != last_call;
  }

  Word AwaitCall(uint32_t last_call) {
    for (int i = 0; i < kSpins; ++i) {
      const Word word = word_.load(std::memory_order_acquire);
      if (IsOpen(word, last_call)) return word;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1);
    Word word = word_.load();
    while (!IsOpen(word, last_call)) {
      wake_.wait(lock);
      word = word_.load();
    }
    sleepers_.fetch_sub(1);
    return word;
  }

  void WorkerMain() {
    uint32_t last_call = 0;
    for (;;) {
      Word word = AwaitCall(last_call);
      if (!word_.compare_exchange_strong(word, word - kSeat + kAtWork)) continue;
      last_call = CallNumber(word);
      Work();
      const Word left = word_.fetch_sub(kAtWork) - kAtWork;
      if ((left & (kOpen | kAtWorkMask)) == 0) {
        {
          std::lock_guard<std::mutex> lock(mutex_);
        }
        done_.notify_one();
      }
    }
  }

  std::atomic<bool> taken_{false};
  std::atomic<Word> word_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> sleepers_{0};
  int64_t workers_ = 0;
  int64_t tasks_ = 0;
  void (*body_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
};

// Never destroyed: workers may still wait on it while the process exits.
std::atomic<Pool*> g_pool{nullptr};
std::atomic<Pool*> g_abandoned{nullptr};

// The child of a fork has none of the workers, and the pool's locks may be held by threads that
// are not there. It starts anew with the next call.
void ForgetPoolInChild() {
  Pool* pool = g_pool.exchange(nullptr);
  if (pool != nullptr) g_abandoned.store(pool);
}

Pool* GetPool() {
  Pool* pool = g_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  static const int registered = pthread_atfork(nullptr, nullptr, ForgetPoolInChild);
  if (registered != 0) return nullptr;
  Pool* fresh = new (std::nothrow) Pool(g_abandoned.load());
  if (fresh == nullptr) return nullptr;
  if (g_pool.compare_exchange_strong(pool, fresh)) return fresh;
  delete fresh;
  return pool;
}

}  // namespace

void RunTasks(int64_t tasks, int64_t threads, void (*body)(void*, int64_t), void* context) {
  if (threads > tasks) threads = tasks;
  if (threads > 1) {
    Pool* pool = GetPool();
    if (pool != nullptr && pool->Run(tasks, threads, body, context)) return;
  }
  for (int64_t task = 0; task < tasks; ++task) body(context, task);
}

}  // namespace asr_ascend
