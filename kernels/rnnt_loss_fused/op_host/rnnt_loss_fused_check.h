// What the operators accept, in plain C++: shape inference, tiling and the aclnn entries say the
// same sentences. A check returns what is wrong, or an empty string.
#ifndef ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CHECK_H_
#define ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CHECK_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace rnnt_loss_fused {

// As CANN writes it: a size of -1 is not known yet, and {-2} is a shape of unknown rank.
using Shape = std::vector<int64_t>;
constexpr int64_t kUnknownSize = -1;
constexpr int64_t kUnknownRank = -2;

inline bool HasUnknownRank(const Shape& shape) {
  return shape.size() == 1 && shape[0] == kUnknownRank;
}

// The size in this place, or unknown.
inline int64_t SizeOf(const Shape& shape, size_t place) {
  return HasUnknownRank(shape) || place >= shape.size() ? kUnknownSize : shape[place];
}

inline int64_t KnownSize(int64_t a, int64_t b) { return a != kUnknownSize ? a : b; }

inline bool Fits(int64_t size, int64_t expected) {
  return size == kUnknownSize || expected == kUnknownSize || size == expected;
}

inline std::string Text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

// One operand's shape against what it must be; an expected size may be unknown.
inline std::string CheckShape(const char* name, const char* meaning, const Shape& shape,
                              const Shape& expected) {
  if (HasUnknownRank(shape)) return "";
  bool fits = shape.size() == expected.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = Fits(shape[i], expected[i]);
  if (fits) return "";
  std::string text = std::string("`") + name + "` must have shape " + meaning;
  bool known = true;
  for (const int64_t size : expected) known = known && size != kUnknownSize;
  if (known) text += " = " + Text(expected);
  return text + ", but has " + Text(shape) + ".";
}

// The sizes that everything else follows from; unknown where no operand tells.
struct Sizes {
  int64_t num_rows = kUnknownSize;        // N
  int64_t vocab = kUnknownSize;           // V
  int64_t batch = kUnknownSize;           // B
  int64_t target_columns = kUnknownSize;  // S, at least the longest target
  int64_t band_frames = 0;                // of a band, at least the longest utterance; 0: no band
};

struct InputShapes {
  Shape logits;
  Shape targets;
  Shape logit_lengths;
  Shape target_lengths;
  // Those that the caller may leave out.
  std::optional<Shape> band = std::nullopt;
  std::optional<Shape> emission_windows = std::nullopt;
};

inline Sizes InferSizes(const InputShapes& inputs) {
  Sizes sizes;
  sizes.num_rows = SizeOf(inputs.logits, 0);
  sizes.vocab = SizeOf(inputs.logits, 1);
  sizes.batch = KnownSize(SizeOf(inputs.logit_lengths, 0), SizeOf(inputs.target_lengths, 0));
  sizes.batch = KnownSize(sizes.batch, SizeOf(inputs.targets, 0));
  sizes.target_columns = SizeOf(inputs.targets, 1);
  if (inputs.band.has_value()) sizes.band_frames = SizeOf(*inputs.band, 1);
  return sizes;
}

inline std::string CheckInputShapes(const InputShapes& inputs) {
  const Sizes sizes = InferSizes(inputs);
  std::string error = CheckShape("logits", "(N, V)", inputs.logits, {kUnknownSize, kUnknownSize});
  if (error.empty())
    error = CheckShape("logit_lengths", "(B,)", inputs.logit_lengths, {sizes.batch});
  if (error.empty()) {
    error = CheckShape("target_lengths", "(B,)", inputs.target_lengths, {sizes.batch});
  }
  if (error.empty()) {
    error = CheckShape("targets", "(B, S)", inputs.targets, {sizes.batch, sizes.target_columns});
  }
  if (error.empty() && inputs.band.has_value()) {
    const int64_t frames = inputs.band->size() == 3 ? sizes.band_frames : kUnknownSize;
    error = CheckShape("band", "(B, T, 2)", *inputs.band, {sizes.batch, frames, 2});
    if (error.empty() && sizes.band_frames == 0 && sizes.batch != 0) {
      error = "`band` must have at least one frame, but has shape " + Text(*inputs.band) + ".";
    }
  }
  if (error.empty() && inputs.emission_windows.has_value()) {
    error = CheckShape("emission_windows", "(B, S, 2)", *inputs.emission_windows,
                       {sizes.batch, sizes.target_columns, 2});
  }
  if (error.empty() && sizes.vocab == 0) {
    error = "`logits` must have at least one column, but has shape " + Text(inputs.logits) + ".";
  }
  return error;
}

inline std::string CheckBlank(int64_t blank, int64_t vocab) {
  if (vocab == kUnknownSize || (blank >= -vocab && blank < vocab)) return "";
  return "`blank` must be in [" + std::to_string(-vocab) + ", " + std::to_string(vocab - 1) +
         "], but is " + std::to_string(blank) + ".";
}

inline std::string CheckFastemitLambda(float lambda) {
  if (std::isfinite(lambda) && lambda >= 0.0f) return "";
  char value[32];
  std::snprintf(value, sizeof(value), "%g", double{lambda});
  return std::string("`fastemit_lambda` must be finite and at least 0, but is ") + value + ".";
}

// Vectors are indexed and copied in 32 bits, and every size reaches the kernel as int64_t.
constexpr int64_t kMaxVocab = int64_t{1} << 30;
constexpr int64_t kMaxBatch = int64_t{1} << 20;
// An anti-diagonal has at most as many cells as the longest target has labels, and one; the float
// pairs of one diagonal and all that is computed from them lie in UB. In a band it is the device
// that sees how long they are.
constexpr int64_t kMaxTargetColumns = 1023;
constexpr int64_t kMaxTargetColumnsInBand = int64_t{1} << 30;

inline std::string CheckLimit(const char* what, int64_t size, int64_t limit) {
  if (size <= limit) return "";
  return std::string(what) + " must be at most " + std::to_string(limit) + ", but is " +
         std::to_string(size) + ".";
}

// A tiling needs every size.
inline std::string CheckKnown(const Sizes& sizes) {
  if (sizes.num_rows < 0 || sizes.vocab < 0 || sizes.batch < 0 || sizes.target_columns < 0) {
    return "Every size of `logits`, `targets`, `logit_lengths` and `target_lengths` must be known "
           "when the kernel is launched.";
  }
  if (sizes.band_frames < 0) {
    return "Every size of `band` must be known when the kernel is launched.";
  }
  std::string error = CheckLimit("The number of columns of `logits`", sizes.vocab, kMaxVocab);
  if (error.empty()) error = CheckLimit("The batch size", sizes.batch, kMaxBatch);
  if (error.empty()) {
    error = CheckLimit("The number of columns of `targets`", sizes.target_columns,
                       sizes.band_frames > 0 ? kMaxTargetColumnsInBand : kMaxTargetColumns);
  }
  return error;
}

enum class ElementType { kFloat32, kFloat16, kBfloat16, kInt32, kOther };

inline bool IsLogitsType(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 ||
         type == ElementType::kBfloat16;
}

inline const char* Name(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kInt32:
      return "int32";
    default:
      return "another type";
  }
}

inline std::string CheckLogitsType(ElementType type) {
  if (IsLogitsType(type)) return "";
  return std::string("`logits` must be float32, float16 or bfloat16, but is ") + Name(type) + ".";
}

inline std::string CheckType(const char* name, ElementType type, ElementType expected,
                             const char* why = "") {
  if (type == expected) return "";
  return std::string("`") + name + "` must be " + Name(expected) + why + ", but is " + Name(type) +
         ".";
}

}  // namespace rnnt_loss_fused

#endif  // ASR_ASCEND_RNNT_LOSS_FUSED_OP_HOST_CHECK_H_
