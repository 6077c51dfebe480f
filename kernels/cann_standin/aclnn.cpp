// Creation of tensors, scalars and arrays, and the launch of an executor.
#include "aclnn.h"

#include <cstring>

#include "standin.h"

namespace standin {

uint64_t ElementBytes(aclDataType type) {
  switch (type) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    default:
      return 0;
  }
}

int64_t ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool IsContiguous(const aclTensor& tensor) {
  if (ElementCount(tensor.shape) == 0) return true;
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

int Launch(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor,
           void* stream) {
  // Without an executor the message of the first phase, which failed, stays.
  if (executor == nullptr) return kNullPointer;
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  if (workspace_bytes < executor->workspace_bytes ||
      (workspace == nullptr && executor->workspace_bytes > 0)) {
    const std::string wanted = std::to_string(executor->workspace_bytes);
    delete executor;
    return Fail(kInvalidArgument,
                std::string(name) + ": `workspaceSize` must be at least " + wanted + ", but is " +
                    std::to_string(workspace == nullptr ? 0 : workspace_bytes) + ".");
  }
  NoteLaunch(executor->name);
  Task task;
  task.name = executor->name;
  task.run = [run = std::move(executor->run), workspace] { return run(workspace); };
  Enqueue(StreamOf(stream), std::move(task));
  delete executor;
  return 0;
}

}  // namespace standin

extern "C" {

aclTensor* aclCreateTensor(const int64_t* dims, uint64_t count, aclDataType type,
                           const int64_t* strides, int64_t offset, aclFormat format,
                           const int64_t* /*storage_dims*/, uint64_t /*storage_dims_count*/,
                           void* data) {
  auto* tensor =
      new aclTensor{{dims, dims + count}, {strides, strides + count}, type, format, data};
  if (data != nullptr) {
    tensor->data =
        static_cast<char*>(data) + offset * static_cast<int64_t>(standin::ElementBytes(type));
  }
  return tensor;
}
int aclDestroyTensor(const aclTensor* tensor) {
  delete tensor;
  return 0;
}
aclScalar* aclCreateScalar(void* value, aclDataType type) {
  auto* scalar = new aclScalar{type, {}};
  std::memcpy(scalar->bytes, value, standin::ElementBytes(type));
  return scalar;
}
int aclDestroyScalar(const aclScalar* scalar) {
  delete scalar;
  return 0;
}
aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return new aclIntArray{{values, values + count}};
}
int aclDestroyIntArray(const aclIntArray* array) {
  delete array;
  return 0;
}

// Takes the tensors over, as their list owns them from then on.
aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
  auto* list = new aclTensorList;
  for (uint64_t i = 0; i < count; ++i) {
    list->values.push_back(*tensors[i]);
    delete tensors[i];
  }
  return list;
}
int aclDestroyTensorList(const aclTensorList* list) {
  delete list;
  return 0;
}

}  // extern "C"
