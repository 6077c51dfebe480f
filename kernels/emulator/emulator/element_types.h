// Questions about element types.
#pragma once

#include <cstdint>
#include <type_traits>

#include "emulator/types.h"

namespace emulator {

// Names an element type in messages, and tells SetAtomicAdd's type from a copy's.
template <typename T>
constexpr const char* TypeName() {
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, half>) return "half";
  if constexpr (std::is_same_v<T, bfloat16_t>) return "bfloat16_t";
  if constexpr (std::is_same_v<T, int8_t>) return "int8_t";
  if constexpr (std::is_same_v<T, uint8_t>) return "uint8_t";
  if constexpr (std::is_same_v<T, int16_t>) return "int16_t";
  if constexpr (std::is_same_v<T, uint16_t>) return "uint16_t";
  if constexpr (std::is_same_v<T, int32_t>) return "int32_t";
  if constexpr (std::is_same_v<T, uint32_t>) return "uint32_t";
  if constexpr (std::is_same_v<T, int64_t>) return "int64_t";
  if constexpr (std::is_same_v<T, uint64_t>) return "uint64_t";
  return "another type";
}

template <typename T, typename... Allowed>
constexpr bool IsOneOf() {
  return (std::is_same_v<T, Allowed> || ...);
}

}  // namespace emulator
