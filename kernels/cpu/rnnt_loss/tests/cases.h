// Random batches of lattices in any dtype and layout, and their truth.
#ifndef ASR_ASCEND_CPU_RNNT_LOSS_TESTS_CASES_H_
#define ASR_ASCEND_CPU_RNNT_LOSS_TESTS_CASES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/asr_ascend_cpu.h"
#include "cpu/rnnt_loss/tests/naive_loss.h"

inline int ElementBytes(int dtype) {
  if (dtype == ASR_ASCEND_FLOAT64) return 8;
  return dtype == ASR_ASCEND_FLOAT32 ? 4 : 2;
}

// One value between double and its stored form, bit by bit, independent of the kernel's code.
inline double Decode(int dtype, const unsigned char* p) {
  if (dtype == ASR_ASCEND_FLOAT64) {
    double x;
    std::memcpy(&x, p, 8);
    return x;
  }
  if (dtype == ASR_ASCEND_FLOAT32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  const int exponent_bits = dtype == ASR_ASCEND_FLOAT16 ? 5 : 8;
  const int mantissa_bits = 15 - exponent_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// Truncates what does not fit: the truth is computed from what Decode reads back.
inline void Encode(int dtype, double x, unsigned char* p) {
  if (dtype == ASR_ASCEND_FLOAT64) {
    std::memcpy(p, &x, 8);
    return;
  }
  const float single = static_cast<float>(x);
  if (dtype == ASR_ASCEND_FLOAT32) {
    std::memcpy(p, &single, 4);
    return;
  }
  uint32_t wide;
  std::memcpy(&wide, &single, 4);
  uint16_t bits = static_cast<uint16_t>(wide >> 16);
  if (dtype == ASR_ASCEND_FLOAT16) {
    const uint16_t sign = static_cast<uint16_t>((wide >> 16) & 0x8000u);
    const int exponent = static_cast<int>((wide >> 23) & 0xffu) - 127 + 15;
    if (std::isnan(single)) {
      bits = 0x7e00;
    } else if (exponent >= 31) {
      bits = static_cast<uint16_t>(sign | 0x7c00);
    } else if (exponent <= 0) {
      bits = sign;
    } else {
      bits = static_cast<uint16_t>(sign | (exponent << 10) | ((wide >> 13) & 0x3ffu));
    }
  }
  std::memcpy(p, &bits, 2);
}

struct CaseOptions {
  int dtype = ASR_ASCEND_FLOAT32;
  bool packed = true;
  bool fused = true;
  bool in_place = false;
  double clamp = -1.0;
  double fastemit_lambda = 0.0;
  double delay_penalty = 0.0;
  bool blank_in_targets = false;  // labels are drawn with blank among them
  bool windows = false;           // some labels are held to some frames, others to none
  int64_t row_gap = 0;            // elements between rows that belong to nobody
  double logit_scale = 3.0;
  int64_t num_threads = 1;
  bool want_state = true;
};

struct Case {
  CaseOptions options;
  int64_t vocab = 0;
  int64_t blank = 0;
  std::vector<NaiveSample> samples;  // logits as stored
  std::vector<int64_t> logit_lengths, target_lengths, targets, emission_windows;
  int64_t target_columns = 0;
  std::vector<double> grad_costs;
  std::vector<unsigned char> logits;
  asr_ascend_rnnt_problem problem;
  int64_t rows = 0;

  size_t Element(int64_t b, int64_t t, int64_t u) const {
    const asr_ascend_rnnt_layout& layout = problem.logits_layout;
    if (!options.packed) {
      return static_cast<size_t>(b * layout.stride_b + t * layout.stride_t + u * layout.stride_u);
    }
    int64_t row = 0;
    for (int64_t i = 0; i < b; ++i)
      row += logit_lengths[size_t(i)] * (target_lengths[size_t(i)] + 1);
    row += t * (target_lengths[size_t(b)] + 1) + u;
    return static_cast<size_t>(row * layout.stride_u);
  }

  void Set(int64_t b, int64_t t, int64_t u, int64_t k, double x) {
    const int bytes = ElementBytes(options.dtype);
    unsigned char* p = logits.data() + (Element(b, t, u) + size_t(k)) * size_t(bytes);
    Encode(options.dtype, x, p);
    NaiveSample& sample = samples[size_t(b)];
    const int64_t columns = target_lengths[size_t(b)] + 1;
    sample.logits[size_t((t * columns + u) * vocab + k)] = Decode(options.dtype, p);
  }
};

struct Outcome {
  int32_t status = 0;
  asr_ascend_failure failure = {-1, -1, -1};
  std::vector<double> costs;
  std::vector<unsigned char> grad;
};

// Every byte that belongs to no cell is 0xff: NaN in every dtype.
inline Case MakeCase(const CaseOptions& options, int64_t vocab, int64_t blank,
                     const std::vector<int64_t>& frames, const std::vector<int64_t>& labels,
                     unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, options.logit_scale);
  Case c;
  c.options = options;
  c.vocab = vocab;
  c.blank = blank;
  c.logit_lengths = frames;
  c.target_lengths = labels;
  const int64_t batch = static_cast<int64_t>(frames.size());
  int64_t padded_t = 2, padded_u1 = 1;
  for (int64_t b = 0; b < batch; ++b) {
    padded_t = std::max(padded_t, frames[size_t(b)] + 1);
    padded_u1 = std::max(padded_u1, labels[size_t(b)] + 2);
    c.rows += frames[size_t(b)] * (labels[size_t(b)] + 1);
  }
  c.target_columns = padded_u1;
  asr_ascend_rnnt_layout layout = {};
  layout.packed_rows = options.packed ? c.rows : -1;
  layout.padded_t = padded_t;
  layout.padded_u1 = padded_u1;
  layout.stride_u = vocab + options.row_gap;
  layout.stride_t = padded_u1 * layout.stride_u + options.row_gap;
  layout.stride_b = padded_t * layout.stride_t + options.row_gap;
  const int64_t elements = options.packed ? c.rows * layout.stride_u : batch * layout.stride_b;
  c.logits.assign(size_t(elements) * size_t(ElementBytes(options.dtype)), 0xff);
  c.targets.assign(size_t(batch * c.target_columns), int64_t{-7});
  c.emission_windows.assign(size_t(2 * batch * c.target_columns), int64_t{-7});
  c.problem = asr_ascend_rnnt_problem{batch,
                                      vocab,
                                      blank,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      c.target_columns,
                                      nullptr,
                                      nullptr,
                                      0,
                                      options.clamp,
                                      options.fastemit_lambda,
                                      options.delay_penalty,
                                      options.fused ? 1 : 0,
                                      options.dtype,
                                      options.blank_in_targets ? 1 : 0,
                                      options.num_threads,
                                      layout};
  for (int64_t b = 0; b < batch; ++b) {
    NaiveSample sample;
    sample.frames = frames[size_t(b)];
    for (int64_t u = 0; u < labels[size_t(b)]; ++u) {
      const int64_t choices = options.blank_in_targets ? vocab : vocab - 1;
      int64_t label = static_cast<int64_t>(random() % static_cast<unsigned>(choices));
      if (!options.blank_in_targets && label >= blank) ++label;
      sample.targets.push_back(label);
      c.targets[size_t(b * c.target_columns + u)] = label;
      // Mostly wide enough for a path; at times before the first frame, past the last, or empty.
      const int64_t first = static_cast<int64_t>(random() % 8) - 3 + u * sample.frames / 12;
      const int64_t last = first + static_cast<int64_t>(random() % 12) - 1;
      sample.windows.push_back({options.windows ? first : 0, options.windows ? last : INT64_MAX});
      c.emission_windows[size_t(2 * (b * c.target_columns + u))] = first;
      c.emission_windows[size_t(2 * (b * c.target_columns + u) + 1)] = last;
    }
    const int64_t columns = labels[size_t(b)] + 1;
    sample.logits.assign(size_t(frames[size_t(b)] * columns * vocab), 0.0);
    c.samples.push_back(sample);
    c.grad_costs.push_back(b % 3 == 1 ? -0.5 : 1.0 + 0.25 * double(b));
    for (int64_t t = 0; t < frames[size_t(b)]; ++t) {
      for (int64_t u = 0; u < columns; ++u) {
        for (int64_t k = 0; k < vocab; ++k) {
          const double x = normal(random);
          c.Set(b, t, u, k, options.fused ? x : -std::fabs(x));
        }
      }
    }
  }
  return c;
}

inline Outcome Run(const Case& c) {
  Outcome outcome;
  asr_ascend_rnnt_problem problem = c.problem;
  problem.logit_lengths = c.logit_lengths.data();
  problem.target_lengths = c.target_lengths.data();
  problem.targets = c.targets.data();
  if (c.options.windows) problem.emission_windows = c.emission_windows.data();
  outcome.costs.assign(size_t(problem.batch), std::nan(""));
  std::vector<double> state(size_t(c.rows * ASR_ASCEND_STATE_PLANES), std::nan(""));
  std::vector<unsigned char> logits = c.logits;
  outcome.status =
      asr_ascend_rnnt_forward(&problem, logits.data(), outcome.costs.data(),
                              c.options.want_state ? state.data() : nullptr, &outcome.failure);
  if (outcome.status != ASR_ASCEND_OK || !c.options.want_state) return outcome;
  std::vector<unsigned char> separate(logits.size(), 0xee);
  std::vector<unsigned char>& grad = c.options.in_place ? logits : separate;
  outcome.status =
      asr_ascend_rnnt_backward(&problem, logits.data(), state.data(), c.grad_costs.data(),
                               grad.data(), &problem.logits_layout, &outcome.failure);
  outcome.grad = grad;
  return outcome;
}

#endif  // ASR_ASCEND_CPU_RNNT_LOSS_TESTS_CASES_H_
