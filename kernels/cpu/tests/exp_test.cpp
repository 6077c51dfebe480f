// The vector functions of one instruction set: error bounds, special values, half precision.
// Nothing here runs before exp_test_main.cpp has asked whether this CPU has that instruction set.
#include "cpu/tests/exp_test.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "cpu/simd/exp_log.h"
#include "cpu/simd/storage.h"
#include "cpu/tests/check.h"

namespace {

using namespace asr_ascend::ASR_ASCEND_SIMD_NAMESPACE;

constexpr float kInf = INFINITY;

float Float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Distance from the truth in units of the last place of the rounded truth.
double ErrorInUlp(float got, double truth) {
  const float rounded = static_cast<float>(truth);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0.0 : INFINITY;
  int exponent;
  std::frexp(truth, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(got - truth) / ulp;
}

double ErrorInUlp(double got, long double truth) {
  int exponent;
  std::frexp(static_cast<double>(truth), &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 53, -1074));
  return static_cast<double>(std::fabs(got - truth) / ulp);
}

// Quick where the answer is obvious, as it is for most floats.
double TrueExp(double x) {
  if (std::fabs(x) < 0x1p-30) return 1.0 + x;
  if (x < -170.0) return 0.0;
  return x > 90.0 ? INFINITY : std::exp(x);
}

bool TakesEveryFloat() { return std::getenv("ASR_ASCEND_TEST_EVERY_FLOAT") != nullptr; }

// Calls check(x, y = f(x)) for floats of both signs, denormals, infinities and NaN among them: all
// of them if asked to by ASR_ASCEND_TEST_EVERY_FLOAT, else one in 499.
template <typename Function, typename Check>
void ForFloats(const Function& function, const Check& check) {
  const uint32_t stride = TakesEveryFloat() ? 1 : IsEmulated() ? 50021 : 499;
  for (uint64_t base = 0; base < (uint64_t{1} << 32); base += stride * kF32Lanes) {
    F32 x = {};
    for (int i = 0; i < kF32Lanes; ++i)
      x[i] = Float(static_cast<uint32_t>(base + stride * unsigned(i)));
    const F32 y = function(x);
    for (int i = 0; i < kF32Lanes; ++i) check(x[i], y[i]);
  }
}

// The largest of what it was shown, and where.
struct Worst {
  double error = 0.0;
  double at = 0.0;
  void Show(double new_error, double where) {
    if (!(new_error <= error)) {
      error = new_error;
      at = where;
    }
  }
};

void ExpOfFloat() {
  Worst worst;
  ForFloats([](F32 x) { return Exp(x); },
            [&](float x, float y) {
              if (std::isnan(x)) {
                CHECK(std::isnan(y), "exp(NaN) is %g", double(y));
              } else {
                worst.Show(ErrorInUlp(y, TrueExp(x)), x);
              }
            });
  std::printf("exp of float: %.3f ulp at %.9g\n", worst.error, worst.at);
  CHECK(worst.error <= 1.1, "%.3f ulp at %.9g", worst.error, worst.at);
  const float exact[][2] = {{0.0f, 1.0f},    {-0.0f, 1.0f},          {-kInf, 0.0f},
                            {kInf, kInf},    {89.0f, kInf},          {-104.0f, 0.0f},
                            {-3e38f, 0.0f},  {3e38f, kInf},          {1e-40f, 1.0f},
                            {-1e-40f, 1.0f}, {-103.0f, 0x1.0p-149f}, {88.73f, kInf}};
  for (const auto& pair : exact) {
    for (int lane = 0; lane < kF32Lanes; ++lane) {
      F32 x = {};
      x[lane] = pair[0];
      const F32 y = Exp(x);
      CHECK(y[lane] == pair[1], "exp(%g) is %g in lane %d", double(pair[0]), double(y[lane]), lane);
    }
  }
}

// What the row stages' exps may be wrong by, in ulp: ln 2 in one part costs in proportion to |x|.
double AllowedUlp(double x) { return 2.0 + std::fabs(std::max(-104.0, x)) / 20.0; }

// The statistics' exp: down to -60, and below that too small to be seen beside 1.
void TermsOfSums() {
  Worst near, far;
  ForFloats([](F32 x) { return TermOfSum(x); },
            [&](float x, float y) {
              if (std::isnan(x)) {
                CHECK(std::isnan(y), "exp(NaN) is %g", double(y));
              } else if (x >= -60.0f && x <= 0.0f) {
                near.Show(ErrorInUlp(y, TrueExp(x)) / AllowedUlp(x), x);
              } else if (x < -60.0f) {
                CHECK(y >= 0.0f, "%g at %g", double(y), double(x));
                far.Show(y, x);
              }
            });
  std::printf("term of a sum: %.3f of what is allowed at %.9g, far down %.3g\n", near.error,
              near.at, far.error);
  CHECK(near.error <= 1.0, "%.3f of what is allowed at %.9g", near.error, near.at);
  CHECK(far.error <= 1e-26, "%.3g at %.9g", far.error, far.at);
  for (const float x : {0.0f, -0.0f}) {
    CHECK(TermOfSum(Fill(x))[0] == 1.0f, "exp(%g) is %g", double(x), double(TermOfSum(Fill(x))[0]));
  }
}

// The gradient's exp. A denormal exp and a denormal factor are both rounded before the product.
void ScaledExps() {
  for (const float factor : {1.0f, -0.37f, 65536.0f, 3e-39f}) {
    if (TakesEveryFloat() && factor != 1.0f) continue;  // a minute each
    const auto scaled = ScaledExp<F32>::Of(Fill(factor));
    Worst worst;
    ForFloats([&](F32 x) { return scaled(Min(Fill(20.0f), x)); },
              [&](float given, float y) {
                if (std::isnan(given)) {
                  CHECK(std::isnan(y), "exp(NaN) is %g", double(y));
                  return;
                }
                const double x = std::min(20.0, double(given));
                const double exp = TrueExp(x);
                const double truth = double(factor) * exp;
                const double ulp = std::max(std::fabs(truth) * 0x1p-24, 0x1p-149);
                const double rounding = 0x1p-149 * (std::fabs(double(factor)) + exp) / ulp;
                worst.Show(ErrorInUlp(y, truth) / (AllowedUlp(x) + rounding), x);
              });
    std::printf("%g times exp: %.3f of what is allowed, at %.9g\n", double(factor), worst.error,
                worst.at);
    CHECK(worst.error <= 1.0, "%.3f of what is allowed, at %.9g", worst.error, worst.at);
    CHECK(scaled(Fill(-kInf))[0] == 0.0f, "%g", double(scaled(Fill(-kInf))[0]));
    CHECK(scaled(Fill(0.0f))[0] == factor, "%g", double(scaled(Fill(0.0f))[0]));
  }
}

void ExpOfDouble() {
  std::mt19937_64 random(7);
  double worst = 0.0, worst_at = 0.0;
  for (int round = 0; round < (IsEmulated() ? 3000 : 300000); ++round) {
    F64 x = {};
    for (int i = 0; i < kF64Lanes; ++i) {
      const double wide = std::uniform_real_distribution<double>(-744.0, 709.7)(random);
      x[i] = round % 2 == 0 ? wide : wide * 1e-3;
    }
    const F64 y = Exp(x);
    for (int i = 0; i < kF64Lanes; ++i) {
      const double error = ErrorInUlp(y[i], std::exp(static_cast<long double>(x[i])));
      if (error > worst) {
        worst = error;
        worst_at = x[i];
      }
    }
  }
  std::printf("exp of double: %.3f ulp at %.17g\n", worst, worst_at);
  CHECK(worst <= 1.2, "%.3f ulp at %.17g", worst, worst_at);
  const double exact[][2] = {{0.0, 1.0},        {-INFINITY, 0.0},   {INFINITY, INFINITY},
                             {710.0, INFINITY}, {-746.0, 0.0},      {-1e308, 0.0},
                             {1e308, INFINITY}, {-744.6, 0x1p-1074}};
  for (const auto& pair : exact) {
    for (int lane = 0; lane < kF64Lanes; ++lane) {
      F64 x = {};
      x[lane] = pair[0];
      CHECK(Exp(x)[lane] == pair[1], "exp(%g) is %g", pair[0], double(Exp(x)[lane]));
      x[lane] = NAN;
      CHECK(std::isnan(Exp(x)[lane]), "exp(NaN) is %g", double(Exp(x)[lane]));
    }
  }
}

void Logarithms() {
  std::mt19937_64 random(8);
  double worst_log = 0.0, worst_add = 0.0;
  for (int round = 0; round < (IsEmulated() ? 3000 : 200000); ++round) {
    F64 x = {}, a = {}, b = {};
    for (int i = 0; i < kF64Lanes; ++i) {
      x[i] = std::exp(std::uniform_real_distribution<double>(-700.0, 700.0)(random));
      if (round % 2 == 0) x[i] = std::uniform_real_distribution<double>(0.0, 2.0)(random);
      a[i] = std::uniform_real_distribution<double>(-20.0, 0.0)(random);
      b[i] = a[i] + std::uniform_real_distribution<double>(-40.0, 40.0)(random);
    }
    const F64 y = LogOnePlus(x), z = LogAddExp(a, b);
    for (int i = 0; i < kF64Lanes; ++i) {
      const long double log = std::log1p(static_cast<long double>(x[i]));
      const long double larger = std::max<long double>(a[i], b[i]);
      const long double sum = larger + std::log1p(std::exp(-std::fabs((long double)a[i] - b[i])));
      worst_log = std::max(worst_log, double(std::fabs(y[i] - log) / log));
      worst_add =
          std::max(worst_add, double(std::fabs(z[i] - sum) / std::max(1.0L, std::fabs(sum))));
    }
  }
  CHECK(LogOnePlus(F64{})[0] == 0.0, "log(1) is %g", LogOnePlus(F64{})[0]);
  std::printf("log(1 + x): %.2g of the truth, log(exp + exp): %.2g of max(1, |truth|)\n", worst_log,
              worst_add);
  CHECK(worst_log <= 5e-16, "%g", worst_log);
  CHECK(worst_add <= 4e-16, "%g", worst_add);
  const double inf = INFINITY;
  const double cases[][3] = {{-inf, -inf, -inf},     {-inf, 3.0, 3.0},       {3.0, -inf, 3.0},
                             {-inf, -1e300, -1e300}, {-1e300, -inf, -1e300}, {-5.0, -1e5, -5.0}};
  for (const auto& c : cases) {
    for (int lane = 0; lane < kF64Lanes; ++lane) {
      F64 a = {}, b = {};
      a[lane] = c[0];
      b[lane] = c[1];
      const double got = LogAddExp(a, b)[lane];
      CHECK(got == c[2], "log(exp(%g) + exp(%g)) is %g", c[0], c[1], got);
    }
  }
  for (const double other : {-inf, -3.0, 4.0, double(NAN)}) {
    for (int lane = 0; lane < kF64Lanes; ++lane) {
      F64 a = {}, b = {};
      a[lane] = NAN;
      b[lane] = other;
      CHECK(std::isnan(LogAddExp(a, b)[lane]), "NaN first, then %g", other);
      CHECK(std::isnan(LogAddExp(b, a)[lane]), "%g, then NaN", other);
    }
  }
}

void BoundsKeepNan() {
  for (int lane = 0; lane < kF32Lanes; ++lane) {
    F32 x = {};
    x[lane] = NAN;
    CHECK(std::isnan(Max(Fill(-1.0f), x)[lane]), "lane %d", lane);
    CHECK(std::isnan(Min(Fill(1.0f), x)[lane]), "lane %d", lane);
  }
  for (int lane = 0; lane < kF64Lanes; ++lane) {
    F64 x = {};
    x[lane] = NAN;
    CHECK(std::isnan(Max(Fill(-1.0), x)[lane]), "lane %d", lane);
    CHECK(std::isnan(Min(Fill(1.0), x)[lane]), "lane %d", lane);
  }
}

// A stored 16-bit float from its definition.
double Decode(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <typename T>
uint16_t StoreOne(float x, int count) {
  T out[2 * kF32Lanes] = {};
  if (count == kF32Lanes) {
    Storage<T>::Store(out, Fill(x));
  } else {
    Storage<T>::StorePartial(out, Fill(x), count);
    CHECK(out[count].bits == 0, "a partial store wrote past its end");
  }
  return out[0].bits;
}

// All 65536 values come in exactly; midpoints between neighbours go to the even one.
template <typename T>
void SixteenBits(int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const uint16_t infinity = uint16_t(((1 << exponent_bits) - 1) << mantissa_bits);
  for (unsigned bits = 0; bits < 65536u; ++bits) {
    T stored[kF32Lanes] = {};
    stored[0].bits = uint16_t(bits);
    const double want = Decode(uint16_t(bits), exponent_bits);
    const float got = Storage<T>::Load(stored)[0];
    const float partial = Storage<T>::LoadPartial(stored, 1, 5.0f)[0];
    if (std::isnan(want)) {
      CHECK(std::isnan(got) && std::isnan(partial), "%04x is %g", bits, double(got));
      const double back = Decode(StoreOne<T>(got, kF32Lanes), exponent_bits);
      CHECK(std::isnan(back), "%04x comes back as %g", bits, back);
      continue;
    }
    CHECK(got == want && partial == want, "%04x is %g, want %g", bits, double(got), want);
    CHECK(StoreOne<T>(got, kF32Lanes) == bits, "%04x does not come back", bits);
    CHECK(StoreOne<T>(got, 1) == bits, "%04x does not come back", bits);
    const uint16_t magnitude = uint16_t(bits & 0x7fff);
    if (magnitude >= infinity) continue;
    // Where the neighbour is infinity, the midpoint is taken as if the exponent went on.
    const double next = magnitude + 1 == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1))
                                                  : Decode(uint16_t(magnitude + 1), exponent_bits);
    const double middle = (std::fabs(want) + next) / 2;
    const float signed_middle = static_cast<float>((bits & 0x8000) != 0 ? -middle : middle);
    if (static_cast<double>(signed_middle) != std::copysign(middle, want)) continue;
    const uint16_t even = uint16_t((bits & 1) == 0 ? bits : bits + 1);
    CHECK(StoreOne<T>(signed_middle, kF32Lanes) == even, "%.9g does not go to %04x",
          double(signed_middle), even);
    const float above = std::nextafter(signed_middle, bits & 0x8000 ? -kInf : kInf);
    const float below = std::nextafter(signed_middle, 0.0f);
    CHECK(StoreOne<T>(above, kF32Lanes) == bits + 1, "%.9g", double(above));
    CHECK(StoreOne<T>(below, kF32Lanes) == bits, "%.9g", double(below));
  }
}

template <typename T>
void PartialLoadsAndStores() {
  using S = Storage<T>;
  for (int count = 1; count < S::kLanes; ++count) {
    T in[2 * 16] = {}, out[2 * 16] = {};
    for (int i = 0; i < S::kLanes; ++i) S::Put(in + i, 1.0 + i);
    const auto x = S::LoadPartial(in, count, -4.0f);
    S::StorePartial(out, x, count);
    for (int i = 0; i < S::kLanes; ++i) {
      CHECK(x[i] == (i < count ? 1.0 + i : -4.0), "count %d lane %d", count, i);
      CHECK(S::Get(out + i) == (i < count ? 1.0 + i : 0.0), "count %d lane %d", count, i);
    }
  }
}

}  // namespace

int RunExpTests() {
  ExpOfFloat();
  TermsOfSums();
  ScaledExps();
  ExpOfDouble();
  Logarithms();
  BoundsKeepNan();
  SixteenBits<Half>(5);
  SixteenBits<BFloat16>(8);
  PartialLoadsAndStores<float>();
  PartialLoadsAndStores<double>();
  PartialLoadsAndStores<Half>();
  PartialLoadsAndStores<BFloat16>();
  return Report("exp_test");
}
