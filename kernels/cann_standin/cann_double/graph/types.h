// Double of a CANN header (see README.md).
#pragma once

#include <cstdint>

namespace ge {

using graphStatus = uint32_t;
constexpr graphStatus GRAPH_SUCCESS = 0;
constexpr graphStatus GRAPH_FAILED = 0xFFFFFFFF;

enum DataType {
  DT_FLOAT = 0,
  DT_FLOAT16 = 1,
  DT_INT8 = 2,
  DT_INT32 = 3,
  DT_INT64 = 9,
  DT_DOUBLE = 11,
  DT_BF16 = 27,
  DT_UNDEFINED = 28,
};

enum Format { FORMAT_NCHW = 0, FORMAT_ND = 2 };

}  // namespace ge
