// What a launch moved and computed, per core and phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace emulator {

// `*_bytes` are charged as the hardware moves them: every block of a copy rounded up to 32 B.
struct Counters {
  uint64_t gm_to_ub_bytes = 0;
  uint64_t ub_to_gm_bytes = 0;
  uint64_t gm_to_ub_descriptors = 0;  // blocks of copies
  uint64_t ub_to_gm_descriptors = 0;
  uint64_t copies = 0;  // copy instructions, both directions
  uint64_t vector_instructions = 0;
  uint64_t vector_repeats = 0;  // steps of 256 B, the unit's width
  uint64_t vector_elements = 0;
  uint64_t ub_scalar_reads = 0;
  uint64_t ub_scalar_writes = 0;
  uint64_t gm_scalar_reads = 0;
  uint64_t gm_scalar_writes = 0;
  uint64_t scalar_vector_waits = 0;  // of the scalar unit for the vector unit, and the other way

  Counters& operator+=(const Counters& other) {
    gm_to_ub_bytes += other.gm_to_ub_bytes;
    ub_to_gm_bytes += other.ub_to_gm_bytes;
    gm_to_ub_descriptors += other.gm_to_ub_descriptors;
    ub_to_gm_descriptors += other.ub_to_gm_descriptors;
    copies += other.copies;
    vector_instructions += other.vector_instructions;
    vector_repeats += other.vector_repeats;
    vector_elements += other.vector_elements;
    ub_scalar_reads += other.ub_scalar_reads;
    ub_scalar_writes += other.ub_scalar_writes;
    gm_scalar_reads += other.gm_scalar_reads;
    gm_scalar_writes += other.gm_scalar_writes;
    scalar_vector_waits += other.scalar_vector_waits;
    return *this;
  }
};

// Copies between one GM region and UB; the exact bytes are those the kernel asked for.
struct RegionTraffic {
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t exact_read_bytes = 0;
  uint64_t exact_written_bytes = 0;

  RegionTraffic& operator+=(const RegionTraffic& other) {
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    exact_read_bytes += other.exact_read_bytes;
    exact_written_bytes += other.exact_written_bytes;
    return *this;
  }
};

// A phase is what lies between two SyncAlls. Indices beyond what ran read as zero.
class CounterTable {
 public:
  explicit CounterTable(int num_cores = 0) : cells_(static_cast<size_t>(num_cores)) {}

  Counters& At(int core, uint32_t phase) {
    std::vector<Counters>& row = cells_[static_cast<size_t>(core)];
    if (row.size() <= phase) row.resize(phase + 1);
    return row[phase];
  }
  Counters Get(int core, uint32_t phase) const {
    const std::vector<Counters>& row = cells_.at(static_cast<size_t>(core));
    return phase < row.size() ? row[phase] : Counters();
  }
  int NumCores() const { return static_cast<int>(cells_.size()); }
  uint32_t NumPhases() const {
    size_t phases = 0;
    for (const auto& row : cells_) phases = row.size() > phases ? row.size() : phases;
    return static_cast<uint32_t>(phases);
  }
  Counters Phase(uint32_t phase) const {
    Counters sum;
    for (int core = 0; core < NumCores(); ++core) sum += Get(core, phase);
    return sum;
  }
  Counters Core(int core) const {
    Counters sum;
    for (uint32_t phase = 0; phase < NumPhases(); ++phase) sum += Get(core, phase);
    return sum;
  }
  Counters Total() const {
    Counters sum;
    for (int core = 0; core < NumCores(); ++core) sum += Core(core);
    return sum;
  }

  // One line per phase (and per core when `per_core`), then the total.
  std::string Print(const std::vector<std::string>& phase_names, bool per_core) const {
    std::string text = Line("phase", "core",
                            {"GM->UB B", "UB->GM B", "blocks in", "blocks out", "copies", "V instr",
                             "V repeats", "V elements", "UB scalar", "GM scalar"});
    for (uint32_t phase = 0; phase < NumPhases(); ++phase) {
      const std::string name =
          phase < phase_names.size() ? phase_names[phase] : std::to_string(phase);
      for (int core = 0; per_core && core < NumCores(); ++core) {
        text += Row(name, std::to_string(core), Get(core, phase));
      }
      text += Row(name, "all", Phase(phase));
    }
    return text + Row("total", "all", Total());
  }

 private:
  static std::string Line(const std::string& phase, const std::string& core,
                          const std::vector<std::string>& values) {
    char cell[64];
    std::snprintf(cell, sizeof(cell), "%-12s %4s", phase.c_str(), core.c_str());
    std::string text = cell;
    for (const std::string& value : values) {
      std::snprintf(cell, sizeof(cell), " %13s", value.c_str());
      text += cell;
    }
    return text + "\n";
  }
  static std::string Row(const std::string& phase, const std::string& core, const Counters& c) {
    std::vector<std::string> values;
    for (uint64_t value :
         {c.gm_to_ub_bytes, c.ub_to_gm_bytes, c.gm_to_ub_descriptors, c.ub_to_gm_descriptors,
          c.copies, c.vector_instructions, c.vector_repeats, c.vector_elements,
          c.ub_scalar_reads + c.ub_scalar_writes, c.gm_scalar_reads + c.gm_scalar_writes}) {
      values.push_back(std::to_string(value));
    }
    return Line(phase, core, values);
  }

  std::vector<std::vector<Counters>> cells_;
};

}  // namespace emulator
