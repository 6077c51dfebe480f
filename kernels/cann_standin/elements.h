// Reading and writing the elements of device tensors one by one, whatever their type and strides.
// Operators compute in double and round once: right values, with no claim on a device's rounding.
#ifndef ASR_ASCEND_STANDIN_ELEMENTS_H_
#define ASR_ASCEND_STANDIN_ELEMENTS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "aclnn.h"
#include "emulator/types.h"

namespace standin {

using Shape = std::vector<int64_t>;

template <typename T>
double ReadAs(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <typename T>
void WriteAs(void* at, double value) {
  const T converted = static_cast<T>(value);
  std::memcpy(at, &converted, sizeof(T));
}

// Exact for int64_t too as long as it is below 2^53.
inline double Read(aclDataType type, const void* at) {
  switch (type) {
    case ACL_FLOAT:
      return ReadAs<float>(at);
    case ACL_DOUBLE:
      return ReadAs<double>(at);
    case ACL_FLOAT16:
      return ReadAs<_Float16>(at);
    case ACL_BF16: {
      bfloat16_t value;
      std::memcpy(&value, at, sizeof(value));
      return static_cast<double>(static_cast<float>(value));
    }
    case ACL_INT64:
      return ReadAs<int64_t>(at);
    case ACL_INT32:
      return ReadAs<int32_t>(at);
    case ACL_INT16:
      return ReadAs<int16_t>(at);
    case ACL_INT8:
      return ReadAs<int8_t>(at);
    case ACL_UINT8:
      return ReadAs<uint8_t>(at);
    default:
      return ReadAs<bool>(at);
  }
}

inline void Write(aclDataType type, void* at, double value) {
  switch (type) {
    case ACL_FLOAT:
      return WriteAs<float>(at, value);
    case ACL_DOUBLE:
      return WriteAs<double>(at, value);
    case ACL_FLOAT16:
      return WriteAs<_Float16>(at, value);
    case ACL_BF16: {
      const bfloat16_t converted(static_cast<float>(value));
      std::memcpy(at, &converted, sizeof(converted));
      return;
    }
    case ACL_INT64:
      return WriteAs<int64_t>(at, value);
    case ACL_INT32:
      return WriteAs<int32_t>(at, value);
    case ACL_INT16:
      return WriteAs<int16_t>(at, value);
    case ACL_INT8:
      return WriteAs<int8_t>(at, value);
    case ACL_UINT8:
      return WriteAs<uint8_t>(at, value);
    default:
      return WriteAs<bool>(at, value);
  }
}

inline bool IsKnownType(aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
    case ACL_DOUBLE:
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT64:
    case ACL_INT32:
    case ACL_INT16:
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return true;
    default:
      return false;
  }
}

inline double Value(const aclScalar& scalar) { return Read(scalar.type, scalar.bytes); }

// One element's place, found from an index into a shape that the tensor is broadcast to.
inline char* At(const aclTensor& tensor, const Shape& index) {
  int64_t offset = 0;
  const size_t lead = index.size() - tensor.shape.size();
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] != 1) offset += index[lead + d] * tensor.strides[d];
  }
  return static_cast<char*>(tensor.data) + offset * static_cast<int64_t>(ElementBytes(tensor.type));
}

inline double Get(const aclTensor& tensor, const Shape& index) {
  return Read(tensor.type, At(tensor, index));
}

inline void Set(const aclTensor& tensor, const Shape& index, double value) {
  Write(tensor.type, At(tensor, index), value);
}

// Calls `visit` for each index of `shape`, the last dimension running fastest.
template <typename Visit>
void ForEach(const Shape& shape, const Visit& visit) {
  Shape index(shape.size(), 0);
  for (int64_t left = ElementCount(shape); left > 0; --left) {
    visit(index);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// Whether `from` can be broadcast to `to`.
inline bool Broadcasts(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  const size_t lead = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[lead + d]) return false;
  }
  return true;
}

}  // namespace standin

#endif  // ASR_ASCEND_STANDIN_ELEMENTS_H_
