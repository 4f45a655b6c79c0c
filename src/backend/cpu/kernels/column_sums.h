#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {

/// Sums over rows, one a column, rows in order. Rows are first added up in blocks of 32, then the blocks: the
/// rounding error grows with rows / 32, and both accumulators stay in the cache.
class ColumnSums {
 public:
  /// `memory` is kept by the caller so that its allocation is.
  ColumnSums(std::vector<float>& memory, std::int64_t width) : memory_(memory), width_(width) {
    memory_.assign(static_cast<std::size_t>(2 * width), 0.0F);
  }

  /// Where to add the next row.
  float* next_row() {
    if (rows_ == kBlockRows) fold();
    ++rows_;
    return block();
  }

  template <class T>
  void store_to(T* target) {
    fold();
    for (std::int64_t j = 0; j < width_; ++j) store(target[j], total()[j]);
  }

 private:
  static constexpr int kBlockRows = 32;
  float* total() { return memory_.data(); }
  float* block() { return memory_.data() + width_; }
  void fold() {
    float* const sum = total();
    float* const part = block();
    for (std::int64_t j = 0; j < width_; ++j) sum[j] += part[j];
    std::fill_n(part, width_, 0.0F);
    rows_ = 0;
  }

  std::vector<float>& memory_;
  std::int64_t width_;
  int rows_ = 0;
};

}  // namespace fsdpbench::backend::cpu
