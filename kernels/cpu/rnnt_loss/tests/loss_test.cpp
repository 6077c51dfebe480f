// Costs and gradients against the definition in double, in every dtype and layout.
#include <cstdlib>

#include "cpu/rnnt_loss/tests/cases.h"
#include "cpu/tests/check.h"

namespace {

struct Tolerance {
  double cost;      // relative, of max(1, |cost|)
  double absolute;  // of a gradient component times max(1, |grad_cost|)
  double relative;  // rounding of the output
};

Tolerance ToleranceOf(int dtype) {
  switch (dtype) {
    case ASR_ASCEND_FLOAT64:
      return {1e-13, 1e-12, 1e-13};
    case ASR_ASCEND_FLOAT32:
      return {3e-7, 1e-6, 3e-7};
    case ASR_ASCEND_FLOAT16:
      return {3e-7, 1e-6, 0x1p-11};
    default:
      return {3e-7, 1e-6, 0x1p-8};
  }
}

void CompareWithDefinition(const Case& c, const char* what) {
  const Outcome outcome = Run(c);
  CHECK(outcome.status == ASR_ASCEND_OK, "%s: status %d", what, int(outcome.status));
  if (outcome.status != ASR_ASCEND_OK) return;
  const Tolerance tolerance = ToleranceOf(c.options.dtype);
  const int bytes = ElementBytes(c.options.dtype);
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    const NaiveSample& sample = c.samples[size_t(b)];
    const NaiveResult truth = NaiveLoss(sample, c.vocab, c.blank, c.options.fused,
                                        c.options.fastemit_lambda, c.options.delay_penalty);
    const double cost = outcome.costs[size_t(b)];
    CHECK(cost == truth.cost ||
              std::fabs(cost - truth.cost) <= tolerance.cost * std::max(1.0, std::fabs(truth.cost)),
          "%s: sample %d: cost %.17g, want %.17g", what, int(b), cost, truth.cost);
    if (!c.options.want_state) continue;
    const double scale = c.grad_costs[size_t(b)];
    const int64_t columns = c.target_lengths[size_t(b)] + 1;
    for (int64_t i = 0; i < sample.frames * columns * c.vocab; ++i) {
      const int64_t k = i % c.vocab, u = i / c.vocab % columns, t = i / c.vocab / columns;
      double want = truth.grad[size_t(i)];
      if (c.options.clamp > 0) {
        want = std::min(c.options.clamp, std::max(-c.options.clamp, want));
      }
      want *= scale;
      const double got = Decode(
          c.options.dtype, outcome.grad.data() + (c.Element(b, t, u) + size_t(k)) * size_t(bytes));
      const double allowed = tolerance.absolute * std::max(1.0, std::fabs(scale)) +
                             tolerance.relative * std::fabs(want);
      CHECK(std::fabs(got - want) <= allowed, "%s: sample %d t %d u %d k %d: %.9g, want %.9g", what,
            int(b), int(t), int(u), int(k), got, want);
    }
    if (c.options.packed) continue;
    const asr_ascend_rnnt_layout& layout = c.problem.logits_layout;
    for (int64_t t = 0; t < layout.padded_t; ++t) {
      for (int64_t u = t < sample.frames ? columns : 0; u < layout.padded_u1; ++u) {
        const unsigned char* p = outcome.grad.data() + c.Element(b, t, u) * size_t(bytes);
        for (int64_t i = 0; i < c.vocab * bytes; ++i) {
          CHECK(p[i] == 0, "%s: sample %d t %d u %d: padding is not zero", what, int(b), int(t),
                int(u));
        }
      }
    }
  }
}

// Bytes between rows belong to nobody and stay as they were.
void CheckGapsUntouched(const Case& c, const char* what) {
  const Outcome outcome = Run(c);
  const int bytes = ElementBytes(c.options.dtype);
  const unsigned char before = c.options.in_place ? 0xff : 0xee;
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    for (int64_t i = 0; i < c.options.row_gap * bytes; ++i) {
      const unsigned char* p =
          outcome.grad.data() + (c.Element(b, 0, 0) + size_t(c.vocab)) * size_t(bytes);
      CHECK(p[i] == before, "%s: sample %d: a byte outside the rows was written", what, int(b));
    }
  }
}

void RandomShapes() {
  std::mt19937 random(20240611);
  const int64_t vocabs[] = {2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129};
  for (int round = 0; round < 240; ++round) {
    CaseOptions options;
    options.dtype = round % 4;
    options.packed = random() % 2 == 0;
    options.fused = random() % 4 != 0;
    options.in_place = random() % 2 == 0;
    options.clamp = random() % 3 == 0 ? 0.05 : -1.0;
    options.row_gap = random() % 3 == 0 ? 3 : 0;
    options.num_threads = 1 + random() % 3;
    options.windows = random() % 3 == 0;
    options.fastemit_lambda = random() % 3 == 0 ? 0.5 : 0.0;
    options.delay_penalty = random() % 4 == 0 ? 0.7 : 0.0;
    options.want_state = random() % 5 != 0;
    options.logit_scale = random() % 4 == 0 ? 30.0 : 2.0;
    options.blank_in_targets = round >= 160;
    const int64_t vocab = vocabs[random() % 16];
    std::vector<int64_t> frames, labels;
    const unsigned batch = 1 + random() % 4;
    for (unsigned b = 0; b < batch; ++b) {
      frames.push_back(1 + random() % 13);
      labels.push_back(random() % 12);
    }
    const int64_t blank = random() % unsigned(vocab);
    const Case c = MakeCase(options, vocab, blank, frames, labels, unsigned(round));
    char what[160];
    std::snprintf(what, sizeof(what), "round %d dtype %d packed %d fused %d V %d", round,
                  options.dtype, options.packed, options.fused, int(vocab));
    CompareWithDefinition(c, what);
    if (options.row_gap > 0 && options.want_state) CheckGapsUntouched(c, what);
  }
}

// Wide and tall lattices whose diagonals are longer than any vector.
void LongDiagonals() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    CaseOptions options;
    options.dtype = dtype;
    options.num_threads = 2;
    CompareWithDefinition(MakeCase(options, 6, 0, {70, 21, 1, 40}, {25, 50, 33, 0}, 7), "long");
  }
}

// Equal logits: the cost has a closed form.
void ClosedForm() {
  CaseOptions options;
  options.logit_scale = 0.0;
  const int64_t frames = 9, labels = 5, vocab = 11;
  const Outcome outcome = Run(MakeCase(options, vocab, 3, {frames}, {labels}, 1));
  const double paths = std::lgamma(frames + labels) - std::lgamma(labels + 1) - std::lgamma(frames);
  const double want = (frames + labels) * std::log(double(vocab)) - paths;
  CHECK(std::fabs(outcome.costs[0] - want) < 1e-6, "cost %.9g, want %.9g", outcome.costs[0], want);
}

// Logits far from zero in both directions, where a plain sum of exponentials fails.
void LargeLogits() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const double offset : {-1e4, -300.0, 95.0, 1e4}) {
      CaseOptions options;
      options.dtype = dtype;
      Case c = MakeCase(options, 21, 20, {5, 4}, {3, 2}, 5);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t t = 0; t < c.logit_lengths[size_t(b)]; ++t) {
          for (int64_t u = 0; u <= c.target_lengths[size_t(b)]; ++u) {
            for (int64_t k = 0; k < c.vocab; ++k) {
              c.Set(b, t, u, k, offset + double((t * 7 + u * 5 + k * 3) % 11));
            }
          }
        }
      }
      CompareWithDefinition(c, "large logits");
    }
  }
}

// A certain path: the cost must not come out negative by rounding.
void CertainPath() {
  CaseOptions options;
  Case c = MakeCase(options, 5, 0, {50}, {0}, 3);
  for (int64_t t = 0; t < 50; ++t) {
    for (int64_t k = 0; k < 5; ++k) c.Set(0, t, 0, k, k == 0 ? 7.1 + 0.31 * double(t) : -20.0);
  }
  const Outcome outcome = Run(c);
  CHECK(outcome.costs[0] >= 0.0 && outcome.costs[0] < 1e-5, "cost %.9g", outcome.costs[0]);
}

void OneSymbol() {
  std::vector<double> state(3 * ASR_ASCEND_STATE_PLANES);
  const float logits[3] = {1.5f, -2.0f, 300.0f};
  float grad[3] = {9.0f, 9.0f, 9.0f};
  const int64_t frames = 3, labels = 0;
  const double grad_cost = 2.0;
  double cost = -1.0;
  asr_ascend_rnnt_problem problem = {1,   1,       0,       &frames, &labels, nullptr,
                                     0,   nullptr, nullptr, 0,       -1.0,    0.0,
                                     0.0, 1,       0,       0,       1,       {3, 0, 0, 0, 0, 1}};
  CHECK(asr_ascend_rnnt_forward(&problem, logits, &cost, state.data(), nullptr) == ASR_ASCEND_OK,
        "one symbol");
  CHECK(cost == 0.0 && !std::signbit(cost), "cost %.9g", cost);
  CHECK(asr_ascend_rnnt_backward(&problem, logits, state.data(), &grad_cost, grad,
                                 &problem.logits_layout, nullptr) == ASR_ASCEND_OK,
        "one symbol");
  for (const float g : grad) CHECK(g == 0.0f, "gradient %.9g", double(g));
}

}  // namespace

int main() {
  if (asr_ascend_isa() == nullptr) return Skip("loss_test", std::getenv("ASR_ASCEND_ISA"));
  RandomShapes();
  LongDiagonals();
  ClosedForm();
  LargeLogits();
  CertainPath();
  OneSymbol();
  return Report("loss_test");
}
