#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdpbench::foreign {

/// The middle value, of an even count the upper of the two: a time that was measured, never a mean of two. `values`
/// must not be empty.
inline std::int64_t upper_median(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace fsdpbench::foreign
