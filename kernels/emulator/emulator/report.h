// What the host asks of a launch and what it gets back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulator/counters.h"

namespace emulator {

// What Max, Min, Maxs, Mins, Relu and ReduceMax give for a NaN. The documents don't say, so a
// kernel is right only if it gives the same under all three.
enum class NanRule : uint8_t {
  kDrop,           // the other operand: a NaN is lost in either position
  kSecondOperand,  // what `a > b ? a : b` gives: a NaN is lost in the first position only
  kPropagate       // NaN
};

// Overflow of float arithmetic and of casts to half and bfloat16_t. The 910B's default is IEEE.
enum class OverflowMode : uint8_t { kInfNan, kSaturate };

struct LaunchOptions {
  int block_dim = 1;
  uint64_t seed = 0;        // decides the order in which cores run
  int physical_cores = 40;  // vector cores of the chip: 40 or 48
  int schedule_mode = 0;    // what the tiling passed to SetScheduleMode
  uint64_t tiling_key = 0;  // what the tiling passed to SetTilingKey
  NanRule nan_rule = NanRule::kDrop;
  OverflowMode overflow_mode = OverflowMode::kInfNan;
  std::vector<std::string> phase_names;  // for the printed table; phases end at SyncAll
};

struct Report {
  std::string message;  // the first violation in one sentence, empty if there was none
  int core = -1;        // where it happened
  uint32_t phase = 0;   // SyncAlls passed before it
  CounterTable counters;
  std::map<std::string, std::vector<RegionTraffic>> traffic;  // by region name, then phase
  std::vector<std::string> phase_names;

  bool ok() const { return message.empty(); }

  RegionTraffic Traffic(const std::string& region) const {
    RegionTraffic sum;
    const auto found = traffic.find(region);
    if (found == traffic.end()) return sum;
    for (const RegionTraffic& phase : found->second) sum += phase;
    return sum;
  }

  std::string Table(bool per_core = false) const { return counters.Print(phase_names, per_core); }

  // For a test's failure output.
  std::string ToString() const {
    if (ok()) return "ok";
    return message + " [core " + std::to_string(core) + ", phase " + std::to_string(phase) + "]";
  }
};

}  // namespace emulator
