// Streams, events and the counters.
#include <acl/acl_rt.h>

#include <cstring>
#include <map>
#include <vector>

#include "standin.h"

namespace standin {
namespace {

// Never destroyed: torch_npu's threads may outlive static destruction.
struct State {
  std::recursive_mutex mutex;
  Stream default_stream;
  std::vector<Stream*> streams = {&default_stream};
  int next_id = 1;
  std::string fault;
  AsrAscendStandInCounters counters = {};
  std::string launches;
};

State& Shared() {
  static auto* state = new State;
  return *state;
}

void Run(Stream& stream) {
  // Popped first: what it waits for may run tasks of this stream's own.
  Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  if (task.records != nullptr) {
    task.records->reached = std::max(task.records->reached, task.mark);
  } else if (task.waits_for != nullptr) {
    Event& event = *task.waits_for;
    while (event.reached < task.mark && !event.stream->tasks.empty()) Run(*event.stream);
  } else {
    const std::string problem = task.run();
    State& state = Shared();
    if (!problem.empty() && state.fault.empty()) state.fault = task.name + ": " + problem;
  }
}

int TakeFault() {
  State& state = Shared();
  if (state.fault.empty()) return ACL_SUCCESS;
  const std::string fault = "stand-in device: " + state.fault;
  state.fault.clear();
  return Fail(kDeviceFault, fault);
}

std::string& RecentMessage() {
  static thread_local std::string message;
  return message;
}

}  // namespace

int Fail(int status, const std::string& message) {
  RecentMessage() = message;
  return status;
}

std::recursive_mutex& Mutex() { return Shared().mutex; }
AsrAscendStandInCounters& Counters() { return Shared().counters; }

Stream& StreamOf(void* handle) {
  return handle == nullptr ? Shared().default_stream : *static_cast<Stream*>(handle);
}

void Enqueue(Stream& stream, Task task) { stream.tasks.push_back(std::move(task)); }

int Drain(Stream& stream) {
  while (!stream.tasks.empty()) Run(stream);
  return TakeFault();
}

int DrainAll() {
  for (Stream* stream : Shared().streams) {
    while (!stream->tasks.empty()) Run(*stream);
  }
  return TakeFault();
}

void Step(Stream& stream) {
  if (!stream.tasks.empty()) Run(stream);
}

void Reach(Event& event) {
  while (event.reached < event.recorded && !event.stream->tasks.empty()) Run(*event.stream);
}

void NoteLaunch(const std::string& name) {
  ++Shared().counters.launches;
  Shared().launches += name + "\n";
}

}  // namespace standin

using standin::Counters;
using standin::Event;
using standin::Mutex;
using standin::Shared;
using standin::Stream;
using Lock = std::lock_guard<std::recursive_mutex>;

extern "C" {

void AsrAscendStandInReadCounters(AsrAscendStandInCounters* counters) {
  const Lock lock(Mutex());
  *counters = Counters();
}

void AsrAscendStandInResetCounters(void) {
  const Lock lock(Mutex());
  const uint64_t allocated_bytes = Counters().allocated_bytes;
  Counters() = {};
  Counters().allocated_bytes = allocated_bytes;
  Shared().launches.clear();
}

uint64_t AsrAscendStandInLaunches(char* text, uint64_t bytes) {
  const Lock lock(Mutex());
  const std::string& launches = Shared().launches;
  if (bytes > 0) {
    const size_t copied = std::min<size_t>(launches.size(), bytes - 1);
    std::memcpy(text, launches.data(), copied);
    text[copied] = '\0';
  }
  return launches.size() + 1;
}

const char* aclGetRecentErrMsg() { return standin::RecentMessage().c_str(); }

aclError aclrtCreateStream(aclrtStream* stream) {
  return aclrtCreateStreamWithConfig(stream, 0, 0);
}
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  const Lock lock(Mutex());
  auto* made = new Stream;
  made->id = Shared().next_id++;
  Shared().streams.push_back(made);
  *stream = made;
  return ACL_SUCCESS;
}
aclError aclrtDestroyStream(aclrtStream handle) {
  const Lock lock(Mutex());
  Stream* stream = &standin::StreamOf(handle);
  const int status = standin::Drain(*stream);
  if (stream == &Shared().default_stream) return status;
  auto& streams = Shared().streams;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i] == stream) streams.erase(streams.begin() + static_cast<ptrdiff_t>(i));
  }
  delete stream;
  return status;
}
aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }
aclError aclrtStreamGetId(aclrtStream stream, int32_t* id) {
  *id = standin::StreamOf(stream).id;
  return ACL_SUCCESS;
}
aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  const Lock lock(Mutex());
  Stream& stream = standin::StreamOf(handle);
  standin::Step(stream);
  *status = stream.tasks.empty() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}
aclError aclrtSynchronizeStream(aclrtStream stream) {
  const Lock lock(Mutex());
  ++Counters().stream_synchronisations;
  return standin::Drain(standin::StreamOf(stream));
}
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t) {
  return aclrtSynchronizeStream(stream);
}
aclError aclrtSynchronizeDevice() {
  const Lock lock(Mutex());
  ++Counters().device_synchronisations;
  return standin::DrainAll();
}
aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return aclrtSynchronizeDevice(); }

aclError aclrtCreateEvent(aclrtEvent* event) { return aclrtCreateEventExWithFlag(event, 0); }
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return aclrtCreateEventExWithFlag(event, flag);
}
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
  *event = new Event;
  return ACL_SUCCESS;
}
aclError aclrtDestroyEvent(aclrtEvent handle) {
  const Lock lock(Mutex());
  // Streams that still know it must have passed it.
  const int status = standin::DrainAll();
  delete static_cast<Event*>(handle);
  return status;
}
aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  const Lock lock(Mutex());
  auto* event = static_cast<Event*>(handle);
  event->stream = &standin::StreamOf(stream_handle);
  standin::Task task;
  task.name = "aclrtRecordEvent";
  task.records = event;
  task.mark = ++event->recorded;
  standin::Enqueue(*event->stream, std::move(task));
  return ACL_SUCCESS;
}
aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return ACL_SUCCESS; }
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent handle) {
  const Lock lock(Mutex());
  auto* event = static_cast<Event*>(handle);
  if (event->recorded == 0) return ACL_SUCCESS;
  standin::Task task;
  task.name = "aclrtStreamWaitEvent";
  task.waits_for = event;
  task.mark = event->recorded;
  standin::Enqueue(standin::StreamOf(stream), std::move(task));
  return ACL_SUCCESS;
}
aclError aclrtSynchronizeEvent(aclrtEvent handle) {
  const Lock lock(Mutex());
  ++Counters().event_synchronisations;
  standin::Reach(*static_cast<Event*>(handle));
  return standin::TakeFault();
}
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t) {
  return aclrtSynchronizeEvent(event);
}
aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  const Lock lock(Mutex());
  auto* event = static_cast<Event*>(handle);
  // One step, so that who asks again and again gets there.
  if (event->reached < event->recorded) standin::Step(*event->stream);
  *status = event->reached < event->recorded ? ACL_EVENT_RECORDED_STATUS_NOT_READY
                                             : ACL_EVENT_RECORDED_STATUS_COMPLETE;
  return ACL_SUCCESS;
}
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  aclrtEventRecordedStatus recorded;
  const aclError error = aclrtQueryEventStatus(event, &recorded);
  *status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_WAIT_STATUS_COMPLETE
                                                           : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return error;
}
aclError aclrtEventElapsedTime(float* ms, aclrtEvent, aclrtEvent) {
  *ms = 0.0f;  // a stand-in has no time of its own
  return ACL_SUCCESS;
}

}  // extern "C"
