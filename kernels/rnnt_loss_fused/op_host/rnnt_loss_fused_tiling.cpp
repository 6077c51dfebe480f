// Tiling of RnntLossFused, RnntLossForward and RnntLossBackward: checks what a launch promises,
// then hands over what rnnt_loss_fused_tiling_plan.h works out.
#include <cstring>
#include <optional>

#include "register/op_impl_registry.h"
#include "rnnt_loss_fused_check.h"
#include "rnnt_loss_fused_context.h"
#include "rnnt_loss_fused_tiling_plan.h"
#include "tiling/platform/platform_ascendc.h"

namespace optiling {
namespace {

using rnnt_loss_fused::ElementType;
using rnnt_loss_fused::Entry;
using rnnt_loss_fused::Platform;
using rnnt_loss_fused::Problem;
using rnnt_loss_fused::Report;
using rnnt_loss_fused::Shape;
using rnnt_loss_fused::Sizes;
using rnnt_loss_fused::TilingPlan;

struct Operand {
  Shape shape;
  ElementType type;
};

std::string Read(const char* name, const gert::StorageShape* shape,
                 const gert::CompileTimeTensorDesc* desc, Operand* operand) {
  if (shape == nullptr || desc == nullptr) return std::string("`") + name + "` is missing.";
  operand->shape = rnnt_loss_fused::ToShape(shape->GetStorageShape());
  operand->type = rnnt_loss_fused::ToElementType(desc->GetDataType());
  return "";
}

// Reads the operands one after another and stops at the first thing that is wrong.
class Reader {
 public:
  explicit Reader(gert::TilingContext* context) : context_(context) {}

  Operand Input(size_t index, const char* name) {
    Operand operand = {};
    Note(Read(name, context_->GetInputShape(index), context_->GetInputDesc(index), &operand));
    return operand;
  }
  // An input that the caller may leave out; its place is the one of the definition.
  std::optional<Operand> OptionalInput(size_t index, const char* name) {
    const gert::StorageShape* shape = context_->GetOptionalInputShape(index);
    if (shape == nullptr) return std::nullopt;
    Operand operand = {};
    Note(Read(name, shape, context_->GetOptionalInputDesc(index), &operand));
    return operand;
  }
  Operand Output(size_t index, const char* name) {
    Operand operand = {};
    Note(Read(name, context_->GetOutputShape(index), context_->GetOutputDesc(index), &operand));
    return operand;
  }
  // An output that the caller may leave out has no shape then.
  bool HasOutput(size_t index) const {
    const gert::StorageShape* shape = context_->GetOutputShape(index);
    return shape != nullptr && shape->GetStorageShape().GetDimNum() > 0;
  }
  template <typename T>
  T Attribute(size_t index, const char* name) {
    const gert::RuntimeAttrs* attrs = context_->GetAttrs();
    const T* value = attrs == nullptr ? nullptr : attrs->GetAttrPointer<T>(index);
    if (value != nullptr) return *value;
    Note(std::string("`") + name + "` is missing.");
    return T();
  }
  void Note(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  // Runs a check only where nothing was wrong before it.
  template <typename Check, typename... Args>
  void Expect(const Check& check, const Args&... args) {
    if (error_.empty()) error_ = check(args...);
  }
  void ExpectOperand(const char* name, const Operand& operand, const char* meaning,
                     const Shape& shape, ElementType type, const char* why = "") {
    if (error_.empty()) {
      error_ = rnnt_loss_fused::CheckShape(name, meaning, operand.shape, shape);
    }
    if (error_.empty()) error_ = rnnt_loss_fused::CheckType(name, operand.type, type, why);
  }
  const std::string& error() const { return error_; }

 private:
  gert::TilingContext* context_;
  std::string error_;
};

void ReadInputs(Reader* reader, Problem* problem) {
  const Operand logits = reader->Input(rnnt_loss_fused::kLogits, "logits");
  const Operand targets = reader->Input(rnnt_loss_fused::kTargets, "targets");
  const Operand logit_lengths = reader->Input(rnnt_loss_fused::kLogitLengths, "logit_lengths");
  const Operand target_lengths = reader->Input(rnnt_loss_fused::kTargetLengths, "target_lengths");
  const size_t band_place = rnnt_loss_fused::BandPlace(problem->entry == Entry::kBackward);
  const std::optional<Operand> band = reader->OptionalInput(band_place, "band");
  const std::optional<Operand> windows = reader->OptionalInput(band_place + 1, "emission_windows");
  rnnt_loss_fused::InputShapes shapes = {logits.shape, targets.shape, logit_lengths.shape,
                                         target_lengths.shape};
  if (band.has_value()) shapes.band = band->shape;
  if (windows.has_value()) shapes.emission_windows = windows->shape;
  reader->Expect(rnnt_loss_fused::CheckInputShapes, shapes);
  reader->Expect(rnnt_loss_fused::CheckLogitsType, logits.type);
  reader->Expect(rnnt_loss_fused::CheckType, "targets", targets.type, ElementType::kInt32, "");
  reader->Expect(rnnt_loss_fused::CheckType, "logit_lengths", logit_lengths.type,
                 ElementType::kInt32, "");
  reader->Expect(rnnt_loss_fused::CheckType, "target_lengths", target_lengths.type,
                 ElementType::kInt32, "");
  if (band.has_value()) {
    reader->Expect(rnnt_loss_fused::CheckType, "band", band->type, ElementType::kInt32, "");
  }
  if (windows.has_value()) {
    reader->Expect(rnnt_loss_fused::CheckType, "emission_windows", windows->type,
                   ElementType::kInt32, "");
  }
  problem->has_windows = windows.has_value();
  problem->sizes = rnnt_loss_fused::InferSizes(shapes);
  problem->type = logits.type;
  reader->Expect(rnnt_loss_fused::CheckKnown, problem->sizes);
}

void ReadAttributes(Reader* reader, Problem* problem) {
  size_t index = 0;
  problem->blank = reader->Attribute<int64_t>(index++, "blank");
  if (problem->entry != Entry::kForward)
    problem->clamp = reader->Attribute<float>(index++, "clamp");
  problem->fused_log_softmax = reader->Attribute<bool>(index++, "fused_log_softmax");
  if (problem->entry == Entry::kForward) {
    problem->needs_grad = reader->Attribute<bool>(index++, "needs_grad");
  } else if (problem->entry == Entry::kBackward) {
    problem->fastemit_lambda = reader->Attribute<float>(index++, "fastemit_lambda");
    reader->Expect(rnnt_loss_fused::CheckFastemitLambda, problem->fastemit_lambda);
  }
  problem->blank_in_targets = reader->Attribute<bool>(index, "blank_in_targets");
  reader->Expect(rnnt_loss_fused::CheckBlank, problem->blank, problem->sizes.vocab);
}

void CheckLoss(Reader* reader, const Sizes& sizes) {
  reader->ExpectOperand("loss", reader->Output(0, "loss"), "(B,)", {sizes.batch},
                        ElementType::kFloat32);
}

void CheckGrad(Reader* reader, const Problem& problem, size_t index) {
  reader->ExpectOperand("grad", reader->Output(index, "grad"), "(N, V)",
                        {problem.sizes.num_rows, problem.sizes.vocab}, problem.type,
                        ", as `logits`");
}

void CheckStatus(Reader* reader, Problem* problem) {
  problem->has_status = reader->HasOutput(2);
  if (!problem->has_status) return;
  reader->ExpectOperand("status", reader->Output(2, "status"), "(B,)", {problem->sizes.batch},
                        ElementType::kInt32);
}

void CheckOtherOperands(Reader* reader, Problem* problem) {
  const Sizes& sizes = problem->sizes;
  const Shape state = rnnt_loss_fused::StateShape(sizes.num_rows, sizes.batch, problem->needs_grad,
                                                  sizes.band_frames);
  if (problem->entry == Entry::kFused) {
    CheckLoss(reader, sizes);
    CheckGrad(reader, *problem, 1);
    CheckStatus(reader, problem);
  } else if (problem->entry == Entry::kForward) {
    CheckLoss(reader, sizes);
    reader->ExpectOperand("state", reader->Output(1, "state"), "(state size,)", state,
                          ElementType::kFloat32);
    CheckStatus(reader, problem);
  } else {
    reader->ExpectOperand("state", reader->Input(rnnt_loss_fused::kState, "state"), "(state size,)",
                          state, ElementType::kFloat32);
    reader->ExpectOperand("grad_loss", reader->Input(rnnt_loss_fused::kGradLoss, "grad_loss"),
                          "(B,)", {sizes.batch}, ElementType::kFloat32);
    CheckGrad(reader, *problem, 0);
  }
}

std::string ReadPlatform(gert::TilingContext* context, Platform* platform,
                         size_t* system_workspace_bytes) {
  if (context->GetPlatformInfo() == nullptr) return "The platform is not known.";
  const platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
  uint64_t ub_bytes = 0;
  chip.GetCoreMemSize(platform_ascendc::CoreMemType::UB, ub_bytes);
  platform->num_cores = chip.GetCoreNumAiv();
  platform->ub_bytes = static_cast<int64_t>(ub_bytes);
  *system_workspace_bytes = chip.GetLibApiWorkSpaceSize();
  return rnnt_loss_fused::CheckPlatform(*platform);
}

ge::graphStatus Fill(gert::TilingContext* context, const TilingPlan& plan,
                     size_t system_workspace_bytes) {
  gert::TilingData* raw = context->GetRawTilingData();
  size_t* workspace_sizes = context->GetWorkspaceSizes(1);
  if (raw == nullptr || workspace_sizes == nullptr || raw->GetCapacity() < sizeof(plan.data)) {
    return Report(context->GetNodeName(), "There is no room for the tiling data.");
  }
  std::memcpy(raw->GetData(), &plan.data, sizeof(plan.data));
  raw->SetDataSize(sizeof(plan.data));
  workspace_sizes[0] = system_workspace_bytes + static_cast<size_t>(plan.workspace_bytes);
  context->SetTilingKey(plan.tiling_key);
  context->SetBlockDim(static_cast<uint32_t>(plan.data.used_cores));
  return context->SetScheduleMode(1);  // SyncAll: all blocks start together or not at all
}

ge::graphStatus Tile(gert::TilingContext* context, Entry entry) {
  if (context == nullptr) return ge::GRAPH_FAILED;
  Problem problem;
  problem.entry = entry;
  Platform platform;
  size_t system_workspace_bytes = 0;
  Reader reader(context);
  ReadInputs(&reader, &problem);
  if (reader.error().empty()) ReadAttributes(&reader, &problem);
  if (reader.error().empty()) CheckOtherOperands(&reader, &problem);
  if (reader.error().empty()) {
    reader.Note(ReadPlatform(context, &platform, &system_workspace_bytes));
  }
  if (!reader.error().empty()) return Report(context->GetNodeName(), reader.error());
  return Fill(context, MakeTiling(problem, platform), system_workspace_bytes);
}

ge::graphStatus TileFused(gert::TilingContext* context) { return Tile(context, Entry::kFused); }
ge::graphStatus TileForward(gert::TilingContext* context) { return Tile(context, Entry::kForward); }
ge::graphStatus TileBackward(gert::TilingContext* context) {
  return Tile(context, Entry::kBackward);
}

// Everything is read from the context at launch: nothing is prepared at compile time.
struct CompileInfo {};
ge::graphStatus Prepare(gert::TilingParseContext*) { return ge::GRAPH_SUCCESS; }

}  // namespace

IMPL_OP_OPTILING(RnntLossFused).Tiling(TileFused).TilingParse<CompileInfo>(Prepare);
IMPL_OP_OPTILING(RnntLossForward).Tiling(TileForward).TilingParse<CompileInfo>(Prepare);
IMPL_OP_OPTILING(RnntLossBackward).Tiling(TileBackward).TilingParse<CompileInfo>(Prepare);

}  // namespace optiling
