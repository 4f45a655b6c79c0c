#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdpbench::replay {

/// The middle value, of an even count the lower of the two: a time that was measured, never a mean of two. `values`
/// must not be empty.
template <typename T>
T lower_median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace fsdpbench::replay
