#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fsdpbench::backend::cuda {

/// Page-locked host memory of one rank: what copies may read and write where it lies. Used by the rank's host thread.
class PinnedRanges {
 public:
  /// `memory` stays page-locked as long as copies are asked for.
  void add(std::span<const std::byte> memory) { ranges_.push_back(memory); }
  /// Whether all of it lies in one of them.
  bool cover(const void* first, std::int64_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(first);
    for (const std::span<const std::byte> range : ranges_) {
      const std::byte* const end = range.data() + range.size();
      if (std::greater_equal<>()(begin, range.data()) && std::less_equal<>()(begin, end) && bytes <= end - begin) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<std::span<const std::byte>> ranges_;
};

}  // namespace fsdpbench::backend::cuda
