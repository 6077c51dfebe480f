// Rules of vector instructions: each kernel breaks one, and its twin doesn't.
#include "harness.h"

namespace rules_vector {

using namespace harness;

namespace {

// Fills `num` UB tensors of `count` elements with ones, then runs `body`.
template <typename T, int num, typename Body>
Report OnOnes(uint32_t count, Body body) {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<T, num> ub(count);
    for (int i = 0; i < num; ++i) Duplicate(ub[i], static_cast<T>(1.0f), count);
    PipeBarrier<PIPE_V>();
    body(ub, x);
  });
}

}  // namespace

RULE(ExpType, "Exp: `src` has type bfloat16_t, which the 910B doesn't take here.") {
  return broken ? OnOnes<bfloat16_t, 2>(32, [](auto& ub, GM_ADDR) { Exp(ub[1], ub[0], 32); })
                : OnOnes<half, 2>(32, [](auto& ub, GM_ADDR) { Exp(ub[1], ub[0], 32); });
}

RULE(LnType, "Ln: `src` has type int32_t, which the 910B doesn't take here.") {
  return broken ? OnOnes<int32_t, 2>(32, [](auto& ub, GM_ADDR) { Ln(ub[1], ub[0], 32); })
                : OnOnes<float, 2>(32, [](auto& ub, GM_ADDR) { Ln(ub[1], ub[0], 32); });
}

RULE(AddType, "Add: `src0` has type bfloat16_t, which the 910B doesn't take here.") {
  return broken ? OnOnes<bfloat16_t, 2>(32, [](auto& ub, GM_ADDR) { Add(ub[1], ub[0], ub[0], 32); })
                : OnOnes<int32_t, 2>(32, [](auto& ub, GM_ADDR) { Add(ub[1], ub[0], ub[0], 32); });
}

RULE(DivType, "Div: `src0` has type int32_t, which the 910B doesn't take here.") {
  return broken ? OnOnes<int32_t, 2>(32, [](auto& ub, GM_ADDR) { Div(ub[1], ub[0], ub[0], 32); })
                : OnOnes<half, 2>(32, [](auto& ub, GM_ADDR) { Div(ub[1], ub[0], ub[0], 32); });
}

RULE(AddsType, "Adds: `src` has type bfloat16_t, which the 910B doesn't take here.") {
  return broken ? OnOnes<bfloat16_t, 2>(
                      32, [](auto& ub, GM_ADDR) { Adds(ub[1], ub[0], bfloat16_t(1.0f), 32); })
                : OnOnes<float, 2>(32, [](auto& ub, GM_ADDR) { Adds(ub[1], ub[0], 1.0f, 32); });
}

RULE(ReduceMaxType, "ReduceMax: `src` has type int32_t, which the 910B doesn't take here.") {
  return broken
             ? OnOnes<int32_t, 3>(64, [](auto& ub, GM_ADDR) { ReduceMax(ub[1], ub[0], ub[2], 64); })
             : OnOnes<half, 3>(64, [](auto& ub, GM_ADDR) { ReduceMax(ub[1], ub[0], ub[2], 64); });
}

RULE(ReduceSumType, "ReduceSum: `src` has type bfloat16_t, which the 910B doesn't take here.") {
  return broken
             ? OnOnes<bfloat16_t, 3>(64,
                                     [](auto& ub, GM_ADDR) { ReduceSum(ub[1], ub[0], ub[2], 64); })
             : OnOnes<float, 3>(64, [](auto& ub, GM_ADDR) { ReduceSum(ub[1], ub[0], ub[2], 64); });
}

RULE(SelectType, "Select: `src0` has type int32_t, which the 910B doesn't take here.") {
  const auto select = [](auto& ub, GM_ADDR) {
    Select(ub[1], ub[2].template ReinterpretCast<uint8_t>(), ub[0], ub[0],
           SELMODE::VSEL_TENSOR_TENSOR_MODE, 64);
  };
  return broken ? OnOnes<int32_t, 3>(64, select) : OnOnes<float, 3>(64, select);
}

RULE(SelectMask, "Select: `selMask` has 32 bytes, but 40 are accessed.") {
  return OnOnes<float, 3>(320, [=](auto& ub, GM_ADDR) {
    Select(ub[1], ub[2][broken ? 312 : 304].template ReinterpretCast<uint8_t>(), ub[0], ub[0],
           SELMODE::VSEL_TENSOR_TENSOR_MODE, 320);
  });
}

RULE(DuplicateType, "Duplicate: `dst` has type uint8_t, which the 910B doesn't take here.") {
  return OnOnes<float, 1>(32, [=](auto& ub, GM_ADDR) {
    if (broken) {
      Duplicate(ub[0].template ReinterpretCast<uint8_t>(), uint8_t{1}, 32);
    } else {
      Duplicate(ub[0].template ReinterpretCast<uint16_t>(), uint16_t{1}, 32);
    }
  });
}

RULE(GatherType, "Gather: `src` has type int64_t, which the 910B doesn't take here.") {
  return OnOnes<float, 3>(64, [=](auto& ub, GM_ADDR) {
    LocalTensor<uint32_t> offsets = ub[2].template ReinterpretCast<uint32_t>();
    Duplicate(offsets, uint32_t{8}, 64);
    PipeBarrier<PIPE_V>();
    if (broken) {
      Gather(ub[1].template ReinterpretCast<int64_t>(), ub[0].template ReinterpretCast<int64_t>(),
             offsets, 0, 8);
    } else {
      Gather(ub[1].template ReinterpretCast<int32_t>(), ub[0].template ReinterpretCast<int32_t>(),
             offsets, 0, 8);
    }
  });
}

RULE(CompareType, "Compare: `src0` has type int16_t, which the 910B doesn't take here.") {
  const auto compare = [](auto& ub, GM_ADDR) {
    Compare(ub[1].template ReinterpretCast<uint8_t>(), ub[0], ub[0], CMPMODE::EQ, 128);
  };
  return broken ? OnOnes<int16_t, 2>(128, compare) : OnOnes<half, 2>(128, compare);
}

RULE(CompareInteger, "Compare: `cmpMode` must be EQ for int32_t.") {
  return OnOnes<int32_t, 2>(64, [=](auto& ub, GM_ADDR) {
    Compare(ub[1].template ReinterpretCast<uint8_t>(), ub[0], ub[0],
            broken ? CMPMODE::LT : CMPMODE::EQ, 64);
  });
}

RULE(CompareLength,
     "CompareScalar: `count` elements must be a multiple of 256 bytes, but are 288.") {
  return OnOnes<float, 2>(128, [=](auto& ub, GM_ADDR) {
    CompareScalar(ub[1].template ReinterpretCast<uint8_t>(), ub[0], 1.0f, CMPMODE::LT,
                  broken ? 72 : 64);
  });
}

RULE(CompareBits, "Compare: `dst` has 32 bytes, but 40 are accessed.") {
  return OnOnes<float, 2>(320, [=](auto& ub, GM_ADDR) {
    Compare(ub[1][broken ? 312 : 304].template ReinterpretCast<uint8_t>(), ub[0], ub[0],
            CMPMODE::GE, 320);
  });
}

RULE(SelectReserve, "Select: `selMode` 1 and 2 need 8192 bytes of UB left free, but 8160 are.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<> values, bits, rest;
    pipe.InitBuffer(values, 256);
    pipe.InitBuffer(bits, 32);
    pipe.InitBuffer(rest, 196608 - 8192 - 288 + (broken ? 32 : 0));
    Duplicate(values.Get<float>(), 1.0f, 64);
    Duplicate(bits.Get<uint16_t>(), uint16_t{0xff}, 16);
    PipeBarrier<PIPE_V>();
    Select(values.Get<float>(), bits.Get<uint8_t>(), values.Get<float>(), 0.0f,
           SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
  });
}

RULE(SelectReserveLater,
     "TPipe::InitBuffer: UB holds 188416 bytes, but the buffers so far and this one need 188448.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Select(ub[0], ub[1].template ReinterpretCast<uint8_t>(), ub[0], 0.0f,
           SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
    TBuf<> rest;
    ub.pipe.InitBuffer(rest, 188416 - 512 + (broken ? 32 : 0));
  });
}

RULE(SelectTensorMode,
     "Select: `selMode` must be VSEL_CMPMASK_SPR or VSEL_TENSOR_TENSOR_MODE with two tensors.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Select(ub[0], ub[1].template ReinterpretCast<uint8_t>(), ub[0], ub[0],
           broken ? SELMODE::VSEL_TENSOR_SCALAR_MODE : SELMODE::VSEL_CMPMASK_SPR, 64);
  });
}

RULE(SelectScalarMode,
     "Select: `selMode` must be VSEL_TENSOR_SCALAR_MODE with a tensor and a scalar.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Select(ub[0], ub[1].template ReinterpretCast<uint8_t>(), ub[0], 0.0f,
           broken ? SELMODE::VSEL_TENSOR_TENSOR_MODE : SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
  });
}

// 9 repeats leave 18 values, which take three blocks of 32 bytes.
RULE(ReduceMaxTemporary, "ReduceMax: `sharedTmpBuffer` has 64 bytes, but 96 are accessed.") {
  return OnOnes<float, 3>(
      576, [=](auto& ub, GM_ADDR) { ReduceMax(ub[1], ub[0], ub[2][broken ? 560 : 552], 576); });
}

RULE(ReduceMaxIndexTemporary, "ReduceMax: `sharedTmpBuffer` has 32 bytes, but 64 are accessed.") {
  return OnOnes<float, 3>(
      64, [=](auto& ub, GM_ADDR) { ReduceMax(ub[1], ub[0], ub[2][broken ? 56 : 48], 64, true); });
}

RULE(ReduceMaxAlignment,
     "ReduceMax: `dst` must start at a multiple of 8 bytes in UB, but is at 260.") {
  return OnOnes<float, 3>(
      64, [=](auto& ub, GM_ADDR) { ReduceMax(ub[1][broken ? 1 : 2], ub[0], ub[2], 64, true); });
}

RULE(ReduceSumTemporary, "ReduceSum: `sharedTmpBuffer` has 32 bytes, but 64 are accessed.") {
  return OnOnes<float, 3>(576, [=](auto& ub, GM_ADDR) {
    ReduceSum(ub[1], ub[0], ub[2][broken ? 568 : 560], 64, 9, 8);
  });
}

RULE(WholeReduceRepeats, "WholeReduceSum: `repeatTime` must be at most 255, but is 256.") {
  return OnOnes<float, 2>(
      64, [=](auto& ub, GM_ADDR) { WholeReduceSum(ub[1], ub[0], 8, broken ? 256 : 1, 1, 1, 0); });
}

RULE(RepeatTimes, "Adds: `repeatTime` must be at most 255, but is 256.") {
  return OnOnes<float, 1>(64, [=](auto& ub, GM_ADDR) {
    Adds(ub[0], ub[0], 1.0f, uint64_t{64}, broken ? 256 : 1, UnaryRepeatParams{1, 1, 8, 8});
  });
}

RULE(MaskOfFloat, "Exp: `mask` must be at most 64 for elements of 4 bytes, but is 65.") {
  return OnOnes<float, 1>(64, [=](auto& ub, GM_ADDR) {
    Exp(ub[0], ub[0], uint64_t{broken ? 65u : 64u}, 1, UnaryRepeatParams{1, 1, 8, 8});
  });
}

RULE(MaskOfHalf, "Max: `mask` must be at most 128 for elements of 2 bytes, but is 129.") {
  return OnOnes<half, 1>(128, [=](auto& ub, GM_ADDR) {
    Max(ub[0], ub[0], ub[0], uint64_t{broken ? 129u : 128u}, 1,
        BinaryRepeatParams{1, 1, 1, 8, 8, 8});
  });
}

RULE(ZeroBlockStride, "Exp: `dstBlkStride` must not be zero.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Exp(ub[1], ub[0], uint64_t{64}, 1,
        UnaryRepeatParams{static_cast<uint16_t>(broken ? 0 : 1), 0, 8, 8});
  });
}

RULE(StridedBeyondTensor, "Exp: `src` has 512 bytes, but 544 are accessed.") {
  return OnOnes<float, 2>(128, [=](auto& ub, GM_ADDR) {
    const uint8_t stride = broken ? 9 : 8;
    Exp(ub[1], ub[0], uint64_t{64}, 2, UnaryRepeatParams{1, 1, 8, stride});
  });
}

RULE(PartialOverlap, "Adds: `dst` overlaps `src` in part.") {
  return OnOnes<float, 1>(
      64, [=](auto& ub, GM_ADDR) { Adds(ub[0][broken ? 8 : 32], ub[0], 1.0f, 32); });
}

RULE(PartialOverlapOfSecond, "Add: `dst` overlaps `src1` in part.") {
  return OnOnes<float, 2>(
      64, [=](auto& ub, GM_ADDR) { Add(ub[0][8], ub[1], ub[0][broken ? 0 : 8], 32); });
}

// The second repeat would read what the first one wrote.
RULE(StridedOverlap, "Adds: `dst` overlaps `src` in part.") {
  return OnOnes<float, 1>(192, [=](auto& ub, GM_ADDR) {
    Adds(ub[0][broken ? 64 : 0], ub[0], 1.0f, uint64_t{64}, 2, UnaryRepeatParams{1, 1, 8, 8});
  });
}

RULE(CastOverlap, "Cast: `dst` overlaps `src` in part.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Cast(ub[broken ? 0 : 1].template ReinterpretCast<half>(), ub[0], RoundMode::CAST_RINT, 64);
  });
}

RULE(CastMode, "Cast: `roundMode` CAST_NONE isn't one for float to bfloat16_t.") {
  return OnOnes<float, 2>(64, [=](auto& ub, GM_ADDR) {
    Cast(ub[1].template ReinterpretCast<bfloat16_t>(), ub[0],
         broken ? RoundMode::CAST_NONE : RoundMode::CAST_RINT, 64);
  });
}

RULE(CastPair, "Cast: there is no conversion from half to bfloat16_t.") {
  return OnOnes<half, 2>(64, [=](auto& ub, GM_ADDR) {
    if (broken) {
      Cast(ub[1].template ReinterpretCast<bfloat16_t>(), ub[0], RoundMode::CAST_RINT, 64);
    } else {
      Cast(ub[1].template ReinterpretCast<int16_t>(), ub[0], RoundMode::CAST_RINT, 64);
    }
  });
}

RULE(GatherOffset, "Gather: `srcOffset` points to byte 256 of `src`, which has 256.") {
  return OnOnes<float, 3>(64, [=](auto& ub, GM_ADDR) {
    LocalTensor<uint32_t> offsets = ub[2].template ReinterpretCast<uint32_t>();
    Duplicate(offsets, uint32_t{240}, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub[1], ub[0], offsets, broken ? 16 : 12, 64);
  });
}

RULE(GatherAlignment,
     "Gather: `srcOffset` must count whole elements of 4 bytes, but byte 6 is asked for.") {
  return OnOnes<float, 3>(64, [=](auto& ub, GM_ADDR) {
    LocalTensor<uint32_t> offsets = ub[2].template ReinterpretCast<uint32_t>();
    Duplicate(offsets, uint32_t{broken ? 6u : 8u}, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub[1], ub[0], offsets, 0, 64);
  });
}

RULE(GatherOverlap, "Gather: `dst` overlaps `src` in part.") {
  return OnOnes<float, 3>(64, [=](auto& ub, GM_ADDR) {
    LocalTensor<uint32_t> offsets = ub[2].template ReinterpretCast<uint32_t>();
    Duplicate(offsets, uint32_t{0}, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub[broken ? 0 : 1], ub[0], offsets, 0, 64);
  });
}

RULE(NegativeCount, "Exp: `count` must not be negative, but is -1.") {
  return OnOnes<float, 1>(64, [=](auto& ub, GM_ADDR) { Exp(ub[0], ub[0], broken ? -1 : 0); });
}

}  // namespace rules_vector
