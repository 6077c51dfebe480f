// From CANN's contexts to the plain C++ of the checks.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CONTEXT_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CONTEXT_H_

#include <string>

#include "exe_graph/runtime/shape.h"
#include "graph/types.h"
#include "rnnt_loss_fused_check.h"
#include "utils/log/asc_cpu_log.h"

namespace rnnt_loss_fused {

// Places of the operands, the same in all three operators as far as they have them. Those that a
// caller may leave out come last: see BandPlace.
enum Input : size_t {
  kLogits = 0,
  kTargets = 1,
  kLogitLengths = 2,
  kTargetLengths = 3,
  kState = 4,
  kGradLoss = 5,
};

// Of `band`; `emission_windows` follows it.
inline size_t BandPlace(bool is_backward) { return is_backward ? kGradLoss + 1 : kState; }

inline Shape ToShape(const gert::Shape& shape) {
  Shape sizes;
  for (size_t i = 0; i < shape.GetDimNum(); ++i) sizes.push_back(shape.GetDim(i));
  return sizes;
}

inline void Assign(gert::Shape& shape, const Shape& sizes) {
  shape.SetDimNum(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) shape.SetDim(i, sizes[i]);
}

inline ElementType ToElementType(ge::DataType type) {
  switch (type) {
    case ge::DT_FLOAT:
      return ElementType::kFloat32;
    case ge::DT_FLOAT16:
      return ElementType::kFloat16;
    case ge::DT_BF16:
      return ElementType::kBfloat16;
    case ge::DT_INT32:
      return ElementType::kInt32;
    default:
      return ElementType::kOther;
  }
}

// Logs what is wrong, if anything is.
inline ge::graphStatus Report(const char* node_name, const std::string& error) {
  if (error.empty()) return ge::GRAPH_SUCCESS;
  ASC_CPU_LOG_ERROR("%s: %s", node_name == nullptr ? "RnntLoss" : node_name, error.c_str());
  return ge::GRAPH_FAILED;
}

}  // namespace rnnt_loss_fused

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CONTEXT_H_
