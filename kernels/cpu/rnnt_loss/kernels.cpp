// Compiled once per instruction set, with that set's flags and ASR_ASCEND_SIMD_<name> defined.
#include "cpu/rnnt_loss/band_kernels.h"
#include "cpu/rnnt_loss/lattice_kernels.h"
#include "cpu/rnnt_loss/row_kernels.h"

namespace asr_ascend {
namespace ASR_ASCEND_SIMD_NAMESPACE {

static void AnyOccupancy(const Job& job, const Sample& sample, double log_prob, int64_t first,
                         int64_t last) {
  if (core::IsFull(sample.band)) {
    Occupancy(job, sample, log_prob, first, last);
  } else {
    BandOccupancy(job, sample, log_prob, first, last);
  }
}

// In the order of enum asr_ascend_dtype.
extern const SimdKernels kKernels;
const SimdKernels kKernels = {
    ASR_ASCEND_SIMD_NAME,
    {Statistics<float>, Statistics<double>, Statistics<Half>, Statistics<BFloat16>},
    {Gradient<float>, Gradient<double>, Gradient<Half>, Gradient<BFloat16>},
    Alpha,
    Beta,
    kF64Lanes,
    BandAlphas,
    BandBetas,
    AnyOccupancy,
};

}  // namespace ASR_ASCEND_SIMD_NAMESPACE
}  // namespace asr_ascend
