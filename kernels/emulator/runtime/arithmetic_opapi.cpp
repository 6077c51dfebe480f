// Fills, copies, arithmetic, comparisons, sums and products, under the names and with the arguments
// of the public aclnn reference: torch_npu calls them for what tests do around the loss.
#include <cmath>

#include "opapi.h"

namespace {

using standin::Get;
using standin::Phase;
using standin::Set;
using standin::Shape;
using standin::Value;

// Sum over `dims` (all, where there are none), times what `scale` makes of the number of terms.
template <typename Scale>
int Reduce(const Phase& phase, const aclTensor* self, const aclIntArray* dims, const aclTensor* out,
           const Scale& scale) {
  const int status = standin::Check(phase, {self, out});
  if (status != 0) return status;
  std::vector<bool> reduced(self->shape.size(), dims == nullptr || dims->values.empty());
  if (dims != nullptr && !self->shape.empty()) {
    for (const int64_t dim : dims->values) reduced[standin::Dimension(*self, dim)] = true;
  }
  // The output as if no dimension had been dropped: those that were have one element.
  aclTensor kept = *out;
  kept.shape.clear();
  kept.strides.clear();
  int64_t terms = 1;
  int64_t count = 1;
  for (size_t d = reduced.size(); d-- > 0;) {
    const int64_t size = reduced[d] ? 1 : self->shape[d];
    if (reduced[d]) terms *= self->shape[d];
    kept.shape.insert(kept.shape.begin(), size);
    kept.strides.insert(kept.strides.begin(), count);
    count *= size;
  }
  const double factor = scale(static_cast<double>(terms));
  return standin::Ready(phase, [self = *self, kept, count, factor] {
    std::vector<double> sums(static_cast<size_t>(count), 0.0);
    aclTensor totals = kept;
    totals.type = ACL_DOUBLE;
    totals.data = sums.data();
    standin::ForEach(self.shape, [&](const Shape& index) {
      Set(totals, index, Get(totals, index) + Get(self, index));
    });
    standin::ForEach(kept.shape,
                     [&](const Shape& index) { Set(kept, index, factor * Get(totals, index)); });
  });
}

// out = beta * bias + alpha * (left @ right); no bias where it is nullptr.
int Multiply(const Phase& phase, const aclTensor* bias, const aclTensor* left,
             const aclTensor* right, double beta, double alpha, const aclTensor* out) {
  const int status = standin::Check(phase, {left, right, out});
  if (status != 0) return status;
  if (out->shape.size() != 2 || left->shape.size() != 2 || right->shape.size() != 2 ||
      left->shape[1] != right->shape[0]) {
    return standin::Mismatch(phase);
  }
  const aclTensor added = bias == nullptr ? *out : *bias;
  return standin::Ready(phase, [added, has_bias = bias != nullptr, left = *left, right = *right,
                                out = *out, beta, alpha] {
    std::vector<double> products;  // all of them before `out`, which may be the bias, is written
    standin::ForEach(out.shape, [&](const Shape& index) {
      double sum = 0.0;
      for (int64_t k = 0; k < left.shape[1]; ++k) {
        sum += Get(left, {index[0], k}) * Get(right, {k, index[1]});
      }
      products.push_back(alpha * sum + (has_bias ? beta * Get(added, index) : 0.0));
    });
    size_t next = 0;
    standin::ForEach(out.shape, [&](const Shape& index) { Set(out, index, products[next++]); });
  });
}

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
STANDIN_ACLNN(aclnnNeg, const aclTensor* self, const aclTensor* out) {
  return standin::Unary({"aclnnNeg", workspace, executor}, self, out, [](double x) { return -x; });
}
STANDIN_ACLNN(aclnnTanh, const aclTensor* self, const aclTensor* out) {
  return standin::Unary({"aclnnTanh", workspace, executor}, self, out,
                        [](double x) { return std::tanh(x); });
}
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
STANDIN_WITH_NUMBER(aclnnLtScalar, a < b)
STANDIN_WITH_NUMBER(aclnnLeScalar, a <= b)
STANDIN_WITH_NUMBER(aclnnGtScalar, a > b)
STANDIN_WITH_NUMBER(aclnnGeScalar, a >= b)
STANDIN_WITH_NUMBER(aclnnBitwiseAndScalar, a != 0.0 && b != 0.0)
STANDIN_WITH_NUMBER(aclnnBitwiseOrScalar, a != 0.0 || b != 0.0)

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

// Sums.
STANDIN_ACLNN(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce({"aclnnReduceSum", workspace, executor}, self, dims, out,
                [](double) { return 1.0; });
}
STANDIN_ACLNN(aclnnMean, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce({"aclnnMean", workspace, executor}, self, dims, out,
                [](double terms) { return 1.0 / terms; });
}

// Products of matrices.
STANDIN_ACLNN(aclnnMm, const aclTensor* self, const aclTensor* mat2, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply({"aclnnMm", workspace, executor}, nullptr, self, mat2, 0.0, 1.0, out);
}
STANDIN_ACLNN(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply({"aclnnMatmul", workspace, executor}, nullptr, self, mat2, 0.0, 1.0, out);
}
STANDIN_ACLNN(aclnnAddmm, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2,
              const aclScalar* beta, const aclScalar* alpha, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply({"aclnnAddmm", workspace, executor}, self, mat1, mat2, Value(*beta),
                  Value(*alpha), out);
}
