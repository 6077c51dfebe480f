// Double of parts that CANN's contexts share (see README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "exe_graph/runtime/storage_shape.h"
#include "graph/types.h"

namespace gert {

class CompileTimeTensorDesc {
 public:
  explicit CompileTimeTensorDesc(ge::DataType type = ge::DT_UNDEFINED) : type_(type) {}
  ge::DataType GetDataType() const { return type_; }

 private:
  ge::DataType type_;
};

class RuntimeAttrs {
 public:
  using Value = std::variant<int64_t, float, bool>;

  template <typename T>
  const T* GetAttrPointer(size_t index) const {
    return index < values.size() ? std::get_if<T>(&values[index]) : nullptr;
  }
  const int64_t* GetInt(size_t index) const { return GetAttrPointer<int64_t>(index); }
  const float* GetFloat(size_t index) const { return GetAttrPointer<float>(index); }
  const bool* GetBool(size_t index) const { return GetAttrPointer<bool>(index); }

  std::vector<Value> values;
};

}  // namespace gert

namespace cann_double {

// What a test puts into a context. An input that is not given is nullptr to the operator.
struct ContextFields {
  const char* node_name = "node";
  std::vector<std::optional<gert::StorageShape>> inputs;
  std::vector<gert::CompileTimeTensorDesc> input_types;
  std::vector<std::optional<gert::StorageShape>> outputs;
  std::vector<gert::CompileTimeTensorDesc> output_types;
  std::optional<gert::RuntimeAttrs> attrs;
};

template <typename T>
const T* Get(const std::vector<std::optional<T>>& values, size_t index) {
  return index < values.size() && values[index].has_value() ? &*values[index] : nullptr;
}
template <typename T>
const T* Get(const std::vector<T>& values, size_t index) {
  return index < values.size() ? &values[index] : nullptr;
}

}  // namespace cann_double

namespace gert {

class ExtendedKernelContext {
 public:
  const char* GetNodeName() const { return fields.node_name; }
  const RuntimeAttrs* GetAttrs() const { return fields.attrs ? &*fields.attrs : nullptr; }
  const CompileTimeTensorDesc* GetInputDesc(size_t index) const {
    return cann_double::Get(fields.input_types, index);
  }
  const CompileTimeTensorDesc* GetOptionalInputDesc(size_t index) const {
    return GetInputDesc(index);
  }
  const CompileTimeTensorDesc* GetOutputDesc(size_t index) const {
    return cann_double::Get(fields.output_types, index);
  }

  cann_double::ContextFields fields;
};

}  // namespace gert
