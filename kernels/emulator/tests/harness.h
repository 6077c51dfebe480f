// Small test programs: each CASE or RULE prints one line, `PASS name` or `FAIL name: why`.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel_operator.h"

namespace harness {

using namespace AscendC;
using emulator::Access;
using emulator::GlobalMemory;
using emulator::Launch;
using emulator::LaunchOptions;
using emulator::NanRule;
using emulator::OverflowMode;
using emulator::Report;

inline std::string& Failure() {
  static std::string text;
  return text;
}

template <typename T>
std::string Show(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>) {
    text << static_cast<float>(value);
  } else if constexpr (std::is_integral_v<T>) {
    text << +value;
  } else {
    text.precision(std::numeric_limits<double>::max_digits10);
    text << value;
  }
  return text.str();
}

inline void Fail(const std::string& why) {
  if (Failure().empty()) Failure() = why;
}

// Equal values; a NaN equals a NaN.
template <typename A, typename B>
void ExpectEqual(const A& actual, const B& expected, const std::string& what) {
  bool same = actual == static_cast<A>(expected);
  if constexpr (!std::is_class_v<A>) {
    same = same || (actual != actual && static_cast<A>(expected) != static_cast<A>(expected));
  }
  if (!same) Fail(what + " is " + Show(actual) + ", not " + Show(static_cast<A>(expected)));
}
template <typename T, typename U>
void ExpectValues(const std::vector<T>& actual, const std::vector<U>& expected,
                  const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i >= actual.size()) return Fail(what + " has too few values");
    const std::string name = what + "[" + std::to_string(i) + "]";
    if constexpr (std::is_same_v<T, bfloat16_t>) {
      ExpectEqual(static_cast<float>(actual[i]), static_cast<float>(expected[i]), name);
    } else {
      ExpectEqual(actual[i], static_cast<T>(expected[i]), name);
    }
  }
}
inline void ExpectOk(const Report& report) {
  if (!report.ok()) Fail("the emulator says: " + report.ToString());
}

struct Case {
  const char* name;
  std::function<void()> run;
  const char* message;  // of a rule's broken kernel, else null
};

inline std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}
struct Registration {
  Registration(const char* name, std::function<void()> run, const char* message = nullptr) {
    Cases().push_back({name, std::move(run), message});
  }
};

// The broken kernel must give exactly `message`, the right one must pass.
inline void CheckRule(Report (*run)(bool), const char* message) {
  const Report broken = run(true);
  if (broken.message != message) {
    return Fail("the broken kernel gives \"" + broken.message + "\", not \"" + message + "\"");
  }
  ExpectOk(run(false));
}

#define CASE(name)                                                 \
  static void name();                                              \
  static const harness::Registration kRegister##name(#name, name); \
  static void name()

#define RULE(name, message)                                       \
  static harness::Report name(bool broken);                       \
  static const harness::Registration kRegister##name(             \
      #name, [] { harness::CheckRule(name, message); }, message); \
  static harness::Report name([[maybe_unused]] bool broken)

inline int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--messages") == 0) {
    for (const Case& test : Cases()) {
      if (test.message != nullptr) std::printf("%s\t%s\n", test.name, test.message);
    }
    return 0;
  }
  int failures = 0;
  for (const Case& test : Cases()) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    Failure().clear();
    test.run();
    if (Failure().empty()) {
      std::printf("PASS %s\n", test.name);
    } else {
      ++failures;
      std::printf("FAIL %s: %s\n", test.name, Failure().c_str());
    }
    std::fflush(stdout);
  }
  return failures > 0 ? 1 : 0;
}

// 0, 1, 2, ...
inline std::vector<float> Ramp(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  return values;
}

// GM `x` holds Ramp(1024), GM `y` is an output of 1024 floats.
inline Report RunXy(const std::function<void(GM_ADDR, GM_ADDR)>& kernel, int cores = 1,
                    LaunchOptions options = LaunchOptions()) {
  GlobalMemory memory;
  options.block_dim = cores;
  return Launch(kernel, memory, options, memory.Input("x", Ramp(1024)),
                memory.Output("y", 1024 * sizeof(float)));
}

// Options of a kernel that calls SyncAll.
inline LaunchOptions Synchronised(uint64_t seed = 0) {
  LaunchOptions options;
  options.schedule_mode = 1;
  options.seed = seed;
  return options;
}

template <typename T>
GlobalTensor<T> Gm(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
  return tensor;
}

// A flag from `event`'s source to its target, set and waited for.
template <HardEvent event>
void Sync() {
  SetFlag<event>(EVENT_ID0);
  WaitFlag<event>(EVENT_ID0);
}

// A buffer that copies from and to GM reach.
using CopyBuffer = TBuf<TPosition::VECIN>;

// UB memory without queues, in buffers of `count` elements.
template <typename T, int num>
struct Scratch {
  explicit Scratch(uint32_t count) {
    for (int i = 0; i < num; ++i) pipe.InitBuffer(buffers[i], count * sizeof(T));
  }
  LocalTensor<T> operator[](int i) { return buffers[i].template Get<T>(); }

  TPipe pipe;
  CopyBuffer buffers[num];
};

// Runs `body(out, in...)` on UB tensors filled from the vectors and returns the first
// `out_count` elements of `out`.
template <typename U, typename T>
using UbBody = std::function<void(LocalTensor<U>&, std::vector<LocalTensor<T>>&)>;
template <typename U, typename T>
std::vector<U> Compute(const std::vector<std::vector<T>>& inputs, uint32_t out_count,
                       const UbBody<U, T>& body, LaunchOptions options = LaunchOptions()) {
  GlobalMemory memory;
  std::vector<GM_ADDR> addresses;
  for (size_t i = 0; i < inputs.size(); ++i) {
    addresses.push_back(memory.Input("in" + std::to_string(i), inputs[i]));
  }
  GM_ADDR out = memory.Output("out", out_count * sizeof(U));
  const auto kernel = [&](GM_ADDR result) {
    TPipe pipe;
    std::vector<CopyBuffer> buffers(inputs.size() + 1);
    std::vector<LocalTensor<T>> in;
    pipe.InitBuffer(buffers[0], out_count * sizeof(U) + 256);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto bytes = static_cast<uint32_t>(inputs[i].size() * sizeof(T));
      pipe.InitBuffer(buffers[i + 1], bytes);
      in.push_back(buffers[i + 1].template Get<T>());
      DataCopyPad(in[i], Gm<T>(addresses[i]), DataCopyExtParams{1, bytes, 0, 0, 0},
                  DataCopyPadExtParams<T>{});
    }
    Sync<HardEvent::MTE2_V>();
    LocalTensor<U> to = buffers[0].template Get<U>();
    body(to, in);
    Sync<HardEvent::V_MTE3>();
    DataCopyPad(Gm<U>(result), to,
                DataCopyExtParams{1, static_cast<uint32_t>(out_count * sizeof(U)), 0, 0, 0});
  };
  ExpectOk(Launch(kernel, memory, options, out));
  return memory.Values<U>("out");
}

}  // namespace harness
