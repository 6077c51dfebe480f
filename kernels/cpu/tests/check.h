// What the test programs share: a check that prints where it failed, and a count of failures.
#ifndef ASR_ASCEND_CPU_TESTS_CHECK_H_
#define ASR_ASCEND_CPU_TESTS_CHECK_H_

#include <cstdio>
#include <cstdlib>

inline int g_failures = 0;

// Stops printing after a while; the count goes on.
#define CHECK(condition, ...)                                              \
  do {                                                                     \
    if (!(condition) && ++g_failures <= 20) {                              \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                   \
      std::fputc('\n', stderr);                                            \
    }                                                                      \
  } while (false)

// The exit status of a test program: 77 tells ctest that there was nothing to run.
constexpr int kSkipped = 77;

// Says that this CPU, or this build, lacks an instruction set. Returns the exit status.
inline int Skip(const char* test, const char* isa) {
  std::printf("%s: skipped, since there is no %s here\n", test, isa == nullptr ? "version" : isa);
  return kSkipped;
}

// Under an emulator: less of what takes long, and no fork, which qemu-user does not survive with
// threads about.
inline bool IsEmulated() { return std::getenv("ASR_ASCEND_TEST_EMULATED") != nullptr; }

inline int Report(const char* name) {
  if (g_failures > 0) std::fprintf(stderr, "%s: %d checks failed\n", name, g_failures);
  return g_failures > 0 ? 1 : 0;
}

#endif  // ASR_ASCEND_CPU_TESTS_CHECK_H_
