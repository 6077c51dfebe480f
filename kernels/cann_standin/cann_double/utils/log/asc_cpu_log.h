// Double of a CANN header (see README.md): an error is kept for the test instead of going to a log.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace cann_double {

inline std::vector<std::string>& Errors() {
  static std::vector<std::string> errors;
  return errors;
}

template <typename... Args>
void AddError(const char* format, Args... args) {
  char text[1024];
  std::snprintf(text, sizeof(text), format, args...);
  Errors().push_back(text);
}

}  // namespace cann_double

#define ASC_CPU_LOG_ERROR(format, ...) cann_double::AddError(format, ##__VA_ARGS__)
