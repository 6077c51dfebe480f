// Double of a CANN header (see README.md).
#pragma once

#include <vector>

#include "exe_graph/runtime/context_parts.h"
#include "platform/platform_infos_def.h"

namespace gert {

class TilingData {
 public:
  explicit TilingData(size_t capacity) : bytes_(capacity) {}
  size_t GetCapacity() const { return bytes_.size(); }
  size_t GetDataSize() const { return size_; }
  void SetDataSize(size_t size) { size_ = size; }
  void* GetData() { return bytes_.data(); }

 private:
  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

class TilingContext : public ExtendedKernelContext {
 public:
  const StorageShape* GetInputShape(size_t index) const {
    return cann_double::Get(fields.inputs, index);
  }
  const StorageShape* GetOptionalInputShape(size_t index) const { return GetInputShape(index); }
  const StorageShape* GetOutputShape(size_t index) const {
    return cann_double::Get(fields.outputs, index);
  }
  TilingData* GetRawTilingData() { return &tiling_data; }
  size_t* GetWorkspaceSizes(size_t count) {
    workspace_sizes.resize(count);
    return workspace_sizes.data();
  }
  ge::graphStatus SetTilingKey(uint64_t key) { return tiling_key = key, ge::GRAPH_SUCCESS; }
  ge::graphStatus SetBlockDim(uint32_t count) { return block_dim = count, ge::GRAPH_SUCCESS; }
  ge::graphStatus SetScheduleMode(uint32_t mode) { return schedule_mode = mode, ge::GRAPH_SUCCESS; }
  fe::PlatFormInfos* GetPlatformInfo() const { return platform; }

  TilingData tiling_data{4096};
  std::vector<size_t> workspace_sizes;
  uint64_t tiling_key = 0;
  uint32_t block_dim = 0;
  uint32_t schedule_mode = 0;
  fe::PlatFormInfos* platform = nullptr;
};

class TilingParseContext : public ExtendedKernelContext {};

}  // namespace gert
