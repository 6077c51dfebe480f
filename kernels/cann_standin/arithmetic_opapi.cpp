// Fills, copies, functions of elements and comparisons, under the names and with the arguments of
// the public aclnn reference: torch_npu calls them for what tests do around the loss.
#include <cmath>

#include "opapi.h"

namespace {

using standin::Get;
using standin::Phase;
using standin::Set;
using standin::Shape;
using standin::Value;

double Same(double x) { return x; }
double Rounded(double x, int mode) { return mode == 1 ? std::trunc(x) : std::floor(x); }

}  // namespace

// Fills and copies.
STANDIN_ACLNN(aclnnInplaceZero, const aclTensor* self) {
  return standin::Unary({"aclnnInplaceZero", workspace, executor}, self, self,
                        [](double) { return 0.0; });
}
STANDIN_ACLNN(aclnnInplaceOne, const aclTensor* self) {
  return standin::Unary({"aclnnInplaceOne", workspace, executor}, self, self,
                        [](double) { return 1.0; });
}
STANDIN_ACLNN(aclnnInplaceFillScalar, const aclTensor* self, const aclScalar* value) {
  return standin::Unary({"aclnnInplaceFillScalar", workspace, executor}, self, self,
                        [filling = Value(*value)](double) { return filling; });
}
STANDIN_ACLNN(aclnnInplaceCopy, const aclTensor* self, const aclTensor* source) {
  return standin::Unary({"aclnnInplaceCopy", workspace, executor}, source, self, Same);
}
STANDIN_ACLNN(aclnnCast, const aclTensor* self, aclDataType /*type*/, const aclTensor* out) {
  return standin::Unary({"aclnnCast", workspace, executor}, self, out, Same);
}
STANDIN_ACLNN(aclnnArange, const aclScalar* start, const aclScalar* /*end*/, const aclScalar* step,
              const aclTensor* out) {
  const Phase phase = {"aclnnArange", workspace, executor};
  const int status = standin::Check(phase, {out});
  if (status != 0) return status;
  return standin::Ready(phase, [first = Value(*start), step = Value(*step), out = *out] {
    standin::ForEach(out.shape, [&](const Shape& index) {
      Set(out, index, first + step * static_cast<double>(index[0]));
    });
  });
}

// One operand.
#define STANDIN_FUNCTION(name, expression)                                         \
  STANDIN_ACLNN(aclnn##name, const aclTensor* self, const aclTensor* out) {        \
    return standin::Unary({"aclnn" #name, workspace, executor}, self, out,         \
                          [](double a) -> double { return expression; });          \
  }                                                                                \
  STANDIN_ACLNN(aclnnInplace##name, const aclTensor* self) {                       \
    return standin::Unary({"aclnnInplace" #name, workspace, executor}, self, self, \
                          [](double a) -> double { return expression; });          \
  }
STANDIN_FUNCTION(Neg, -a)
STANDIN_FUNCTION(Tanh, std::tanh(a))
STANDIN_FUNCTION(Exp, std::exp(a))
STANDIN_FUNCTION(Log, std::log(a))
// Not std::fmax, which loses NaN.
STANDIN_FUNCTION(Relu, a < 0.0 ? 0.0 : a)
STANDIN_ACLNN(aclnnClamp, const aclTensor* self, const aclScalar* low, const aclScalar* high,
              const aclTensor* out) {
  const double least = low == nullptr ? -INFINITY : Value(*low);
  const double most = high == nullptr ? INFINITY : Value(*high);
  return standin::Unary({"aclnnClamp", workspace, executor}, self, out,
                        [=](double x) { return std::fmin(std::fmax(x, least), most); });
}
STANDIN_ACLNN(aclnnClampMin, const aclTensor* self, const aclScalar* low, const aclTensor* out) {
  return standin::Unary({"aclnnClampMin", workspace, executor}, self, out,
                        [least = Value(*low)](double x) { return std::fmax(x, least); });
}
STANDIN_ACLNN(aclnnClampMax, const aclTensor* self, const aclScalar* high, const aclTensor* out) {
  return standin::Unary({"aclnnClampMax", workspace, executor}, self, out,
                        [most = Value(*high)](double x) { return std::fmin(x, most); });
}

// Addition and subtraction, where `alpha` multiplies the second operand; with a number; in place.
#define STANDIN_ADDITION(name, sign)                                                  \
  STANDIN_ACLNN(aclnn##name, const aclTensor* self, const aclTensor* other,           \
                const aclScalar* alpha, const aclTensor* out) {                       \
    return standin::Binary(                                                           \
        {"aclnn" #name, workspace, executor}, self, other, out,                       \
        [scale = sign Value(*alpha)](double a, double b) { return a + scale * b; });  \
  }                                                                                   \
  STANDIN_ACLNN(aclnn##name##s, const aclTensor* self, const aclScalar* other,        \
                const aclScalar* alpha, const aclTensor* out) {                       \
    return standin::Unary(                                                            \
        {"aclnn" #name "s", workspace, executor}, self, out,                          \
        [term = sign Value(*alpha) * Value(*other)](double a) { return a + term; });  \
  }                                                                                   \
  STANDIN_ACLNN(aclnnInplace##name, const aclTensor* self, const aclTensor* other,    \
                const aclScalar* alpha) {                                             \
    return standin::Binary(                                                           \
        {"aclnnInplace" #name, workspace, executor}, self, other, self,               \
        [scale = sign Value(*alpha)](double a, double b) { return a + scale * b; });  \
  }                                                                                   \
  STANDIN_ACLNN(aclnnInplace##name##s, const aclTensor* self, const aclScalar* other, \
                const aclScalar* alpha) {                                             \
    return standin::Unary(                                                            \
        {"aclnnInplace" #name "s", workspace, executor}, self, self,                  \
        [term = sign Value(*alpha) * Value(*other)](double a) { return a + term; });  \
  }
STANDIN_ADDITION(Add, +)
STANDIN_ADDITION(Sub, -)

#define STANDIN_MULTIPLICATION(name, operation)                                            \
  STANDIN_ACLNN(aclnn##name, const aclTensor* self, const aclTensor* other,                \
                const aclTensor* out) {                                                    \
    return standin::Binary({"aclnn" #name, workspace, executor}, self, other, out,         \
                           [](double a, double b) { return a operation b; });              \
  }                                                                                        \
  STANDIN_ACLNN(aclnn##name##s, const aclTensor* self, const aclScalar* other,             \
                const aclTensor* out) {                                                    \
    return standin::Unary({"aclnn" #name "s", workspace, executor}, self, out,             \
                          [b = Value(*other)](double a) { return a operation b; });        \
  }                                                                                        \
  STANDIN_ACLNN(aclnnInplace##name, const aclTensor* self, const aclTensor* other) {       \
    return standin::Binary({"aclnnInplace" #name, workspace, executor}, self, other, self, \
                           [](double a, double b) { return a operation b; });              \
  }                                                                                        \
  STANDIN_ACLNN(aclnnInplace##name##s, const aclTensor* self, const aclScalar* other) {    \
    return standin::Unary({"aclnnInplace" #name "s", workspace, executor}, self, self,     \
                          [b = Value(*other)](double a) { return a operation b; });        \
  }
STANDIN_MULTIPLICATION(Mul, *)
STANDIN_MULTIPLICATION(Div, /)

// Two operands and nothing else.
#define STANDIN_BINARY(name, expression)                                                     \
  STANDIN_ACLNN(name, const aclTensor* self, const aclTensor* other, const aclTensor* out) { \
    return standin::Binary({#name, workspace, executor}, self, other, out,                   \
                           [](double a, double b) -> double { return expression; });         \
  }
STANDIN_BINARY(aclnnTanhBackward, a * (1.0 - b * b))
STANDIN_BINARY(aclnnRemainderTensorTensor, a - b * std::floor(a / b))
STANDIN_BINARY(aclnnEqTensor, a == b)
STANDIN_BINARY(aclnnLtTensor, a < b)
STANDIN_BINARY(aclnnLeTensor, a <= b)
STANDIN_BINARY(aclnnGtTensor, a > b)
STANDIN_BINARY(aclnnGeTensor, a >= b)
STANDIN_BINARY(aclnnLogicalAnd, a != 0.0 && b != 0.0)
STANDIN_BINARY(aclnnLogicalOr, a != 0.0 || b != 0.0)
// Of bool alone, as far as tests go.
STANDIN_BINARY(aclnnBitwiseAndTensor, a != 0.0 && b != 0.0)
STANDIN_BINARY(aclnnBitwiseOrTensor, a != 0.0 || b != 0.0)
// A tensor and a number.
#define STANDIN_WITH_NUMBER(name, expression)                                                \
  STANDIN_ACLNN(name, const aclTensor* self, const aclScalar* other, const aclTensor* out) { \
    return standin::Unary({#name, workspace, executor}, self, out,                           \
                          [b = Value(*other)](double a) -> double { return expression; });   \
  }
STANDIN_WITH_NUMBER(aclnnRemainderTensorScalar, a - b * std::floor(a / b))
STANDIN_WITH_NUMBER(aclnnEqScalar, a == b)
STANDIN_WITH_NUMBER(aclnnNeScalar, a != b)
STANDIN_WITH_NUMBER(aclnnLtScalar, a < b)
STANDIN_WITH_NUMBER(aclnnLeScalar, a <= b)
STANDIN_WITH_NUMBER(aclnnGtScalar, a > b)
STANDIN_WITH_NUMBER(aclnnGeScalar, a >= b)
STANDIN_WITH_NUMBER(aclnnBitwiseAndScalar, a != 0.0 && b != 0.0)
STANDIN_WITH_NUMBER(aclnnBitwiseOrScalar, a != 0.0 || b != 0.0)

// Of ReLU, with a threshold of 0.
STANDIN_ACLNN(aclnnThresholdBackward, const aclTensor* gradient, const aclTensor* self,
              const aclScalar* threshold, const aclTensor* out) {
  return standin::Binary(
      {"aclnnThresholdBackward", workspace, executor}, gradient, self, out,
      [least = Value(*threshold)](double a, double b) { return b <= least ? 0.0 : a; });
}

// Division rounded towards zero (mode 1) or down (2).
STANDIN_ACLNN(aclnnDivMod, const aclTensor* self, const aclTensor* other, int mode,
              const aclTensor* out) {
  return standin::Binary({"aclnnDivMod", workspace, executor}, self, other, out,
                         [mode](double a, double b) { return Rounded(a / b, mode); });
}
STANDIN_ACLNN(aclnnDivMods, const aclTensor* self, const aclScalar* other, int mode,
              const aclTensor* out) {
  return standin::Unary({"aclnnDivMods", workspace, executor}, self, out,
                        [b = Value(*other), mode](double a) { return Rounded(a / b, mode); });
}
