// LocalTensor and GlobalTensor: handles to UB and GM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "emulator/core.h"
#include "emulator/types.h"
#include "emulator/views.h"

namespace AscendC {

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;

  LocalTensor() = default;
  explicit LocalTensor(const emulator::UbView& view_of_ub) : view(view_of_ub) {}

  LocalTensor operator[](uint32_t offset) const {
    emulator::Core& core = emulator::Core::Current();
    core.Enter("LocalTensor::operator[]");
    emulator::CheckLive(core, "this", view);
    if (static_cast<uint64_t>(offset) * sizeof(T) > view.bytes) {
      core.Fail("offset", emulator::Concat({"must be at most ", GetSize(), ", but is ", offset}));
    }
    emulator::UbView part = view;
    part.offset += offset * static_cast<uint32_t>(sizeof(T));
    part.bytes -= offset * static_cast<uint32_t>(sizeof(T));
    return LocalTensor(part);
  }

  // The scalar unit's accesses.
  T GetValue(uint32_t index) const {
    emulator::Core& core = emulator::Core::Current();
    core.Issue(PIPE_S, "LocalTensor::GetValue");
    CheckIndex(core, index);
    core.Read("this", AddressOf(index), sizeof(T));
    ++core.counters().ub_scalar_reads;
    T value;
    std::memcpy(&value, core.Ub(AddressOf(index)), sizeof(T));
    return value;
  }
  template <typename U>
  void SetValue(uint32_t index, U value) const {
    emulator::Core& core = emulator::Core::Current();
    core.Issue(PIPE_S, "LocalTensor::SetValue");
    CheckIndex(core, index);
    core.Write("this", AddressOf(index), sizeof(T));
    ++core.counters().ub_scalar_writes;
    const T element = static_cast<T>(value);
    std::memcpy(core.Ub(AddressOf(index)), &element, sizeof(T));
  }

  uint32_t GetSize() const { return view.bytes / static_cast<uint32_t>(sizeof(T)); }
  uint32_t GetLength() const { return view.bytes; }
  template <typename U>
  LocalTensor<U> ReinterpretCast() const {
    return LocalTensor<U>(view);
  }

  // The elements, for the emulator's own use; not part of AscendC.
  T* Elements() const { return reinterpret_cast<T*>(emulator::Core::Current().Ub(view.offset)); }
  emulator::UbView view;

 private:
  uint32_t AddressOf(uint32_t index) const {
    return view.offset + index * static_cast<uint32_t>(sizeof(T));
  }
  void CheckIndex(emulator::Core& core, uint32_t index) const {
    emulator::CheckLive(core, "this", view);
    if (index >= GetSize()) {
      core.Fail("index", emulator::Concat({"must be below ", GetSize(), ", but is ", index}));
    }
  }
};

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;

  // `size` counts elements.
  void SetGlobalBuffer(__gm__ T* buffer, uint64_t size) {
    SetGlobalBuffer(buffer);
    view.bytes = static_cast<int64_t>(size * sizeof(T));
  }
  void SetGlobalBuffer(__gm__ T* buffer) {
    emulator::Core& core = emulator::Core::Current();
    core.Enter("GlobalTensor::SetGlobalBuffer");
    view = emulator::GmView();
    view.base = reinterpret_cast<uint8_t*>(buffer);
    view.region = core.chip().memory.Find(buffer);
    if (reinterpret_cast<uintptr_t>(buffer) % alignof(T) != 0) {
      core.Fail("buffer",
                emulator::Concat({"must be aligned to its element's ", sizeof(T), " bytes"}));
    }
  }

  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor part = *this;
    const auto bytes = static_cast<int64_t>(offset * sizeof(T));
    part.view.offset += bytes;
    if (part.view.bytes >= 0) part.view.bytes = std::max<int64_t>(0, part.view.bytes - bytes);
    return part;
  }

  // The scalar unit's accesses, through the core's data cache.
  T GetValue(uint64_t index) const {
    emulator::Core& core = emulator::Core::Current();
    core.chip().Yield();
    core.Issue(PIPE_S, "GlobalTensor::GetValue");
    const uint64_t at = emulator::CheckGm(core, "this", view, index * sizeof(T), sizeof(T), false);
    emulator::RequireGm(core, "this", *view.region,
                        view.region->shadow.Read(at, at + sizeof(T), core.Access()));
    ++core.counters().gm_scalar_reads;
    T value;
    std::memcpy(&value, view.region->data + at, sizeof(T));
    return value;
  }
  void SetValue(uint64_t index, T value) {
    emulator::Core& core = emulator::Core::Current();
    core.chip().Yield();
    core.Issue(PIPE_S, "GlobalTensor::SetValue");
    const uint64_t at = emulator::CheckGm(core, "this", view, index * sizeof(T), sizeof(T), true);
    emulator::GmRegion& region = *view.region;
    const emulator::GmAccess access = core.Access();
    constexpr uint64_t kLine = emulator::DataCache::kLineBytes;
    const uint64_t line = (region.Address() + at) / kLine * kLine;
    const uint64_t line_begin = std::max(line, region.Address()) - region.Address();
    const uint64_t line_end = std::min(line + kLine - region.Address(), region.bytes);
    emulator::RequireGm(core, "this", region,
                        region.shadow.DirtyLine(line_begin, line_end, access));
    emulator::RequireGm(core, "this", region, region.shadow.Write(at, at + sizeof(T), access));
    core.dirty_lines()[line] = region.name;
    ++core.counters().gm_scalar_writes;
    std::memcpy(region.data + at, &value, sizeof(T));
  }

  __gm__ T* GetPhyAddr() const { return reinterpret_cast<T*>(view.data()); }
  __gm__ T* GetPhyAddr(uint64_t offset) const { return GetPhyAddr() + offset; }
  uint64_t GetSize() const {
    return view.bytes < 0 ? 0 : static_cast<uint64_t>(view.bytes) / sizeof(T);
  }

  emulator::GmView view;  // not part of AscendC
};

}  // namespace AscendC
