// Addresses of rows and slots of anti-diagonals, with numbers only: nothing is allocated.
#include "rnnt_lattice/layout.h"

#include <vector>

#include "cpu/tests/check.h"

namespace core = asr_ascend::core;

namespace {

// Slots are a bijection, in the order of diagonals and of columns within one.
void SlotsFollowDiagonals(int64_t frames, int64_t columns) {
  const core::Lattice lattice = {frames, columns};
  int64_t want = 0;
  for (int64_t d = 0; d < core::DiagonalCount(lattice); ++d) {
    CHECK(core::DiagonalOffset(lattice, d) == want, "T %d U1 %d d %d", int(frames), int(columns),
          int(d));
    bool first = true;
    int64_t last = -1;
    for (int64_t u = 0; u < columns; ++u) {
      const int64_t t = d - u;
      if (t < 0 || t >= frames) continue;
      if (first) {
        CHECK(core::DiagonalFirstColumn(lattice, d) == u, "T %d U1 %d d %d", int(frames),
              int(columns), int(d));
      }
      first = false;
      last = u;
      CHECK(core::Slot(lattice, t, u) == want, "T %d U1 %d t %d u %d", int(frames), int(columns),
            int(t), int(u));
      ++want;
    }
    CHECK(core::DiagonalLastColumn(lattice, d) == last, "T %d U1 %d d %d", int(frames),
          int(columns), int(d));
  }
  CHECK(want == core::CellCount(lattice), "T %d U1 %d", int(frames), int(columns));
  CHECK(core::DiagonalOffset(lattice, core::DiagonalCount(lattice)) == want, "T %d U1 %d",
        int(frames), int(columns));
}

void LargeLattice() {
  const core::Lattice lattice = {100000, 70000};  // 7e9 cells
  CHECK(core::CellCount(lattice) == 7000000000, "cells");
  CHECK(core::Slot(lattice, 0, 0) == 0, "first");
  CHECK(core::Slot(lattice, 99999, 69999) == 6999999999, "last");
  CHECK(core::Slot(lattice, 69999, 0) == 70000LL * 69999 / 2, "longest diagonal");
  CHECK(core::Slot(lattice, 99999, 0) == 70000LL * 70001 / 2 + 29999LL * 70000, "last frame");
  CHECK(core::Slot(lattice, 99999, 69998) == 6999999997, "next to last");
  CHECK(core::Slot(lattice, 99998, 69999) == 6999999998, "next to last");
}

void RowAddresses() {
  // 32 x 2000 x 501 x 5000: 1.6e11 elements, past 2^31 and 2^32.
  const int64_t vocab = 5000, columns = 501, frames = 2000;
  const core::RowAddress padded =
      core::PaddedAddress(31, frames * columns * vocab, columns * vocab, vocab);
  const int64_t want = ((31 * frames + 1999) * columns + 500) * vocab;
  CHECK(core::RowElement(padded, 1999, 500) == want, "%lld", (long long)want);
  CHECK(want > (int64_t{1} << 32), "%lld", (long long)want);
  const core::Lattice lattice = {frames, columns};
  const core::RowAddress packed = core::PackedAddress(lattice, 31 * frames * columns, vocab);
  CHECK(core::RowElement(packed, 1999, 500) == want, "%lld", (long long)want);
}

}  // namespace

int main() {
  for (int64_t frames = 1; frames <= 14; ++frames) {
    for (int64_t columns = 1; columns <= 14; ++columns) SlotsFollowDiagonals(frames, columns);
  }
  SlotsFollowDiagonals(1, 200);
  SlotsFollowDiagonals(200, 1);
  SlotsFollowDiagonals(63, 64);
  LargeLattice();
  RowAddresses();
  return Report("layout_test");
}
