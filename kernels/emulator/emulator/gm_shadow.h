// What is known of every byte of a GM region: who wrote and read it, and when. Kept as disjoint
// spans, so two cores may write neighbouring bytes of one 32-byte block, as the hardware allows.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/types.h"

namespace emulator {

inline constexpr int kNumPipes = 4;  // PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3

inline const char* PipeName(int pipe) {
  static const char* const kNames[] = {"S", "V", "MTE2", "MTE3"};
  return pipe < kNumPipes ? kNames[pipe] : "ALL";
}

// What the programmer has to add so that `to` waits for `from`.
inline std::string MissingSync(int from, int to) {
  if (from == to) return std::string("PipeBarrier<PIPE_") + PipeName(to) + ">";
  return std::string("SetFlag/WaitFlag<HardEvent::") + PipeName(from) + "_" + PipeName(to) + ">";
}

inline std::string HazardText(const char* now, int to, const char* earlier, int from) {
  return std::string("is ") + now + " on " + PipeName(to) + ", but an earlier " + earlier + " on " +
         PipeName(from) + " is not known to be complete: " + MissingSync(from, to) + " is missing";
}

// When one core last cleaned and invalidated each line of its data cache.
class DataCache {
 public:
  static constexpr uint64_t kLineBytes = 64;
  struct Moment {
    uint64_t time = 0;
    uint32_t phase = 0;
  };

  void CleanLine(uint64_t address, Moment now) { lines_[address / kLineBytes] = now; }
  void CleanAll(Moment now) { all_ = now; }
  Moment LastClean(uint64_t address) const {
    const auto found = lines_.find(address / kLineBytes);
    if (found == lines_.end() || found->second.time < all_.time) return all_;
    return found->second;
  }

 private:
  std::unordered_map<uint64_t, Moment> lines_;
  Moment all_;
};

// One access: where it runs and what its pipe knows to be complete on the core's other pipes.
struct GmAccess {
  int core = 0;
  int pipe = 0;
  uint32_t sequence = 0;
  const uint32_t* known = nullptr;
  uint32_t phase = 0;  // SyncAlls passed: earlier phases are ordered before this one
  uint64_t time = 0;
  bool atomic = false;
  const std::vector<DataCache>* caches = nullptr;
};

class GmShadow {
 public:
  void Reset(uint64_t base, uint64_t bytes, bool initialised) {
    base_ = base;
    spans_.clear();
    Record record;
    record.initialised = initialised;
    if (bytes > 0) spans_[0] = Span{bytes, record};
  }

  // Empty if the access is allowed, else what is wrong with it ("is read ..., but ...").
  std::string Read(uint64_t begin, uint64_t end, const GmAccess& access) {
    return Visit(begin, end, access, [&](uint64_t from, uint64_t to, Record* record) {
      std::string problem = CheckRead(from, to, *record, access);
      if (!problem.empty()) return problem;
      const bool alone = record->reader == kNone || record->reader == access.core;
      if (alone) {
        record->reader = static_cast<int16_t>(access.core);
        record->read_sequence[access.pipe == PIPE_S ? 0 : 1] = access.sequence;
      } else {
        record->reader = kMany;
        record->read_sequence[0] = record->read_sequence[1] = 0;
      }
      return problem;
    });
  }

  std::string Write(uint64_t begin, uint64_t end, const GmAccess& access) {
    return Visit(begin, end, access, [&](uint64_t, uint64_t, Record* record) {
      std::string problem = CheckWrite(*record, access);
      if (!problem.empty()) return problem;
      // Atomic additions of several cores in one phase belong to none of them.
      const bool shared = record->writer != kNone && record->writer != access.core;
      record->writer = shared ? kMany : static_cast<int16_t>(access.core);
      record->last_writer = record->writer;
      record->write_pipe = static_cast<uint8_t>(access.pipe);
      record->atomic = access.atomic;
      record->initialised = true;
      record->write_sequence = access.sequence;
      record->write_time = access.time;
      record->write_phase = access.phase;
      return problem;
    });
  }

  // The other bytes of a cache line that a SetValue dirties: cleaning the line writes them back
  // too, over what another core may have written there meanwhile.
  std::string DirtyLine(uint64_t begin, uint64_t end, const GmAccess& access) {
    return Visit(begin, end, access, [&](uint64_t, uint64_t, Record* record) {
      for (const int16_t other : {record->writer, record->line_writer}) {
        if (other != kNone && other != access.core) return SharedLine(other);
      }
      record->line_writer = static_cast<int16_t>(access.core);
      return std::string();
    });
  }

  size_t NumSpans() const { return spans_.size(); }

 private:
  static constexpr int16_t kNone = -1;
  static constexpr int16_t kMany = -2;

  struct Record {
    uint32_t phase = 0;  // the readers and the writer below are of this phase
    int16_t writer = kNone;
    int16_t reader = kNone;
    int16_t line_writer = kNone;  // dirtied the cache line around this byte
    uint32_t write_sequence = 0;
    uint32_t read_sequence[2] = {0, 0};  // on S, on MTE2
    uint64_t write_time = 0;             // of the launch's last write; 0: the host's value
    uint32_t write_phase = 0;
    int16_t last_writer = kNone;
    uint8_t write_pipe = 0;
    bool atomic = false;
    bool initialised = false;

    bool operator==(const Record& o) const {
      return phase == o.phase && writer == o.writer && reader == o.reader &&
             line_writer == o.line_writer && write_sequence == o.write_sequence &&
             read_sequence[0] == o.read_sequence[0] && read_sequence[1] == o.read_sequence[1] &&
             write_time == o.write_time && last_writer == o.last_writer &&
             write_pipe == o.write_pipe && atomic == o.atomic && initialised == o.initialised;
    }
  };
  struct Span {
    uint64_t end;
    Record record;
  };
  using SpanMap = std::map<uint64_t, Span>;

  static std::string CoreName(int core) {
    return core == kMany ? "several cores" : "core " + std::to_string(core);
  }
  static std::string Race(const char* now, const char* earlier, int other) {
    return std::string("is ") + now + " by this core, but " + CoreName(other) + " " + earlier +
           " it since the last SyncAll";
  }

  std::string CheckRead(uint64_t from, uint64_t to, const Record& record,
                        const GmAccess& access) const {
    if (!record.initialised) return "is read, but neither the host nor the kernel has written it";
    if (record.writer != kNone && record.writer != access.core) {
      return Race("read", "wrote", record.writer);
    }
    if (record.writer == access.core && record.write_sequence > access.known[record.write_pipe]) {
      return HazardText("read", access.pipe, "write", record.write_pipe);
    }
    if (record.write_time == 0) return "";
    const bool own = record.last_writer == access.core;
    for (uint64_t line = (base_ + from) / DataCache::kLineBytes;
         line <= (base_ + to - 1) / DataCache::kLineBytes; ++line) {
      const uint64_t address = line * DataCache::kLineBytes;
      if (record.write_pipe == PIPE_S && !(own && access.pipe == PIPE_S)) {
        const auto& writer = (*access.caches)[static_cast<size_t>(record.last_writer)];
        if (writer.LastClean(address).time < record.write_time) {
          return "is read, but SetValue left it in the data cache of core " +
                 std::to_string(record.last_writer) + ": DataCacheCleanAndInvalid is missing";
        }
      }
      if (access.pipe != PIPE_S || (own && record.write_pipe == PIPE_S)) continue;
      const auto clean = (*access.caches)[static_cast<size_t>(access.core)].LastClean(address);
      // Another core's write is ordered by SyncAll alone, so the cleaning must follow that.
      if (own ? clean.time < record.write_time : clean.phase <= record.write_phase) {
        return "is read through the data cache, which may hold the value from before a write of " +
               CoreName(record.last_writer) + ": DataCacheCleanAndInvalid is missing";
      }
    }
    return "";
  }

  static std::string SharedLine(int other) {
    return "shares a 64-byte cache line with what core " + std::to_string(other) +
           " wrote since the last SyncAll, and SetValue writes whole lines";
  }

  static std::string CheckWrite(const Record& record, const GmAccess& access) {
    const bool both_atomic = access.atomic && record.atomic;
    if (record.writer != kNone && !both_atomic) {
      if (record.writer != access.core) return Race("written", "wrote", record.writer);
      if (record.write_sequence > access.known[record.write_pipe]) {
        return HazardText("written", access.pipe, "write", record.write_pipe);
      }
    }
    if (record.line_writer != kNone && record.line_writer != access.core) {
      return SharedLine(record.line_writer);
    }
    if (access.atomic && !record.initialised) {
      return "is added to, but neither the host nor the kernel has written it";
    }
    if (record.reader == kMany) {
      return "is written by this core, but other cores read it since the last SyncAll";
    }
    if (record.reader == kNone) return "";
    if (record.reader != access.core) return Race("written", "read", record.reader);
    for (int side = 0; side < 2; ++side) {
      const int pipe = side == 0 ? PIPE_S : PIPE_MTE2;
      if (record.read_sequence[side] > access.known[pipe]) {
        return HazardText("written", access.pipe, "read", pipe);
      }
    }
    return "";
  }

  // Calls update(from, to, &record) for the spans inside [begin, end), splitting those that
  // straddle an end only if their record changes.
  template <typename Update>
  std::string Visit(uint64_t begin, uint64_t end, const GmAccess& access, Update update) {
    if (begin >= end) return "";
    auto it = std::prev(spans_.upper_bound(begin));
    auto first = it;
    while (it != spans_.end() && it->first < end) {
      const uint64_t from = it->first < begin ? begin : it->first;
      const uint64_t to = it->second.end > end ? end : it->second.end;
      Record next = it->second.record;
      if (next.phase != access.phase) {
        next.phase = access.phase;
        next.writer = next.reader = next.line_writer = kNone;
        next.read_sequence[0] = next.read_sequence[1] = 0;
      }
      std::string problem = update(from, to, &next);
      if (!problem.empty()) return problem;
      if (!(next == it->second.record)) {
        if (it->first < from) {
          it = Split(it, from);
          if (first->second.end == from) first = it;
        }
        if (it->second.end > to) Split(it, to);
        it->second.record = next;
      }
      ++it;
    }
    Merge(first, end);
    return "";
  }

  // Cuts the span at `at` and returns its second part.
  SpanMap::iterator Split(SpanMap::iterator it, uint64_t at) {
    const Span tail = it->second;
    it->second.end = at;
    return spans_.emplace_hint(std::next(it), at, tail);
  }

  void Merge(SpanMap::iterator it, uint64_t end) {
    if (it != spans_.begin()) --it;
    for (auto next = std::next(it); next != spans_.end() && it->first <= end;) {
      if (it->second.record == next->second.record) {
        it->second.end = next->second.end;
        next = spans_.erase(next);
      } else {
        it = next++;
      }
    }
  }

  uint64_t base_ = 0;
  SpanMap spans_;
};

}  // namespace emulator
