// What aclnn functions are made of: tensors, scalars, arrays, and the executor between their two
// phases.
#ifndef ASR_ASCEND_STANDIN_ACLNN_H_
#define ASR_ASCEND_STANDIN_ACLNN_H_

#include <acl/acl_base.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct aclTensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
  aclDataType type;
  aclFormat format;
  void* data;  // of element 0, the storage's offset included
};

struct aclScalar {
  aclDataType type;
  alignas(8) unsigned char bytes[16];
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclTensorList {
  std::vector<aclTensor> values;
};

// The first phase leaves here all that the second one needs: tensors may be destroyed in between.
struct aclOpExecutor {
  std::string name;
  uint64_t workspace_bytes = 0;
  std::function<std::string(void* workspace)> run;  // returns what went wrong, or nothing
};

namespace standin {

// aclnnStatus, from CANN's public table.
constexpr int kNullPointer = 161001;
constexpr int kInvalidArgument = 161002;
constexpr int kTilingError = 561002;

uint64_t ElementBytes(aclDataType type);
int64_t ElementCount(const std::vector<int64_t>& shape);
bool IsContiguous(const aclTensor& tensor);
std::string ShapeText(const std::vector<int64_t>& shape);

// Second phase of every aclnn function: puts the executor's work on the stream.
int Launch(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor,
           void* stream);

}  // namespace standin

#endif  // ASR_ASCEND_STANDIN_ACLNN_H_
