// Runs a kernel on emulated cores.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulator/core.h"
#include "emulator/fiber.h"
#include "emulator/global_memory.h"
#include "emulator/report.h"

namespace emulator {

// Gives the baton to one core at a time, in an order that the seed decides.
class Machine final : public Chip {
 public:
  Machine(const LaunchOptions& launch_options, GlobalMemory& global_memory)
      : Chip(launch_options, global_memory), random_(launch_options.seed) {
    // From "every GM access" to "hardly ever", so that seeds differ in kind, not only in order.
    switch_mask_ = (1u << (Random() % 6 * 2)) - 1;
  }

  void Run(const std::function<void()>& kernel) {
    const auto num_cores = static_cast<size_t>(options.block_dim);
    for (size_t i = 0; i < num_cores; ++i) {
      tasks_.push_back(std::make_unique<Task>(*this, static_cast<int>(i), kernel));
    }
    for (;;) {
      std::vector<size_t> ready;
      size_t waiting = 0;
      for (size_t i = 0; i < num_cores; ++i) {
        if (tasks_[i]->fiber.done()) continue;
        if (tasks_[i]->at_sync) {
          ++waiting;
        } else {
          ready.push_back(i);
        }
      }
      if (!message.empty()) stopping_ = true;
      if (ready.empty() && waiting == 0) return;
      if (ready.empty()) {
        EndPhase(waiting == num_cores);
        continue;
      }
      running_ = ready[Random() % ready.size()];
      Resume();
    }
  }

  void Yield() override {
    if (stopping_) throw Stopped();
    if ((Random() & switch_mask_) == 0) Handover();
  }
  void SyncAll() override {
    tasks_[running_]->at_sync = true;
    Handover();
  }

 private:
  struct Task {
    Task(Machine& machine, int index, const std::function<void()>& kernel)
        : core(machine, index), fiber([this, &machine, &kernel] { machine.Body(core, kernel); }) {}
    Core core;
    Fiber fiber;
    bool at_sync = false;
  };

  void Body(Core& core, const std::function<void()>& kernel) {
    if (stopping_) return;
    try {
      kernel();
      core.CheckEnd();
    } catch (const Stopped&) {
    } catch (const std::exception& error) {
      core.Note(std::string("the kernel threw: ") + error.what());
    }
  }

  void Resume() {
    Core::SetCurrent(&tasks_[running_]->core);
    tasks_[running_]->fiber.Resume();
    Core::SetCurrent(nullptr);
  }

  // Called on a core's fiber.
  void Handover() {
    Task& self = *tasks_[running_];
    self.fiber.Suspend();
    if (stopping_) throw Stopped();
  }

  // All cores that still run are at SyncAll.
  void EndPhase(bool all_arrived) {
    if (!all_arrived) {
      for (const auto& task : tasks_) {
        if (task->at_sync) continue;
        task->core.Note(Concat({"SyncAll: core ", task->core.index(),
                                " ended without it, so the others wait for ever"}));
        break;
      }
      stopping_ = true;
    } else {
      ++phase;
    }
    for (const auto& task : tasks_) task->at_sync = false;
  }

  // splitmix64
  uint64_t Random() {
    uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t random_;
  uint64_t switch_mask_ = 0;
  std::vector<std::unique_ptr<Task>> tasks_;
  size_t running_ = 0;
  bool stopping_ = false;
};

// Runs `kernel` on every core.
inline Report Run(const std::function<void()>& kernel, GlobalMemory& memory,
                  const LaunchOptions& options) {
  if (options.block_dim < 1) {
    throw std::invalid_argument(
        Concat({"`block_dim` must be at least 1, but is ", options.block_dim, "."}));
  }
  memory.BeginLaunch();
  Machine machine(options, memory);
  machine.Run(kernel);
  Report report;
  report.message = machine.message;
  report.core = machine.message_core;
  report.phase = machine.message_phase;
  const std::string damaged = memory.DamagedGuard();
  if (report.ok() && !damaged.empty()) {
    report.message = Concat({"kernel: a raw pointer wrote outside GM `", damaged, "`."});
  }
  report.counters = machine.counters;
  for (const auto& entry : machine.traffic) report.traffic[entry.first->name] = entry.second;
  report.phase_names = options.phase_names;
  return report;
}

// Runs `kernel(args...)` on every core. The arguments are GM addresses from `memory` and plain
// values. Violations end the run; they never abort the process.
template <typename Kernel, typename... Args>
Report Launch(Kernel kernel, GlobalMemory& memory, const LaunchOptions& options, Args... args) {
  return Run([&] { kernel(args...); }, memory, options);
}

template <typename Kernel, typename... Args>
Report Launch(Kernel kernel, GlobalMemory& memory, int block_dim, uint64_t seed, Args... args) {
  LaunchOptions options;
  options.block_dim = block_dim;
  options.seed = seed;
  options.schedule_mode = 1;
  return Run([&] { kernel(args...); }, memory, options);
}

}  // namespace emulator
