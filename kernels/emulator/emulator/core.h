// One emulated vector core: its Unified Buffer, what each pipe knows of the others (vector
// clocks), its event flags and its queue buffers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "emulator/counters.h"
#include "emulator/global_memory.h"
#include "emulator/report.h"
#include "emulator/types.h"

namespace emulator {

inline constexpr uint32_t kUbBytes = 196608;
inline constexpr uint32_t kBlockBytes = 32;
inline constexpr uint32_t kRepeatBytes = 256;
inline constexpr uint32_t kCannBytes = 256;            // the last of UB, which CANN uses itself
inline constexpr uint32_t kSelectReserveBytes = 8192;  // those among them
inline constexpr uint32_t kMaxBuffers = 64;
inline constexpr int kMaxAllocated = 8;
inline constexpr int kEventIds = 8;
inline constexpr int kNumEvents = static_cast<int>(AscendC::HardEvent::MAX);

inline constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A part of a message.
class Part {
 public:
  Part(const char* text) : text_(text) {}
  Part(const std::string& text) : text_(text) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Part(Number value) : text_(std::to_string(value)) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

inline std::string Concat(std::initializer_list<Part> parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

// Thrown through the kernel to end its core's run.
struct Stopped {};

class Core;

// What the cores of a launch share. `Yield` lets another core run; `SyncAll` waits for them all.
class Chip {
 public:
  Chip(const LaunchOptions& launch_options, GlobalMemory& global_memory)
      : options(launch_options),
        memory(global_memory),
        caches(static_cast<size_t>(launch_options.block_dim)),
        counters(launch_options.block_dim) {}
  virtual ~Chip() = default;
  virtual void Yield() = 0;
  virtual void SyncAll() = 0;

  const LaunchOptions& options;
  GlobalMemory& memory;
  std::vector<DataCache> caches;
  CounterTable counters;
  std::map<const GmRegion*, std::vector<RegionTraffic>> traffic;
  uint64_t time = 0;   // of the latest GM access
  uint32_t phase = 0;  // SyncAlls passed
  std::string message;
  int message_core = -1;
  uint32_t message_phase = 0;
};

using Clock = std::array<uint32_t, kNumPipes>;

inline int EventSource(AscendC::HardEvent event) {
  static constexpr int kSource[] = {PIPE_V,    PIPE_S, PIPE_MTE2, PIPE_V,    PIPE_V,    PIPE_MTE3,
                                    PIPE_MTE2, PIPE_S, PIPE_S,    PIPE_MTE3, PIPE_MTE3, PIPE_MTE2};
  return kSource[static_cast<int>(event)];
}
inline int EventTarget(AscendC::HardEvent event) {
  static constexpr int kTarget[] = {PIPE_S, PIPE_V,    PIPE_V,    PIPE_MTE2, PIPE_MTE3, PIPE_V,
                                    PIPE_S, PIPE_MTE2, PIPE_MTE3, PIPE_S,    PIPE_MTE2, PIPE_MTE3};
  return kTarget[static_cast<int>(event)];
}
inline std::string EventName(AscendC::HardEvent event) {
  return std::string(PipeName(EventSource(event))) + "_" + PipeName(EventTarget(event));
}

// A buffer of a queue.
struct QueueBuffer {
  enum class State : uint8_t { kIdle, kAllocated, kQueued, kDequeued };
  uint32_t offset = 0;
  uint32_t bytes = 0;
  AscendC::TPosition position = AscendC::TPosition::VECIN;
  State state = State::kIdle;
  uint32_t generation = 0;  // counts FreeTensor, so that older handles are known to be stale
  int queued_event = -1;
  int freed_event = -1;
};

class Core {
 public:
  Core(Chip& chip, int index) : chip_(chip), index_(index), blocks_(kUbBytes / kBlockBytes) {
    std::memset(ub_, 0xff, sizeof(ub_));
  }

  static Core& Current() {
    if (current_ == nullptr) {
      throw std::logic_error("an AscendC function was called outside emulator::Launch.");
    }
    return *current_;
  }
  static void SetCurrent(Core* core) { current_ = core; }

  int index() const { return index_; }
  Chip& chip() { return chip_; }
  const LaunchOptions& options() const { return chip_.options; }
  uint8_t* Ub(uint32_t offset) { return ub_ + offset; }
  Counters& counters() { return chip_.counters.At(index_, chip_.phase); }
  int pipe() const { return pipe_; }

  // `api: text.` becomes the launch's message if it is the first one.
  [[noreturn]] void Fail(const std::string& text) { FailPlain(std::string(api_) + ": " + text); }
  [[noreturn]] void Fail(const char* operand, const std::string& text) {
    Fail(std::string("`") + operand + "` " + text);
  }
  [[noreturn]] __attribute__((noinline, cold)) void FailPlain(const std::string& text) {
    Note(text);
    throw Stopped();
  }
  void Note(const std::string& text) {
    if (!chip_.message.empty()) return;
    chip_.message = text + ".";
    chip_.message_core = index_;
    chip_.message_phase = chip_.phase;
  }

  // Names the function that is running, for messages.
  void Enter(const char* api) {
    // Tensors of different types share UB: keep the compiler from moving accesses across calls.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    api_ = api;
  }
  // Starts an instruction on a pipe.
  void Issue(pipe_t pipe, const char* api) {
    Enter(api);
    pipe_ = pipe;
    const uint32_t sequence = ++issued_[pipe];
    if (pipe == PIPE_S) clocks_[PIPE_S][PIPE_S] = sequence;  // the scalar unit waits for itself
  }

  // The running instruction reads or writes UB bytes [offset, offset + bytes).
  void Read(const char* operand, uint32_t offset, uint32_t bytes) {
    if (bytes == 0) return;
    const Clock& known = clocks_[pipe_];
    const uint32_t sequence = issued_[pipe_];
    const uint32_t first = offset / kBlockBytes;
    const uint32_t last = (offset + bytes - 1) / kBlockBytes;
    for (uint32_t b = first; b <= last; ++b) {
      Block& block = blocks_[b];
      const uint32_t mask = ByteMask(b, first, last, offset, bytes);
      if ((block.initialised & mask) != mask) {
        Fail(operand, "reads UB bytes that were never written");
      }
      if (block.write_sequence > known[block.write_pipe] &&
          !(block.write_pipe == pipe_ && block.write_sequence == sequence)) {
        Fail(operand, HazardText("read", pipe_, "write", block.write_pipe));
      }
      block.read_sequence[pipe_] = sequence;
    }
  }
  void Write(const char* operand, uint32_t offset, uint32_t bytes) {
    if (bytes == 0) return;
    const Clock& known = clocks_[pipe_];
    const uint32_t sequence = issued_[pipe_];
    const uint32_t first = offset / kBlockBytes;
    const uint32_t last = (offset + bytes - 1) / kBlockBytes;
    for (uint32_t b = first; b <= last; ++b) {
      Block& block = blocks_[b];
      // The other pipes first: waiting for them usually orders this pipe's own past as well.
      for (int pipe = 0; pipe < kNumPipes; ++pipe) {
        if (pipe != pipe_ && block.read_sequence[pipe] > known[pipe]) {
          Fail(operand, HazardText("written", pipe_, "read", pipe));
        }
      }
      if (block.write_sequence > known[block.write_pipe] &&
          !(block.write_pipe == pipe_ && block.write_sequence == sequence)) {
        Fail(operand, HazardText("written", pipe_, "write", block.write_pipe));
      }
      if (block.read_sequence[pipe_] > known[pipe_] && block.read_sequence[pipe_] != sequence) {
        Fail(operand, HazardText("written", pipe_, "read", pipe_));
      }
      block.initialised |= ByteMask(b, first, last, offset, bytes);
      block.write_pipe = static_cast<uint8_t>(pipe_);
      block.write_sequence = sequence;
    }
  }
  // The bytes hold nothing that may be read: a new tensor, or padding of unknown content.
  void Forget(uint32_t offset, uint32_t bytes) {
    if (bytes == 0) return;
    const uint32_t first = offset / kBlockBytes;
    const uint32_t last = (offset + bytes - 1) / kBlockBytes;
    for (uint32_t b = first; b <= last; ++b) {
      blocks_[b].initialised &= ~ByteMask(b, first, last, offset, bytes);
    }
  }

  // Synchronisation.
  void Barrier(int pipe) { clocks_[pipe][pipe] = issued_[pipe]; }
  void BarrierAll() { clocks_.fill(issued_); }
  void SetFlag(AscendC::HardEvent event, int id) {
    Flag& flag = FlagOf(event, id);
    if (flag.set) {
      Fail(Concat({"event ", EventName(event), " ", id, " is already set and was not waited for",
                   flag.of_queue ? " (a queue uses it: take ids from AllocEventID)" : ""}));
    }
    flag.set = true;
    flag.of_queue = false;
    flag.known = Snapshot(EventSource(event));
  }
  void WaitFlag(AscendC::HardEvent event, int id) {
    Flag& flag = FlagOf(event, id);
    if (!flag.set) {
      Fail(Concat({"event ", EventName(event), " ", id, " was never set, so this waits for ever"}));
    }
    if (flag.of_queue) Fail(Concat({"event ", EventName(event), " ", id, " belongs to a queue"}));
    flag.set = false;
    Learn(EventTarget(event), flag.known);
    const bool scalar_and_vector =
        event == AscendC::HardEvent::V_S || event == AscendC::HardEvent::S_V;
    if (scalar_and_vector) ++counters().scalar_vector_waits;
  }
  // A flag from `event`'s source to its target inside of the running instruction, which goes on at
  // the target. It takes an id that is free.
  void Turn(AscendC::HardEvent event) {
    const int id = FreeEventId(event);
    SetFlag(event, id);
    WaitFlag(event, id);
    pipe_ = EventTarget(event);
    const uint32_t sequence = ++issued_[pipe_];
    if (pipe_ == PIPE_S) clocks_[PIPE_S][PIPE_S] = sequence;
  }
  int AllocEventId(AscendC::HardEvent event) {
    const int id = FreeEventId(event);
    flags_[static_cast<int>(event)][static_cast<size_t>(id)].allocated = true;
    return id;
  }
  int FreeEventId(AscendC::HardEvent event) {
    auto& flags = flags_[static_cast<int>(event)];
    for (int id = 0; id < kEventIds; ++id) {
      if (!flags[static_cast<size_t>(id)].allocated) return id;
    }
    Fail(Concat({"all ", kEventIds, " ids of event ", EventName(event), " are in use"}));
  }
  void ReleaseEventId(AscendC::HardEvent event, int id) { FlagOf(event, id).allocated = false; }
  // A queue's own pair of SetFlag and WaitFlag.
  int SetQueueFlag(AscendC::HardEvent event) {
    const int id = AllocEventId(event);
    SetFlag(event, id);
    FlagOf(event, id).of_queue = true;
    return id;
  }
  void WaitQueueFlag(AscendC::HardEvent event, int id) {
    Flag& flag = FlagOf(event, id);
    flag.set = flag.of_queue = flag.allocated = false;
    Learn(EventTarget(event), flag.known);
  }

  // UB allocation and queue buffers.
  uint32_t AllocUb(uint64_t bytes) {
    if (bytes == 0) Fail("`len` must be above zero");
    if (++num_buffers_ > kMaxBuffers) {
      Fail(Concat({"at most ", kMaxBuffers, " buffers fit one kernel"}));
    }
    const uint64_t size = RoundUp(bytes, kBlockBytes);
    const uint64_t limit = kUbBytes - (select_used_ ? kSelectReserveBytes : kCannBytes);
    if (ub_top_ + size > limit) {
      Fail(Concat({"UB holds ", limit, " bytes, but the buffers so far and this one need ",
                   ub_top_ + size}));
    }
    const auto offset = static_cast<uint32_t>(ub_top_);
    ub_top_ += size;
    return offset;
  }
  void ResetUb() {
    ub_top_ = 0;
    num_buffers_ = 0;
  }
  void ReserveForSelect() {
    select_used_ = true;
    if (ub_top_ > kUbBytes - kSelectReserveBytes) {
      Fail(Concat({"`selMode` 1 and 2 need ", kSelectReserveBytes, " bytes of UB left free, but ",
                   kUbBytes - ub_top_, " are"}));
    }
  }
  std::vector<QueueBuffer>& queue_buffers() { return queue_buffers_; }
  int& allocated(AscendC::TPosition position) { return allocated_[static_cast<int>(position)]; }

  // The running instruction moves bytes between GM and UB, or the scalar unit touches GM.
  GmAccess Access(bool atomic = false) {
    GmAccess access;
    access.core = index_;
    access.pipe = pipe_;
    access.sequence = issued_[pipe_];
    access.known = clocks_[pipe_].data();
    access.phase = chip_.phase;
    access.time = ++chip_.time;
    access.atomic = atomic;
    access.caches = &chip_.caches;
    return access;
  }
  DataCache& cache() { return chip_.caches[static_cast<size_t>(index_)]; }
  std::map<uint64_t, std::string>& dirty_lines() { return dirty_lines_; }

  KernelMetaType kernel_type = KernelMetaType::KERNEL_TYPE_AIV_ONLY;
  const char* atomic_type = nullptr;  // element type of SetAtomicAdd while it is on
  void* pipe_object = nullptr;        // the TPipe in use

  // What is left behind when the kernel has returned.
  void CheckEnd() {
    api_ = "end of kernel";
    for (const QueueBuffer& buffer : queue_buffers_) {
      if (buffer.state == QueueBuffer::State::kIdle) continue;
      Fail(buffer.state == QueueBuffer::State::kQueued ? "a tensor was enqueued and never dequeued"
                                                       : "a tensor was allocated and never freed");
    }
    for (int event = 0; event < kNumEvents; ++event) {
      for (size_t id = 0; id < kEventIds; ++id) {
        const Flag& flag = flags_[event][id];
        if (!flag.set || flag.of_queue) continue;
        Fail(Concat({"event ", EventName(static_cast<AscendC::HardEvent>(event)), " ", id,
                     " was set and never waited for"}));
      }
    }
    if (atomic_type != nullptr) Fail("SetAtomicAdd is still on: SetAtomicNone is missing");
    if (!dirty_lines_.empty()) {
      Fail("`" + dirty_lines_.begin()->second +
           "` was written by SetValue and is still in the data cache: DataCacheCleanAndInvalid "
           "is missing");
    }
  }

 private:
  struct Block {
    uint32_t initialised = 0;  // one bit per byte
    uint32_t write_sequence = 0;
    uint32_t read_sequence[kNumPipes] = {};
    uint8_t write_pipe = 0;
  };
  struct Flag {
    bool set = false;
    bool allocated = false;
    bool of_queue = false;
    Clock known{};
  };

  static uint32_t ByteMask(uint32_t b, uint32_t first, uint32_t last, uint32_t offset,
                           uint32_t bytes) {
    uint32_t mask = ~0u;
    if (b == first) mask &= ~0u << (offset % kBlockBytes);
    if (b == last) mask &= ~0u >> (kBlockBytes - 1 - (offset + bytes - 1) % kBlockBytes);
    return mask;
  }
  Flag& FlagOf(AscendC::HardEvent event, int id) {
    if (id < 0 || id >= kEventIds) {
      Fail(Concat({"`eventID` must be in [0, ", kEventIds - 1, "], but is ", id}));
    }
    return flags_[static_cast<int>(event)][static_cast<size_t>(id)];
  }
  // What is complete once all that was issued to `pipe` so far has completed.
  Clock Snapshot(int pipe) const {
    Clock known = clocks_[pipe];
    known[static_cast<size_t>(pipe)] = issued_[static_cast<size_t>(pipe)];
    return known;
  }
  void Learn(int pipe, const Clock& known) {
    for (size_t i = 0; i < kNumPipes; ++i) {
      clocks_[pipe][i] = std::max(clocks_[pipe][i], known[i]);
    }
  }

  alignas(64) uint8_t ub_[kUbBytes];
  Chip& chip_;
  int index_;
  const char* api_ = "kernel";
  int pipe_ = PIPE_S;
  std::vector<Block> blocks_;
  Clock issued_{};                         // instructions issued to each pipe
  std::array<Clock, kNumPipes> clocks_{};  // what each pipe knows to be complete
  std::array<std::array<Flag, kEventIds>, kNumEvents> flags_{};
  uint64_t ub_top_ = 0;
  uint32_t num_buffers_ = 0;
  bool select_used_ = false;
  std::vector<QueueBuffer> queue_buffers_;
  std::array<int, 4> allocated_{};
  std::map<uint64_t, std::string> dirty_lines_;

  static inline thread_local Core* current_ = nullptr;
};

}  // namespace emulator
