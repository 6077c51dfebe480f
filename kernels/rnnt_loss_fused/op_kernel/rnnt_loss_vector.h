// Vector arithmetic on UB: float pairs, and the order of instructions.
#ifndef ASR_ASCEND_RNNT_LOSS_VECTOR_H_
#define ASR_ASCEND_RNNT_LOSS_VECTOR_H_

#include "kernel_operator.h"

namespace rnnt_loss {

using Floats = AscendC::LocalTensor<float>;
using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;
// What copies from and to global memory reach: on Atlas A2 that isn't VECCALC.
using InBuffer = AscendC::TBuf<AscendC::TPosition::VECIN>;
using OutBuffer = AscendC::TBuf<AscendC::TPosition::VECOUT>;

constexpr int32_t kFloatsPerBlock = 8;    // 32 bytes
constexpr int32_t kFloatsPerRepeat = 64;  // 256 bytes
// Stands for ln 0: finite, so that sums of it stay numbers, and a power of two, so that they are
// exact and their low parts zero.
constexpr float kImpossible = -1.2676506002282294e30f;  // -2^100
// What float16 holds at most.
constexpr float kHalfLimit = 65504.0f;
constexpr float kLowest = -3.4028234663852886e38f;
// Scores below this contain kImpossible.
constexpr float kImpossibleBelow = -1e29f;

__aicore__ inline int32_t RoundUp(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What is issued next on the event's second pipe waits for all that was issued on its first.
template <AscendC::HardEvent event>
__aicore__ inline void Order() {
  const AscendC::TEventID id = GetTPipePtr()->FetchEventID(event);
  AscendC::SetFlag<event>(id);
  AscendC::WaitFlag<event>(id);
}

// No infinity in what is or will be float16. A NaN may get lost.
__aicore__ inline void LimitToHalf(const AscendC::LocalTensor<float>& values, int32_t count) {
  AscendC::PipeBarrier<PIPE_V>();
  AscendC::Mins(values, values, kHalfLimit, count);
  AscendC::PipeBarrier<PIPE_V>();
  AscendC::Maxs(values, values, -kHalfLimit, count);
  AscendC::PipeBarrier<PIPE_V>();
}

// Vector instructions that depend on each other need this between them.
__aicore__ inline void Barrier() { AscendC::PipeBarrier<PIPE_V>(); }

// Before the next TPipe hands out the same memory: all that used it is complete.
__aicore__ inline void EndPipe() { AscendC::PipeBarrier<PIPE_ALL>(); }

struct Pair {
  Floats high;
  Floats low;
};

// sum + error equals a + b exactly, error being at most half a unit in the last place of sum.
// `sum` is none of the others; `error`, x and y are distinct.
__aicore__ inline void TwoSum(const Floats& sum, const Floats& error, const Floats& a,
                              const Floats& b, const Floats& x, const Floats& y, int32_t count) {
  AscendC::Add(sum, a, b, count);
  Barrier();
  AscendC::Sub(x, sum, a, count);
  Barrier();
  AscendC::Sub(y, sum, x, count);
  AscendC::Sub(error, b, x, count);
  Barrier();
  AscendC::Sub(y, a, y, count);
  Barrier();
  AscendC::Add(error, error, y, count);
  Barrier();
}

// The same of a - b.
__aicore__ inline void TwoDifference(const Floats& difference, const Floats& error, const Floats& a,
                                     const Floats& b, const Floats& x, const Floats& y,
                                     int32_t count) {
  AscendC::Sub(difference, a, b, count);
  Barrier();
  AscendC::Sub(x, difference, a, count);
  Barrier();
  AscendC::Sub(y, difference, x, count);
  AscendC::Add(error, b, x, count);
  Barrier();
  AscendC::Sub(y, a, y, count);
  Barrier();
  AscendC::Sub(error, y, error, count);
  Barrier();
}

// Of LogAdd, as long as its operands; `mask` has a bit for each element.
struct LogAddScratch {
  Floats x;
  Floats y;
  Floats z;
  Pair greater;
  AscendC::LocalTensor<uint8_t> mask;
};

// result = ln(exp(a) + exp(b)) on pairs: the greater one plus log1p(exp(-|a - b|)). `difference`
// becomes a - b, rounded. `count` elements are computed, and up to the next multiple of 64 of them
// compared, so difference's memory must hold something there. `result` may be a or b.
__aicore__ inline void LogAdd(const Pair& result, const Floats& difference, const Pair& a,
                              const Pair& b, const LogAddScratch& scratch, int32_t count) {
  using AscendC::SELMODE;
  const Floats& x = scratch.x;
  const Floats& y = scratch.y;
  const Floats& z = scratch.z;
  AscendC::Sub(difference, a.high, b.high, count);
  AscendC::Sub(x, a.low, b.low, count);
  Barrier();
  AscendC::Add(difference, difference, x, count);
  Barrier();
  AscendC::CompareScalar(scratch.mask, difference, 0.0f, AscendC::CMPMODE::GE,
                         static_cast<uint32_t>(RoundUp(count, kFloatsPerRepeat)));
  AscendC::Abs(x, difference, count);
  Barrier();
  AscendC::Select(scratch.greater.high, scratch.mask, a.high, b.high,
                  SELMODE::VSEL_TENSOR_TENSOR_MODE, static_cast<uint32_t>(count));
  AscendC::Select(scratch.greater.low, scratch.mask, a.low, b.low, SELMODE::VSEL_TENSOR_TENSOR_MODE,
                  static_cast<uint32_t>(count));
  AscendC::Muls(x, x, -1.0f, count);
  Barrier();
  AscendC::Exp(x, x, count);
  Barrier();
  // log1p(x) = ln(y) + (x - (y - 1)) / y with y = 1 + x rounded.
  AscendC::Adds(y, x, 1.0f, count);
  Barrier();
  AscendC::Adds(z, y, -1.0f, count);
  Barrier();
  AscendC::Sub(z, x, z, count);
  Barrier();
  AscendC::Div(z, z, y, count);
  AscendC::Ln(x, y, count);
  Barrier();
  AscendC::Add(z, z, x, count);
  Barrier();
  TwoSum(x, result.low, scratch.greater.high, z, y, result.high, count);
  AscendC::Add(result.low, result.low, scratch.greater.low, count);
  Barrier();
  // The high part is the rounded sum again.
  AscendC::Add(result.high, x, result.low, count);
  Barrier();
  AscendC::Sub(y, result.high, x, count);
  Barrier();
  AscendC::Sub(result.low, result.low, y, count);
  Barrier();
}

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_VECTOR_H_
