// Double of a CANN header (see README.md).
#pragma once

#include <cstdint>

namespace fe {

struct PlatFormInfos {
  uint32_t vector_cores = 40;
  uint64_t ub_bytes = 196608 - 256;
  uint32_t system_workspace_bytes = 16 * 1024 * 1024;
};

}  // namespace fe
