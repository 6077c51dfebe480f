// Kernel-side macros of the tiling data, the kernel type and the workspace.
#pragma once

#include <cstring>

#include "emulator/core.h"
#include "emulator/types.h"

namespace emulator {

// Reads the tiling struct that the host placed at `tiling`.
template <typename T>
T LoadTiling(GM_ADDR tiling) {
  Core& core = Core::Current();
  core.Enter("GET_TILING_DATA_WITH_STRUCT");
  const GmRegion* region = core.chip().memory.Find(tiling);
  if (region == nullptr) core.Fail("`tiling` points into no GM tensor of this launch");
  const uint64_t left = region->Address() + region->bytes - reinterpret_cast<uint64_t>(tiling);
  if (left < sizeof(T)) {
    core.Fail(
        Concat({"the struct has ", sizeof(T), " bytes, but GM `", region->name, "` has ", left}));
  }
  T data;
  std::memcpy(&data, tiling, sizeof(T));
  return data;
}

}  // namespace emulator

#define REGISTER_TILING_DEFAULT(TilingStruct) static_assert(sizeof(TilingStruct) > 0, "")
#define REGISTER_TILING_FOR_TILINGKEY(expression, TilingStruct) \
  static_assert(sizeof(TilingStruct) > 0, "")
#define GET_TILING_DATA_WITH_STRUCT(TilingStruct, tiling_data, tiling) \
  const TilingStruct tiling_data = emulator::LoadTiling<TilingStruct>(tiling)
#define GET_TILING_DATA_MEMBER(TilingStruct, member, variable, tiling) \
  const auto variable = emulator::LoadTiling<TilingStruct>(tiling).member

#define TILING_KEY_IS(key) (emulator::Core::Current().options().tiling_key == (key))

#define KERNEL_TASK_TYPE_DEFAULT(type) emulator::Core::Current().kernel_type = KernelMetaType::type
#define KERNEL_TASK_TYPE(key, type)                                 \
  do {                                                              \
    if (TILING_KEY_IS(key)) {                                       \
      emulator::Core::Current().kernel_type = KernelMetaType::type; \
    }                                                               \
  } while (false)

namespace AscendC {

// The user's part of the workspace. The system's part precedes it on the device.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }

}  // namespace AscendC
