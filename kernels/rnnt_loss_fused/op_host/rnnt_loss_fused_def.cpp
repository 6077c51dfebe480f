// Definitions of RnntLossFused, RnntLossForward and RnntLossBackward. CANN generates the two-phase
// aclnn functions from them.
#include <initializer_list>
#include <vector>

#include "register/op_def_registry.h"

namespace ops {
namespace {

// One column for each dtype of the logits.
const std::vector<ge::DataType> kLogitsTypes = {ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16};
const std::vector<ge::DataType> kFloat32(3, ge::DT_FLOAT);
const std::vector<ge::DataType> kInt32(3, ge::DT_INT32);
const std::vector<ge::Format> kNd(3, ge::FORMAT_ND);

void SetTensor(OpParamDef& tensor, Option presence, const std::vector<ge::DataType>& types) {
  tensor.ParamType(presence).DataType(types).Format(kNd).UnknownShapeFormat(kNd);
}

class RnntLossOpDef : public OpDef {
 public:
  explicit RnntLossOpDef(const char* name) : OpDef(name) {}

 protected:
  // aclnn copies a tensor that is not contiguous; the kernel sees contiguous memory only.
  void AddInput(const char* name, const std::vector<ge::DataType>& types,
                Option presence = REQUIRED) {
    OpParamDef& input = this->Input(name);
    SetTensor(input, presence, types);
    input.AutoContiguous();
  }
  void AddOutput(const char* name, Option presence, const std::vector<ge::DataType>& types) {
    SetTensor(this->Output(name), presence, types);
  }
  void AddProblem() {
    AddInput("logits", kLogitsTypes);
    AddInput("targets", kInt32);
    AddInput("logit_lengths", kInt32);
    AddInput("target_lengths", kInt32);
  }
  // After all required inputs.
  void AddRestrictions() {
    AddInput("band", kInt32, OPTIONAL);
    AddInput("emission_windows", kInt32, OPTIONAL);
  }
  void AddBlank() { this->Attr("blank").AttrType(OPTIONAL).Int(-1); }
  void AddClamp() { this->Attr("clamp").AttrType(OPTIONAL).Float(-1.0f); }
  void AddFusedLogSoftmax() { this->Attr("fused_log_softmax").AttrType(OPTIONAL).Bool(true); }
  void AddNeedsGrad() { this->Attr("needs_grad").AttrType(OPTIONAL).Bool(true); }
  void AddBlankInTargets() { this->Attr("blank_in_targets").AttrType(OPTIONAL).Bool(false); }
  void AddFastemitLambda() { this->Attr("fastemit_lambda").AttrType(OPTIONAL).Float(0.0f); }
  void AddChip() {
    OpAICoreConfig config;
    config.DynamicCompileStaticFlag(true)
        .DynamicRankSupportFlag(true)
        .DynamicShapeSupportFlag(true)
        .NeedCheckSupportFlag(false)
        .PrecisionReduceFlag(false);
    this->AICore().AddConfig("ascend910b", config);
  }
};

}  // namespace

class RnntLossFused : public RnntLossOpDef {
 public:
  explicit RnntLossFused(const char* name) : RnntLossOpDef(name) {
    AddProblem();
    AddRestrictions();
    AddBlank();
    AddClamp();
    AddFusedLogSoftmax();
    AddBlankInTargets();
    AddOutput("loss", REQUIRED, kFloat32);
    AddOutput("grad", REQUIRED, kLogitsTypes);
    AddOutput("status", OPTIONAL, kInt32);
    AddChip();
  }
};
OP_ADD(RnntLossFused);

class RnntLossForward : public RnntLossOpDef {
 public:
  explicit RnntLossForward(const char* name) : RnntLossOpDef(name) {
    AddProblem();
    AddRestrictions();
    AddBlank();
    AddFusedLogSoftmax();
    AddNeedsGrad();
    AddBlankInTargets();
    AddOutput("loss", REQUIRED, kFloat32);
    AddOutput("state", REQUIRED, kFloat32);
    AddOutput("status", OPTIONAL, kInt32);
    AddChip();
  }
};
OP_ADD(RnntLossForward);

class RnntLossBackward : public RnntLossOpDef {
 public:
  explicit RnntLossBackward(const char* name) : RnntLossOpDef(name) {
    AddProblem();
    AddInput("state", kFloat32);
    AddInput("grad_loss", kFloat32);
    AddRestrictions();
    AddBlank();
    AddClamp();
    AddFusedLogSoftmax();
    AddFastemitLambda();
    AddBlankInTargets();
    AddOutput("grad", REQUIRED, kLogitsTypes);
    AddChip();
  }
};
OP_ADD(RnntLossBackward);

}  // namespace ops
