// The likeliest alignment against a plain dynamic programme in double, in every dtype and layout.
#include "cpu/rnnt_loss/tests/cases.h"
#include "cpu/tests/check.h"

namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// Log-probabilities of one sample, from its logits as stored.
struct Scorer {
  const NaiveSample& sample;
  const Case& c;
  int64_t columns() const { return static_cast<int64_t>(sample.targets.size()) + 1; }

  double LogProb(int64_t t, int64_t u, int64_t k) const {
    const double* row = sample.logits.data() + size_t((t * columns() + u) * c.vocab);
    if (!c.options.fused) return row[k];
    double sum = 0.0;
    for (int64_t i = 0; i < c.vocab; ++i) sum += std::exp(row[i]);
    return row[k] - std::log(sum);
  }

  double Label(int64_t t, int64_t u) const {
    const auto& window = sample.windows[size_t(u)];
    if (t < window.first || t > window.second) return kImpossible;
    return LogProb(t, u, sample.targets[size_t(u)]);
  }

  // The best score from (t, u) to the end.
  double Best() const {
    std::vector<double> next(size_t(columns()), kImpossible), here = next;
    for (int64_t t = sample.frames - 1; t >= 0; --t) {
      for (int64_t u = columns() - 1; u >= 0; --u) {
        const bool end = t + 1 == sample.frames && u + 1 == columns();
        double best = LogProb(t, u, c.blank) + (end ? 0.0 : next[size_t(u)]);
        if (u + 1 < columns()) best = std::max(best, Label(t, u) + here[size_t(u + 1)]);
        here[size_t(u)] = best;
      }
      next = here;
    }
    return next[0];
  }

  double ScoreOf(const int64_t* frames) const {
    double score = 0.0;
    int64_t u = 0;
    for (int64_t t = 0; t < sample.frames; ++t) {
      for (; u + 1 < columns() && frames[u] == t; ++u) score += Label(t, u);
      score += LogProb(t, u, c.blank);
    }
    return u + 1 == columns() ? score : kImpossible;
  }
};

struct Alignment {
  int32_t status;
  std::vector<int64_t> frames;
  std::vector<double> log_probs;
};

Alignment Align(const Case& c) {
  asr_ascend_rnnt_problem problem = c.problem;
  problem.logit_lengths = c.logit_lengths.data();
  problem.target_lengths = c.target_lengths.data();
  problem.targets = c.targets.data();
  if (c.options.windows) problem.emission_windows = c.emission_windows.data();
  Alignment result;
  result.frames.assign(c.targets.size(), -7);
  result.log_probs.assign(size_t(problem.batch), -7.0);
  result.status = asr_ascend_rnnt_alignment(&problem, c.logits.data(), result.frames.data(),
                                            result.log_probs.data(), nullptr);
  return result;
}

void RandomShapes() {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    CaseOptions options;
    options.dtype = round % 4;
    options.packed = random() % 2 == 0;
    options.fused = random() % 3 != 0;
    options.windows = random() % 3 == 0;
    options.row_gap = random() % 3 == 0 ? 3 : 0;
    options.num_threads = 1 + random() % 3;
    std::vector<int64_t> frames, labels;
    for (unsigned b = 0; b <= random() % 4; ++b) {
      frames.push_back(1 + random() % 13);
      labels.push_back(random() % 12);
    }
    const int64_t vocab = 2 + random() % 40;
    const int64_t blank = random() % unsigned(vocab);
    const Case c = MakeCase(options, vocab, blank, frames, labels, unsigned(round));
    const Alignment result = Align(c);
    CHECK(result.status == ASR_ASCEND_OK, "round %d: status %d", round, int(result.status));
    for (int64_t b = 0; b < c.problem.batch; ++b) {
      const Scorer scorer{c.samples[size_t(b)], c};
      const int64_t* own = result.frames.data() + b * c.target_columns;
      const double got = result.log_probs[size_t(b)];
      const double want = scorer.Best();
      const bool possible = want > kImpossible;
      const double allowed = 1e-6 * std::max(1.0, std::fabs(want));
      CHECK(got == want || std::fabs(got - want) <= allowed, "round %d: %.9g, want %.9g", round,
            got, want);
      CHECK(!possible || std::fabs(scorer.ScoreOf(own) - want) <= allowed,
            "round %d: the frames score %.9g, want %.9g", round, scorer.ScoreOf(own), want);
      for (int64_t u = 0; u < c.target_columns; ++u) {
        const bool given = possible && u < c.target_lengths[size_t(b)];
        CHECK(given == (own[u] >= 0), "round %d: label %d at %d", round, int(u), int(own[u]));
      }
    }
  }
}

// Equal logits: every alignment is equally likely, and the earliest is taken.
void Ties() {
  CaseOptions options;
  options.logit_scale = 0.0;
  options.num_threads = 2;
  const Case c = MakeCase(options, 9, 3, {50, 1, 30}, {20, 4, 0}, 1);
  const Alignment result = Align(c);
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t u = 0; u < c.target_columns; ++u) {
      const int64_t want = u < c.target_lengths[size_t(b)] ? 0 : -1;
      CHECK(result.frames[size_t(b * c.target_columns + u)] == want, "sample %d label %d", int(b),
            int(u));
    }
  }
}

void NoNumberAndNoPath() {
  CaseOptions options;
  Case c = MakeCase(options, 9, 3, {4, 3, 5}, {2, 2, 1}, 1);
  const Alignment clean = Align(c);
  c.Set(0, 2, 1, 8, std::nan(""));
  c.Set(1, 2, 2, 3, kImpossible);
  const Alignment result = Align(c);
  CHECK(std::isnan(result.log_probs[0]), "%g", result.log_probs[0]);
  CHECK(result.log_probs[1] == kImpossible, "%g", result.log_probs[1]);
  CHECK(result.log_probs[2] == clean.log_probs[2], "%g", result.log_probs[2]);
  for (int64_t i = 0; i < 2 * c.target_columns; ++i) {
    CHECK(result.frames[size_t(i)] == -1, "place %d", int(i));
  }
  c.problem.vocab = 0;
  CHECK(Align(c).status == ASR_ASCEND_BAD_ARGUMENT, "V = 0");
  CHECK(asr_ascend_rnnt_alignment(nullptr, nullptr, nullptr, nullptr, nullptr) ==
            ASR_ASCEND_BAD_ARGUMENT,
        "null problem");
}

}  // namespace

int main() {
  if (asr_ascend_isa() == nullptr) return Skip("best_path_test", std::getenv("ASR_ASCEND_ISA"));
  RandomShapes();
  Ties();
  NoNumberAndNoPath();
  return Report("best_path_test");
}
