// aclnnRnntLossFused, aclnnRnntLossForward and aclnnRnntLossBackward as CANN generates them from
// the operators' definition: checks, tiling, launch. Definition, tiling and kernel are the
// operator's own; the kernel runs on the emulator.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aclnn.h"
#include "emulator/launch.h"
#include "register/op_def_registry.h"
#include "register/op_impl_registry.h"
#include "rnnt_loss_fused/emulated/kernels.h"
#include "standin.h"
#include "utils/log/asc_cpu_log.h"

namespace {

using Attributes = std::vector<gert::RuntimeAttrs::Value>;
using Tensors = std::vector<const aclTensor*>;

fe::PlatFormInfos& Chip() {
  static auto* chip = new fe::PlatFormInfos;
  return *chip;
}

std::string TypeText(aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
      return "FLOAT";
    case ACL_FLOAT16:
      return "FLOAT16";
    case ACL_BF16:
      return "BF16";
    case ACL_INT32:
      return "INT32";
    case ACL_INT64:
      return "INT64";
    case ACL_DOUBLE:
      return "DOUBLE";
    default:
      return "aclDataType " + std::to_string(static_cast<int>(type));
  }
}

std::string TypesText(const std::vector<ge::DataType>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string name = TypeText(static_cast<aclDataType>(types[i]));
    if (i > 0 && text.find(name) != std::string::npos) continue;
    text += (i == 0 ? "" : i + 1 == types.size() ? " or " : ", ") + name;
  }
  return text;
}

bool Contains(const std::vector<ge::DataType>& types, aclDataType type) {
  for (const ge::DataType known : types) {
    if (static_cast<int>(known) == static_cast<int>(type)) return true;
  }
  return false;
}

// 0, or the status of the first tensor that the definition doesn't allow.
int CheckTensors(const std::string& op, const std::deque<ops::OpParamDef>& definitions,
                 const Tensors& tensors, bool are_outputs) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ops::OpParamDef& definition = definitions[i];
    const std::string name = op + ": `" + definition.name + "` must ";
    const aclTensor* tensor = tensors[i];
    if (tensor == nullptr) {
      if (definition.option == ops::OPTIONAL) continue;
      return standin::Fail(standin::kNullPointer, name + "not be nullptr.");
    }
    if (!Contains(definition.types, tensor->type)) {
      return standin::Fail(
          standin::kInvalidArgument,
          name + "be " + TypesText(definition.types) + ", but is " + TypeText(tensor->type) + ".");
    }
    if (tensor->format != ACL_FORMAT_ND) {
      return standin::Fail(standin::kInvalidArgument,
                           name + "have format ND, but has aclFormat " +
                               std::to_string(static_cast<int>(tensor->format)) + ".");
    }
    if (are_outputs && !standin::IsContiguous(*tensor)) {
      return standin::Fail(standin::kInvalidArgument, name + "be contiguous.");
    }
  }
  return 0;
}

void Describe(const Tensors& tensors, std::vector<std::optional<gert::StorageShape>>* shapes,
              std::vector<gert::CompileTimeTensorDesc>* types) {
  for (const aclTensor* tensor : tensors) {
    if (tensor == nullptr) {
      shapes->push_back(std::nullopt);
      types->emplace_back();
      continue;
    }
    gert::Shape shape;
    for (const int64_t size : tensor->shape) shape.AppendDim(size);
    shapes->emplace_back(gert::StorageShape(shape, shape));
    types->emplace_back(static_cast<ge::DataType>(tensor->type));
  }
}

// Between the phases: the tensors' descriptions and what the tiling said.
struct Prepared {
  std::string op;
  std::vector<aclTensor> inputs;
  std::vector<aclTensor> outputs;  // of one that the caller left out, data is nullptr
  gert::TilingContext tiling;
};

std::vector<aclTensor> Copies(const Tensors& tensors) {
  std::vector<aclTensor> copies;
  for (const aclTensor* tensor : tensors) {
    copies.push_back(tensor == nullptr ? aclTensor{{}, {}, ACL_DT_UNDEFINED, ACL_FORMAT_ND, nullptr}
                                       : *tensor);
  }
  return copies;
}

uint64_t Bytes(const aclTensor& tensor) {
  return static_cast<uint64_t>(standin::ElementCount(tensor.shape)) *
         standin::ElementBytes(tensor.type);
}

// Elements in row-major order, as CANN copies an input that is not contiguous.
std::vector<unsigned char> Gathered(const aclTensor& tensor) {
  const uint64_t element = standin::ElementBytes(tensor.type);
  std::vector<unsigned char> bytes(Bytes(tensor));
  std::vector<int64_t> index(tensor.shape.size(), 0);
  for (uint64_t at = 0; at < bytes.size(); at += element) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.strides[d];
    std::memcpy(&bytes[at], static_cast<const char*>(tensor.data) + offset * int64_t(element),
                element);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.shape[d]) break;
      index[d] = 0;
    }
  }
  return bytes;
}

// One run of a kernel on the emulator, over the device's memory itself.
class KernelRun {
 public:
  explicit KernelRun(Prepared* prepared) : prepared_(prepared) {}

  std::string Run(void* workspace) {
    gert::TilingContext& context = prepared_->tiling;
    KernelAddresses gm = {};
    gm.tiling = memory_.Map("tiling", emulator::Access::kInput, context.tiling_data.GetData(),
                            context.tiling_data.GetDataSize());
    gm.logits = Input(0, "logits", OverwritesLogits());
    gm.targets = Input(1, "targets");
    gm.logit_lengths = Input(2, "logit_lengths");
    gm.target_lengths = Input(3, "target_lengths");
    if (prepared_->op == "RnntLossFused") {
      gm.loss = Output(0, "loss");
      gm.grad = Output(1, "grad");
      gm.status = Output(2, "status");
      gm.state = memory_.Map("workspace", emulator::Access::kOutput, workspace,
                             context.workspace_sizes[0]);
      return Launch(CallFused, gm);
    }
    if (prepared_->op == "RnntLossForward") {
      gm.loss = Output(0, "loss");
      gm.state = Output(1, "state");
      gm.status = Output(2, "status");
      return Launch(CallForward, gm);
    }
    gm.state = Input(4, "state");
    gm.grad_loss = Input(5, "grad_loss");
    gm.grad = OverwritesLogits() ? gm.logits : Output(0, "grad");
    return Launch(CallBackward, gm);
  }

 private:
  bool OverwritesLogits() const {
    return prepared_->op == "RnntLossBackward" && Bytes(prepared_->outputs[0]) > 0 &&
           prepared_->outputs[0].data == prepared_->inputs[0].data;
  }

  GM_ADDR Input(size_t place, const char* name, bool is_overwritten = false) {
    const aclTensor& tensor = prepared_->inputs[place];
    const auto access = is_overwritten ? emulator::Access::kInOut : emulator::Access::kInput;
    if (standin::IsContiguous(tensor)) {
      return memory_.Map(name, access, tensor.data, Bytes(tensor));
    }
    gathered_.push_back(Gathered(tensor));
    return memory_.Map(name, access, gathered_.back().data(), gathered_.back().size());
  }

  GM_ADDR Output(size_t place, const char* name) {
    const aclTensor& tensor = prepared_->outputs[place];
    if (tensor.type == ACL_DT_UNDEFINED) return nullptr;
    return memory_.Map(name, emulator::Access::kOutput, tensor.data, Bytes(tensor));
  }

  std::string Launch(void (*kernel)(const KernelAddresses&), const KernelAddresses& gm) {
    static uint64_t launches = 0;  // each launch has an interleaving of its own
    emulator::LaunchOptions options;
    options.block_dim = static_cast<int>(prepared_->tiling.block_dim);
    options.schedule_mode = static_cast<int>(prepared_->tiling.schedule_mode);
    options.tiling_key = prepared_->tiling.tiling_key;
    options.seed = launches++;
    const emulator::Report report = emulator::Launch(kernel, memory_, options, gm);
    return report.ok() ? "" : report.ToString();
  }

  Prepared* prepared_;
  emulator::GlobalMemory memory_;
  std::deque<std::vector<unsigned char>> gathered_;
};

int Prepare(const char* op, const Tensors& inputs, Attributes attributes, const Tensors& outputs,
            uint64_t* workspace_bytes, aclOpExecutor** executor) {
  const std::string name = op;
  if (workspace_bytes == nullptr || executor == nullptr) {
    return standin::Fail(standin::kNullPointer,
                         name + ": `workspaceSize` and `executor` must not be nullptr.");
  }
  const ops::OpDef& definition = ops::OpDefFactory::All().at(op);
  int status = CheckTensors(name, definition.inputs, inputs, false);
  if (status == 0) status = CheckTensors(name, definition.outputs, outputs, true);
  if (status != 0) return status;

  auto prepared = std::make_shared<Prepared>();
  prepared->op = name;
  prepared->inputs = Copies(inputs);
  prepared->outputs = Copies(outputs);
  gert::TilingContext& context = prepared->tiling;
  context.fields.node_name = op;
  Describe(inputs, &context.fields.inputs, &context.fields.input_types);
  Describe(outputs, &context.fields.outputs, &context.fields.output_types);
  context.fields.attrs = gert::RuntimeAttrs{std::move(attributes)};
  context.platform = &Chip();
  const std::lock_guard<std::recursive_mutex> lock(standin::Mutex());
  cann_double::Errors().clear();
  if (gert::OpImplRegisterV2::All().at(op).tiling(&context) != ge::GRAPH_SUCCESS) {
    return standin::Fail(standin::kTilingError, cann_double::Errors().back());
  }
  *workspace_bytes = context.workspace_sizes[0];
  *executor = new aclOpExecutor{"aclnn" + name, *workspace_bytes, [prepared](void* workspace) {
                                  return KernelRun(prepared.get()).Run(workspace);
                                }};
  return 0;
}

}  // namespace

extern "C" {

int aclnnRnntLossFusedGetWorkspaceSize(const aclTensor* logits, const aclTensor* targets,
                                       const aclTensor* logitLengths,
                                       const aclTensor* targetLengths, int64_t blank, double clamp,
                                       bool fusedLogSoftmax, const aclTensor* lossOut,
                                       const aclTensor* gradOut, const aclTensor* statusOutOptional,
                                       uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Prepare("RnntLossFused", {logits, targets, logitLengths, targetLengths},
                 {blank, static_cast<float>(clamp), fusedLogSoftmax},
                 {lossOut, gradOut, statusOutOptional}, workspaceSize, executor);
}
int aclnnRnntLossFused(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                       void* stream) {
  return standin::Launch("aclnnRnntLossFused", workspace, workspaceSize, executor, stream);
}

int aclnnRnntLossForwardGetWorkspaceSize(const aclTensor* logits, const aclTensor* targets,
                                         const aclTensor* logitLengths,
                                         const aclTensor* targetLengths, int64_t blank,
                                         bool fusedLogSoftmax, bool needsGrad,
                                         const aclTensor* lossOut, const aclTensor* stateOut,
                                         const aclTensor* statusOutOptional,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return Prepare("RnntLossForward", {logits, targets, logitLengths, targetLengths},
                 {blank, fusedLogSoftmax, needsGrad}, {lossOut, stateOut, statusOutOptional},
                 workspaceSize, executor);
}
int aclnnRnntLossForward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                         void* stream) {
  return standin::Launch("aclnnRnntLossForward", workspace, workspaceSize, executor, stream);
}

int aclnnRnntLossBackwardGetWorkspaceSize(const aclTensor* logits, const aclTensor* targets,
                                          const aclTensor* logitLengths,
                                          const aclTensor* targetLengths, const aclTensor* state,
                                          const aclTensor* gradLoss, int64_t blank, double clamp,
                                          bool fusedLogSoftmax, double fastemitLambda,
                                          const aclTensor* gradOut, uint64_t* workspaceSize,
                                          aclOpExecutor** executor) {
  return Prepare(
      "RnntLossBackward", {logits, targets, logitLengths, targetLengths, state, gradLoss},
      {blank, static_cast<float>(clamp), fusedLogSoftmax, static_cast<float>(fastemitLambda)},
      {gradOut}, workspaceSize, executor);
}
int aclnnRnntLossBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                          void* stream) {
  return standin::Launch("aclnnRnntLossBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
