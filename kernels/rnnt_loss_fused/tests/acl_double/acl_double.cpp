// Answers the example's calls: device memory is host memory, and aclnnRnntLossFused runs the
// operator's tiling (over the double of CANN's headers) and its kernel (on the emulator).
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn_rnnt_loss_fused.h"
#include "emulator/launch.h"
#include "op_kernel/rnnt_loss_fused.cpp"
#include "register/op_impl_registry.h"
#include "utils/log/asc_cpu_log.h"

struct aclTensor {
  std::vector<int64_t> shape;
  aclDataType type;
  void* data;
};

struct aclOpExecutor {
  std::vector<const aclTensor*> inputs;
  std::vector<const aclTensor*> outputs;
  gert::TilingContext context;
};

namespace {

constexpr aclnnStatus kNullPointer = 161001;
constexpr aclnnStatus kInvalidParameter = 161002;
constexpr aclnnStatus kRuntimeError = 361001;
constexpr aclnnStatus kTilingError = 561002;
constexpr aclError kOutOfMemory = 207001;

std::string& LastError() {
  static std::string text;
  return text;
}

fe::PlatFormInfos& Chip() {
  static fe::PlatFormInfos chip;
  return chip;
}

bool IsFaulty(const char* what) {
  const char* fault = std::getenv("ACL_DOUBLE_FAULT");
  return fault != nullptr && std::strcmp(fault, what) == 0;
}

template <typename Status>
Status Fail(Status status, const std::string& message) {
  LastError() = message;
  return status;
}

gert::StorageShape ToStorage(const aclTensor& tensor) {
  gert::Shape shape;
  for (const int64_t size : tensor.shape) shape.AppendDim(size);
  return {shape, shape};
}

uint64_t Bytes(const aclTensor& tensor) {
  uint64_t bytes = tensor.type == ACL_FLOAT || tensor.type == ACL_INT32 ? 4 : 2;
  for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

void Describe(const std::vector<const aclTensor*>& tensors,
              std::vector<std::optional<gert::StorageShape>>* shapes,
              std::vector<gert::CompileTimeTensorDesc>* types) {
  for (const aclTensor* tensor : tensors) {
    if (tensor == nullptr) {
      shapes->push_back(std::nullopt);
      types->emplace_back();
    } else {
      shapes->push_back(ToStorage(*tensor));
      types->emplace_back(static_cast<ge::DataType>(tensor->type));
    }
  }
}

GM_ADDR Map(emulator::GlobalMemory* memory, const char* name, emulator::Access access,
            const aclTensor* tensor) {
  return tensor == nullptr ? nullptr : memory->Map(name, access, tensor->data, Bytes(*tensor));
}

}  // namespace

extern "C" {

aclError aclInit(const char*) { return 0; }
aclError aclFinalize() { return 0; }
aclError aclrtSetDevice(int32_t) { return 0; }
aclError aclrtResetDevice(int32_t) { return 0; }
aclError aclrtCreateStream(aclrtStream* stream) {
  *stream = &Chip();
  return 0;
}
aclError aclrtDestroyStream(aclrtStream) { return 0; }
aclError aclrtSynchronizeStream(aclrtStream) { return 0; }

aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
  if (bytes == 0) return Fail(kOutOfMemory, "aclrtMalloc: `size` must be above zero.");
  if (IsFaulty("malloc")) return Fail(kOutOfMemory, "aclrtMalloc: out of memory.");
  *pointer = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  return 0;
}
aclError aclrtFree(void* pointer) {
  std::free(pointer);
  return 0;
}
aclError aclrtMemcpy(void* to, size_t, const void* from, size_t bytes, aclrtMemcpyKind) {
  std::memcpy(to, from, bytes);
  return 0;
}
const char* aclGetRecentErrMsg() { return LastError().c_str(); }

aclTensor* aclCreateTensor(const int64_t* dims, uint64_t count, aclDataType type, const int64_t*,
                           int64_t, aclFormat, const int64_t*, uint64_t, void* data) {
  return new aclTensor{{dims, dims + count}, type, data};
}
aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  delete tensor;
  return 0;
}

aclnnStatus aclnnRnntLossFusedGetWorkspaceSize(
    const aclTensor* logits, const aclTensor* targets, const aclTensor* logitLengths,
    const aclTensor* targetLengths, const aclTensor* bandOptional,
    const aclTensor* emissionWindowsOptional, int64_t blank, double clamp, bool fusedLogSoftmax,
    bool blankInTargets, const aclTensor* lossOut, const aclTensor* gradOut,
    const aclTensor* statusOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  if (IsFaulty("workspace_size")) return Fail(kInvalidParameter, "A made-up fault.");
  const std::vector<const aclTensor*> inputs = {
      logits, targets, logitLengths, targetLengths, bandOptional, emissionWindowsOptional};
  const std::vector<const aclTensor*> outputs = {lossOut, gradOut, statusOutOptional};
  for (const aclTensor* tensor : {logits, targets, logitLengths, targetLengths, lossOut, gradOut}) {
    if (tensor == nullptr) return Fail(kNullPointer, "A tensor is nullptr.");
  }
  if (workspaceSize == nullptr || executor == nullptr) return kNullPointer;
  auto* made = new aclOpExecutor{inputs, outputs, {}};
  gert::TilingContext& context = made->context;
  Describe(inputs, &context.fields.inputs, &context.fields.input_types);
  Describe(outputs, &context.fields.outputs, &context.fields.output_types);
  context.fields.attrs =
      gert::RuntimeAttrs{{blank, static_cast<float>(clamp), fusedLogSoftmax, blankInTargets}};
  context.platform = &Chip();
  cann_double::Errors().clear();
  if (gert::OpImplRegisterV2::All().at("RnntLossFused").tiling(&context) != ge::GRAPH_SUCCESS) {
    delete made;
    return Fail(kTilingError, cann_double::Errors().back());
  }
  *workspaceSize = context.workspace_sizes[0];
  *executor = made;
  return 0;
}

aclnnStatus aclnnRnntLossFused(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                               aclrtStream) {
  if (IsFaulty("execute")) return Fail(kRuntimeError, "A made-up fault.");
  emulator::GlobalMemory memory;
  using emulator::Access;
  const auto input = [&](size_t place, const char* name) {
    return Map(&memory, name, Access::kInput, executor->inputs[place]);
  };
  const auto output = [&](size_t place, const char* name) {
    return Map(&memory, name, Access::kOutput, executor->outputs[place]);
  };
  gert::TilingContext& context = executor->context;
  emulator::LaunchOptions options;
  options.block_dim = static_cast<int>(context.block_dim);
  options.schedule_mode = static_cast<int>(context.schedule_mode);
  options.tiling_key = context.tiling_key;
  GM_ADDR tiling = memory.Map("tiling", Access::kInput, context.tiling_data.GetData(),
                              context.tiling_data.GetDataSize());
  GM_ADDR space = memory.Map("workspace", Access::kOutput, workspace, workspaceSize);
  const emulator::Report report =
      emulator::Launch(rnnt_loss_fused, memory, options, input(0, "logits"), input(1, "targets"),
                       input(2, "logit_lengths"), input(3, "target_lengths"), input(4, "band"),
                       input(5, "emission_windows"), output(0, "loss"), output(1, "grad"),
                       output(2, "status"), space, tiling);
  if (IsFaulty("loss")) static_cast<float*>(executor->outputs[0]->data)[1] += 0.001f;
  if (IsFaulty("grad")) static_cast<float*>(executor->outputs[1]->data)[7] = NAN;
  delete executor;
  return report.ok() ? 0 : Fail(kRuntimeError, report.ToString());
}

}  // extern "C"
