// Names that a kernel source takes for granted: qualifiers, element types, enumerations.
#pragma once

#include <cstdint>
#include <cstring>

#define __aicore__
#define __global__
#define __gm__
#define __ubuf__

using GM_ADDR = __gm__ uint8_t*;
using half = _Float16;

// The upper half of a float. The vector unit has no bfloat16_t arithmetic, so neither has this.
struct bfloat16_t {
  uint16_t bits = 0;

  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    // Round half to even; a NaN stays a quiet NaN even where only its low bits were set.
    const uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    bits = static_cast<uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded >> 16);
  }
  explicit operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };

enum event_t {
  EVENT_ID0 = 0,
  EVENT_ID1,
  EVENT_ID2,
  EVENT_ID3,
  EVENT_ID4,
  EVENT_ID5,
  EVENT_ID6,
  EVENT_ID7
};

namespace AscendC {

using TEventID = int8_t;

enum class TPosition : uint8_t { GM, VECIN, VECOUT, VECCALC };
using QuePosition = TPosition;

enum class HardEvent : uint8_t {
  V_S,
  S_V,
  MTE2_V,
  V_MTE2,
  V_MTE3,
  MTE3_V,
  MTE2_S,
  S_MTE2,
  S_MTE3,
  MTE3_S,
  MTE3_MTE2,
  MTE2_MTE3,
  MAX
};

// CAST_NONE rounds like CAST_RINT where the conversion loses precision.
enum class RoundMode : uint8_t {
  CAST_NONE = 0,
  CAST_RINT,
  CAST_FLOOR,
  CAST_CEIL,
  CAST_ROUND,
  CAST_TRUNC,
  CAST_ODD
};

enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };

enum class SELMODE : uint8_t {
  VSEL_CMPMASK_SPR = 0,
  VSEL_TENSOR_SCALAR_MODE,
  VSEL_TENSOR_TENSOR_MODE
};

enum class ReduceOrder : uint8_t {
  ORDER_VALUE_INDEX = 0,
  ORDER_INDEX_VALUE,
  ORDER_ONLY_VALUE,
  ORDER_ONLY_INDEX
};

enum class CacheLine : uint8_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint8_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

enum class KernelMetaType : uint8_t {
  KERNEL_TYPE_AIV_ONLY,
  KERNEL_TYPE_AIC_ONLY,
  KERNEL_TYPE_MIX_AIV_1_0,
  KERNEL_TYPE_MIX_AIC_1_0,
  KERNEL_TYPE_MIX_AIC_1_1,
  KERNEL_TYPE_MIX_AIC_1_2
};

// Strides count 32-byte blocks: between the blocks of one repeat, and between repeats.
struct UnaryRepeatParams {
  UnaryRepeatParams() = default;
  UnaryRepeatParams(uint16_t dst_blk, uint16_t src_blk, uint8_t dst_rep, uint8_t src_rep)
      : dstBlkStride(dst_blk),
        srcBlkStride(src_blk),
        dstRepStride(dst_rep),
        srcRepStride(src_rep) {}
  uint16_t dstBlkStride = 1;
  uint16_t srcBlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t srcRepStride = 8;
};

struct BinaryRepeatParams {
  BinaryRepeatParams() = default;
  BinaryRepeatParams(uint8_t dst_blk, uint8_t src0_blk, uint8_t src1_blk, uint8_t dst_rep,
                     uint8_t src0_rep, uint8_t src1_rep)
      : dstBlkStride(dst_blk),
        src0BlkStride(src0_blk),
        src1BlkStride(src1_blk),
        dstRepStride(dst_rep),
        src0RepStride(src0_rep),
        src1RepStride(src1_rep) {}
  uint8_t dstBlkStride = 1;
  uint8_t src0BlkStride = 1;
  uint8_t src1BlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t src0RepStride = 8;
  uint8_t src1RepStride = 8;
};

// Lengths and strides count 32-byte blocks.
struct DataCopyParams {
  DataCopyParams() = default;
  DataCopyParams(uint16_t count, uint16_t len, uint16_t src_stride, uint16_t dst_stride)
      : blockCount(count), blockLen(len), srcStride(src_stride), dstStride(dst_stride) {}
  uint16_t blockCount = 1;
  uint16_t blockLen = 0;
  uint16_t srcStride = 0;
  uint16_t dstStride = 0;
};

// Lengths and GM strides count bytes, UB strides count 32-byte blocks.
struct DataCopyExtParams {
  DataCopyExtParams() = default;
  DataCopyExtParams(uint16_t count, uint32_t len, uint32_t src_stride, uint32_t dst_stride,
                    uint32_t reserved)
      : blockCount(count),
        blockLen(len),
        srcStride(src_stride),
        dstStride(dst_stride),
        rsv(reserved) {}
  uint16_t blockCount = 1;
  uint32_t blockLen = 0;
  uint32_t srcStride = 0;
  uint32_t dstStride = 0;
  uint32_t rsv = 0;
};

// Paddings count elements.
template <typename T>
struct DataCopyPadExtParams {
  DataCopyPadExtParams() = default;
  DataCopyPadExtParams(bool is_pad, uint8_t left, uint8_t right, T value)
      : isPad(is_pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  T paddingValue = T();
};

}  // namespace AscendC
