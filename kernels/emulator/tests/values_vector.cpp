// What every vector function computes.
#include "harness.h"

namespace values_vector {

using namespace harness;

namespace {

using Floats = std::vector<float>;
using Halves = std::vector<half>;

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

std::vector<half> ToHalf(const Floats& values) {
  std::vector<half> result;
  for (const float value : values) result.push_back(static_cast<half>(value));
  return result;
}

// A scratch tensor of 64 floats beside `to`, whose buffer has 256 bytes to spare.
template <typename T>
LocalTensor<T> Spare(const LocalTensor<T>& to, uint32_t used) {
  return to[(used * static_cast<uint32_t>(sizeof(T)) + 31) / 32 * 32 /
            static_cast<uint32_t>(sizeof(T))];
}

// Checks a function of two tensors in its count form and both high-dimension forms.
template <typename Count, typename Strided, typename Bits>
void CheckBinary(const Floats& a, const Floats& b, const Floats& expected, Count count,
                 Strided strided, Bits bits) {
  const auto n = static_cast<uint32_t>(a.size());
  ExpectValues(Compute<float, float>({a, b}, n, [&](auto& to, auto& in) { count(to, in, n); }),
               expected, "count");
  ExpectValues(Compute<float, float>({a, b}, n, [&](auto& to, auto& in) { strided(to, in, n); }),
               expected, "mask");
  ExpectValues(Compute<float, float>({a, b}, n, [&](auto& to, auto& in) { bits(to, in, n); }),
               expected, "mask bit by bit");
  Floats in_half(n);
  const Halves halves =
      Compute<half, half>({ToHalf(a), ToHalf(b)}, n, [&](auto& to, auto& in) { count(to, in, n); });
  ExpectValues(halves, expected, "half");
}

template <typename Count, typename Strided, typename Bits>
void CheckUnary(const Floats& a, const Floats& expected, Count count, Strided strided, Bits bits) {
  const auto n = static_cast<uint32_t>(a.size());
  ExpectValues(Compute<float, float>({a}, n, [&](auto& to, auto& in) { count(to, in, n); }),
               expected, "count");
  ExpectValues(Compute<float, float>({a}, n, [&](auto& to, auto& in) { strided(to, in, n); }),
               expected, "mask");
  ExpectValues(Compute<float, float>({a}, n, [&](auto& to, auto& in) { bits(to, in, n); }),
               expected, "mask bit by bit");
  ExpectValues(Compute<half, half>({ToHalf(a)}, n, [&](auto& to, auto& in) { count(to, in, n); }),
               ToHalf(expected), "half");
}

#define BINARY_CASE(Name, a, b, ...)                                                          \
  CASE(Name##Values) {                                                                        \
    CheckBinary(                                                                              \
        a, b, __VA_ARGS__, [](auto& to, auto& in, uint32_t n) { Name(to, in[0], in[1], n); }, \
        [](auto& to, auto& in, uint32_t n) {                                                  \
          Name(to, in[0], in[1], uint64_t{n}, 1, BinaryRepeatParams{1, 1, 1, 8, 8, 8});       \
        },                                                                                    \
        [](auto& to, auto& in, uint32_t n) {                                                  \
          uint64_t mask[2] = {(uint64_t{1} << n) - 1, 0};                                     \
          Name(to, in[0], in[1], mask, 1, BinaryRepeatParams{1, 1, 1, 8, 8, 8});              \
        });                                                                                   \
  }

#define UNARY_CASE(Name, a, ...)                                                    \
  CASE(Name##Values) {                                                              \
    CheckUnary(                                                                     \
        a, __VA_ARGS__, [](auto& to, auto& in, uint32_t n) { Name(to, in[0], n); }, \
        [](auto& to, auto& in, uint32_t n) {                                        \
          Name(to, in[0], uint64_t{n}, 1, UnaryRepeatParams{1, 1, 8, 8});           \
        },                                                                          \
        [](auto& to, auto& in, uint32_t n) {                                        \
          uint64_t mask[2] = {(uint64_t{1} << n) - 1, 0};                           \
          Name(to, in[0], mask, 1, UnaryRepeatParams{1, 1, 8, 8});                  \
        });                                                                         \
  }

#define SCALAR_CASE(Name, a, scalar, ...)                                                         \
  CASE(Name##Values) {                                                                            \
    CheckUnary(                                                                                   \
        a, __VA_ARGS__,                                                                           \
        [](auto& to, auto& in, uint32_t n) {                                                      \
          using T = std::decay_t<decltype(in[0].GetValue(0))>;                                    \
          Name(to, in[0], static_cast<T>(scalar), n);                                             \
        },                                                                                        \
        [](auto& to, auto& in, uint32_t n) {                                                      \
          using T = std::decay_t<decltype(in[0].GetValue(0))>;                                    \
          Name(to, in[0], static_cast<T>(scalar), uint64_t{n}, 1, UnaryRepeatParams{1, 1, 8, 8}); \
        },                                                                                        \
        [](auto& to, auto& in, uint32_t n) {                                                      \
          using T = std::decay_t<decltype(in[0].GetValue(0))>;                                    \
          uint64_t mask[2] = {(uint64_t{1} << n) - 1, 0};                                         \
          Name(to, in[0], static_cast<T>(scalar), mask, 1, UnaryRepeatParams{1, 1, 8, 8});        \
        });                                                                                       \
  }

const Floats kA{1.0f, -2.5f, 8.0f, 0.0f, 0.5f, kInf};
const Floats kB{2.0f, 0.5f, -4.0f, 0.0f, 0.25f, kInf};

}  // namespace

BINARY_CASE(Add, kA, kB, Floats{3.0f, -2.0f, 4.0f, 0.0f, 0.75f, kInf})
BINARY_CASE(Sub, kA, kB, Floats{-1.0f, -3.0f, 12.0f, 0.0f, 0.25f, kNaN})
BINARY_CASE(Mul, kA, kB, Floats{2.0f, -1.25f, -32.0f, 0.0f, 0.125f, kInf})
BINARY_CASE(Div, kA, kB, Floats{0.5f, -5.0f, -2.0f, kNaN, 2.0f, kNaN})
BINARY_CASE(Max, kA, kB, Floats{2.0f, 0.5f, 8.0f, 0.0f, 0.5f, kInf})
BINARY_CASE(Min, kA, kB, Floats{1.0f, -2.5f, -4.0f, 0.0f, 0.25f, kInf})
SCALAR_CASE(Adds, kA, 0.5f, Floats{1.5f, -2.0f, 8.5f, 0.5f, 1.0f, kInf})
SCALAR_CASE(Muls, kA, -2.0f, Floats{-2.0f, 5.0f, -16.0f, 0.0f, -1.0f, -kInf})
SCALAR_CASE(Maxs, kA, 0.75f, Floats{1.0f, 0.75f, 8.0f, 0.75f, 0.75f, kInf})
SCALAR_CASE(Mins, kA, 0.75f, Floats{0.75f, -2.5f, 0.75f, 0.0f, 0.5f, 0.75f})
UNARY_CASE(Exp, (Floats{0.0f, 1.0f, -kInf, kInf, -1.0f}),
           Floats{1.0f, 2.7182818f, 0.0f, kInf, 0.36787945f})
UNARY_CASE(Ln, (Floats{1.0f, 2.7182818f, 0.0f, kInf, -1.0f}),
           Floats{0.0f, std::log(2.7182818f), -kInf, kInf, kNaN})
UNARY_CASE(Abs, (Floats{-1.5f, 2.0f, -0.0f, -kInf}), Floats{1.5f, 2.0f, 0.0f, kInf})
UNARY_CASE(Relu, (Floats{-1.5f, 2.0f, 0.0f, kInf}), Floats{0.0f, 2.0f, 0.0f, kInf})

CASE(IntegerArithmetic) {
  const std::vector<int32_t> a{7, -3, 2147483647}, b{2, 5, 1};
  ExpectValues(
      Compute<int32_t, int32_t>({a, b}, 3, [](auto& to, auto& in) { Add(to, in[0], in[1], 3); }),
      std::vector<int64_t>{9, 2, -2147483648LL}, "int32_t sum wraps");
  ExpectValues(
      Compute<int32_t, int32_t>({a, b}, 3, [](auto& to, auto& in) { Max(to, in[0], in[1], 3); }),
      std::vector<int32_t>{7, 5, 2147483647}, "int32_t maximum");
}

CASE(HalfRoundsEachResult) {
  // 2048 + 1 lies between the halves 2048 and 2050; a tie goes to the even one.
  const Floats sums{2048.0f, 2052.0f};
  ExpectValues(Compute<half, half>({ToHalf({2048.0f, 2050.0f}), ToHalf({1.0f, 1.0f})}, 2,
                                   [](auto& to, auto& in) { Add(to, in[0], in[1], 2); }),
               sums, "half sum");
}

CASE(Overflow) {
  const std::vector<Halves> in{ToHalf({60000.0f, -60000.0f}), ToHalf({60000.0f, -60000.0f})};
  const auto add = [](auto& to, auto& tensors) { Add(to, tensors[0], tensors[1], 2); };
  ExpectValues(Compute<half, half>(in, 2, add), Floats{kInf, -kInf}, "infinite sum");
  LaunchOptions options;
  options.overflow_mode = OverflowMode::kSaturate;
  ExpectValues(Compute<half, half>(in, 2, add, options), Floats{65504.0f, -65504.0f},
               "saturated sum");
}

// A NaN in every lane of either operand, under every rule.
CASE(NanInMaxAndMin) {
  constexpr uint32_t kLanes = 64;
  for (const NanRule rule : {NanRule::kDrop, NanRule::kSecondOperand, NanRule::kPropagate}) {
    LaunchOptions options;
    options.nan_rule = rule;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      Floats ones(kLanes, 1.0f), with_nan(kLanes, 1.0f);
      with_nan[lane] = kNaN;
      const bool first_lost = rule != NanRule::kPropagate;
      const bool second_lost = rule == NanRule::kDrop;
      const auto check = [&](const Floats& a, const Floats& b, bool lost, auto function) {
        const Floats out = Compute<float, float>(
            {a, b}, kLanes, [&](auto& to, auto& in) { function(to, in[0], in[1]); }, options);
        ExpectEqual(out[lane], lost ? 1.0f : kNaN, "lane " + std::to_string(lane));
        ExpectEqual(out[(lane + 1) % kLanes], 1.0f, "the next lane");
      };
      const auto max = [](auto& to, auto& a, auto& b) { Max(to, a, b, kLanes); };
      const auto min = [](auto& to, auto& a, auto& b) { Min(to, a, b, kLanes); };
      const auto maxs = [](auto& to, auto& a, auto&) { Maxs(to, a, 1.0f, kLanes); };
      const auto mins = [](auto& to, auto& a, auto&) { Mins(to, a, 1.0f, kLanes); };
      check(with_nan, ones, first_lost, max);
      check(with_nan, ones, first_lost, min);
      check(with_nan, ones, first_lost, maxs);
      check(with_nan, ones, first_lost, mins);
      check(ones, with_nan, second_lost, max);
      check(ones, with_nan, second_lost, min);
    }
  }
}

CASE(NanInReluAndReduceMax) {
  const Floats values{1.0f, kNaN, 3.0f};
  const auto relu = [](auto& to, auto& in) { Relu(to, in[0], 3); };
  const auto reduce = [](auto& to, auto& in) { ReduceMax(to, in[0], Spare(to, 1), 3); };
  LaunchOptions options;
  ExpectValues(Compute<float, float>({values}, 3, relu, options), Floats{1.0f, 0.0f, 3.0f},
               "Relu, dropped");
  ExpectValues(Compute<float, float>({values}, 1, reduce, options), Floats{3.0f},
               "ReduceMax, dropped");
  options.nan_rule = NanRule::kPropagate;
  ExpectValues(Compute<float, float>({values}, 3, relu, options), Floats{1.0f, kNaN, 3.0f},
               "Relu, propagated");
  ExpectValues(Compute<float, float>({values}, 1, reduce, options), Floats{kNaN},
               "ReduceMax, propagated");
}

CASE(StridesAndMasks) {
  // Every second block of two repeats, even lanes only; the rest keeps its value.
  Floats a(256), untouched(256, -1.0f), expected(256, -1.0f);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  for (size_t repeat = 0; repeat < 2; ++repeat) {
    for (size_t lane = 0; lane < 64; lane += 2) {
      expected[repeat * 64 + lane] = 1.0f + a[repeat * 128 + lane / 8 * 16 + lane % 8];
    }
  }
  const auto out = Compute<float, float>({a, untouched}, 256, [](auto& to, auto& in) {
    DataCopy(to, in[1], 256);
    PipeBarrier<PIPE_V>();
    uint64_t mask[2] = {0x5555555555555555u, 0};
    Adds(to, in[0], 1.0f, mask, 2, UnaryRepeatParams{1, 2, 8, 16});
  });
  ExpectValues(out, expected, "strided");
}

CASE(BroadcastBlock) {
  // Source stride 0: the first block serves all eight, in every repeat.
  const Floats a{1, 2, 3, 4, 5, 6, 7, 8};
  const auto out = Compute<float, float>({a}, 128, [](auto& to, auto& in) {
    Muls(to, in[0], 10.0f, uint64_t{64}, 2, UnaryRepeatParams{1, 0, 8, 0});
  });
  for (size_t i = 0; i < 128; ++i) ExpectEqual(out[i], 10.0f * a[i % 8], "element");
}

CASE(DuplicateValues) {
  ExpectValues(Compute<float, float>({}, 5, [](auto& to, auto&) { Duplicate(to, 2.5f, 5); }),
               Floats(5, 2.5f), "float");
  ExpectValues(Compute<bfloat16_t, float>(
                   {}, 5, [](auto& to, auto&) { Duplicate(to, bfloat16_t(2.5f), 5); }),
               std::vector<bfloat16_t>(5, bfloat16_t(2.5f)), "bfloat16_t");
  const auto out = Compute<int32_t, float>({}, 128, [](auto& to, auto&) {
    Duplicate(to, 1, 128);
    PipeBarrier<PIPE_V>();
    Duplicate(to, 7, uint64_t{3}, 2, uint16_t{1}, uint8_t{8});
  });
  for (size_t i = 0; i < 128; ++i) ExpectEqual(out[i], i % 64 < 3 ? 7 : 1, "masked");
  const auto odd = Compute<half, float>({}, 128, [](auto& to, auto&) {
    Duplicate(to, static_cast<half>(1.0f), 128);
    PipeBarrier<PIPE_V>();
    uint64_t mask[2] = {0xaaaaaaaaaaaaaaaau, 0x1u};
    Duplicate(to, static_cast<half>(7.0f), mask, 1, uint16_t{1}, uint8_t{8});
  });
  for (size_t i = 0; i < 128; ++i) {
    ExpectEqual(odd[i], (i < 64 && i % 2 == 1) || i == 64 ? 7.0f : 1.0f, "masked bit by bit");
  }
}

CASE(CreateVecIndexValues) {
  ExpectValues(
      Compute<int32_t, float>({}, 4, [](auto& to, auto&) { CreateVecIndex(to, int32_t{-1}, 4u); }),
      std::vector<int32_t>{-1, 0, 1, 2}, "index");
}

CASE(GatherValues) {
  // The shift by one element that the lattice needs.
  const Floats a{10, 11, 12, 13, 14, 15, 16, 17};
  const auto out = Compute<float, float>({a}, 7, [](auto& to, auto& in) {
    auto offsets = Spare(to, 7).template ReinterpretCast<int32_t>();
    CreateVecIndex(offsets, int32_t{0}, 7u);
    PipeBarrier<PIPE_V>();
    Muls(offsets, offsets, 4, 7);
    PipeBarrier<PIPE_V>();
    Gather(to, in[0], offsets.template ReinterpretCast<uint32_t>(), 4, 7);
  });
  ExpectValues(out, Floats{11, 12, 13, 14, 15, 16, 17}, "shifted");
  const auto halves = Compute<half, half>({ToHalf(a)}, 3, [](auto& to, auto& in) {
    auto offsets = Spare(to, 3).template ReinterpretCast<uint32_t>();
    Duplicate(offsets, uint32_t{6}, 3);
    PipeBarrier<PIPE_V>();
    Gather(to, in[0], offsets, 0, 3);
  });
  ExpectValues(halves, Floats{13, 13, 13}, "half");
}

CASE(CompareValues) {
  Floats a(64, 0.0f), b(64, 0.0f);
  a[0] = -1.0f;  // less
  a[1] = 1.0f;   // greater
  a[9] = kNaN;   // neither
  const auto bits = [&](CMPMODE mode) {
    return Compute<uint8_t, float>(
        {a, b}, 8, [=](auto& to, auto& in) { Compare(to, in[0], in[1], mode, 64); });
  };
  const auto scalar = [&](CMPMODE mode) {
    return Compute<uint8_t, float>(
        {a}, 8, [=](auto& to, auto& in) { CompareScalar(to, in[0], 0.0f, mode, 64); });
  };
  const std::pair<CMPMODE, std::vector<int>> expected[] = {
      {CMPMODE::LT, {0x01, 0x00, 0x00}}, {CMPMODE::GT, {0x02, 0x00, 0x00}},
      {CMPMODE::EQ, {0xfc, 0xfd, 0xff}}, {CMPMODE::LE, {0xfd, 0xfd, 0xff}},
      {CMPMODE::GE, {0xfe, 0xfd, 0xff}}, {CMPMODE::NE, {0x03, 0x02, 0x00}}};
  for (const auto& [mode, bytes] : expected) {
    ExpectValues(bits(mode), bytes, "Compare mode " + Show(static_cast<int>(mode)));
    ExpectValues(scalar(mode), bytes, "CompareScalar mode " + Show(static_cast<int>(mode)));
  }
}

CASE(SelectValues) {
  Floats a(128), b(128);
  for (size_t i = 0; i < 128; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = -a[i];
  }
  // Bits of bytes 0 and 8: of elements 0-7 and 64-71.
  const auto select = [&](SELMODE mode, bool with_scalar) {
    return Compute<float, float>({a, b}, 128, [=](auto& to, auto& in) {
      const auto bits = Spare(to, 128).template ReinterpretCast<uint16_t>();
      Duplicate(bits, uint16_t{0}, 16);
      Sync<HardEvent::V_S>();
      const auto bytes = bits.template ReinterpretCast<uint8_t>();
      bytes.SetValue(0, 0x0f);
      bytes.SetValue(8, 0xf0);
      Sync<HardEvent::S_V>();
      if (with_scalar) {
        Select(to, bytes, in[0], 0.5f, mode, 128);
      } else {
        Select(to, bytes, in[0], in[1], mode, 128);
      }
    });
  };
  const Floats each = select(SELMODE::VSEL_TENSOR_TENSOR_MODE, false);
  const Floats same = select(SELMODE::VSEL_CMPMASK_SPR, false);
  const Floats scalar = select(SELMODE::VSEL_TENSOR_SCALAR_MODE, true);
  for (size_t i = 0; i < 128; ++i) {
    const bool bit = i < 4 || (i >= 68 && i < 72);
    const std::string name = "element " + Show(i);
    ExpectEqual(each[i], bit ? a[i] : b[i], "mode 2, " + name);
    ExpectEqual(scalar[i], bit ? a[i] : 0.5f, "mode 1, " + name);
    ExpectEqual(same[i], i % 64 < 4 ? a[i] : b[i], "mode 0, " + name);
  }
}

}  // namespace values_vector
