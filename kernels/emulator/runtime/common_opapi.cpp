// The aclnn functions of CANN's own library that the tests need around the loss: torch_npu calls
// them for copies, fills, arithmetic, sums, products and rows. Names and arguments are those of the
// public aclnn reference.
#include <cmath>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "elements.h"
#include "standin.h"

namespace {

using standin::Get;
using standin::Set;
using standin::Shape;
using standin::Value;
using Work = std::function<void()>;

// Phase 1 of every function here: checks what all have in common; no workspace.
int Prepare(const char* name, std::initializer_list<const aclTensor*> tensors, uint64_t* workspace,
            aclOpExecutor** executor, Work work) {
  for (const aclTensor* tensor : tensors) {
    if (tensor == nullptr) {
      return standin::Fail(standin::kNullPointer, std::string(name) + ": a tensor is nullptr.");
    }
    if (!standin::IsKnownType(tensor->type)) {
      return standin::Fail(standin::kInvalidArgument,
                           std::string(name) + ": the stand-in doesn't know aclDataType " +
                               std::to_string(static_cast<int>(tensor->type)) + ".");
    }
  }
  *workspace = 0;
  *executor = new aclOpExecutor{name, 0, [work = std::move(work)](void*) -> std::string {
                                  work();
                                  return "";
                                }};
  return 0;
}

int Mismatch(const char* name) {
  return standin::Fail(standin::kInvalidArgument,
                       std::string(name) + ": shapes do not fit each other.");
}

template <typename Function>
int Unary(const char* name, const aclTensor* self, const aclTensor* out, uint64_t* workspace,
          aclOpExecutor** executor, const Function& function) {
  const auto prepared = Prepare(name, {self, out}, workspace, executor, [] {});
  if (prepared != 0) return prepared;
  if (!standin::Broadcasts(self->shape, out->shape)) return Mismatch(name);
  (*executor)->run = [self = *self, out = *out, function](void*) -> std::string {
    standin::ForEach(out.shape,
                     [&](const Shape& index) { Set(out, index, function(Get(self, index))); });
    return "";
  };
  return 0;
}

template <typename Function>
int Binary(const char* name, const aclTensor* self, const aclTensor* other, const aclTensor* out,
           uint64_t* workspace, aclOpExecutor** executor, const Function& function) {
  const auto prepared = Prepare(name, {self, other, out}, workspace, executor, [] {});
  if (prepared != 0) return prepared;
  if (!standin::Broadcasts(self->shape, out->shape) ||
      !standin::Broadcasts(other->shape, out->shape)) {
    return Mismatch(name);
  }
  (*executor)->run = [self = *self, other = *other, out = *out, function](void*) -> std::string {
    standin::ForEach(out.shape, [&](const Shape& index) {
      Set(out, index, function(Get(self, index), Get(other, index)));
    });
    return "";
  };
  return 0;
}

// Sum over `dims` (all, where there are none), times what `scale` makes of the number of terms.
template <typename Scale>
int Reduce(const char* name, const aclTensor* self, const aclIntArray* dims, const aclTensor* out,
           uint64_t* workspace, aclOpExecutor** executor, const Scale& scale) {
  const auto rank = static_cast<int64_t>(self->shape.size());
  std::vector<bool> reduced(self->shape.size(), dims == nullptr || dims->values.empty());
  if (dims != nullptr) {
    for (const int64_t dim : dims->values) {
      if (rank > 0) reduced[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
    }
  }
  return Prepare(name, {self, out}, workspace, executor,
                 [self = *self, out = *out, reduced, scale] {
                   // The output as if no dimension had been dropped: those that were have one
                   // element.
                   aclTensor kept = out;
                   kept.shape.clear();
                   kept.strides.clear();
                   int64_t terms = 1;
                   int64_t stride = 1;
                   for (size_t d = reduced.size(); d-- > 0;) {
                     const int64_t size = reduced[d] ? 1 : self.shape[d];
                     if (reduced[d]) terms *= self.shape[d];
                     kept.shape.insert(kept.shape.begin(), size);
                     kept.strides.insert(kept.strides.begin(), stride);
                     stride *= size;
                   }
                   std::vector<double> sums(static_cast<size_t>(stride), 0.0);
                   aclTensor totals = kept;
                   totals.type = ACL_DOUBLE;
                   totals.data = sums.data();
                   standin::ForEach(self.shape, [&](const Shape& index) {
                     Set(totals, index, Get(totals, index) + Get(self, index));
                   });
                   standin::ForEach(kept.shape, [&](const Shape& index) {
                     Set(kept, index, Get(totals, index) * scale(static_cast<double>(terms)));
                   });
                 });
}

// out = beta * bias + alpha * (left @ right), with or without a batch dimension.
int Multiply(const char* name, const aclTensor* bias, const aclTensor* left, const aclTensor* right,
             double beta, double alpha, const aclTensor* out, uint64_t* workspace,
             aclOpExecutor** executor) {
  const auto prepared = Prepare(name, {left, right, out}, workspace, executor, [] {});
  if (prepared != 0) return prepared;
  const size_t rank = out->shape.size();
  if (rank < 2 || left->shape.size() != rank || right->shape.size() != rank ||
      left->shape[rank - 1] != right->shape[rank - 2]) {
    return Mismatch(name);
  }
  const aclTensor added = bias == nullptr ? *out : *bias;
  (*executor)->run = [added, has_bias = bias != nullptr, left = *left, right = *right, out = *out,
                      beta, alpha, rank](void*) -> std::string {
    std::vector<double> products;  // all of them before `out`, which may be the bias, is written
    standin::ForEach(out.shape, [&](const Shape& index) {
      Shape row = index;
      Shape column = index;
      double sum = 0.0;
      for (int64_t k = 0; k < left.shape[rank - 1]; ++k) {
        row[rank - 1] = k;
        column[rank - 2] = k;
        sum += Get(left, row) * Get(right, column);
      }
      products.push_back(alpha * sum + (has_bias ? beta * Get(added, index) : 0.0));
    });
    size_t next = 0;
    standin::ForEach(out.shape, [&](const Shape& index) { Set(out, index, products[next++]); });
    return "";
  };
  return 0;
}

double Times(double a, double b) { return a * b; }
double Over(double a, double b) { return a / b; }

}  // namespace

#define STANDIN_SECOND_PHASE(name)                                                        \
  extern "C" int name(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, \
                      void* stream) {                                                     \
    return standin::Launch(#name, workspace, workspace_bytes, executor, stream);          \
  }
#define STANDIN_ACLNN(name, ...) \
  STANDIN_SECOND_PHASE(name)     \
  extern "C" int name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspace, aclOpExecutor** executor)

// Fills and copies.
STANDIN_ACLNN(aclnnInplaceZero, const aclTensor* self) {
  return Unary("aclnnInplaceZero", self, self, workspace, executor, [](double) { return 0.0; });
}
STANDIN_ACLNN(aclnnInplaceOne, const aclTensor* self) {
  return Unary("aclnnInplaceOne", self, self, workspace, executor, [](double) { return 1.0; });
}
STANDIN_ACLNN(aclnnInplaceFillScalar, const aclTensor* self, const aclScalar* value) {
  return Unary("aclnnInplaceFillScalar", self, self, workspace, executor,
               [filling = Value(*value)](double) { return filling; });
}
STANDIN_ACLNN(aclnnInplaceCopy, const aclTensor* self, const aclTensor* source) {
  return Unary("aclnnInplaceCopy", source, self, workspace, executor, [](double x) { return x; });
}
STANDIN_ACLNN(aclnnCast, const aclTensor* self, aclDataType /*type*/, const aclTensor* out) {
  return Unary("aclnnCast", self, out, workspace, executor, [](double x) { return x; });
}

// Arithmetic.
STANDIN_ACLNN(aclnnNeg, const aclTensor* self, const aclTensor* out) {
  return Unary("aclnnNeg", self, out, workspace, executor, [](double x) { return -x; });
}
STANDIN_ACLNN(aclnnTanh, const aclTensor* self, const aclTensor* out) {
  return Unary("aclnnTanh", self, out, workspace, executor, [](double x) { return std::tanh(x); });
}
STANDIN_ACLNN(aclnnTanhBackward, const aclTensor* grad, const aclTensor* output,
              const aclTensor* out) {
  return Binary("aclnnTanhBackward", grad, output, out, workspace, executor,
                [](double upstream, double y) { return upstream * (1.0 - y * y); });
}

// NAME and its three relatives: with a scalar, in place, in place with a scalar. `alpha` multiplies
// the second operand.
#define STANDIN_ADDITION(name, sign)                                                           \
  STANDIN_ACLNN(aclnn##name, const aclTensor* self, const aclTensor* other,                    \
                const aclScalar* alpha, const aclTensor* out) {                                \
    return Binary("aclnn" #name, self, other, out, workspace, executor,                        \
                  [scale = sign Value(*alpha)](double a, double b) { return a + scale * b; }); \
  }                                                                                            \
  STANDIN_ACLNN(aclnn##name##s, const aclTensor* self, const aclScalar* other,                 \
                const aclScalar* alpha, const aclTensor* out) {                                \
    return Unary("aclnn" #name "s", self, out, workspace, executor,                            \
                 [term = sign Value(*alpha) * Value(*other)](double a) { return a + term; });  \
  }                                                                                            \
  STANDIN_ACLNN(aclnnInplace##name, const aclTensor* self, const aclTensor* other,             \
                const aclScalar* alpha) {                                                      \
    return Binary("aclnnInplace" #name, self, other, self, workspace, executor,                \
                  [scale = sign Value(*alpha)](double a, double b) { return a + scale * b; }); \
  }                                                                                            \
  STANDIN_ACLNN(aclnnInplace##name##s, const aclTensor* self, const aclScalar* other,          \
                const aclScalar* alpha) {                                                      \
    return Unary("aclnnInplace" #name "s", self, self, workspace, executor,                    \
                 [term = sign Value(*alpha) * Value(*other)](double a) { return a + term; });  \
  }
STANDIN_ADDITION(Add, +)
STANDIN_ADDITION(Sub, -)

#define STANDIN_MULTIPLICATION(name, function)                                             \
  STANDIN_ACLNN(aclnn##name, const aclTensor* self, const aclTensor* other,                \
                const aclTensor* out) {                                                    \
    return Binary("aclnn" #name, self, other, out, workspace, executor, function);         \
  }                                                                                        \
  STANDIN_ACLNN(aclnn##name##s, const aclTensor* self, const aclScalar* other,             \
                const aclTensor* out) {                                                    \
    return Unary("aclnn" #name "s", self, out, workspace, executor,                        \
                 [b = Value(*other)](double a) { return function(a, b); });                \
  }                                                                                        \
  STANDIN_ACLNN(aclnnInplace##name, const aclTensor* self, const aclTensor* other) {       \
    return Binary("aclnnInplace" #name, self, other, self, workspace, executor, function); \
  }                                                                                        \
  STANDIN_ACLNN(aclnnInplace##name##s, const aclTensor* self, const aclScalar* other) {    \
    return Unary("aclnnInplace" #name "s", self, self, workspace, executor,                \
                 [b = Value(*other)](double a) { return function(a, b); });                \
  }
STANDIN_MULTIPLICATION(Mul, Times)
STANDIN_MULTIPLICATION(Div, Over)

// Sums.
STANDIN_ACLNN(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce("aclnnReduceSum", self, dims, out, workspace, executor, [](double) { return 1.0; });
}
STANDIN_ACLNN(aclnnMean, const aclTensor* self, const aclIntArray* dims, bool /*keep_dims*/,
              aclDataType /*type*/, const aclTensor* out) {
  return Reduce("aclnnMean", self, dims, out, workspace, executor,
                [](double terms) { return 1.0 / terms; });
}

// Products of matrices.
STANDIN_ACLNN(aclnnMm, const aclTensor* self, const aclTensor* mat2, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply("aclnnMm", nullptr, self, mat2, 0.0, 1.0, out, workspace, executor);
}
STANDIN_ACLNN(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply("aclnnMatmul", nullptr, self, mat2, 0.0, 1.0, out, workspace, executor);
}
STANDIN_ACLNN(aclnnAddmm, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2,
              const aclScalar* beta, const aclScalar* alpha, const aclTensor* out,
              int8_t /*cube_math_type*/) {
  return Multiply("aclnnAddmm", self, mat1, mat2, Value(*beta), Value(*alpha), out, workspace,
                  executor);
}

// Rows.
STANDIN_ACLNN(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* out) {
  return Prepare("aclnnIndexSelect", {self, index, out}, workspace, executor,
                 [self = *self, dim, index = *index, out = *out] {
                   standin::ForEach(out.shape, [&](const Shape& place) {
                     Shape from = place;
                     auto& row = from[static_cast<size_t>(dim)];
                     row = static_cast<int64_t>(Get(index, {row}));
                     Set(out, place, Get(self, from));
                   });
                 });
}
STANDIN_ACLNN(aclnnIndexAdd, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* source, const aclScalar* alpha, const aclTensor* out) {
  return Prepare(
      "aclnnIndexAdd", {self, index, source, out}, workspace, executor,
      [self = *self, dim, index = *index, source = *source, scale = Value(*alpha), out = *out] {
        standin::ForEach(out.shape, [&](const Shape& place) { Set(out, place, Get(self, place)); });
        standin::ForEach(source.shape, [&](const Shape& place) {
          Shape to = place;
          auto& row = to[static_cast<size_t>(dim)];
          row = static_cast<int64_t>(Get(index, {row}));
          Set(out, to, Get(out, to) + scale * Get(source, place));
        });
      });
}
