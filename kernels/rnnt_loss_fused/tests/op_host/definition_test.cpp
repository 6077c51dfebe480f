// The definition: operands, their order, dtypes, defaults and chips.
#include "harness.h"
#include "register/op_def_registry.h"

namespace {

using harness::ExpectEqual;

// "logits:REQUIRED:0,1,27" for each operand.
std::vector<std::string> Operands(const std::deque<ops::OpParamDef>& params) {
  std::vector<std::string> texts;
  for (const ops::OpParamDef& param : params) {
    std::string text = param.name + (param.option == ops::REQUIRED ? ":required:" : ":optional:");
    for (const ge::DataType type : param.types) text += std::to_string(type) + ",";
    texts.push_back(text);
  }
  return texts;
}

std::vector<std::string> Attrs(const ops::OpDef& definition) {
  std::vector<std::string> texts;
  for (const ops::OpAttrDef& attr : definition.attrs) {
    std::string value = "none";
    if (const auto* number = std::get_if<int64_t>(&attr.default_value)) {
      value = "int " + std::to_string(*number);
    } else if (const auto* real = std::get_if<float>(&attr.default_value)) {
      value = "float " + harness::Show(*real);
    } else if (const auto* flag = std::get_if<bool>(&attr.default_value)) {
      value = *flag ? "bool true" : "bool false";
    }
    texts.push_back(attr.name + ": " + value + (attr.option == ops::OPTIONAL ? "" : " required"));
  }
  return texts;
}

const ops::OpDef& Definition(const char* name) { return ops::OpDefFactory::All().at(name); }

using Texts = std::vector<std::string>;
const Texts kProblem = {"logits:required:0,1,27,", "targets:required:3,3,3,",
                        "logit_lengths:required:3,3,3,", "target_lengths:required:3,3,3,"};
const Texts kRestrictions = {"band:optional:3,3,3,", "emission_windows:optional:3,3,3,"};

// The problem, some inputs of an operator's own, and those that a caller may leave out.
Texts Inputs(const Texts& own = {}) {
  Texts inputs = kProblem;
  inputs.insert(inputs.end(), own.begin(), own.end());
  inputs.insert(inputs.end(), kRestrictions.begin(), kRestrictions.end());
  return inputs;
}

CASE(ThreeOperatorsAreDefined) {
  Texts names;
  for (const auto& entry : ops::OpDefFactory::All()) names.push_back(entry.first);
  ExpectEqual(names, Texts{"RnntLossBackward", "RnntLossForward", "RnntLossFused"}, "operators");
}

CASE(FusedOperands) {
  const ops::OpDef& fused = Definition("RnntLossFused");
  ExpectEqual(Operands(fused.inputs), Inputs(), "inputs");
  ExpectEqual(Operands(fused.outputs),
              Texts{"loss:required:0,0,0,", "grad:required:0,1,27,", "status:optional:3,3,3,"},
              "outputs");
  ExpectEqual(Attrs(fused),
              Texts{"blank: int -1", "clamp: float -1", "fused_log_softmax: bool true",
                    "blank_in_targets: bool false"},
              "attrs");
}

CASE(ForwardOperands) {
  const ops::OpDef& forward = Definition("RnntLossForward");
  ExpectEqual(Operands(forward.inputs), Inputs(), "inputs");
  ExpectEqual(Operands(forward.outputs),
              Texts{"loss:required:0,0,0,", "state:required:0,0,0,", "status:optional:3,3,3,"},
              "outputs");
  ExpectEqual(Attrs(forward),
              Texts{"blank: int -1", "fused_log_softmax: bool true", "needs_grad: bool true",
                    "blank_in_targets: bool false"},
              "attrs");
}

CASE(BackwardOperands) {
  const ops::OpDef& backward = Definition("RnntLossBackward");
  ExpectEqual(Operands(backward.inputs),
              Inputs({"state:required:0,0,0,", "grad_loss:required:0,0,0,"}), "inputs");
  ExpectEqual(Operands(backward.outputs), Texts{"grad:required:0,1,27,"}, "outputs");
  ExpectEqual(Attrs(backward),
              Texts{"blank: int -1", "clamp: float -1", "fused_log_softmax: bool true",
                    "fastemit_lambda: float 0", "blank_in_targets: bool false"},
              "attrs");
}

CASE(EveryTensorIsNdAndInputsAreMadeContiguous) {
  for (const auto& entry : ops::OpDefFactory::All()) {
    for (const ops::OpParamDef& input : entry.second.inputs) {
      ExpectEqual(input.auto_contiguous, true, input.name + ".AutoContiguous");
    }
    for (const auto* params : {&entry.second.inputs, &entry.second.outputs}) {
      for (const ops::OpParamDef& param : *params) {
        ExpectEqual(param.types.size(), 3u, param.name + " dtypes");
        ExpectEqual(param.formats == std::vector<ge::Format>(3, ge::FORMAT_ND), true,
                    param.name + ".Format is ND");
        ExpectEqual(param.unknown_shape_formats == param.formats, true,
                    param.name + ".UnknownShapeFormat is ND");
      }
    }
  }
}

CASE(OneChipWithDynamicShapes) {
  for (const auto& entry : ops::OpDefFactory::All()) {
    const auto& configs = entry.second.ai_core.configs;
    ExpectEqual(configs.size(), 1u, entry.first + " chips");
    ExpectEqual(configs.count("ascend910b"), 1u, entry.first + " ascend910b");
    const auto& flags = configs.begin()->second.flags;
    ExpectEqual(flags.at("dynamic_shape"), true, "DynamicShapeSupportFlag");
    ExpectEqual(flags.at("dynamic_rank"), true, "DynamicRankSupportFlag");
    ExpectEqual(flags.at("precision_reduce"), false, "PrecisionReduceFlag");
  }
}

}  // namespace
