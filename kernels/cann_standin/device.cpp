// Device, context, memory and copies.
#include <acl/acl_base.h>
#include <acl/acl_rt.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "standin.h"

namespace standin {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kDeviceBytes = size_t{16} << 30;

std::map<const void*, size_t>& PinnedBlocks() {
  static auto* blocks = new std::map<const void*, size_t>;
  return *blocks;
}

std::map<const void*, size_t>& DeviceBlocks() {
  static auto* blocks = new std::map<const void*, size_t>;
  return *blocks;
}

// -1 until a thread has chosen its device.
int& CurrentDevice() {
  static thread_local int device = -1;
  return device;
}

int Allocate(std::map<const void*, size_t>* blocks, void** pointer, size_t bytes) {
  if (bytes == 0) return Fail(kInvalidParameter, "stand-in: `size` must be above zero.");
  *pointer = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*pointer == nullptr) return Fail(kNoMemory, "stand-in: out of memory.");
  std::memset(*pointer, 0xff, bytes);  // a NaN in every float type
  blocks->emplace(*pointer, bytes);
  return ACL_SUCCESS;
}

int Release(std::map<const void*, size_t>* blocks, void* pointer, size_t* bytes) {
  const auto found = blocks->find(pointer);
  if (found == blocks->end()) {
    return Fail(kInvalidParameter, "stand-in: memory is freed that was not allocated here.");
  }
  *bytes = found->second;
  blocks->erase(found);
  std::free(pointer);
  return ACL_SUCCESS;
}

void Count(aclrtMemcpyKind kind, size_t bytes) {
  AsrAscendStandInCounters& counters = Counters();
  if (kind == ACL_MEMCPY_HOST_TO_DEVICE) {
    ++counters.host_to_device_copies;
    counters.host_to_device_bytes += bytes;
  } else if (kind == ACL_MEMCPY_DEVICE_TO_HOST) {
    ++counters.device_to_host_copies;
    counters.device_to_host_bytes += bytes;
  } else if (kind == ACL_MEMCPY_DEVICE_TO_DEVICE) {
    ++counters.device_to_device_copies;
    counters.device_to_device_bytes += bytes;
  }
}

bool IsDevice(const void* pointer) {
  const auto& blocks = DeviceBlocks();
  auto after = blocks.upper_bound(pointer);
  if (after == blocks.begin()) return false;
  --after;
  return static_cast<const char*>(pointer) < static_cast<const char*>(after->first) + after->second;
}

// Whether both ends are where `kind` says.
int CheckCopy(const void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  if (bytes > room) return Fail(kInvalidParameter, "stand-in: a copy is larger than its target.");
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEVICE_TO_DEVICE) {
    return Fail(kUnsupported, "stand-in: this kind of copy is not known.");
  }
  const bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  if (IsDevice(to) == to_device && IsDevice(from) == from_device) return ACL_SUCCESS;
  return Fail(kInvalidParameter, "stand-in: a copy's kind doesn't fit its addresses.");
}

}  // namespace

bool IsPinned(const void* pointer, size_t bytes) {
  const auto& blocks = PinnedBlocks();
  auto after = blocks.upper_bound(pointer);
  if (after == blocks.begin()) return false;
  --after;
  return static_cast<const char*>(pointer) + bytes <=
         static_cast<const char*>(after->first) + after->second;
}

}  // namespace standin

using standin::Counters;
using standin::Fail;
using standin::Mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

extern "C" {

aclError aclInit(const char*) { return ACL_SUCCESS; }
aclError aclFinalize() { return ACL_SUCCESS; }

aclError aclrtSetDevice(int32_t device) {
  if (device != 0) return Fail(standin::kInvalidParameter, "stand-in: there is one device.");
  standin::CurrentDevice() = device;
  return ACL_SUCCESS;
}
aclError aclrtResetDevice(int32_t) {
  const Lock lock(Mutex());
  standin::CurrentDevice() = -1;
  return standin::DrainAll();
}
aclError aclrtGetDevice(int32_t* device) {
  if (standin::CurrentDevice() < 0) return standin::kNoContext;
  *device = standin::CurrentDevice();
  return ACL_SUCCESS;
}
aclError aclrtGetDeviceCount(uint32_t* count) {
  *count = 1;
  return ACL_SUCCESS;
}
// torch_npu knows chips by name and knows no stand-in.
const char* aclrtGetSocName() { return "Ascend910B1"; }
aclError aclrtGetCurrentContext(aclrtContext* context) {
  static int only_context;
  *context = &only_context;
  return ACL_SUCCESS;
}
aclError aclrtSetCurrentContext(aclrtContext) {
  standin::CurrentDevice() = 0;
  return ACL_SUCCESS;
}
aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  *value = 0;
  return ACL_SUCCESS;
}
aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  *value = 0;
  return ACL_SUCCESS;
}
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return ACL_SUCCESS; }

aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
  const Lock lock(Mutex());
  const int status = standin::Allocate(&standin::DeviceBlocks(), pointer, bytes);
  if (status == ACL_SUCCESS) Counters().allocated_bytes += bytes;
  return status;
}
aclError aclrtMallocAlign32(void** pointer, size_t bytes, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(pointer, bytes, policy);
}
aclError aclrtFree(void* pointer) {
  const Lock lock(Mutex());
  const int fault = standin::DrainAll();  // what is still on its way may use it
  size_t bytes = 0;
  const int status = standin::Release(&standin::DeviceBlocks(), pointer, &bytes);
  Counters().allocated_bytes -= bytes;
  return status == ACL_SUCCESS ? fault : status;
}
aclError aclrtMallocHost(void** pointer, size_t bytes) {
  const Lock lock(Mutex());
  return standin::Allocate(&standin::PinnedBlocks(), pointer, bytes);
}
aclError aclrtFreeHost(void* pointer) {
  const Lock lock(Mutex());
  const int fault = standin::DrainAll();
  size_t bytes = 0;
  const int status = standin::Release(&standin::PinnedBlocks(), pointer, &bytes);
  return status == ACL_SUCCESS ? fault : status;
}
aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
  const Lock lock(Mutex());
  *total = standin::kDeviceBytes;
  *free = standin::kDeviceBytes - std::min<size_t>(Counters().allocated_bytes, *total);
  return ACL_SUCCESS;
}
aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* attributes) {
  const Lock lock(Mutex());
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->location.type = standin::IsDevice(pointer)      ? ACL_MEM_LOCATION_TYPE_DEVICE
                              : standin::IsPinned(pointer, 1) ? ACL_MEM_LOCATION_TYPE_HOST
                                                              : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  return ACL_SUCCESS;
}

// At once and in no stream's order: whoever forgets to synchronise reads what was there before.
aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  const Lock lock(Mutex());
  const int status = standin::CheckCopy(to, room, from, bytes, kind);
  if (status != ACL_SUCCESS) return status;
  standin::Count(kind, bytes);
  std::memmove(to, from, bytes);
  return ACL_SUCCESS;
}
aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes,
                          aclrtMemcpyKind kind, aclrtStream handle) {
  const Lock lock(Mutex());
  const int status = standin::CheckCopy(to, room, from, bytes, kind);
  if (status != ACL_SUCCESS) return status;
  standin::Count(kind, bytes);
  standin::Stream& stream = standin::StreamOf(handle);
  standin::Task task;
  task.name = "aclrtMemcpyAsync";
  task.run = [to, from, bytes]() -> std::string {
    std::memmove(to, from, bytes);
    return "";
  };
  standin::Enqueue(stream, std::move(task));
  const bool host_is_pageable =
      (kind == ACL_MEMCPY_HOST_TO_DEVICE && !standin::IsPinned(from, bytes)) ||
      (kind == ACL_MEMCPY_DEVICE_TO_HOST && !standin::IsPinned(to, bytes));
  if (!host_is_pageable) return ACL_SUCCESS;
  ++Counters().stream_synchronisations;
  return standin::Drain(stream);
}
aclError aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  const Lock lock(Mutex());
  if (bytes > room) return Fail(standin::kInvalidParameter, "stand-in: a fill is too large.");
  std::memset(to, value, bytes);
  return ACL_SUCCESS;
}
aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes, aclrtStream stream) {
  const Lock lock(Mutex());
  if (bytes > room) return Fail(standin::kInvalidParameter, "stand-in: a fill is too large.");
  standin::Task task;
  task.name = "aclrtMemsetAsync";
  task.run = [to, value, bytes]() -> std::string {
    std::memset(to, value, bytes);
    return "";
  };
  standin::Enqueue(standin::StreamOf(stream), std::move(task));
  return ACL_SUCCESS;
}

}  // extern "C"
