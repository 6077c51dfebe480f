// What makes one number of many, and products of matrices, as arithmetic_opapi.cpp.
#include <cmath>

#include "opapi.h"

namespace {

using standin::Get;
using standin::Phase;
using standin::Set;
using standin::Shape;
using standin::Value;

// Folds the elements along `dims` (all, where there are none) into `start` with fold(so far,
// element); finish(result, number of elements) is what is written.
template <typename Fold, typename Finish>
int Reduce(const Phase& phase, const aclTensor* self, const aclIntArray* dims, const aclTensor* out,
           double start, const Fold& fold, const Finish& finish) {
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
  return standin::Ready(phase, [self = *self, kept, count, terms, start, fold, finish] {
    std::vector<double> results(static_cast<size_t>(count), start);
    aclTensor totals = kept;
    totals.type = ACL_DOUBLE;
    totals.data = results.data();
    standin::ForEach(self.shape, [&](const Shape& index) {
      Set(totals, index, fold(Get(totals, index), Get(self, index)));
    });
    standin::ForEach(kept.shape, [&](const Shape& index) {
      Set(kept, index, finish(Get(totals, index), static_cast<double>(terms)));
    });
  });
}

double Add(double total, double x) { return total + x; }
double AsItIs(double result, double /*terms*/) { return result; }

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

}  // namespace

STANDIN_ACLNN(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce({"aclnnReduceSum", workspace, executor}, self, dims, out, 0.0, Add, AsItIs);
}
STANDIN_ACLNN(aclnnMean, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce({"aclnnMean", workspace, executor}, self, dims, out, 0.0, Add,
                [](double total, double terms) { return total / terms; });
}
STANDIN_ACLNN(aclnnAmax, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              const aclTensor* out) {
  return Reduce(
      {"aclnnAmax", workspace, executor}, self, dims, out, -INFINITY,
      [](double most, double x) { return most >= x || std::isnan(most) ? most : x; }, AsItIs);
}
// Of order 1 alone, as far as tests go.
STANDIN_ACLNN(aclnnLinalgVectorNorm, const aclTensor* self, const aclScalar* order,
              const aclIntArray* dims, bool /*keep_dims*/, aclDataType /*type*/,
              const aclTensor* out) {
  const Phase phase = {"aclnnLinalgVectorNorm", workspace, executor};
  if (Value(*order) != 1.0) return standin::Mismatch(phase);
  return Reduce(
      phase, self, dims, out, 0.0, [](double total, double x) { return total + std::fabs(x); },
      AsItIs);
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
STANDIN_ACLNN(aclnnInplaceAddmm, const aclTensor* self, const aclTensor* mat1,
              const aclTensor* mat2, const aclScalar* beta, const aclScalar* alpha,
              int8_t /*cube_math_type*/) {
  return Multiply({"aclnnInplaceAddmm", workspace, executor}, self, mat1, mat2, Value(*beta),
                  Value(*alpha), self);
}
