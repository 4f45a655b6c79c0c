#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace fsdpbench::model {

/// Carves tensors out of one buffer, each aligned to 64 bytes. Without memory it only counts: the one function
/// that says which tensors a module needs gives both their size and their places.
class Arena {
 public:
  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  /// The next `bytes`; null without memory. Throws ResourceError if all would be more than 8 EiB.
  std::byte* take(std::int64_t bytes) {
    std::byte* const taken = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ = checked_sum(used_, round_up(bytes, kAlignment));
    peak_ = std::max(peak_, used_);
    return taken;
  }
  /// The same for `count` elements.
  template <class T>
  T* take_array(std::int64_t count) {
    return reinterpret_cast<T*>(take(checked_product(count, sizeof(T))));
  }

  /// Bytes in use.
  std::int64_t mark() const { return used_; }
  /// Gives back all that was taken after `mark`; tensors of different moments may share memory.
  void rewind(std::int64_t mark) { used_ = mark; }

  /// The most ever in use.
  std::int64_t bytes() const { return peak_; }

 private:
  static constexpr std::int64_t kAlignment = 64;
  std::byte* memory_;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace fsdpbench::model
