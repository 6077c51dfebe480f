// Double of a CANN header (see README.md).
#pragma once

#include <deque>

#include "exe_graph/runtime/context_parts.h"

namespace gert {

class InferShapeContext : public ExtendedKernelContext {
 public:
  const Shape* GetInputShape(size_t index) const {
    const StorageShape* shape = cann_double::Get(fields.inputs, index);
    return shape == nullptr ? nullptr : &shape->GetOriginShape();
  }
  const Shape* GetOptionalInputShape(size_t index) const { return GetInputShape(index); }
  Shape* GetOutputShape(size_t index) {
    return index < output_shapes.size() ? &output_shapes[index] : nullptr;
  }

  std::deque<Shape> output_shapes;
};

}  // namespace gert
