// What the memory of this machine allows: the loss must read the logits for their softmax, then
// read them again and write the gradient. This does that and nothing else: one pass that reads and
// sums exp, one that puts exp in place. Vectors are the compiler's own, so that it builds anywhere.
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kVectors = 4;
constexpr int64_t kBlock = 16384;  // floats a thread takes at a time
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Floats Load(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

inline void Store(float* to, Floats x) { std::memcpy(to, &x, sizeof(x)); }

// 2^n e^r with |r| <= ln(2) / 2, e^r to the fifth power: 4e-6 off at most, for x in [-87, 88].
inline Floats Exp(Floats x) {
  const Floats lowest = Floats{} - 87.0f;
  x = x > lowest ? x : lowest;
  const Floats shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Floats r = x - (shifted - 12582912.0f) * 0.693147181f;
  Floats p = r * (1.0f / 120.0f) + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (Floats)((Ints)p + ((Ints)shifted << 23));
}

double SumOfExp(const float* x, int64_t count) {
  Floats sums[kVectors] = {};
  for (int64_t i = 0; i + kLanes * kVectors <= count; i += kLanes * kVectors) {
    for (int64_t j = 0; j < kVectors; ++j) sums[j] += Exp(Load(x + i + j * kLanes));
  }
  const Floats sum = sums[0] + sums[1] + sums[2] + sums[3];
  double total = 0.0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

void ExpInPlace(float* x, int64_t count) {
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) Store(x + i, Exp(Load(x + i) - 1.0f));
}

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

// Both passes over x[0] to x[count - 1], but for what is left after the last whole vectors; returns
// the sum, so that no compiler leaves the first pass out.
extern "C" double asr_ascend_memory_floor(float* x, int64_t count, int32_t num_threads) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  double total = 0.0;
#pragma omp parallel num_threads(num_threads)
  {
#pragma omp for schedule(static) reduction(+ : total)
    for (int64_t i = 0; i < blocks; ++i) {
      total += SumOfExp(x + i * kBlock, Least(kBlock, count - i * kBlock));
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; ++i) {
      ExpInPlace(x + i * kBlock, Least(kBlock, count - i * kBlock));
    }
  }
  return total;
}
