// First phases of the operators of CANN's own that stand around the loss in tests.
#ifndef ASR_ASCEND_STANDIN_OPAPI_H_
#define ASR_ASCEND_STANDIN_OPAPI_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "elements.h"
#include "standin.h"

namespace standin {

// Where a first phase puts its results.
struct Phase {
  const char* name;
  uint64_t* workspace;
  aclOpExecutor** executor;
};

// 0, or the status of a tensor that can't be.
inline int Check(const Phase& phase, std::initializer_list<const aclTensor*> tensors) {
  for (const aclTensor* tensor : tensors) {
    if (tensor == nullptr) {
      return Fail(kNullPointer, std::string(phase.name) + ": a tensor is nullptr.");
    }
    if (!IsKnownType(tensor->type)) {
      return Fail(kInvalidArgument, std::string(phase.name) +
                                        ": the stand-in doesn't know aclDataType " +
                                        std::to_string(static_cast<int>(tensor->type)) + ".");
    }
  }
  return 0;
}

inline int Mismatch(const Phase& phase) {
  return Fail(kInvalidArgument, std::string(phase.name) + ": shapes do not fit each other.");
}

// What the second phase is to run; it needs no workspace.
inline int Ready(const Phase& phase, std::function<void()> work) {
  *phase.workspace = 0;
  *phase.executor =
      new aclOpExecutor{phase.name, 0, [work = std::move(work)](void*) -> std::string {
                          work();
                          return "";
                        }};
  return 0;
}

// out = function(self), element by element.
template <typename Function>
int Unary(const Phase& phase, const aclTensor* self, const aclTensor* out,
          const Function& function) {
  const int status = Check(phase, {self, out});
  if (status != 0) return status;
  if (!Broadcasts(self->shape, out->shape)) return Mismatch(phase);
  return Ready(phase, [self = *self, out = *out, function] {
    ForEach(out.shape, [&](const Shape& index) { Set(out, index, function(Get(self, index))); });
  });
}

// out = function(self, other), both broadcast.
template <typename Function>
int Binary(const Phase& phase, const aclTensor* self, const aclTensor* other, const aclTensor* out,
           const Function& function) {
  const int status = Check(phase, {self, other, out});
  if (status != 0) return status;
  if (!Broadcasts(self->shape, out->shape) || !Broadcasts(other->shape, out->shape)) {
    return Mismatch(phase);
  }
  return Ready(phase, [self = *self, other = *other, out = *out, function] {
    ForEach(out.shape, [&](const Shape& index) {
      Set(out, index, function(Get(self, index), Get(other, index)));
    });
  });
}

// A dimension counted from the end made one counted from the start.
inline size_t Dimension(const aclTensor& tensor, int64_t dim) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(tensor.shape.size()) : dim);
}

}  // namespace standin

#define STANDIN_SECOND_PHASE(name)                                                        \
  extern "C" int name(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, \
                      void* stream) {                                                     \
    return standin::Launch(#name, workspace, workspace_bytes, executor, stream);          \
  }
// Both phases; the body that follows is the first one's.
#define STANDIN_ACLNN(name, ...) \
  STANDIN_SECOND_PHASE(name)     \
  extern "C" int name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspace, aclOpExecutor** executor)

#endif  // ASR_ASCEND_STANDIN_OPAPI_H_
