// The definition of the loss written out in double, cell by cell, for the tests to compare with.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_TESTS_NAIVE_LOSS_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_TESTS_NAIVE_LOSS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

struct NaiveSample {
  int64_t frames;
  std::vector<int64_t> targets;
  std::vector<std::pair<int64_t, int64_t>> windows;  // first and last frame of each label
  std::vector<double> logits;                        // (T, U1, V)
};

struct NaiveResult {
  double cost;
  std::vector<double> grad;  // (T, U1, V), of the cost, neither clamped nor scaled
};

inline double NaiveLogAddExp(double a, double b) {
  const double larger = std::max(a, b);
  if (larger == -std::numeric_limits<double>::infinity()) return larger;
  return larger + std::log1p(std::exp(-std::fabs(a - b)));
}

inline NaiveResult NaiveLoss(const NaiveSample& sample, int64_t vocab, int64_t blank, bool fused,
                             double fastemit_lambda = 0.0, double delay_penalty = 0.0) {
  const double kImpossible = -std::numeric_limits<double>::infinity();
  const int64_t frames = sample.frames;
  const int64_t columns = static_cast<int64_t>(sample.targets.size()) + 1;
  const auto cell = [&](int64_t t, int64_t u) { return static_cast<size_t>(t * columns + u); };
  const auto logit = [&](int64_t t, int64_t u, int64_t k) {
    return sample.logits[cell(t, u) * static_cast<size_t>(vocab) + static_cast<size_t>(k)];
  };
  const auto label = [&](int64_t u) { return sample.targets[static_cast<size_t>(u)]; };
  const size_t cells = static_cast<size_t>(frames * columns);
  std::vector<double> log_norm(cells, 0.0), alpha(cells, kImpossible), beta(cells, kImpossible);
  for (int64_t t = 0; fused && t < frames; ++t) {
    for (int64_t u = 0; u < columns; ++u) {
      double largest = kImpossible, sum = 0.0;
      for (int64_t k = 0; k < vocab; ++k) largest = std::max(largest, logit(t, u, k));
      for (int64_t k = 0; k < vocab; ++k) sum += std::exp(logit(t, u, k) - largest);
      log_norm[cell(t, u)] = largest + std::log(sum);
    }
  }
  const auto log_prob = [&](int64_t t, int64_t u, int64_t k) {
    return logit(t, u, k) - log_norm[cell(t, u)];
  };
  const auto label_log_prob = [&](int64_t t, int64_t u) {
    const auto& window = sample.windows[static_cast<size_t>(u)];
    if (t < window.first || t > window.second) return kImpossible;
    const double frames_early = 0.5 * double(frames - 1) - double(t);
    return log_prob(t, u, label(u)) + delay_penalty * frames_early;
  };
  alpha[0] = 0.0;
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t u = 0; u < columns; ++u) {
      if (t == 0 && u == 0) continue;
      const double from_blank =
          t > 0 ? alpha[cell(t - 1, u)] + log_prob(t - 1, u, blank) : kImpossible;
      const double from_label =
          u > 0 ? alpha[cell(t, u - 1)] + label_log_prob(t, u - 1) : kImpossible;
      alpha[cell(t, u)] = NaiveLogAddExp(from_blank, from_label);
    }
  }
  const auto beta_at = [&](int64_t t, int64_t u) {
    if (t == frames && u == columns - 1) return 0.0;
    return t < frames && u < columns ? beta[cell(t, u)] : kImpossible;
  };
  for (int64_t t = frames - 1; t >= 0; --t) {
    for (int64_t u = columns - 1; u >= 0; --u) {
      const double by_blank = beta_at(t + 1, u) + log_prob(t, u, blank);
      const double by_label =
          u + 1 < columns ? beta_at(t, u + 1) + label_log_prob(t, u) : kImpossible;
      beta[cell(t, u)] = NaiveLogAddExp(by_blank, by_label);
    }
  }
  const double total = beta[0];
  NaiveResult result{-total, std::vector<double>(sample.logits.size(), 0.0)};
  if (!std::isfinite(total)) return result;
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t u = 0; u < columns; ++u) {
      double* grad = result.grad.data() + cell(t, u) * static_cast<size_t>(vocab);
      // d cost / d log-probability of blank and of the label, whose part FastEmit enlarges; then
      // through the log-softmax: d log_prob_j / d z_k = [j = k] - softmax_k.
      const double forward = alpha[cell(t, u)] - total;
      const double by_blank = -std::exp(forward + log_prob(t, u, blank) + beta_at(t + 1, u));
      double by_label = 0.0;
      if (u + 1 < columns) {
        by_label = -std::exp(forward + label_log_prob(t, u) + beta_at(t, u + 1));
      }
      by_label *= 1.0 + fastemit_lambda;
      for (int64_t k = 0; fused && k < vocab; ++k) {
        grad[k] = -(by_blank + by_label) * std::exp(log_prob(t, u, k));
      }
      grad[blank] += by_blank;
      if (u + 1 < columns) grad[label(u)] += by_label;
    }
  }
  return result;
}

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_TESTS_NAIVE_LOSS_H_
