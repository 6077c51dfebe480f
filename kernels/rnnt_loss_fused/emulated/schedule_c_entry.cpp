// C entries to the device's schedule and walk, run on plain arrays.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../rnnt_lattice/schedule.h"
#include "../../rnnt_lattice/walk.h"

namespace {

namespace core = asr_ascend::core;

struct ArrayLengths {
  const int32_t* frames;
  const int32_t* labels;
  int64_t Frames(int64_t sample) const { return frames[sample]; }
  int64_t Labels(int64_t sample) const { return labels[sample]; }
  int64_t Cells(int64_t sample) const { return Frames(sample) * (Labels(sample) + 1); }
};

struct ArrayStorage {
  int64_t* values;
  int64_t Get(int64_t place) const { return values[place]; }
  void Set(int64_t place, int64_t value) { values[place] = value; }
};

}  // namespace

extern "C" {

int64_t LatticeTaskCost(int64_t frames, int64_t labels) {
  return core::TaskCost(core::Lattice{frames, labels + 1}, frames * (labels + 1));
}

// The tasks in the order in which they are given out: sample, 1 for beta, core, the sample's first
// slot. Returns their number; `tasks` has room for 2 * batch of them.
int64_t LatticeTasks(const int32_t* frames, const int32_t* labels, int64_t batch, int64_t cores,
                     int64_t window, int64_t beta_alone, int64_t* tasks) {
  std::vector<int64_t> keys(static_cast<std::size_t>(window)), slots(keys.size());
  std::vector<int64_t> loads(static_cast<std::size_t>(cores));
  core::LatticeSchedule<ArrayLengths, ArrayStorage> schedule;
  schedule.Start(ArrayLengths{frames, labels}, batch, cores, window, beta_alone != 0,
                 ArrayStorage{keys.data()}, ArrayStorage{slots.data()}, ArrayStorage{loads.data()});
  core::LatticeTask task;
  int64_t count = 0;
  while (schedule.Next(&task)) {
    if (count == 2 * batch) return -1;
    int64_t* row = tasks + 4 * count++;
    row[0] = task.sample;
    row[1] = task.is_beta ? 1 : 0;
    row[2] = task.core;
    row[3] = task.first_slot;
  }
  return count;
}

// The sample's rows in the order of slots, found from slot `slot` on in runs of at most `limit`.
void WalkRows(int64_t frames, int64_t labels, int64_t slot, int64_t limit, int64_t* rows) {
  const core::Lattice lattice{frames, labels + 1};
  const int64_t cells = core::CellCount(lattice);
  if (slot >= cells) return;
  core::SlotCursor cursor = core::CursorAt(lattice, slot);
  while (slot < cells) {
    const int64_t left = cells - slot;
    const core::RowRun run = core::RunAt(lattice, cursor, left < limit ? left : limit);
    for (int64_t i = 0; i < run.count; ++i) rows[slot++] = run.first_row + i * run.row_step;
    if (slot < cells) cursor = core::Advance(lattice, cursor, run.count);
  }
}

int64_t ShareBegin(int64_t total, int64_t core, int64_t cores) {
  return core::ShareBegin(total, core, cores);
}
}
