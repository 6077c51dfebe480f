// Input that is wrong, not finite or degenerate.
#include "cpu/rnnt_loss/tests/cases.h"
#include "cpu/tests/check.h"

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool AllRowsOf(const Case& c, const Outcome& outcome, int64_t b, bool (*holds)(double)) {
  const int bytes = ElementBytes(c.options.dtype);
  for (int64_t t = 0; t < c.logit_lengths[size_t(b)]; ++t) {
    for (int64_t u = 0; u <= c.target_lengths[size_t(b)]; ++u) {
      for (int64_t k = 0; k < c.vocab; ++k) {
        const size_t element = c.Element(b, t, u) + size_t(k);
        if (!holds(Decode(c.options.dtype, outcome.grad.data() + element * size_t(bytes)))) {
          return false;
        }
      }
    }
  }
  return true;
}

bool IsNan(double x) { return std::isnan(x); }
bool IsFinite(double x) { return std::isfinite(x); }
bool IsZero(double x) { return x == 0.0; }

// The first and last samples as they come out when the middle one is harmless.
void CheckNeighbours(const Case& c, const Outcome& clean, const Outcome& outcome,
                     const char* what) {
  const int bytes = ElementBytes(c.options.dtype);
  for (const int64_t b : {int64_t{0}, int64_t{2}}) {
    CHECK(outcome.costs[size_t(b)] == clean.costs[size_t(b)], "%s: cost of sample %d", what,
          int(b));
    const size_t first = c.Element(b, 0, 0) * size_t(bytes);
    const size_t count =
        size_t(c.logit_lengths[size_t(b)] * (c.target_lengths[size_t(b)] + 1) * c.vocab * bytes);
    CHECK(std::memcmp(clean.grad.data() + first, outcome.grad.data() + first, count) == 0,
          "%s: gradient of sample %d", what, int(b));
  }
}

// In every lane, in whole vectors and in the tail, for all dtypes.
void NotFiniteInEveryLane() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const int64_t vocab : {int64_t{2}, int64_t{7}, int64_t{70}, int64_t{150}}) {
      CaseOptions options;
      options.dtype = dtype;
      const Case clean_case = MakeCase(options, vocab, 1, {3, 2, 3}, {2, 2, 1}, 11);
      const Outcome clean = Run(clean_case);
      for (int64_t k = 0; k < vocab; ++k) {
        for (const double bad : {std::nan(""), kInf}) {
          Case c = clean_case;
          c.Set(1, k % 2, k % 3, k, bad);
          // The other logits below and above, so that the NaN meets both orders of a maximum.
          c.Set(1, k % 2, k % 3, (k + 1) % vocab, k % 5 == 0 ? 200.0 : -200.0);
          const Outcome outcome = Run(c);
          CHECK(outcome.status == ASR_ASCEND_OK, "status %d", int(outcome.status));
          CHECK(std::isnan(outcome.costs[1]), "dtype %d V %d k %d bad %g: cost %g", dtype,
                int(vocab), int(k), bad, outcome.costs[1]);
          CHECK(AllRowsOf(c, outcome, 1, IsNan), "dtype %d V %d k %d bad %g: gradient", dtype,
                int(vocab), int(k), bad);
          CheckNeighbours(c, clean, outcome, "not finite");
        }
      }
    }
  }
}

void NotFiniteLogProbabilities() {
  CaseOptions options;
  options.fused = false;
  const Case clean_case = MakeCase(options, 9, 1, {3, 2, 3}, {2, 2, 1}, 12);
  const Outcome clean = Run(clean_case);
  for (const double bad : {std::nan(""), kInf}) {
    Case c = clean_case;
    c.Set(1, 0, 1, c.blank, bad);
    const Outcome outcome = Run(c);
    CHECK(std::isnan(outcome.costs[1]), "bad %g: cost %g", bad, outcome.costs[1]);
    CHECK(AllRowsOf(c, outcome, 1, IsNan), "bad %g: gradient", bad);
    CheckNeighbours(c, clean, outcome, "log-probabilities");
  }
  Case unread = clean_case;
  for (int64_t k = 0; k < unread.vocab; ++k) {
    if (k != unread.blank && k != unread.samples[1].targets[1]) {
      unread.Set(1, 1, 1, k, std::nan(""));
    }
  }
  unread.Set(1, 1, 1, unread.blank, std::nan(""));  // the last frame, a label still to come
  const Outcome outcome = Run(unread);
  CHECK(outcome.costs == clean.costs && outcome.grad == clean.grad, "an unused value was read");
}

// Masked symbols are fine while a path is left; without one the cost is +inf, the gradient zero.
void MaskedSymbols() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const bool fused : {true, false}) {
      CaseOptions options;
      options.dtype = dtype;
      options.fused = fused;
      const Case clean_case = MakeCase(options, 19, 4, {4, 3, 4}, {2, 3, 1}, 13);
      const Outcome clean = Run(clean_case);
      Case c = clean_case;
      c.Set(1, 0, 0, c.blank, -kInf);
      c.Set(1, 1, 2, 18, -kInf);
      const Outcome masked = Run(c);
      CHECK(std::isfinite(masked.costs[1]), "cost %g", masked.costs[1]);
      CHECK(AllRowsOf(c, masked, 1, IsFinite), "dtype %d: gradient of a masked sample", dtype);
      CheckNeighbours(c, clean, masked, "masked");
      const NaiveResult truth = NaiveLoss(c.samples[1], c.vocab, c.blank, fused);
      CHECK(std::fabs(masked.costs[1] - truth.cost) < 1e-5 * std::fabs(truth.cost),
            "cost %.9g, want %.9g", masked.costs[1], truth.cost);

      for (int64_t u = 0; u <= 3; ++u) c.Set(1, 2, u, c.blank, -kInf);
      const Outcome blocked = Run(c);
      CHECK(blocked.status == ASR_ASCEND_OK, "status %d", int(blocked.status));
      CHECK(blocked.costs[1] == kInf, "cost %g", blocked.costs[1]);
      CHECK(AllRowsOf(c, blocked, 1, IsZero), "dtype %d: gradient without a path", dtype);
      CheckNeighbours(c, clean, blocked, "blocked");
    }
  }
}

// A row of nothing but -inf has no softmax.
void NothingLeft() {
  CaseOptions options;
  Case c = MakeCase(options, 40, 4, {4, 3, 4}, {2, 3, 1}, 14);
  const Outcome clean = Run(c);
  for (int64_t k = 0; k < c.vocab; ++k) c.Set(1, 1, 1, k, -kInf);
  const Outcome outcome = Run(c);
  CHECK(std::isnan(outcome.costs[1]), "cost %g", outcome.costs[1]);
  CheckNeighbours(c, clean, outcome, "nothing left");
}

void UpstreamGradients() {
  for (const bool fused : {true, false}) {
    CaseOptions options;
    options.fused = fused;
    Case c = MakeCase(options, 37, 0, {5, 6, 4}, {3, 2, 4}, 15);
    c.grad_costs = {0.0, 1.0, -1.0};
    const Outcome one = Run(c);
    CHECK(AllRowsOf(c, one, 0, IsZero), "zero upstream gradient");
    c.grad_costs = {std::nan(""), -1.0, kInf};
    const Outcome other = Run(c);
    CHECK(AllRowsOf(c, other, 0, IsNan), "NaN upstream gradient");
    CHECK(!AllRowsOf(c, other, 2, IsFinite), "infinite upstream gradient");
    for (int64_t k = 0; k < c.vocab; ++k) {
      const size_t at = (c.Element(1, 2, 1) + size_t(k)) * 4;
      CHECK(Decode(0, one.grad.data() + at) == -Decode(0, other.grad.data() + at), "k %d", int(k));
    }
    c.grad_costs = {0.0, 1.0, 1.0};
    c.Set(0, 1, 1, 0, std::nan(""));
    CHECK(AllRowsOf(c, Run(c), 0, IsNan), "NaN sample, zero upstream gradient");
  }
}

void CostWithoutState() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    CaseOptions options;
    options.dtype = dtype;
    options.num_threads = 2;
    Case c = MakeCase(options, 33, 0, {90, 31, 1, 60}, {40, 60, 33, 0}, 16);
    const Outcome with_state = Run(c);
    c.options.want_state = false;
    CHECK(Run(c).costs == with_state.costs, "dtype %d: costs depend on the state", dtype);
  }
}

void ExpectStatus(const Case& c, int32_t want, int64_t sample, int64_t position, int64_t value) {
  const Outcome outcome = Run(c);
  CHECK(outcome.status == want, "status %d, want %d", int(outcome.status), int(want));
  CHECK(outcome.failure.sample == sample && outcome.failure.position == position &&
            outcome.failure.value == value,
        "status %d: sample %lld position %lld value %lld", int(want),
        (long long)outcome.failure.sample, (long long)outcome.failure.position,
        (long long)outcome.failure.value);
}

void WrongArguments() {
  for (const bool packed : {true, false}) {
    CaseOptions options;
    options.packed = packed;
    const Case good = MakeCase(options, 6, 2, {3, 4}, {2, 1}, 17);
    Case c = good;
    c.logit_lengths[1] = 0;
    ExpectStatus(c, ASR_ASCEND_BAD_LOGIT_LENGTH, 1, -1, 0);
    c.logit_lengths[1] = packed ? 5 : 6;
    ExpectStatus(c, packed ? ASR_ASCEND_BAD_ROWS : ASR_ASCEND_BAD_LOGIT_LENGTH, packed ? -1 : 1, -1,
                 packed ? 19 : 6);
    c = good;
    c.target_lengths[0] = -1;
    ExpectStatus(c, ASR_ASCEND_BAD_TARGET_LENGTH, 0, -1, -1);
    c.target_lengths[0] = 9;
    ExpectStatus(c, ASR_ASCEND_BAD_TARGET_LENGTH, 0, -1, 9);
    c = good;
    c.targets[1] = 6;
    ExpectStatus(c, ASR_ASCEND_BAD_TARGET, 0, 1, 6);
    c.targets[1] = -1;
    ExpectStatus(c, ASR_ASCEND_BAD_TARGET, 0, 1, -1);
    c.targets[1] = 2;
    ExpectStatus(c, ASR_ASCEND_TARGET_IS_BLANK, 0, 1, 2);
    c = good;
    c.problem.blank = 6;
    ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
    c = good;
    c.problem.dtype = 4;
    ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
    for (const double lambda : {-0.1, std::nan(""), kInf}) {
      c = good;
      c.problem.fastemit_lambda = lambda;
      ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
      c = good;
      c.problem.delay_penalty = lambda;
      ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
    }
    c = good;
    c.problem.num_threads = 0;
    ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
    c = good;
    c.logit_lengths[0] = int64_t{1} << 62;
    c.problem.logits_layout.padded_t = int64_t{1} << 62;
    ExpectStatus(c, ASR_ASCEND_BAD_ARGUMENT, -1, -1, -1);
  }
  double cost = 0.0;
  CHECK(
      asr_ascend_rnnt_forward(nullptr, nullptr, &cost, nullptr, nullptr) == ASR_ASCEND_BAD_ARGUMENT,
      "null problem");
  asr_ascend_rnnt_problem empty = {};
  empty.vocab = 3;
  empty.num_threads = 1;
  CHECK(asr_ascend_rnnt_forward(&empty, nullptr, nullptr, nullptr, nullptr) == ASR_ASCEND_OK,
        "no samples");
  CHECK(asr_ascend_abi_version() == ASR_ASCEND_CPU_ABI_VERSION, "ABI version");
}

}  // namespace

int main() {
  if (asr_ascend_isa() == nullptr) return Skip("hostile_test", std::getenv("ASR_ASCEND_ISA"));
  NotFiniteInEveryLane();
  NotFiniteLogProbabilities();
  MaskedSymbols();
  NothingLeft();
  UpstreamGradients();
  CostWithoutState();
  WrongArguments();
  return Report("hostile_test");
}
