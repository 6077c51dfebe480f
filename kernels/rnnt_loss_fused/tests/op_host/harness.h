// Small test program: each CASE prints one line, `PASS name` or `FAIL name: why`.
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "utils/log/asc_cpu_log.h"

namespace harness {

inline std::string& Failure() {
  static std::string text;
  return text;
}

inline void Fail(const std::string& why) {
  if (Failure().empty()) Failure() = why;
}

template <typename T>
std::string Show(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}
template <typename T>
std::string Show(const std::vector<T>& values) {
  std::string text = "{";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + Show(value);
  return text + "}";
}

template <typename A, typename B>
void ExpectEqual(const A& actual, const B& expected, const std::string& what) {
  if (!(actual == static_cast<A>(expected))) {
    Fail(what + " is " + Show(actual) + ", not " + Show(static_cast<A>(expected)));
  }
}

// Exactly these errors were logged since the last call.
inline void ExpectErrors(const std::vector<std::string>& expected) {
  ExpectEqual(cann_double::Errors(), expected, "errors");
  cann_double::Errors().clear();
}

struct Case {
  const char* name;
  std::function<void()> run;
};

inline std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

inline int Register(const char* name, std::function<void()> run) {
  Cases().push_back({name, std::move(run)});
  return 0;
}

}  // namespace harness

#define CASE(name)                                                            \
  static void Run##name();                                                    \
  static const int g_registered_##name = harness::Register(#name, Run##name); \
  static void Run##name()
