#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// Rotates tokens by angles position / theta^(2i / head_dim), with the table of the last geometry kept.
class Rotary {
 public:
  /// Tokens begin `stride` elements apart.
  void operator()(std::byte* x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                  std::int64_t stride, float theta, bool inverse, DType dtype);

 private:
  void prepare(std::int64_t seq, std::int64_t half, float theta);

  std::int64_t seq_ = 0;
  std::int64_t half_ = 0;
  float theta_ = 0;
  std::vector<float> cosine_;  // [seq_, half_]
  std::vector<float> sine_;
};

}  // namespace fsdpbench::backend::cpu
