#include "cpu/rnnt_loss/versions.h"

#include <cstring>

#include "cpu/runtime/isa.h"

namespace asr_ascend {

// ASR_ASCEND_BUILT_* is defined by the build for each version that it compiles.
#if defined(ASR_ASCEND_BUILT_AVX512)
namespace simd_avx512 {
extern const SimdKernels kKernels;
}
#endif
#if defined(ASR_ASCEND_BUILT_AVX2)
namespace simd_avx2 {
extern const SimdKernels kKernels;
}
#endif
#if defined(ASR_ASCEND_BUILT_NEON)
namespace simd_neon {
extern const SimdKernels kKernels;
}
#endif
namespace simd_plain {
extern const SimdKernels kKernels;
}

namespace {

const SimdKernels* const kVersions[] = {
#if defined(ASR_ASCEND_BUILT_AVX512)
    &simd_avx512::kKernels,
#endif
#if defined(ASR_ASCEND_BUILT_AVX2)
    &simd_avx2::kKernels,
#endif
#if defined(ASR_ASCEND_BUILT_NEON)
    &simd_neon::kKernels,
#endif
    &simd_plain::kKernels,
};

const SimdKernels* Find() {
  const char* isa = ChosenIsa();
  for (const SimdKernels* version : kVersions) {
    if (isa != nullptr && std::strcmp(version->name, isa) == 0) return version;
  }
  return nullptr;
}

}  // namespace

const SimdKernels* ChosenKernels() {
  static const SimdKernels* const chosen = Find();
  return chosen;
}

}  // namespace asr_ascend
