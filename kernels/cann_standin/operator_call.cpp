#include "operator_call.h"

#include <cstring>
#include <memory>
#include <utility>

#include "register/op_def_registry.h"
#include "utils/log/asc_cpu_log.h"

namespace standin {

uint64_t Bytes(const aclTensor& tensor) {
  return static_cast<uint64_t>(ElementCount(tensor.shape)) * ElementBytes(tensor.type);
}

namespace {

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
      return Fail(kNullPointer, name + "not be nullptr.");
    }
    if (!Contains(definition.types, tensor->type)) {
      return Fail(kInvalidArgument, name + "be " + TypesText(definition.types) + ", but is " +
                                        TypeText(tensor->type) + ".");
    }
    // torch_npu calls each plain tensor of three dimensions NCL (seen with 2.13.0).
    const bool is_plain = tensor->format == ACL_FORMAT_NCL && tensor->shape.size() == 3;
    if (tensor->format != ACL_FORMAT_ND && !is_plain) {
      return Fail(kInvalidArgument, name + "have format ND, but has aclFormat " +
                                        std::to_string(static_cast<int>(tensor->format)) + ".");
    }
    if (are_outputs && !IsContiguous(*tensor)) {
      return Fail(kInvalidArgument, name + "be contiguous.");
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

std::vector<aclTensor> Copies(const Tensors& tensors) {
  std::vector<aclTensor> copies;
  for (const aclTensor* tensor : tensors) {
    copies.push_back(tensor == nullptr ? aclTensor{{}, {}, ACL_DT_UNDEFINED, ACL_FORMAT_ND, nullptr}
                                       : *tensor);
  }
  return copies;
}

// Elements in row-major order, as CANN copies an input that is not contiguous.
std::vector<unsigned char> Gathered(const aclTensor& tensor) {
  const uint64_t element = ElementBytes(tensor.type);
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

}  // namespace

GM_ADDR MappedTensors::Tiling() {
  gert::TilingContext& context = prepared_.tiling;
  return memory_.Map("tiling", emulator::Access::kInput, context.tiling_data.GetData(),
                     context.tiling_data.GetDataSize());
}

GM_ADDR MappedTensors::Workspace(void* workspace) {
  return memory_.Map("workspace", emulator::Access::kOutput, workspace,
                     prepared_.tiling.workspace_sizes[0]);
}

GM_ADDR MappedTensors::Input(size_t place, const char* name, bool is_overwritten) {
  const aclTensor& tensor = prepared_.inputs[place];
  if (tensor.type == ACL_DT_UNDEFINED) return nullptr;
  const auto access = is_overwritten ? emulator::Access::kInOut : emulator::Access::kInput;
  if (IsContiguous(tensor)) return memory_.Map(name, access, tensor.data, Bytes(tensor));
  gathered_.push_back(Gathered(tensor));
  return memory_.Map(name, access, gathered_.back().data(), gathered_.back().size());
}

GM_ADDR MappedTensors::Output(size_t place, const char* name) {
  const aclTensor& tensor = prepared_.outputs[place];
  if (tensor.type == ACL_DT_UNDEFINED) return nullptr;
  return memory_.Map(name, emulator::Access::kOutput, tensor.data, Bytes(tensor));
}

emulator::LaunchOptions MappedTensors::Options() const {
  static uint64_t launches = 0;  // each launch has an interleaving of its own
  emulator::LaunchOptions options;
  options.block_dim = static_cast<int>(prepared_.tiling.block_dim);
  options.schedule_mode = static_cast<int>(prepared_.tiling.schedule_mode);
  options.tiling_key = prepared_.tiling.tiling_key;
  options.seed = launches++;
  return options;
}

int Prepare(const char* op, const Tensors& inputs, Attributes attributes, const Tensors& outputs,
            const Run& run, uint64_t* workspace_bytes, aclOpExecutor** executor) {
  const std::string name = op;
  if (workspace_bytes == nullptr || executor == nullptr) {
    return Fail(kNullPointer, name + ": `workspaceSize` and `executor` must not be nullptr.");
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
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  cann_double::Errors().clear();
  if (gert::OpImplRegisterV2::All().at(op).tiling(&context) != ge::GRAPH_SUCCESS) {
    return Fail(kTilingError, cann_double::Errors().back());
  }
  *workspace_bytes = context.workspace_sizes[0];
  *executor = new aclOpExecutor{"aclnn" + name, *workspace_bytes, [prepared, run](void* workspace) {
                                  return run(*prepared, workspace);
                                }};
  return 0;
}

}  // namespace standin
