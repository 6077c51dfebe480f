// The GM tensors of a launch: each with a name, poisoned guards and what is known of its bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/gm_shadow.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define EMULATOR_POISON(address, bytes) __asan_poison_memory_region(address, bytes)
#define EMULATOR_UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define EMULATOR_POISON(address, bytes) static_cast<void>(address)
#define EMULATOR_UNPOISON(address, bytes) static_cast<void>(address)
#endif

namespace emulator {

enum class Access : uint8_t {
  kInput,   // holds the host's data; the kernel must not write it
  kInOut,   // holds the host's data; the kernel may write it
  kOutput,  // NaN-filled; reading a byte that the kernel hasn't written is an error
};

struct GmRegion {
  std::string name;
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  Access access = Access::kInput;
  GmShadow shadow;

  uint64_t Address() const { return reinterpret_cast<uint64_t>(data); }
};

// Owns the GM tensors. Keep it alive as long as the addresses it gave out are in use.
class GlobalMemory {
 public:
  static constexpr uint64_t kGuardBytes = 4096;

  GlobalMemory() = default;
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;
  ~GlobalMemory() {
    for (const Storage& storage : storage_) EMULATOR_UNPOISON(storage.bytes.get(), storage.size);
  }

  // `offset` bytes are added to a 512-byte aligned address: device tensors may start anywhere.
  template <typename T>
  GM_ADDR Input(const std::string& name, const std::vector<T>& values, uint64_t offset = 0) {
    return Create(name, Access::kInput, values.data(), values.size() * sizeof(T), offset);
  }
  template <typename T>
  GM_ADDR InOut(const std::string& name, const std::vector<T>& values, uint64_t offset = 0) {
    return Create(name, Access::kInOut, values.data(), values.size() * sizeof(T), offset);
  }
  // An output or a workspace.
  GM_ADDR Output(const std::string& name, uint64_t bytes, uint64_t offset = 0) {
    return Create(name, Access::kOutput, nullptr, bytes, offset);
  }
  GM_ADDR Create(const std::string& name, Access access, const void* data, uint64_t bytes,
                 uint64_t offset = 0) {
    Storage storage;
    storage.size = 2 * kGuardBytes + kAlignment + offset + bytes;
    storage.bytes = std::make_unique<uint8_t[]>(storage.size);
    std::memset(storage.bytes.get(), kGuardByte, storage.size);
    const auto address = reinterpret_cast<uintptr_t>(storage.bytes.get()) + kGuardBytes;
    const uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment + offset;
    storage.front = aligned - reinterpret_cast<uintptr_t>(storage.bytes.get());
    uint8_t* start = storage.bytes.get() + storage.front;
    if (data != nullptr) {
      if (bytes > 0) std::memcpy(start, data, bytes);
    } else {
      std::memset(start, 0xff, bytes);  // a NaN in every float type
    }
    EMULATOR_POISON(storage.bytes.get(), storage.front);
    EMULATOR_POISON(start + bytes, storage.size - storage.front - bytes);
    storage_.push_back(std::move(storage));
    Map(name, access, start, bytes);
    storage_.back().region = regions_.size() - 1;
    return start;
  }
  // Memory that the caller owns, without guards.
  GM_ADDR Map(const std::string& name, Access access, void* data, uint64_t bytes) {
    auto region = std::make_unique<GmRegion>();
    region->name = name;
    region->data = static_cast<uint8_t*>(data);
    region->bytes = bytes;
    region->access = access;
    regions_.push_back(std::move(region));
    return static_cast<uint8_t*>(data);
  }

  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    for (const auto& region : regions_) {
      if (region->name != name) continue;
      std::vector<T> values(region->bytes / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), region->data, values.size() * sizeof(T));
      return values;
    }
    throw std::out_of_range("there is no GM tensor `" + name + "`.");
  }

  // For a next launch: what one launch wrote may be another's input.
  void SetAccess(const std::string& name, Access access) {
    for (const auto& region : regions_) {
      if (region->name == name) region->access = access;
    }
  }

  // The region that holds `address`; one that merely ends there is the second choice.
  GmRegion* Find(const void* address) const {
    const auto where = reinterpret_cast<uint64_t>(address);
    GmRegion* ends_here = nullptr;
    for (const auto& region : regions_) {
      if (where >= region->Address() && where < region->Address() + region->bytes) {
        return region.get();
      }
      if (where == region->Address() + region->bytes) ends_here = region.get();
    }
    return ends_here;
  }
  const std::vector<std::unique_ptr<GmRegion>>& regions() const { return regions_; }

  void BeginLaunch() {
    for (const auto& region : regions_) {
      region->shadow.Reset(region->Address(), region->bytes, region->access != Access::kOutput);
    }
  }

  // The name of a region whose guard was overwritten (through a raw pointer), or empty.
  std::string DamagedGuard() const {
    for (const Storage& storage : storage_) {
      const uint64_t end = storage.front + regions_[storage.region]->bytes;
      EMULATOR_UNPOISON(storage.bytes.get(), storage.front);
      EMULATOR_UNPOISON(storage.bytes.get() + end, storage.size - end);
      const bool intact = IsGuard(storage, storage.front - kGuardBytes, storage.front) &&
                          IsGuard(storage, end, storage.size);
      EMULATOR_POISON(storage.bytes.get(), storage.front);
      EMULATOR_POISON(storage.bytes.get() + end, storage.size - end);
      if (!intact) return regions_[storage.region]->name;
    }
    return "";
  }

 private:
  static constexpr uint8_t kGuardByte = 0xa5;
  static constexpr uint64_t kAlignment = 512;

  struct Storage {
    std::unique_ptr<uint8_t[]> bytes;
    uint64_t size = 0;
    uint64_t front = 0;  // where the tensor starts
    size_t region = 0;
  };

  static bool IsGuard(const Storage& storage, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      if (storage.bytes[i] != kGuardByte) return false;
    }
    return true;
  }

  std::vector<Storage> storage_;
  std::vector<std::unique_ptr<GmRegion>> regions_;
};

}  // namespace emulator
