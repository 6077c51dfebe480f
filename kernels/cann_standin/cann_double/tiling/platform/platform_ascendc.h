// Double of a CANN header (see README.md).
#pragma once

#include "platform/platform_infos_def.h"

namespace platform_ascendc {

enum class CoreMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6 };

class PlatformAscendC {
 public:
  explicit PlatformAscendC(fe::PlatFormInfos* infos) : infos_(infos) {}
  uint32_t GetCoreNumAiv() const { return infos_->vector_cores; }
  void GetCoreMemSize(const CoreMemType& type, uint64_t& size) const {
    size = type == CoreMemType::UB ? infos_->ub_bytes : 0;
  }
  uint32_t GetLibApiWorkSpaceSize() const { return infos_->system_workspace_bytes; }

 private:
  fe::PlatFormInfos* infos_;
};

}  // namespace platform_ascendc
