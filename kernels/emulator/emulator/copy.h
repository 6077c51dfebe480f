// DataCopy and DataCopyPad: GM to UB on MTE2, UB to GM on MTE3, UB to UB on V.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "emulator/core.h"
#include "emulator/element_types.h"
#include "emulator/tensor.h"
#include "emulator/vector_engine.h"

namespace emulator {

// One copy instruction: `count` blocks of `bytes`, with gaps between them on either side.
struct CopyShape {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t gm_gap = 0;  // bytes between the end of one block and the start of the next
  uint64_t ub_gap = 0;  // the same in UB, in bytes
  uint64_t left = 0;    // padding in UB, bytes
  uint64_t right = 0;   // padding in UB, bytes
  bool fill = true;     // what completes a block holds a value; else its content is unknown

  uint64_t UbBlock() const { return RoundUp(left + bytes + right, kBlockBytes); }
  uint64_t UbTotal() const { return (count - 1) * (UbBlock() + ub_gap) + UbBlock(); }
  uint64_t GmTotal() const { return (count - 1) * (bytes + gm_gap) + bytes; }
};

inline void CountCopy(Core& core, const GmRegion* region, const CopyShape& shape, bool in) {
  const uint64_t moved = shape.count * RoundUp(shape.bytes, kBlockBytes);
  Counters& counters = core.counters();
  ++counters.copies;
  (in ? counters.gm_to_ub_bytes : counters.ub_to_gm_bytes) += moved;
  (in ? counters.gm_to_ub_descriptors : counters.ub_to_gm_descriptors) += shape.count;
  std::vector<RegionTraffic>& phases = core.chip().traffic[region];
  if (phases.size() <= core.chip().phase) phases.resize(core.chip().phase + 1);
  RegionTraffic& traffic = phases[core.chip().phase];
  (in ? traffic.read_bytes : traffic.written_bytes) += moved;
  (in ? traffic.exact_read_bytes : traffic.exact_written_bytes) += shape.count * shape.bytes;
}

// Checks the GM side and tells the region's shadow. Returns where the first block starts.
inline uint64_t AccessGm(Core& core, const char* operand, const GmView& view,
                         const CopyShape& shape, bool write, bool atomic) {
  const uint64_t start = CheckGm(core, operand, view, 0, shape.GmTotal(), write);
  const GmAccess access = core.Access(atomic);
  const bool contiguous = shape.gm_gap == 0;
  const uint64_t pieces = contiguous ? 1 : shape.count;
  const uint64_t length = contiguous ? shape.GmTotal() : shape.bytes;
  GmShadow& shadow = view.region->shadow;
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t from = start + i * (shape.bytes + shape.gm_gap);
    RequireGm(core, operand, *view.region,
              write ? shadow.Write(from, from + length, access)
                    : shadow.Read(from, from + length, access));
  }
  return start;
}

template <typename T>
void CopyIn(Core& core, const UbView& dst, const GmView& src, const CopyShape& shape,
            const T& padding) {
  CheckCopyPosition(core, "dst", dst);
  CheckOperand(core, "dst", dst, shape.UbTotal());
  const uint64_t start = AccessGm(core, "src", src, shape, false, false);
  for (uint64_t i = 0; i < shape.count; ++i) {
    const uint8_t* from = src.region->data + start + i * (shape.bytes + shape.gm_gap);
    const auto at = static_cast<uint32_t>(dst.offset + i * (shape.UbBlock() + shape.ub_gap));
    core.Write("dst", at, static_cast<uint32_t>(shape.UbBlock()));
    uint8_t* to = core.Ub(at);
    // With isPad, what completes the last 32 bytes is the padding's value, or the block's first
    // element where no padding is asked for.
    const bool padded = shape.left + shape.right > 0;
    T value = padding;
    if (!padded) std::memcpy(&value, from, sizeof(T));
    const uint64_t tail = shape.left + shape.bytes;
    for (uint64_t b = 0; b < shape.left; b += sizeof(T)) std::memcpy(to + b, &value, sizeof(T));
    for (uint64_t b = tail; b < shape.UbBlock(); b += sizeof(T)) {
      std::memcpy(to + b, &value, sizeof(T));
    }
    std::memcpy(to + shape.left, from, shape.bytes);
    if (!shape.fill) {
      core.Forget(at, static_cast<uint32_t>(shape.left));
      core.Forget(static_cast<uint32_t>(at + tail), static_cast<uint32_t>(shape.UbBlock() - tail));
    }
  }
  CountCopy(core, src.region, shape, true);
}

template <typename T>
void AddTo(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t b = 0; b < bytes; b += sizeof(T)) {
    T sum, value;
    std::memcpy(&sum, to + b, sizeof(T));
    std::memcpy(&value, from + b, sizeof(T));
    if constexpr (std::is_integral_v<T>) {
      sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(value));
    } else {
      sum = static_cast<T>(static_cast<float>(sum) + static_cast<float>(value));
    }
    std::memcpy(to + b, &sum, sizeof(T));
  }
}

template <typename T>
void CopyOut(Core& core, const GmView& dst, const UbView& src, const CopyShape& shape) {
  CheckCopyPosition(core, "src", src);
  // What completes the last block on the way out may lie beyond the tensor: it is dropped.
  CheckOperand(core, "src", src,
               (shape.count - 1) * (shape.UbBlock() + shape.ub_gap) + shape.bytes);
  const bool atomic = core.atomic_type != nullptr;
  if (atomic && std::strcmp(core.atomic_type, TypeName<T>()) != 0) {
    core.Fail("src", Concat({"has type ", TypeName<T>(), ", but SetAtomicAdd was for ",
                             core.atomic_type}));
  }
  const uint64_t start = AccessGm(core, "dst", dst, shape, true, atomic);
  for (uint64_t i = 0; i < shape.count; ++i) {
    uint8_t* to = dst.region->data + start + i * (shape.bytes + shape.gm_gap);
    const auto at = static_cast<uint32_t>(src.offset + i * (shape.UbBlock() + shape.ub_gap));
    core.Read("src", at, static_cast<uint32_t>(shape.bytes));
    if (atomic) {
      AddTo<T>(to, core.Ub(at), shape.bytes);
    } else {
      std::memcpy(to, core.Ub(at), shape.bytes);
    }
  }
  CountCopy(core, dst.region, shape, false);
}

inline CopyShape WholeBlocks(Core& core, uint64_t count, uint64_t bytes, uint64_t gm_gap,
                             uint64_t ub_gap) {
  if (bytes % kBlockBytes != 0) {
    core.Fail(Concat({"the length must be a multiple of ", kBlockBytes, " bytes, but is ", bytes}));
  }
  CopyShape shape;
  shape.count = count;
  shape.bytes = bytes;
  shape.gm_gap = gm_gap;
  shape.ub_gap = ub_gap;
  return shape;
}

template <typename T>
CopyShape PadShape(Core& core, const AscendC::DataCopyExtParams& params, uint64_t gm_gap,
                   uint64_t ub_gap_blocks) {
  if (params.blockCount > 4095) {
    core.Fail(Concat({"`blockCount` must be at most 4095, but is ", params.blockCount}));
  }
  if (params.blockLen > 2097151) {
    core.Fail(Concat({"`blockLen` must be at most 2097151 bytes, but is ", params.blockLen}));
  }
  if (params.blockLen % sizeof(T) != 0) {
    core.Fail(Concat({"`blockLen` must be a multiple of the element's ", sizeof(T),
                      " bytes, but is ", params.blockLen}));
  }
  CopyShape shape;
  shape.count = params.blockCount;
  shape.bytes = params.blockLen;
  shape.gm_gap = gm_gap;
  shape.ub_gap = ub_gap_blocks * kBlockBytes;
  return shape;
}

}  // namespace emulator

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE2, "DataCopy");
  const auto shape = emulator::WholeBlocks(core, 1, uint64_t{count} * sizeof(T), 0, 0);
  if (count > 0) emulator::CopyIn(core, dst.view, src.view, shape, T());
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE3, "DataCopy");
  const auto shape = emulator::WholeBlocks(core, 1, uint64_t{count} * sizeof(T), 0, 0);
  if (count > 0) emulator::CopyOut<T>(core, dst.view, src.view, shape);
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE2, "DataCopy");
  const auto shape = emulator::WholeBlocks(core, params.blockCount, params.blockLen * 32u,
                                           params.srcStride * 32u, params.dstStride * 32u);
  if (shape.count * shape.bytes > 0) emulator::CopyIn(core, dst.view, src.view, shape, T());
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE3, "DataCopy");
  const auto shape = emulator::WholeBlocks(core, params.blockCount, params.blockLen * 32u,
                                           params.dstStride * 32u, params.srcStride * 32u);
  if (shape.count * shape.bytes > 0) emulator::CopyOut<T>(core, dst.view, src.view, shape);
}

// UB to UB runs on the vector pipe.
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count) {
  emulator::Core& core = emulator::Core::Current();
  core.Issue(PIPE_V, "DataCopy");
  emulator::WholeBlocks(core, 1, uint64_t{count} * sizeof(T), 0, 0);
  emulator::VectorCall call(core, count, sizeof(T));
  call.Source("src", src);
  call.Destination("dst", dst);
  call.NoPartialOverlap("dst", dst, "src", src);
  if (count > 0) std::memmove(dst.Elements(), src.Elements(), count * sizeof(T));
}

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                 const DataCopyExtParams& dataCopyParams,
                 const DataCopyPadExtParams<T>& padParams) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE2, "DataCopyPad");
  emulator::CopyShape shape = emulator::PadShape<T>(core, dataCopyParams, dataCopyParams.srcStride,
                                                    dataCopyParams.dstStride);
  shape.left = padParams.leftPadding * sizeof(T);
  shape.right = padParams.rightPadding * sizeof(T);
  shape.fill = padParams.isPad;
  if (shape.left > emulator::kBlockBytes || shape.right > emulator::kBlockBytes) {
    core.Fail(emulator::Concat({"`leftPadding` and `rightPadding` must be at most 32 bytes each, ",
                                "but are ", shape.left, " and ", shape.right}));
  }
  if (shape.count * shape.bytes == 0) return;
  emulator::CopyIn(core, dst.view, src.view, shape, padParams.paddingValue);
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src,
                 const DataCopyExtParams& dataCopyParams) {
  emulator::Core& core = emulator::Core::Current();
  core.chip().Yield();
  core.Issue(PIPE_MTE3, "DataCopyPad");
  const auto shape = emulator::PadShape<T>(core, dataCopyParams, dataCopyParams.dstStride,
                                           dataCopyParams.srcStride);
  if (shape.count * shape.bytes > 0) emulator::CopyOut<T>(core, dst.view, src.view, shape);
}

}  // namespace AscendC
