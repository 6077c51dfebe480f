// Costs near zero: right to their own last bits, not to those of 1.
#include <cstdlib>

#include "cpu/rnnt_loss/tests/cases.h"
#include "cpu/tests/check.h"

namespace {

// What the sum of a row's exponentials leaves beside the blank's own 1.
long double RestOfRow(const Case& c, int64_t b, int64_t t) {
  const double* row = c.samples[size_t(b)].logits.data() + t * c.vocab;
  long double rest = 0.0L;
  for (int64_t k = 0; k < c.vocab; ++k) {
    if (k != c.blank) rest += std::exp(static_cast<long double>(row[k]) - row[c.blank]);
  }
  return rest;
}

// A sample without labels has one path, of blanks alone.
long double CostOfBlanks(const Case& c, int64_t b) {
  long double cost = 0.0L;
  for (int64_t t = 0; t < c.logit_lengths[size_t(b)]; ++t) cost += std::log1p(RestOfRow(c, b, t));
  return cost;
}

void SetRows(Case* c, int64_t b, double margin) {
  std::mt19937 random(static_cast<unsigned>(1000.0 * margin));
  std::normal_distribution<double> normal(0.0, 0.3);
  for (int64_t t = 0; t < c->logit_lengths[size_t(b)]; ++t) {
    for (int64_t k = 0; k < c->vocab; ++k) {
      const double blank = 3.0 + double(t % 5);
      c->Set(b, t, 0, k, k == c->blank ? blank : blank - margin + normal(random));
    }
  }
}

// Costs from any size down to 1e-35, wherever the maximum stands in its row,
// and whatever rows come before: a sample of flat rows stands between the two.
Case CertainCase(int dtype, int64_t vocab, int64_t blank, double margin) {
  CaseOptions options;
  options.dtype = dtype;
  Case c = MakeCase(options, vocab, blank, {7, 20, 9}, {0, 0, 0}, 3);
  SetRows(&c, 0, margin);
  SetRows(&c, 2, margin + 0.5);
  return c;
}

// The blank's is -(1 - p), a difference of numbers near 1 in double; the others' are products.
void CompareGradient(const Case& c, const Outcome& outcome) {
  const int dtype = c.options.dtype;
  // The exponent is a float32, of 20 here; then the output's own rounding.
  const double rounding = dtype == ASR_ASCEND_FLOAT64   ? 2e-14
                          : dtype == ASR_ASCEND_FLOAT32 ? 2e-6
                          : dtype == ASR_ASCEND_FLOAT16 ? 2e-6 + 0x1p-11
                                                        : 2e-6 + 0x1p-8;
  const double smallest = dtype == ASR_ASCEND_FLOAT16 ? 0x1p-25 : 0.0;
  for (int64_t t = 0; t < c.logit_lengths[0]; ++t) {
    const double* row = c.samples[0].logits.data() + t * c.vocab;
    const double rest = static_cast<double>(RestOfRow(c, 0, t));
    for (int64_t k = 0; k < c.vocab; ++k) {
      const bool is_blank = k == c.blank;
      const double want =
          is_blank ? -rest / (1.0 + rest) : std::exp(row[k] - row[c.blank]) / (1.0 + rest);
      const double got = Decode(dtype, outcome.grad.data() + (c.Element(0, t, 0) + size_t(k)) *
                                                                 size_t(ElementBytes(dtype)));
      const double allowed = (is_blank ? 1e-15 : 0.0) + rounding * std::fabs(want) + smallest;
      CHECK(std::fabs(got - want) <= allowed, "dtype %d V %d t %d k %d: gradient %.9g, want %.9g",
            dtype, int(c.vocab), int(t), int(k), got, want);
    }
  }
}

void CompareCosts(const Case& c, const Outcome& outcome) {
  // Of 1e3 equal terms four lanes round more than sixteen: at most 1e-6; up to 100 columns 5e-7.
  const double relative = c.options.dtype == ASR_ASCEND_FLOAT64 ? 2e-15
                          : c.vocab > 100                       ? 1e-6
                                                                : 5e-7;
  for (const int64_t b : {0, 2}) {
    const long double want = CostOfBlanks(c, b);
    const double got = outcome.costs[size_t(b)];
    CHECK(std::fabs(got - want) <= relative * want,
          "dtype %d V %d blank %d sample %d: cost %.17g, want %.17g", c.options.dtype, int(c.vocab),
          int(c.blank), int(b), got, double(want));
  }
}

void CertainRows() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const int64_t vocab : {3, 16, 17, 50, 100, 500, 1024, 1025, 2600}) {
      for (const int64_t blank : {int64_t{0}, vocab / 2, vocab - 1}) {
        for (const double margin : {4.0, 12.0, 20.0, 45.0, 80.0}) {
          if (IsEmulated() && (vocab > 100 || blank == 0)) continue;
          const Case c = CertainCase(dtype, vocab, blank, margin);
          const Outcome outcome = Run(c);
          CompareCosts(c, outcome);
          if (margin <= 20.0) CompareGradient(c, outcome);
        }
      }
    }
  }
}

// The rows before decide how a row is summed, but not what comes out.
void NoBitDependsOnTheRowsBefore() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const int64_t vocab : {50, 500, 1500}) {
      const Case together = CertainCase(dtype, vocab, 1, 9.0);
      Case alone = MakeCase(together.options, vocab, 1, {9}, {0}, 3);
      for (int64_t t = 0; t < 9; ++t) {
        for (int64_t k = 0; k < vocab; ++k) {
          alone.Set(0, t, 0, k, together.samples[2].logits[size_t(t * vocab + k)]);
        }
      }
      const double after_flat_rows = Run(together).costs[2];
      const double first = Run(alone).costs[0];
      CHECK(after_flat_rows == first, "dtype %d V %d: %.17g and %.17g", dtype, int(vocab),
            after_flat_rows, first);
    }
  }
}

// The maximum twice in a row, at every distance: in one lane, in one vector, in two chunks.
void TwoMaxima() {
  for (const int64_t vocab : {5, 50, 200, 1100}) {
    for (int64_t other = 1; other < vocab; other += IsEmulated() ? 37 : 3) {
      CaseOptions options;
      Case c = MakeCase(options, vocab, 0, {4}, {0}, 3);
      for (int64_t t = 0; t < 4; ++t) {
        for (int64_t k = 0; k < vocab; ++k) c.Set(0, t, 0, k, k == 0 || k == other ? 2.5 : -17.0);
      }
      const double want = static_cast<double>(CostOfBlanks(c, 0));
      const double got = Run(c).costs[0];
      CHECK(std::fabs(got - want) <= 1e-6 * want, "V %d, maxima at 0 and %d: cost %.9g, want %.9g",
            int(vocab), int(other), got, want);
    }
  }
}

// Symbols that are impossible, or less likely than any float32, add nothing that shows.
void CertainPathCostsNothing() {
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (const double low : {double(-INFINITY), dtype == ASR_ASCEND_FLOAT64 ? -900.0 : -120.0}) {
      for (const int64_t vocab : {5, 50, 1500}) {
        CaseOptions options;
        options.dtype = dtype;
        Case c = MakeCase(options, vocab, 1, {30}, {0}, 3);
        for (int64_t t = 0; t < 30; ++t) {
          for (int64_t k = 0; k < vocab; ++k) c.Set(0, t, 0, k, k == 1 ? 0.25 * double(t) : low);
        }
        const double got = Run(c).costs[0];
        // Rows of up to 16 columns are summed in double, which has exp(-120).
        const bool in_double = dtype != ASR_ASCEND_FLOAT64 && vocab <= 16 && low > -1e3;
        CHECK((in_double ? static_cast<float>(got) : got) == 0.0 && !std::signbit(got),
              "dtype %d V %d: cost %.9g", dtype, int(vocab), got);
      }
    }
  }
}

}  // namespace

int main() {
  if (asr_ascend_isa() == nullptr) return Skip("small_cost_test", std::getenv("ASR_ASCEND_ISA"));
  CertainRows();
  NoBitDependsOnTheRowsBefore();
  TwoMaxima();
  CertainPathCostsNothing();
  return Report("small_cost_test");
}
