// Picking, placing, joining and scanning, as arithmetic_opapi.cpp.
#include <cmath>

#include "opapi.h"

namespace {

using standin::Dimension;
using standin::Get;
using standin::Phase;
using standin::Set;
using standin::Shape;
using standin::Value;

// out = self, but where `index` points along `dim`: there it is change(before, place in `index`).
template <typename Change>
int Scatter(const Phase& phase, const aclTensor* self, int64_t dim, const aclTensor* index,
            const aclTensor* out, const Change& change) {
  const int status = standin::Check(phase, {self, index, out});
  if (status != 0) return status;
  return standin::Ready(
      phase, [self = *self, along = Dimension(*self, dim), index = *index, out = *out, change] {
        standin::ForEach(out.shape, [&](const Shape& at) { Set(out, at, Get(self, at)); });
        standin::ForEach(index.shape, [&](const Shape& at) {
          Shape to = at;
          to[along] = static_cast<int64_t>(Get(index, at));
          Set(out, to, change(Get(out, to), at));
        });
      });
}

// By the elements of `source`.
int Replace(const Phase& phase, const aclTensor* self, int64_t dim, const aclTensor* index,
            const aclTensor* source, const aclTensor* out) {
  const int status = standin::Check(phase, {source});
  if (status != 0) return status;
  return Scatter(phase, self, dim, index, out,
                 [source = *source](double, const Shape& at) { return Get(source, at); });
}

// out[at] = self[at, but along `dim` at index[place(at, dim)]].
template <typename Place>
int Pick(const Phase& phase, const aclTensor* self, int64_t dim, const aclTensor* index,
         const aclTensor* out, const Place& place) {
  const int status = standin::Check(phase, {self, index, out});
  if (status != 0) return status;
  return standin::Ready(
      phase, [self = *self, along = Dimension(*self, dim), index = *index, out = *out, place] {
        standin::ForEach(out.shape, [&](const Shape& at) {
          Shape from = at;
          from[along] = static_cast<int64_t>(Get(index, place(at, along)));
          Set(out, at, Get(self, from));
        });
      });
}

}  // namespace

// Rows, or other slices.
STANDIN_ACLNN(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* out) {
  return Pick({"aclnnIndexSelect", workspace, executor}, self, dim, index, out,
              [](const Shape& at, size_t along) { return Shape{at[along]}; });
}
STANDIN_ACLNN(aclnnIndexAdd, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* source, const aclScalar* alpha, const aclTensor* out) {
  const Phase phase = {"aclnnIndexAdd", workspace, executor};
  const int status = standin::Check(phase, {self, index, source, out});
  if (status != 0) return status;
  return standin::Ready(phase, [self = *self, place = Dimension(*self, dim), index = *index,
                                source = *source, scale = Value(*alpha), out = *out] {
    standin::ForEach(out.shape, [&](const Shape& at) { Set(out, at, Get(self, at)); });
    standin::ForEach(source.shape, [&](const Shape& at) {
      Shape to = at;
      to[place] = static_cast<int64_t>(Get(index, {at[place]}));
      Set(out, to, Get(out, to) + scale * Get(source, at));
    });
  });
}

// Single elements.
STANDIN_ACLNN(aclnnGather, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* out) {
  return Pick({"aclnnGather", workspace, executor}, self, dim, index, out,
              [](const Shape& at, size_t) { return at; });
}
STANDIN_ACLNN(aclnnScatter, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* source, int64_t /*reduce*/, const aclTensor* out) {
  return Replace({"aclnnScatter", workspace, executor}, self, dim, index, source, out);
}
STANDIN_ACLNN(aclnnInplaceScatter, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* source, int64_t /*reduce*/) {
  return Replace({"aclnnInplaceScatter", workspace, executor}, self, dim, index, source, self);
}
STANDIN_ACLNN(aclnnInplaceScatterValue, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclScalar* value, int64_t /*reduce*/) {
  return Scatter({"aclnnInplaceScatterValue", workspace, executor}, self, dim, index, self,
                 [filling = Value(*value)](double, const Shape&) { return filling; });
}
STANDIN_ACLNN(aclnnScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index,
              const aclTensor* source, const aclTensor* out) {
  const Phase phase = {"aclnnScatterAdd", workspace, executor};
  const int status = standin::Check(phase, {source});
  if (status != 0) return status;
  return Scatter(phase, self, dim, index, out, [source = *source](double before, const Shape& at) {
    return before + Get(source, at);
  });
}
STANDIN_ACLNN(aclnnSWhere, const aclTensor* condition, const aclTensor* self,
              const aclTensor* other, const aclTensor* out) {
  const Phase phase = {"aclnnSWhere", workspace, executor};
  const int status = standin::Check(phase, {condition, self, other, out});
  if (status != 0) return status;
  return standin::Ready(phase, [condition = *condition, self = *self, other = *other, out = *out] {
    standin::ForEach(out.shape, [&](const Shape& at) {
      Set(out, at, Get(Get(condition, at) != 0.0 ? self : other, at));
    });
  });
}
// One index tensor for each of the first dimensions, broadcast with each other.
STANDIN_ACLNN(aclnnIndex, const aclTensor* self, const aclTensorList* indices,
              const aclTensor* out) {
  const Phase phase = {"aclnnIndex", workspace, executor};
  const int status = standin::Check(phase, {self, out});
  if (status != 0) return status;
  return standin::Ready(phase, [self = *self, indices = indices->values, out = *out] {
    const size_t kept = self.shape.size() - indices.size();
    standin::ForEach(out.shape, [&](const Shape& at) {
      const Shape picked(at.begin(), at.end() - static_cast<std::ptrdiff_t>(kept));
      Shape from;
      for (size_t d = 0; d < indices.size(); ++d) {
        const auto index = static_cast<int64_t>(Get(indices[d], picked));
        from.push_back(index < 0 ? index + self.shape[d] : index);
      }
      from.insert(from.end(), at.begin() + static_cast<std::ptrdiff_t>(picked.size()), at.end());
      Set(out, at, Get(self, from));
    });
  });
}

// Joining and scanning.
STANDIN_ACLNN(aclnnCat, const aclTensorList* tensors, int64_t dim, const aclTensor* out) {
  const Phase phase = {"aclnnCat", workspace, executor};
  const int status = standin::Check(phase, {out});
  if (status != 0) return status;
  return standin::Ready(phase,
                        [tensors = tensors->values, place = Dimension(*out, dim), out = *out] {
                          int64_t first = 0;
                          for (const aclTensor& tensor : tensors) {
                            standin::ForEach(tensor.shape, [&](const Shape& at) {
                              Shape to = at;
                              to[place] += first;
                              Set(out, to, Get(tensor, at));
                            });
                            first += tensor.shape[place];
                          }
                        });
}
STANDIN_ACLNN(aclnnRepeat, const aclTensor* self, const aclIntArray* /*repeats*/,
              const aclTensor* out) {
  const Phase phase = {"aclnnRepeat", workspace, executor};
  const int status = standin::Check(phase, {self, out});
  if (status != 0) return status;
  return standin::Ready(phase, [self = *self, out = *out] {
    const size_t lead = out.shape.size() - self.shape.size();
    standin::ForEach(out.shape, [&](const Shape& at) {
      Shape from(at.begin() + static_cast<std::ptrdiff_t>(lead), at.end());
      for (size_t d = 0; d < from.size(); ++d) from[d] %= self.shape[d];
      Set(out, at, Get(self, from));
    });
  });
}
STANDIN_ACLNN(aclnnConstantPadNd, const aclTensor* self, const aclIntArray* padding,
              const aclScalar* value, const aclTensor* out) {
  const Phase phase = {"aclnnConstantPadNd", workspace, executor};
  const int status = standin::Check(phase, {self, out});
  if (status != 0) return status;
  return standin::Ready(
      phase, [self = *self, padding = padding->values, filling = Value(*value), out = *out] {
        standin::ForEach(out.shape, [&](const Shape& at) { Set(out, at, filling); });
        standin::ForEach(self.shape, [&](const Shape& at) {
          Shape to = at;
          for (size_t pair = 0; 2 * pair < padding.size(); ++pair) {
            to[to.size() - 1 - pair] += padding[2 * pair];
          }
          Set(out, to, Get(self, at));
        });
      });
}
STANDIN_ACLNN(aclnnCumsum, const aclTensor* self, int64_t dim, aclDataType /*type*/,
              const aclTensor* out) {
  const Phase phase = {"aclnnCumsum", workspace, executor};
  const int status = standin::Check(phase, {self, out});
  if (status != 0) return status;
  return standin::Ready(phase, [self = *self, place = Dimension(*self, dim), out = *out] {
    standin::ForEach(out.shape, [&](const Shape& at) {
      Shape before = at;
      --before[place];
      Set(out, at, Get(self, at) + (at[place] > 0 ? Get(out, before) : 0.0));
    });
  });
}
// In one sorted sequence: how many elements are below each value, or with `right` not above it.
STANDIN_ACLNN(aclnnSearchSorted, const aclTensor* sorted, const aclTensor* self, bool /*out_int32*/,
              bool right, const aclTensor* /*sorter*/, const aclTensor* out) {
  const Phase phase = {"aclnnSearchSorted", workspace, executor};
  const int status = standin::Check(phase, {sorted, self, out});
  if (status != 0) return status;
  if (sorted->shape.size() != 1) return standin::Mismatch(phase);
  return standin::Ready(phase, [sorted = *sorted, self = *self, right, out = *out] {
    standin::ForEach(out.shape, [&](const Shape& at) {
      const double value = Get(self, at);
      int64_t place = 0;
      while (place < sorted.shape[0] &&
             (Get(sorted, {place}) < value || (right && Get(sorted, {place}) == value))) {
        ++place;
      }
      Set(out, at, static_cast<double>(place));
    });
  });
}
