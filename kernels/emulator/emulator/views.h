// What a tensor handle refers to, and the checks that every use of one makes.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/core.h"

namespace emulator {

// Bytes of UB. `buffer` is the queue buffer behind it, if any.
struct UbView {
  uint32_t offset = 0;
  uint32_t bytes = 0;
  int buffer = -1;
  uint32_t generation = 0;
  AscendC::TPosition position = AscendC::TPosition::VECCALC;
  bool valid = false;

  uint32_t end() const { return offset + bytes; }
};

inline void CheckLive(Core& core, const char* operand, const UbView& view) {
  if (!view.valid) core.Fail(operand, "is a tensor that was never allocated");
  if (view.buffer < 0) return;
  if (core.queue_buffers()[static_cast<size_t>(view.buffer)].generation != view.generation) {
    core.Fail(operand, "is used after FreeTensor");
  }
}

// The operand of an instruction: live, aligned and at least `bytes` long.
inline void CheckOperand(Core& core, const char* operand, const UbView& view, uint64_t bytes,
                         uint32_t alignment = kBlockBytes) {
  CheckLive(core, operand, view);
  if (view.offset % alignment != 0) {
    core.Fail(operand, Concat({"must start at a multiple of ", alignment,
                               " bytes in UB, but is at ", view.offset}));
  }
  if (bytes > view.bytes) {
    core.Fail(operand, Concat({"has ", view.bytes, " bytes, but ", bytes, " are accessed"}));
  }
}

// The UB side of a copy from or to GM: on this chip no copy reaches VECCALC.
inline void CheckCopyPosition(Core& core, const char* operand, const UbView& view) {
  CheckLive(core, operand, view);
  if (view.position == AscendC::TPosition::VECCALC) {
    core.Fail(operand,
              "must be at VECIN or VECOUT, since a copy from or to GM doesn't reach VECCALC");
  }
}

// Bytes of one GM region. A view may lie outside of it; only an access must not.
struct GmView {
  GmRegion* region = nullptr;
  uint8_t* base = nullptr;
  int64_t offset = 0;  // bytes from `base`
  int64_t bytes = -1;  // as SetGlobalBuffer said, counted from `offset`; -1: not said

  uint8_t* data() const { return base + offset; }
};

// Checks [from, from + bytes) of the view against its size and its region. Returns where the
// bytes start in the region.
inline uint64_t CheckGm(Core& core, const char* operand, const GmView& view, uint64_t from,
                        uint64_t bytes, bool write) {
  if (view.region == nullptr) core.Fail(operand, "points into no GM tensor of this launch");
  const std::string& name = view.region->name;
  if (view.bytes >= 0 && from + bytes > static_cast<uint64_t>(view.bytes)) {
    core.Fail(operand, Concat({"is a GlobalTensor of ", view.bytes, " bytes over GM `", name,
                               "`, but bytes [", from, ", ", from + bytes, ") are accessed"}));
  }
  const int64_t start = view.data() - view.region->data + static_cast<int64_t>(from);
  const int64_t end = start + static_cast<int64_t>(bytes);
  if (start < 0 || end > static_cast<int64_t>(view.region->bytes)) {
    core.Fail(operand, Concat({"covers bytes [", start, ", ", end, ") of GM `", name,
                               "`, which has ", view.region->bytes}));
  }
  if (write && view.region->access == Access::kInput) {
    core.Fail(operand, Concat({"writes GM `", name, "`, which is an input"}));
  }
  return static_cast<uint64_t>(start);
}

// Fails with the shadow's complaint, if it has one.
inline void RequireGm(Core& core, const char* operand, const GmRegion& region,
                      const std::string& problem) {
  if (!problem.empty()) core.Fail(operand, Concat({"(GM `", region.name, "`) ", problem}));
}

}  // namespace emulator
