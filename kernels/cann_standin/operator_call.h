// What CANN generates for any operator from its definition: checks, tiling, launch. An operator
// adds its aclnn functions, and how its kernels are called (its own standin/opapi.cpp).
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "aclnn.h"
#include "emulator/launch.h"
#include "register/op_impl_registry.h"
#include "standin.h"

namespace standin {

using Attributes = std::vector<gert::RuntimeAttrs::Value>;
using Tensors = std::vector<const aclTensor*>;

// Between the phases: the tensors' descriptions and what the tiling said.
struct Prepared {
  std::string op;
  std::vector<aclTensor> inputs;
  std::vector<aclTensor> outputs;  // of one that the caller left out, data is nullptr
  gert::TilingContext tiling;
};

// The tensors of one launch, mapped for the emulator over the device's memory itself.
class MappedTensors {
 public:
  explicit MappedTensors(Prepared& prepared) : prepared_(prepared) {}

  GM_ADDR Tiling();
  GM_ADDR Workspace(void* workspace);
  // An input that is not contiguous is copied, as CANN does. nullptr for one that the caller left
  // out.
  GM_ADDR Input(size_t place, const char* name, bool is_overwritten = false);
  // nullptr for one that the caller left out.
  GM_ADDR Output(size_t place, const char* name);

  // Runs a kernel on the emulator. Returns its complaint, or nothing.
  template <typename Kernel, typename... Arguments>
  std::string Launch(Kernel kernel, const Arguments&... arguments) {
    const emulator::Report report = emulator::Launch(kernel, memory_, Options(), arguments...);
    return report.ok() ? "" : report.ToString();
  }

 private:
  emulator::LaunchOptions Options() const;

  Prepared& prepared_;
  emulator::GlobalMemory memory_;
  std::deque<std::vector<unsigned char>> gathered_;
};

uint64_t Bytes(const aclTensor& tensor);

using Run = std::function<std::string(Prepared&, void* workspace)>;

// The first phase of an aclnn function. Returns its status.
int Prepare(const char* op, const Tensors& inputs, Attributes attributes, const Tensors& outputs,
            const Run& run, uint64_t* workspace_bytes, aclOpExecutor** executor);

}  // namespace standin
