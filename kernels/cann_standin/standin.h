// The stand-in for CANN's runtime: a device that is host memory, streams that are lists of what is
// left to do, and counters. Tests only; see README.md.
#ifndef ASR_ASCEND_STANDIN_H_
#define ASR_ASCEND_STANDIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "standin_counters.h"

namespace standin {

// Codes of CANN's public error tables that the stand-in gives.
constexpr int kInvalidParameter = 100000;
constexpr int kNoContext = 107002;
constexpr int kNoMemory = 207001;
constexpr int kUnsupported = 200006;
constexpr int kDeviceFault = 507015;

// What a call leaves for aclGetRecentErrMsg; each thread has its own. Returns `status`.
int Fail(int status, const std::string& message);

// Everything below belongs to one mutex: torch_npu calls from its own thread too.
std::recursive_mutex& Mutex();

struct Event;

// Nothing on a stream runs before somebody waits for it, so that work which nobody ordered is seen
// to be missing, and memory given back too early is seen to be gone.
struct Task {
  std::string name;
  std::function<std::string()> run;  // returns what went wrong, or nothing
  Event* waits_for = nullptr;        // with `mark`: not before that record of the event is reached
  Event* records = nullptr;
  uint64_t mark = 0;
};

struct Stream {
  int id = 0;
  std::deque<Task> tasks;
};

struct Event {
  Stream* stream = nullptr;  // of the latest record
  uint64_t recorded = 0;     // records asked for
  uint64_t reached = 0;      // records that their stream has come to
};

// The default stream stands for nullptr.
Stream& StreamOf(void* handle);
void Enqueue(Stream& stream, Task task);
// Runs a stream to its end; the first failure since the last call is returned, as a device reports
// its faults: late.
int Drain(Stream& stream);
int DrainAll();
// Runs one task, or nothing where a stream is empty.
void Step(Stream& stream);
// Runs the event's stream until its latest record.
void Reach(Event& event);

AsrAscendStandInCounters& Counters();
void NoteLaunch(const std::string& name);

// Host memory that a copy may read or write later: from aclrtMallocHost.
bool IsPinned(const void* pointer, size_t bytes);

}  // namespace standin

#endif  // ASR_ASCEND_STANDIN_H_
