// Double of the header that CANN generates from the definition of RnntLossFused (see README.md).
#pragma once

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnRnntLossFusedGetWorkspaceSize(
    const aclTensor* logits, const aclTensor* targets, const aclTensor* logitLengths,
    const aclTensor* targetLengths, const aclTensor* bandOptional,
    const aclTensor* emissionWindowsOptional, int64_t blank, double clamp, bool fusedLogSoftmax,
    bool blankInTargets, const aclTensor* lossOut, const aclTensor* gradOut,
    const aclTensor* statusOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);
aclnnStatus aclnnRnntLossFused(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                               aclrtStream stream);

#ifdef __cplusplus
}
#endif
