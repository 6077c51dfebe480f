// Functions that torch_npu links against or asks for and that tests have no use for. No header of
// acl is included: their arguments don't matter.
#include <cstdint>

#include "standin.h"

// Called while torch_npu starts or ends, with nothing to be done.
#define STANDIN_IGNORES(name) \
  extern "C" int64_t name() { return 0; }
// Never called by what is tested; if it is, the caller hears it.
#define STANDIN_REFUSES(name)                                                         \
  extern "C" int64_t name() {                                                         \
    return standin::Fail(standin::kUnsupported, "stand-in: " #name " is not there."); \
  }

STANDIN_IGNORES(MsprofGetHashId)
STANDIN_IGNORES(MsprofRegisterCallback)
STANDIN_IGNORES(MsprofReportAdditionalInfo)
STANDIN_IGNORES(MsprofReportApi)
STANDIN_IGNORES(MsprofReportCompactInfo)
STANDIN_IGNORES(MsprofSysCycleTime)
STANDIN_IGNORES(aclAppLog)
STANDIN_IGNORES(aclSetCompileopt)
STANDIN_IGNORES(aclmdlFinalizeDump)
STANDIN_IGNORES(aclmdlInitDump)
STANDIN_IGNORES(aclmdlSetDump)
STANDIN_IGNORES(aclrtSetOpExecuteTimeOut)
STANDIN_IGNORES(aclrtProcessReport)

STANDIN_REFUSES(aclGetDeviceCapability)
STANDIN_REFUSES(aclGetTensorDescDimV2)
STANDIN_REFUSES(aclGetTensorDescFormat)
STANDIN_REFUSES(aclGetTensorDescNumDims)
STANDIN_REFUSES(aclGetTensorDescType)
STANDIN_REFUSES(aclrtBinaryGetFunction)
STANDIN_REFUSES(aclrtBinaryLoadFromData)
STANDIN_REFUSES(aclrtDeviceCanAccessPeer)
STANDIN_REFUSES(aclrtDeviceEnablePeerAccess)
STANDIN_REFUSES(aclrtDeviceGetBareTgid)
STANDIN_REFUSES(aclrtFreePhysical)
STANDIN_REFUSES(aclrtGetFunctionAddr)
STANDIN_REFUSES(aclrtMallocPhysical)
STANDIN_REFUSES(aclrtMapMem)
STANDIN_REFUSES(aclrtMemExportToShareableHandle)
STANDIN_REFUSES(aclrtMemImportFromShareableHandle)
STANDIN_REFUSES(aclrtMemSetPidToShareableHandle)
STANDIN_REFUSES(aclrtReleaseMemAddress)
STANDIN_REFUSES(aclrtReserveMemAddress)
STANDIN_REFUSES(aclrtUnmapMem)
STANDIN_REFUSES(rtDevBinaryRegister)
STANDIN_REFUSES(rtFunctionRegister)
STANDIN_REFUSES(rtGetC2cCtrlAddr)
STANDIN_REFUSES(rtKernelLaunch)

// An operator that has no aclnn function here is tried the older way: everything is accepted until
// it is to be run.
#define STANDIN_MAKES_NOTHING(name) \
  extern "C" void* name() {         \
    static int64_t nothing[32];     \
    return nothing;                 \
  }

STANDIN_MAKES_NOTHING(aclCreateDataBuffer)
STANDIN_MAKES_NOTHING(aclCreateTensorDesc)
STANDIN_MAKES_NOTHING(aclopCreateAttr)
STANDIN_IGNORES(aclDestroyDataBuffer)
STANDIN_IGNORES(aclDestroyTensorDesc)
STANDIN_IGNORES(aclSetTensorDescName)
STANDIN_IGNORES(aclSetTensorFormat)
STANDIN_IGNORES(aclSetTensorPlaceMent)
STANDIN_IGNORES(aclSetTensorShape)
STANDIN_IGNORES(aclopDestroyAttr)
STANDIN_IGNORES(aclopSetAttrBool)
STANDIN_IGNORES(aclopSetAttrDataType)
STANDIN_IGNORES(aclopSetAttrFloat)
STANDIN_IGNORES(aclopSetAttrInt)
STANDIN_IGNORES(aclopSetAttrListBool)
STANDIN_IGNORES(aclopSetAttrListFloat)
STANDIN_IGNORES(aclopSetAttrListInt)
STANDIN_IGNORES(aclopSetAttrListListInt)
STANDIN_IGNORES(aclopSetAttrString)

extern "C" int64_t aclopCompileAndExecute(const char* op_type) {
  return standin::Fail(standin::kUnsupported,
                       std::string("stand-in: operator ") + op_type + " is not there.");
}
