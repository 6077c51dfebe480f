// Double of a CANN header (see README.md).
#pragma once

#include <vector>

#include "exe_graph/runtime/context_parts.h"

namespace gert {

class InferDataTypeContext : public ExtendedKernelContext {
 public:
  ge::DataType GetInputDataType(size_t index) const {
    return index < fields.input_types.size() ? fields.input_types[index].GetDataType()
                                             : ge::DT_UNDEFINED;
  }
  ge::graphStatus SetOutputDataType(size_t index, ge::DataType type) {
    if (index >= output_types.size()) return ge::GRAPH_FAILED;
    output_types[index] = type;
    return ge::GRAPH_SUCCESS;
  }

  std::vector<ge::DataType> output_types;
};

}  // namespace gert
