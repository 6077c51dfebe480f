#include "cpu/runtime/isa.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace asr_ascend {

namespace {

#if defined(__x86_64__)
bool HasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// __builtin_cpu_supports also asks whether the system saves the wide registers.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

constexpr int kMaxVersions = 3;

struct Runnable {
  const char* versions[kMaxVersions];
  int count;
  char names[64];
};

// ASR_ASCEND_BUILT_* is defined by the build for each version that it compiles.
Runnable FindRunnable() {
  Runnable found = {};
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
#if defined(ASR_ASCEND_BUILT_AVX512)
  if (HasAvx512()) found.versions[found.count++] = "avx512";
#endif
#if defined(ASR_ASCEND_BUILT_AVX2)
  if (HasAvx2()) found.versions[found.count++] = "avx2";
#endif
#if defined(ASR_ASCEND_BUILT_NEON)
  // Every aarch64 CPU has it.
  found.versions[found.count++] = "neon";
#endif
  found.versions[found.count++] = "plain";
  for (int i = 0; i < found.count; ++i) {
    if (i > 0) std::strcat(found.names, ",");
    std::strcat(found.names, found.versions[i]);
  }
  return found;
}

const Runnable& GetRunnable() {
  static const Runnable found = FindRunnable();
  return found;
}

const char* Choose() {
  const Runnable& found = GetRunnable();
  const char* wanted = std::getenv("ASR_ASCEND_ISA");
  if (wanted == nullptr || wanted[0] == '\0') return found.versions[0];
  for (int i = 0; i < found.count; ++i) {
    if (std::strcmp(found.versions[i], wanted) == 0) return found.versions[i];
  }
  return nullptr;
}

}  // namespace

const char* ChosenIsa() {
  static const char* const chosen = Choose();
  return chosen;
}

const char* RunnableIsas() { return GetRunnable().names; }

}  // namespace asr_ascend
