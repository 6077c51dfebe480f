// Double of a CANN header (see README.md).
#pragma once

#include <map>
#include <string>

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"

namespace gert {

class OpImplRegisterV2 {
 public:
  using InferShapeKernelFunc = ge::graphStatus (*)(InferShapeContext*);
  using InferDataTypeKernelFunc = ge::graphStatus (*)(InferDataTypeContext*);
  using TilingKernelFunc = ge::graphStatus (*)(TilingContext*);
  using TilingParseFunc = ge::graphStatus (*)(TilingParseContext*);

  explicit OpImplRegisterV2(const char* op_type) : op_type_(op_type) {}
  OpImplRegisterV2& InferShape(InferShapeKernelFunc function) {
    All()[op_type_].infer_shape = function;
    return *this;
  }
  OpImplRegisterV2& InferDataType(InferDataTypeKernelFunc function) {
    All()[op_type_].infer_data_type = function;
    return *this;
  }
  OpImplRegisterV2& Tiling(TilingKernelFunc function, size_t max_tiling_data_size = 2048) {
    All()[op_type_].tiling = function;
    All()[op_type_].max_tiling_data_size = max_tiling_data_size;
    return *this;
  }
  template <typename CompileInfo>
  OpImplRegisterV2& TilingParse(TilingParseFunc function) {
    All()[op_type_].tiling_parse = function;
    return *this;
  }

  struct Functions {
    InferShapeKernelFunc infer_shape = nullptr;
    InferDataTypeKernelFunc infer_data_type = nullptr;
    TilingKernelFunc tiling = nullptr;
    TilingParseFunc tiling_parse = nullptr;
    size_t max_tiling_data_size = 0;
  };
  static std::map<std::string, Functions>& All() {
    static std::map<std::string, Functions> all;
    return all;
  }

 private:
  std::string op_type_;
};

}  // namespace gert

#define CANN_DOUBLE_JOIN(a, b) a##b
#define CANN_DOUBLE_NAME(a, b) CANN_DOUBLE_JOIN(a, b)
#define IMPL_OP_INFERSHAPE(op_type)                                                      \
  static gert::OpImplRegisterV2 CANN_DOUBLE_NAME(g_infer_shape_##op_type, __COUNTER__) = \
      gert::OpImplRegisterV2(#op_type)
#define IMPL_OP_OPTILING(op_type)                                                   \
  static gert::OpImplRegisterV2 CANN_DOUBLE_NAME(g_tiling_##op_type, __COUNTER__) = \
      gert::OpImplRegisterV2(#op_type)
