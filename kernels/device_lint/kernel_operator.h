// AscendC's names as clang may see them for a lint: declarations alone, no std, and pointers to
// global memory and to UB as types of their own. Nothing of it runs; see lint_device_code.py.
#pragma once

#include <stdint.h>

#define __aicore__ __attribute__((annotate("aicore")))
#define __global__
#define __gm__ __attribute__((address_space(1)))
#define __ubuf__ __attribute__((address_space(2)))

#include "../emulator/emulator/enumerations.h"

using half = _Float16;
struct bfloat16_t {
  uint16_t bits;
};

namespace AscendC {

struct UnaryRepeatParams {
  UnaryRepeatParams();
  UnaryRepeatParams(uint16_t, uint16_t, uint8_t, uint8_t);
};
struct BinaryRepeatParams {
  BinaryRepeatParams();
  BinaryRepeatParams(uint8_t, uint8_t, uint8_t, uint8_t, uint8_t, uint8_t);
};
struct DataCopyParams {
  DataCopyParams();
  DataCopyParams(uint16_t, uint16_t, uint16_t, uint16_t);
};
struct DataCopyExtParams {
  DataCopyExtParams();
  DataCopyExtParams(uint16_t, uint32_t, uint32_t, uint32_t, uint32_t);
};
template <typename T>
struct DataCopyPadExtParams {
  DataCopyPadExtParams();
  DataCopyPadExtParams(bool, uint8_t, uint8_t, T);
};

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;
  LocalTensor();
  LocalTensor operator[](uint32_t offset) const;
  T GetValue(uint32_t index) const;
  template <typename U>
  void SetValue(uint32_t index, U value) const;
  uint32_t GetSize() const;
  uint32_t GetLength() const;
  template <typename U>
  LocalTensor<U> ReinterpretCast() const;
  __ubuf__ T* GetPhyAddr() const;
};

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;
  GlobalTensor();
  void SetGlobalBuffer(__gm__ T* buffer, uint64_t size);
  void SetGlobalBuffer(__gm__ T* buffer);
  GlobalTensor operator[](uint64_t offset) const;
  T GetValue(uint64_t index) const;
  void SetValue(uint64_t index, T value);
  __gm__ T* GetPhyAddr() const;
  __gm__ T* GetPhyAddr(uint64_t offset) const;
  uint64_t GetSize() const;
};

template <TPosition source, TPosition target, int32_t depth, auto mask = 0>
class TQueBind {
 public:
  template <typename T>
  LocalTensor<T> AllocTensor();
  template <typename T>
  bool EnQue(const LocalTensor<T>& tensor);
  template <typename T>
  LocalTensor<T> DeQue();
  template <typename T>
  void FreeTensor(LocalTensor<T>& tensor);
  bool HasIdleBuffer() const;
  bool HasTensorInQue() const;
};
template <TPosition position, int32_t depth, auto mask = 0>
class TQue : public TQueBind<position, position, depth, mask> {};

template <TPosition position = TPosition::VECCALC>
class TBuf {
 public:
  template <typename T>
  LocalTensor<T> Get();
  template <typename T>
  LocalTensor<T> Get(uint32_t len);
  template <typename T>
  LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset);
};

class TPipe {
 public:
  TPipe();
  ~TPipe();
  template <TPosition source, TPosition target, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<source, target, depth, mask>& que, uint8_t num, uint32_t len);
  template <TPosition position>
  bool InitBuffer(TBuf<position>& buf, uint32_t len);
  template <HardEvent event>
  TEventID AllocEventID();
  template <HardEvent event>
  void ReleaseEventID(TEventID id);
  TEventID FetchEventID(HardEvent event);
  template <HardEvent event>
  TEventID FetchEventID();
};

int64_t GetBlockIdx();
int64_t GetBlockNum();
GM_ADDR GetUserWorkspace(GM_ADDR workspace);

template <HardEvent event>
void SetFlag(int32_t eventID);
template <HardEvent event>
void WaitFlag(int32_t eventID);
template <pipe_t pipe>
void PipeBarrier();
template <bool isAIVOnly = true>
void SyncAll();
template <typename T>
void SetAtomicAdd();
void SetAtomicNone();
template <typename T, CacheLine entireType, DcciDst dcciDst = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& dst);

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count);
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count);
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count);
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params);
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params);
template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                 const DataCopyExtParams& params, const DataCopyPadExtParams<T>& padding);
template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src,
                 const DataCopyExtParams& params);

// Each vector instruction: by count, and in high-dimension form with a mask of lanes or of bits.
#define DEVICE_LINT_UNARY(Name)                                                          \
  template <typename T>                                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count); \
  template <typename T, bool isSetMask = true>                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask,         \
            uint8_t repeatTime, const UnaryRepeatParams& params);                        \
  template <typename T, bool isSetMask = true>                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[],       \
            uint8_t repeatTime, const UnaryRepeatParams& params);
#define DEVICE_LINT_BINARY(Name)                                                               \
  template <typename T>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const int32_t& count);                                                             \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask, uint8_t repeatTime, const BinaryRepeatParams& params);              \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask[], uint8_t repeatTime, const BinaryRepeatParams& params);
#define DEVICE_LINT_SCALAR(Name)                                                                  \
  template <typename T>                                                                           \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,                \
            const int32_t& count);                                                                \
  template <typename T, bool isSetMask = true>                                                    \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, uint64_t mask, \
            uint8_t repeatTime, const UnaryRepeatParams& params);                                 \
  template <typename T, bool isSetMask = true>                                                    \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar,                \
            uint64_t mask[], uint8_t repeatTime, const UnaryRepeatParams& params);

DEVICE_LINT_UNARY(Exp)
DEVICE_LINT_UNARY(Ln)
DEVICE_LINT_UNARY(Abs)
DEVICE_LINT_UNARY(Relu)
DEVICE_LINT_BINARY(Add)
DEVICE_LINT_BINARY(Sub)
DEVICE_LINT_BINARY(Mul)
DEVICE_LINT_BINARY(Div)
DEVICE_LINT_BINARY(Max)
DEVICE_LINT_BINARY(Min)
DEVICE_LINT_SCALAR(Adds)
DEVICE_LINT_SCALAR(Muls)
DEVICE_LINT_SCALAR(Maxs)
DEVICE_LINT_SCALAR(Mins)

template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count);
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, uint8_t repeatTime,
               uint16_t dstBlockStride, uint8_t dstRepeatStride);
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[], uint8_t repeatTime,
               uint16_t dstBlockStride, uint8_t dstRepeatStride);
template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count);
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src,
            const LocalTensor<uint32_t>& srcOffset, uint32_t srcBaseAddr, uint32_t count);
template <typename U, typename T>
void Cast(const LocalTensor<U>& dst, const LocalTensor<T>& src, const RoundMode& roundMode,
          uint32_t count);
template <typename U, typename T, bool isSetMask = true>
void Cast(const LocalTensor<U>& dst, const LocalTensor<T>& src, const RoundMode& roundMode,
          uint64_t mask, uint8_t repeatTime, const UnaryRepeatParams& params);
template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, uint32_t count);
template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar,
                   CMPMODE cmpMode, uint32_t count);
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint32_t count);
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            T src1, SELMODE selMode, uint32_t count);
template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count);
template <typename T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count, bool calIndex = false);
template <typename T, bool isSetMask = true>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t mask,
                    const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride);
template <typename T, bool isSetMask = true>
void WholeReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t mask,
                    const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride,
                    ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX);

float ToFloat(const bfloat16_t& value);
bfloat16_t ToBfloat16(const float& value);

}  // namespace AscendC

AscendC::TPipe* GetTPipePtr();

// The tiling comes from global memory; which key it is, only a launch knows.
template <typename T>
T DeviceLintTiling(GM_ADDR tiling);
bool DeviceLintKeyIs(uint64_t key);
#define REGISTER_TILING_DEFAULT(TilingStruct) static_assert(sizeof(TilingStruct) > 0, "")
#define REGISTER_TILING_FOR_TILINGKEY(expression, TilingStruct) \
  static_assert(sizeof(TilingStruct) > 0, "")
#define GET_TILING_DATA_WITH_STRUCT(TilingStruct, tiling_data, tiling) \
  const TilingStruct tiling_data = DeviceLintTiling<TilingStruct>(tiling)
#define GET_TILING_DATA_MEMBER(TilingStruct, member, variable, tiling) \
  const auto variable = DeviceLintTiling<TilingStruct>(tiling).member
#define TILING_KEY_IS(key) DeviceLintKeyIs(key)
#define KERNEL_TASK_TYPE_DEFAULT(type) static_cast<void>(0)
#define KERNEL_TASK_TYPE(key, type) static_cast<void>(0)
