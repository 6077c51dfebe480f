// Shapes and dtypes of the outputs, for graphs. Sizes may be unknown (-1), and so may ranks (-2).
#include <optional>

#include "register/op_impl_registry.h"
#include "rnnt_loss_fused_check.h"
#include "rnnt_loss_fused_context.h"
#include "rnnt_loss_fused_tiling_plan.h"

namespace ops {
namespace {

using rnnt_loss_fused::InputShapes;
using rnnt_loss_fused::Report;
using rnnt_loss_fused::Shape;
using rnnt_loss_fused::Sizes;

std::string ReadShape(gert::InferShapeContext* context, size_t index, const char* name,
                      Shape* shape) {
  const gert::Shape* known = context->GetInputShape(index);
  if (known == nullptr) return std::string("`") + name + "` is missing.";
  *shape = rnnt_loss_fused::ToShape(*known);
  return "";
}

// An input that the caller may leave out.
std::optional<Shape> ReadOptionalShape(gert::InferShapeContext* context, size_t index) {
  const gert::Shape* known = context->GetOptionalInputShape(index);
  if (known == nullptr) return std::nullopt;
  return rnnt_loss_fused::ToShape(*known);
}

std::string ReadInputs(gert::InferShapeContext* context, bool is_backward, InputShapes* inputs) {
  std::string error = ReadShape(context, rnnt_loss_fused::kLogits, "logits", &inputs->logits);
  if (error.empty()) {
    error = ReadShape(context, rnnt_loss_fused::kTargets, "targets", &inputs->targets);
  }
  if (error.empty()) {
    error =
        ReadShape(context, rnnt_loss_fused::kLogitLengths, "logit_lengths", &inputs->logit_lengths);
  }
  if (error.empty()) {
    error = ReadShape(context, rnnt_loss_fused::kTargetLengths, "target_lengths",
                      &inputs->target_lengths);
  }
  const size_t band = rnnt_loss_fused::BandPlace(is_backward);
  inputs->band = ReadOptionalShape(context, band);
  inputs->emission_windows = ReadOptionalShape(context, band + 1);
  return error.empty() ? CheckInputShapes(*inputs) : error;
}

// `blank` is the first attribute of every operator of this family.
std::string ReadBlank(gert::InferShapeContext* context, int64_t vocab) {
  const gert::RuntimeAttrs* attrs = context->GetAttrs();
  const int64_t* blank = attrs == nullptr ? nullptr : attrs->GetInt(0);
  return blank == nullptr ? "`blank` is missing." : rnnt_loss_fused::CheckBlank(*blank, vocab);
}

// Outputs in the definition's order; an optional one may have no shape to fill.
ge::graphStatus SetShapes(gert::InferShapeContext* context, const std::vector<Shape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    gert::Shape* output = context->GetOutputShape(i);
    if (output != nullptr) rnnt_loss_fused::Assign(*output, shapes[i]);
  }
  return ge::GRAPH_SUCCESS;
}

template <typename OutputShapes>
ge::graphStatus Infer(gert::InferShapeContext* context, const OutputShapes& output_shapes,
                      bool is_backward = false) {
  if (context == nullptr) return ge::GRAPH_FAILED;
  InputShapes inputs;
  std::string error = ReadInputs(context, is_backward, &inputs);
  const Sizes sizes = rnnt_loss_fused::InferSizes(inputs);
  if (error.empty()) error = ReadBlank(context, sizes.vocab);
  if (!error.empty()) return Report(context->GetNodeName(), error);
  return SetShapes(context, output_shapes(sizes));
}

ge::graphStatus InferShapeFused(gert::InferShapeContext* context) {
  return Infer(context, [](const Sizes& sizes) {
    return std::vector<Shape>{{sizes.batch}, {sizes.num_rows, sizes.vocab}, {sizes.batch}};
  });
}

// The forward operator's third attribute, by default true.
bool NeedsGrad(const gert::InferShapeContext* context) {
  const gert::RuntimeAttrs* attrs = context->GetAttrs();
  const bool* needs_grad = attrs == nullptr ? nullptr : attrs->GetBool(2);
  return needs_grad == nullptr || *needs_grad;
}

ge::graphStatus InferShapeForward(gert::InferShapeContext* context) {
  return Infer(context, [context](const Sizes& sizes) {
    const Shape state = rnnt_loss_fused::StateShape(sizes.num_rows, sizes.batch, NeedsGrad(context),
                                                    sizes.band_frames);
    return std::vector<Shape>{{sizes.batch}, state, {sizes.batch}};
  });
}

ge::graphStatus InferShapeBackward(gert::InferShapeContext* context) {
  return Infer(
      context, [](const Sizes& sizes) { return std::vector<Shape>{{sizes.num_rows, sizes.vocab}}; },
      /*is_backward=*/true);
}

ge::graphStatus InferDataTypeFused(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, ge::DT_FLOAT);
  context->SetOutputDataType(1, context->GetInputDataType(rnnt_loss_fused::kLogits));
  context->SetOutputDataType(2, ge::DT_INT32);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus InferDataTypeForward(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, ge::DT_FLOAT);
  context->SetOutputDataType(1, ge::DT_FLOAT);
  context->SetOutputDataType(2, ge::DT_INT32);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus InferDataTypeBackward(gert::InferDataTypeContext* context) {
  return context->SetOutputDataType(0, context->GetInputDataType(rnnt_loss_fused::kLogits));
}

}  // namespace

IMPL_OP_INFERSHAPE(RnntLossFused).InferShape(InferShapeFused).InferDataType(InferDataTypeFused);
IMPL_OP_INFERSHAPE(RnntLossForward)
    .InferShape(InferShapeForward)
    .InferDataType(InferDataTypeForward);
IMPL_OP_INFERSHAPE(RnntLossBackward)
    .InferShape(InferShapeBackward)
    .InferDataType(InferDataTypeBackward);

}  // namespace ops
