// Double of a CANN header (see README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace gert {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}

  size_t GetDimNum() const { return dims_.size(); }
  int64_t GetDim(size_t index) const { return dims_.at(index); }
  void SetDimNum(size_t count) { dims_.resize(count); }
  void SetDim(size_t index, int64_t value) { dims_.at(index) = value; }
  void AppendDim(int64_t value) { dims_.push_back(value); }
  bool operator==(const Shape& other) const { return dims_ == other.dims_; }

 private:
  std::vector<int64_t> dims_;
};

}  // namespace gert
