// Threads that share the tasks of one call.
#ifndef ASR_ASCEND_CPU_RUNTIME_THREADS_H_
#define ASR_ASCEND_CPU_RUNTIME_THREADS_H_

#include <cstdint>

namespace asr_ascend {

// Calls body(context, i) once for every i in [0, tasks), in any order, on at most `threads`
// threads of which the caller is one, and returns when all calls have returned. Workers start on
// first use and stay. Safe from several threads at once (a call that finds the workers taken runs
// alone) and in a forked child. body must not throw.
void RunTasks(int64_t tasks, int64_t threads, void (*body)(void* context, int64_t task),
              void* context);

template <typename Body>
void ParallelFor(int64_t tasks, int64_t threads, const Body& body) {
  RunTasks(
      tasks, threads,
      [](void* context, int64_t task) { (*static_cast<const Body*>(context))(task); },
      const_cast<Body*>(&body));
}

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RUNTIME_THREADS_H_
