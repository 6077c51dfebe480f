// The same bits for any number of threads, in a forked child, and for several callers at once.
#include "cpu/runtime/threads.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cpu/rnnt_loss/tests/cases.h"
#include "cpu/tests/check.h"

namespace {

constexpr unsigned kSecondsBeforeHanging = 60;

bool SameBits(const Outcome& a, const Outcome& b) {
  return a.status == b.status && a.grad == b.grad && a.costs.size() == b.costs.size() &&
         std::memcmp(a.costs.data(), b.costs.data(), a.costs.size() * sizeof(double)) == 0;
}

Case LargeCase(int dtype, bool packed) {
  CaseOptions options;
  options.dtype = dtype;
  options.packed = packed;
  // More than a million logits and ten thousand cells: enough for several threads in every stage.
  return MakeCase(options, 131, 5, {110, 50, 130, 90}, {28, 40, 26, 0}, 21);
}

Outcome RunOn(Case c, int64_t num_threads) {
  c.problem.num_threads = num_threads;
  return Run(c);
}

void AnyNumberOfThreads() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const bool packed : {true, false}) {
      const Case c = LargeCase(dtype, packed);
      const Outcome one = RunOn(c, 1);
      CHECK(one.status == ASR_ASCEND_OK, "status %d", int(one.status));
      for (const int64_t threads : {2, 3, 8}) {
        CHECK(SameBits(one, RunOn(c, threads)), "dtype %d packed %d threads %d", dtype, packed,
              int(threads));
      }
    }
  }
}

// One task of every call may see only its own call's context.
void EveryTaskOnce() {
  for (int round = 0; round < 1000; ++round) {
    std::atomic<int> counts[37] = {};
    asr_ascend::ParallelFor(37, 1 + round % 5, [&](int64_t task) { ++counts[task]; });
    for (const auto& count : counts) CHECK(count == 1, "round %d: %d times", round, count.load());
    if (round % 200 == 0) usleep(2000);  // let the workers fall asleep
  }
}

void ForkAfterUse() {
  const Case c = LargeCase(ASR_ASCEND_FLOAT32, true);
  const Outcome parent = RunOn(c, 3);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSecondsBeforeHanging);
      const bool first = SameBits(parent, RunOn(c, 3));
      // A child of the child as well: its parent has a pool of its own by now.
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        alarm(kSecondsBeforeHanging);
        _exit(SameBits(parent, RunOn(c, 3)) ? 0 : 1);
      }
      int status = -1;
      waitpid(grandchild, &status, 0);
      _exit(first && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: status %d", i, status);
  }
  CHECK(SameBits(parent, RunOn(c, 3)), "the parent after forking");
}

void SeveralCallers() {
  const Case c = LargeCase(ASR_ASCEND_FLOAT32, false);
  const Outcome want = RunOn(c, 1);
  std::atomic<int> different{0};
  std::thread callers[4];
  for (std::thread& caller : callers) {
    caller = std::thread([&] {
      for (int i = 0; i < 6; ++i) {
        if (!SameBits(want, RunOn(c, 3))) ++different;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(different == 0, "%d calls gave other bits", different.load());
}

// Children forked while other threads are inside the library.
void ForkWhileOthersCall() {
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop) asr_ascend::ParallelFor(64, 3, [](int64_t) { usleep(10); });
  });
  for (int i = 0; i < 5; ++i) {
    usleep(500);
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSecondsBeforeHanging);
      std::atomic<int> count{0};
      asr_ascend::ParallelFor(50, 3, [&](int64_t) { ++count; });
      _exit(count == 50 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: status %d", i, status);
  }
  stop = true;
  caller.join();
}

}  // namespace

int main() {
  if (asr_ascend_isa() == nullptr) return Skip("threads_test", std::getenv("ASR_ASCEND_ISA"));
  alarm(4 * kSecondsBeforeHanging);
  EveryTaskOnce();
  AnyNumberOfThreads();
  SeveralCallers();
  if (!IsEmulated()) {
    ForkAfterUse();
    ForkWhileOthersCall();
  }
  return Report("threads_test");
}
