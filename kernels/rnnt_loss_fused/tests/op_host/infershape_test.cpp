// Shape and dtype inference, unknown sizes and ranks included, and every refusal word for word.
#include "harness.h"
#include "op_host/rnnt_loss_fused_check.h"
#include "op_host/rnnt_loss_fused_context.h"
#include "op_host/rnnt_loss_fused_tiling_plan.h"
#include "register/op_impl_registry.h"

namespace {

using harness::ExpectEqual;
using harness::ExpectErrors;
using rnnt_loss_fused::Shape;

struct Outcome {
  ge::graphStatus status;
  std::vector<Shape> shapes;
};

gert::StorageShape ToStorage(const Shape& shape) {
  gert::Shape sizes;
  for (const int64_t size : shape) sizes.AppendDim(size);
  return {sizes, sizes};
}

Outcome Infer(const char* op_type, const std::vector<Shape>& inputs, size_t num_outputs,
              int64_t blank = -1, bool needs_grad = true) {
  gert::InferShapeContext context;
  context.fields.node_name = "loss";
  for (const Shape& shape : inputs) context.fields.inputs.push_back(ToStorage(shape));
  context.fields.attrs = gert::RuntimeAttrs{{blank, -1.0f, true, 0.0f}};
  if (std::string(op_type) == "RnntLossForward") {
    context.fields.attrs = gert::RuntimeAttrs{{blank, true, needs_grad}};
  }
  context.output_shapes.resize(num_outputs);
  Outcome outcome;
  outcome.status = gert::OpImplRegisterV2::All().at(op_type).infer_shape(&context);
  for (const gert::Shape& shape : context.output_shapes) {
    outcome.shapes.push_back(rnnt_loss_fused::ToShape(shape));
  }
  return outcome;
}

void ExpectShapes(const Outcome& outcome, const std::vector<Shape>& expected) {
  ExpectEqual(outcome.status, ge::GRAPH_SUCCESS, "status");
  ExpectEqual(outcome.shapes, expected, "shapes");
}

void ExpectRefusal(const std::vector<Shape>& inputs, const std::string& message,
                   int64_t blank = -1) {
  const Outcome outcome = Infer("RnntLossFused", inputs, 3, blank);
  ExpectEqual(outcome.status, ge::GRAPH_FAILED, "status");
  ExpectErrors({"loss: " + message});
}

CASE(FusedShapes) {
  ExpectShapes(Infer("RnntLossFused", {{24, 5}, {2, 3}, {2}, {2}}, 3), {{2}, {24, 5}, {2}});
}

CASE(FusedWithoutStatus) {
  ExpectShapes(Infer("RnntLossFused", {{24, 5}, {2, 3}, {2}, {2}}, 2), {{2}, {24, 5}});
}

CASE(ForwardShapes) {
  ExpectShapes(Infer("RnntLossForward", {{24, 5}, {2, 3}, {2}, {2}}, 3),
               {{2}, rnnt_loss_fused::StateShape(24, 2), {2}});
}

CASE(StateWithoutGradient) {
  ExpectShapes(Infer("RnntLossForward", {{24, 5}, {2, 3}, {2}, {2}}, 3, -1, false),
               {{2}, {672}, {2}});
}

CASE(BackwardShapes) {
  ExpectShapes(Infer("RnntLossBackward",
                     {{24, 5}, {2, 3}, {2}, {2}, rnnt_loss_fused::StateShape(24, 2), {2}}, 1),
               {{24, 5}});
}

CASE(StateOfABand) {
  const Shape state = rnnt_loss_fused::StateShape(24, 2, true, 7);
  ExpectEqual(state[0], 832 + 48, "state size");  // + 2 samples of 16 bytes and 7 frames of 8
  ExpectShapes(Infer("RnntLossForward", {{24, 5}, {2, 3}, {2}, {2}, {2, 7, 2}, {2, 3, 2}}, 3),
               {{2}, state, {2}});
  ExpectShapes(Infer("RnntLossForward", {{24, 5}, {2, 3}, {2}, {2}, {2, -1, 2}}, 3),
               {{2}, {-1}, {2}});
  ExpectShapes(Infer("RnntLossForward", {{24, 5}, {2, 3}, {2}, {2}, {-2}}, 3), {{2}, {-1}, {2}});
  ExpectShapes(Infer("RnntLossBackward", {{24, 5}, {2, 3}, {2}, {2}, state, {2}, {2, 7, 2}}, 1),
               {{24, 5}});
}

CASE(ShapesOfBandAndWindows) {
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}, {2, 14}},
                "`band` must have shape (B, T, 2), but has (2, 14).");
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}, {3, 7, 2}},
                "`band` must have shape (B, T, 2) = (2, 7, 2), but has (3, 7, 2).");
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}, {2, 7, 3}},
                "`band` must have shape (B, T, 2) = (2, 7, 2), but has (2, 7, 3).");
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}, {2, 0, 2}},
                "`band` must have at least one frame, but has shape (2, 0, 2).");
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}, {2, 7, 2}, {2, 4, 2}},
                "`emission_windows` must have shape (B, S, 2) = (2, 3, 2), but has (2, 4, 2).");
}

CASE(EmptyBatch) {
  ExpectShapes(Infer("RnntLossFused", {{0, 5}, {0, 0}, {0}, {0}}, 3), {{0}, {0, 5}, {0}});
}

CASE(UnknownRows) {
  ExpectShapes(Infer("RnntLossFused", {{-1, 5}, {2, 3}, {2}, {2}}, 3), {{2}, {-1, 5}, {2}});
  ExpectShapes(Infer("RnntLossForward", {{-1, 5}, {2, 3}, {2}, {2}}, 3),
               {{2}, rnnt_loss_fused::StateShape(-1, 2), {2}});
}

CASE(UnknownBatchIsTakenFromAnyOperand) {
  ExpectShapes(Infer("RnntLossFused", {{-1, -1}, {-1, -1}, {-1}, {4}}, 3), {{4}, {-1, -1}, {4}});
  ExpectShapes(Infer("RnntLossFused", {{-1, -1}, {4, -1}, {-1}, {-1}}, 3), {{4}, {-1, -1}, {4}});
  ExpectShapes(Infer("RnntLossFused", {{-1, -1}, {-1, -1}, {-1}, {-1}}, 3), {{-1}, {-1, -1}, {-1}});
}

CASE(UnknownRank) {
  ExpectShapes(Infer("RnntLossFused", {{-2}, {-2}, {-2}, {-2}}, 3), {{-1}, {-1, -1}, {-1}});
  ExpectShapes(Infer("RnntLossFused", {{-2}, {-2}, {3}, {-2}}, 3), {{3}, {-1, -1}, {3}});
  ExpectShapes(Infer("RnntLossFused", {{24, 5}, {-2}, {-2}, {-2}}, 3), {{-1}, {24, 5}, {-1}});
}

CASE(WrongRankOfLogits) {
  ExpectRefusal({{2, 4, 3, 5}, {2, 2}, {2}, {2}},
                "`logits` must have shape (N, V), but has (2, 4, 3, 5).");
}

CASE(WrongRankOfLengths) {
  ExpectRefusal({{24, 5}, {2, 3}, {2, 1}, {2}},
                "`logit_lengths` must have shape (B,) = (2,), but has (2, 1).");
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {}},
                "`target_lengths` must have shape (B,) = (2,), but has ().");
}

CASE(WrongRankOfTargets) {
  ExpectRefusal({{24, 5}, {6}, {2}, {2}}, "`targets` must have shape (B, S), but has (6,).");
}

CASE(BatchSizesDisagree) {
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {3}},
                "`target_lengths` must have shape (B,) = (2,), but has (3,).");
  ExpectRefusal({{24, 5}, {4, 3}, {2}, {2}},
                "`targets` must have shape (B, S) = (2, 3), but has (4, 3).");
  ExpectRefusal({{24, 5}, {4, -1}, {2}, {-1}},
                "`targets` must have shape (B, S), but has (4, -1).");
}

CASE(NoColumns) {
  ExpectRefusal({{24, 0}, {2, 3}, {2}, {2}},
                "`logits` must have at least one column, but has shape (24, 0).");
}

CASE(BlankRange) {
  for (const int64_t blank : {-5, -1, 0, 4}) {
    ExpectShapes(Infer("RnntLossFused", {{24, 5}, {2, 3}, {2}, {2}}, 3, blank),
                 {{2}, {24, 5}, {2}});
  }
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}}, "`blank` must be in [-5, 4], but is 5.", 5);
  ExpectRefusal({{24, 5}, {2, 3}, {2}, {2}}, "`blank` must be in [-5, 4], but is -6.", -6);
}

CASE(BlankIsNotJudgedWhileColumnsAreUnknown) {
  ExpectShapes(Infer("RnntLossFused", {{24, -1}, {2, 3}, {2}, {2}}, 3, 7), {{2}, {24, -1}, {2}});
}

CASE(MissingInputAndAttribute) {
  ExpectRefusal({{24, 5}, {2, 3}, {2}}, "`target_lengths` is missing.");
  gert::InferShapeContext context;
  context.fields.node_name = "loss";
  for (const Shape& shape : std::vector<Shape>{{24, 5}, {2, 3}, {2}, {2}}) {
    context.fields.inputs.push_back(ToStorage(shape));
  }
  ExpectEqual(gert::OpImplRegisterV2::All().at("RnntLossFused").infer_shape(&context),
              ge::GRAPH_FAILED, "status");
  ExpectErrors({"loss: `blank` is missing."});
  ExpectEqual(gert::OpImplRegisterV2::All().at("RnntLossFused").infer_shape(nullptr),
              ge::GRAPH_FAILED, "status without a context");
}

std::vector<ge::DataType> InferTypes(const char* op_type, ge::DataType logits, size_t num_outputs) {
  gert::InferDataTypeContext context;
  context.fields.input_types = {gert::CompileTimeTensorDesc(logits)};
  context.output_types.assign(num_outputs, ge::DT_UNDEFINED);
  ExpectEqual(gert::OpImplRegisterV2::All().at(op_type).infer_data_type(&context),
              ge::GRAPH_SUCCESS, "status");
  return context.output_types;
}

CASE(DataTypes) {
  using Types = std::vector<ge::DataType>;
  for (const ge::DataType type : {ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16}) {
    ExpectEqual(InferTypes("RnntLossFused", type, 3), Types{ge::DT_FLOAT, type, ge::DT_INT32},
                "fused");
    ExpectEqual(InferTypes("RnntLossFused", type, 2), Types{ge::DT_FLOAT, type},
                "fused without status");
    ExpectEqual(InferTypes("RnntLossForward", type, 3),
                Types{ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_INT32}, "forward");
    ExpectEqual(InferTypes("RnntLossBackward", type, 1), Types{type}, "backward");
  }
}

}  // namespace
