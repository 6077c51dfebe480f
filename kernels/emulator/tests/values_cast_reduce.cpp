// What Cast and the reductions compute: round modes, saturation, and the order of summation.
#include "harness.h"

namespace values_cast_reduce {

using namespace harness;

namespace {

using Floats = std::vector<float>;

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

template <typename U, typename T>
std::vector<U> CastAll(const std::vector<T>& values, RoundMode mode,
                       LaunchOptions options = LaunchOptions()) {
  const auto n = static_cast<uint32_t>(values.size());
  return Compute<U, T>({values}, n, [=](auto& to, auto& in) { Cast(to, in[0], mode, n); }, options);
}

std::vector<half> ToHalf(const Floats& values) {
  std::vector<half> result;
  for (const float value : values) result.push_back(static_cast<half>(value));
  return result;
}

// The scratch that ReduceMax wants, behind the result.
template <typename T>
LocalTensor<T> Spare(const LocalTensor<T>& to) {
  return to[32 / sizeof(T)];
}

float Sum(const Floats& values) {
  const auto n = static_cast<int32_t>(values.size());
  return Compute<float, float>({values}, 1,
                               [=](auto& to, auto& in) { ReduceSum(to, in[0], Spare(to), n); })[0];
}

}  // namespace

CASE(CastFloatToHalf) {
  // 0.5 + 2^-12 lies halfway between 0.5 and its successor 0.5 + 2^-11.
  const float tie = 0.5f + 0x1p-12f, up = 0.5f + 0x1p-11f;
  const Floats in{tie, -tie, 0.5f};
  const std::pair<RoundMode, Floats> expected[] = {
      {RoundMode::CAST_NONE, {0.5f, -0.5f, 0.5f}}, {RoundMode::CAST_RINT, {0.5f, -0.5f, 0.5f}},
      {RoundMode::CAST_FLOOR, {0.5f, -up, 0.5f}},  {RoundMode::CAST_CEIL, {up, -0.5f, 0.5f}},
      {RoundMode::CAST_ROUND, {up, -up, 0.5f}},    {RoundMode::CAST_TRUNC, {0.5f, -0.5f, 0.5f}},
      {RoundMode::CAST_ODD, {up, -up, 0.5f}}};
  for (const auto& [mode, values] : expected) {
    ExpectValues(CastAll<half>(in, mode), values, emulator::RoundModeName(mode));
  }
}

CASE(CastFloatToBfloat16) {
  // Above and at the middle of 0.5 and its successor 0.5 + 2^-8.
  const float above = 0.5f + 0x1p-9f + 0x1p-11f, tie = 0.5f + 0x1p-9f, up = 0.5f + 0x1p-8f;
  const Floats in{above, tie, -above};
  const std::pair<RoundMode, Floats> expected[] = {{RoundMode::CAST_RINT, {up, 0.5f, -up}},
                                                   {RoundMode::CAST_FLOOR, {0.5f, 0.5f, -up}},
                                                   {RoundMode::CAST_CEIL, {up, up, -0.5f}},
                                                   {RoundMode::CAST_ROUND, {up, up, -up}},
                                                   {RoundMode::CAST_TRUNC, {0.5f, 0.5f, -0.5f}}};
  for (const auto& [mode, values] : expected) {
    ExpectValues(CastAll<bfloat16_t>(in, mode), values, emulator::RoundModeName(mode));
  }
}

CASE(CastFloatToInteger) {
  const Floats in{2.5f, -2.5f, 3.5f, -0.4f};
  const std::pair<RoundMode, std::vector<int>> expected[] = {
      {RoundMode::CAST_RINT, {2, -2, 4, 0}},
      {RoundMode::CAST_FLOOR, {2, -3, 3, -1}},
      {RoundMode::CAST_CEIL, {3, -2, 4, 0}},
      {RoundMode::CAST_ROUND, {3, -3, 4, 0}},
      {RoundMode::CAST_TRUNC, {2, -2, 3, 0}}};
  for (const auto& [mode, values] : expected) {
    ExpectValues(CastAll<int32_t>(in, mode), values, emulator::RoundModeName(mode));
    ExpectValues(CastAll<int64_t>(in, mode), values, emulator::RoundModeName(mode));
    ExpectValues(CastAll<float>(in, mode), values, emulator::RoundModeName(mode));
    ExpectValues(CastAll<int16_t>(ToHalf(in), mode), values, emulator::RoundModeName(mode));
  }
}

CASE(CastSaturatesIntegers) {
  const Floats in{4194304.5f, -4e9f, kInf, kNaN};
  ExpectValues(CastAll<int16_t>(in, RoundMode::CAST_RINT),
               std::vector<int>{32767, -32768, 32767, 0}, "int16_t");
  ExpectValues(CastAll<int32_t>(in, RoundMode::CAST_RINT),
               std::vector<int64_t>{4194304, -2147483648LL, 2147483647, 0}, "int32_t");
  ExpectValues(CastAll<int32_t>(std::vector<int64_t>{-5, 1LL << 40}, RoundMode::CAST_NONE),
               std::vector<int64_t>{-5, 2147483647}, "int64_t to int32_t");
}

CASE(CastOverflow) {
  const Floats in{65520.0f, -1e6f, kInf, kNaN, 65519.0f};
  ExpectValues(CastAll<half>(in, RoundMode::CAST_RINT), Floats{kInf, -kInf, kInf, kNaN, 65504.0f},
               "half");
  ExpectValues(CastAll<half>(in, RoundMode::CAST_ROUND), Floats{kInf, -kInf, kInf, kNaN, 65504.0f},
               "half, CAST_ROUND");
  ExpectValues(CastAll<bfloat16_t>(Floats{kInf, kNaN, 3.4e38f}, RoundMode::CAST_RINT),
               Floats{kInf, kNaN, kInf}, "bfloat16_t");
  LaunchOptions options;
  options.overflow_mode = OverflowMode::kSaturate;
  ExpectValues(CastAll<half>(in, RoundMode::CAST_RINT, options),
               Floats{65504.0f, -65504.0f, 65504.0f, kNaN, 65504.0f}, "half, saturated");
}

CASE(CastSubnormals) {
  // The least half is 2^-24.
  const Floats in{0x1p-24f, 0x1p-25f, 0x1.8p-24f, -0x1p-26f};
  ExpectValues(CastAll<half>(in, RoundMode::CAST_RINT), Floats{0x1p-24f, 0.0f, 0x1p-23f, 0.0f},
               "CAST_RINT");
  ExpectValues(CastAll<half>(in, RoundMode::CAST_CEIL), Floats{0x1p-24f, 0x1p-24f, 0x1p-23f, 0.0f},
               "CAST_CEIL");
  ExpectValues(CastAll<half>(in, RoundMode::CAST_FLOOR),
               Floats{0x1p-24f, 0.0f, 0x1p-24f, -0x1p-24f}, "CAST_FLOOR");
}

CASE(CastWidens) {
  ExpectValues(CastAll<float>(ToHalf({1.5f, 65504.0f, kInf, kNaN}), RoundMode::CAST_NONE),
               Floats{1.5f, 65504.0f, kInf, kNaN}, "half");
  const std::vector<bfloat16_t> brains{bfloat16_t(1.5f), bfloat16_t(kInf), bfloat16_t(kNaN)};
  ExpectValues(CastAll<float>(brains, RoundMode::CAST_NONE), Floats{1.5f, kInf, kNaN},
               "bfloat16_t");
  ExpectValues(CastAll<int64_t>(std::vector<int32_t>{-7}, RoundMode::CAST_NONE),
               std::vector<int>{-7}, "int32_t to int64_t");
  ExpectValues(CastAll<float>(std::vector<int32_t>{16777217, -3}, RoundMode::CAST_RINT),
               Floats{16777216.0f, -3.0f}, "int32_t to float");
  ExpectValues(CastAll<float>(std::vector<int32_t>{16777217}, RoundMode::CAST_CEIL),
               Floats{16777218.0f}, "int32_t to float, CAST_CEIL");
  ExpectValues(CastAll<half>(std::vector<uint8_t>{200}, RoundMode::CAST_NONE), Floats{200.0f},
               "uint8_t to half");
}

CASE(CastStrided) {
  // Each repeat converts 64 elements, the wider type's worth.
  Floats in(128);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  const auto out = Compute<half, float>({in}, 128, [](auto& to, auto& tensors) {
    Cast(to, tensors[0], RoundMode::CAST_RINT, uint64_t{64}, 2, UnaryRepeatParams{1, 1, 4, 8});
  });
  ExpectValues(out, in, "half");
  const auto even = Compute<float, half>({ToHalf(in)}, 64, [](auto& to, auto& tensors) {
    Duplicate(to, -1.0f, 64);
    PipeBarrier<PIPE_V>();
    uint64_t mask[2] = {0x5555555555555555u, 0};
    Cast(to, tensors[0], RoundMode::CAST_NONE, mask, 1, UnaryRepeatParams{1, 1, 8, 4});
  });
  for (size_t i = 0; i < 64; ++i) ExpectEqual(even[i], i % 2 == 0 ? in[i] : -1.0f, "even lanes");
}

CASE(ReduceSumTree) {
  // Pairs first: (2^24 + 1) + (1 + 1) rounds to 2^24 + 2, from left to right it stays at 2^24.
  ExpectEqual(Sum({16777216.0f, 1.0f, 1.0f, 1.0f}), 16777218.0f, "pairs");
  // The next level: ((a + b) + (c + d)) + ((e + f) + (g + h)).
  ExpectEqual(Sum({16777216.0f, 0.0f, 1.0f, 0.0f, 1.0f, 1.0f, 0.0f, 0.0f}), 16777218.0f, "fours");
}

CASE(ReduceSumAcrossRepeats) {
  // Three repeats of 64: their sums 2^24, 1, 1 are added one after the other, which loses both
  // ones. A tree across repeats, or an order from the back, would keep them.
  Floats values(192, 0.0f);
  values[0] = 16777216.0f;
  values[64] = 1.0f;
  values[128] = 1.0f;
  ExpectEqual(Sum(values), 16777216.0f, "forward");
  std::swap(values[0], values[128]);
  ExpectEqual(Sum(values), 16777218.0f, "backward");
}

CASE(ReduceSumTail) {
  Floats values(67, 1.0f);
  ExpectEqual(Sum(values), 67.0f, "67 ones");
  ExpectEqual(Sum({2.5f}), 2.5f, "one value");
}

CASE(ReduceSumHalf) {
  // Each addition rounds to half: 2048 + 1 + 1 + 1 in pairs is (2048 + 1) + 2 = 2050.
  const auto out =
      Compute<half, half>({ToHalf({2048.0f, 1.0f, 1.0f, 1.0f})}, 1,
                          [](auto& to, auto& in) { ReduceSum(to, in[0], Spare(to), 4); });
  ExpectValues(out, Floats{2050.0f}, "half");
}

CASE(ReduceSumStrided) {
  // Trees across repeats as well: (2^24 + 1) + (1 + 0) loses the lone ones, (1 + 1) doesn't.
  Floats values(256, 0.0f);
  values[0] = 16777216.0f;
  values[128] = 1.0f;
  values[192] = 1.0f;
  const auto out = Compute<float, float>(
      {values}, 1, [](auto& to, auto& in) { ReduceSum(to, in[0], Spare(to), 64, 4, 8); });
  ExpectEqual(out[0], 16777218.0f, "sum");
}

CASE(ReduceMaxValues) {
  Floats values(130, -5.0f);
  values[77] = 4.0f;
  values[100] = 4.0f;
  const auto out = Compute<float, float>(
      {values}, 2, [](auto& to, auto& in) { ReduceMax(to, in[0], Spare(to), 130, true); });
  ExpectEqual(out[0], 4.0f, "maximum");
  uint32_t index;
  std::memcpy(&index, &out[1], sizeof(index));
  ExpectEqual(index, 77u, "first index");
  const auto strided = Compute<float, float>(
      {values}, 1, [](auto& to, auto& in) { ReduceMax(to, in[0], Spare(to), 8, 2, 8); });
  ExpectEqual(strided[0], -5.0f, "masked maximum");
  ExpectValues(Compute<half, half>({ToHalf({-kInf, -2.0f, -3.0f})}, 1,
                                   [](auto& to, auto& in) { ReduceMax(to, in[0], Spare(to), 3); }),
               Floats{-2.0f}, "half");
}

CASE(WholeReduceValues) {
  // Rows of 24 in 32 columns: one result for each.
  Floats rows(96, 100.0f);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t i = 0; i < 24; ++i) rows[row * 32 + i] = static_cast<float>(row * 10 + i % 7);
  }
  const auto sums = Compute<float, float>(
      {rows}, 3, [](auto& to, auto& in) { WholeReduceSum(to, in[0], 24, 3, 1, 1, 4); });
  ExpectValues(sums, Floats{66.0f, 306.0f, 546.0f}, "sums");
  const auto greatest = Compute<float, float>({rows}, 3, [](auto& to, auto& in) {
    WholeReduceMax(to, in[0], 24, 3, 1, 1, 4, ReduceOrder::ORDER_ONLY_VALUE);
  });
  ExpectValues(greatest, Floats{6.0f, 16.0f, 26.0f}, "maxima");
  const auto pairs = Compute<float, float>(
      {rows}, 6, [](auto& to, auto& in) { WholeReduceMax(to, in[0], 24, 3, 1, 1, 4); });
  uint32_t index;
  std::memcpy(&index, &pairs[3], sizeof(index));
  ExpectEqual(pairs[2], 16.0f, "second maximum");
  ExpectEqual(index, 6u, "second index");
  const auto swapped = Compute<float, float>({rows}, 6, [](auto& to, auto& in) {
    WholeReduceMax(to, in[0], 24, 3, 1, 1, 4, ReduceOrder::ORDER_INDEX_VALUE);
  });
  ExpectEqual(swapped[3], 16.0f, "second maximum, after its index");
  const auto indices = Compute<uint32_t, float>({rows}, 3, [](auto& to, auto& in) {
    WholeReduceMax(to.template ReinterpretCast<float>(), in[0], 24, 3, 1, 1, 4,
                   ReduceOrder::ORDER_ONLY_INDEX);
  });
  ExpectValues(indices, std::vector<uint32_t>{6, 6, 6}, "indices");
}

}  // namespace values_cast_reduce
