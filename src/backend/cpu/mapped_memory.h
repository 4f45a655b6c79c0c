#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdpbench::backend::cpu {

/// Owns an address range. Either private anonymous memory that becomes real page by page when touched (huge pages
/// where the system grants them), or addresses alone, which trap when touched.
class MappedMemory {
 public:
  enum class Kind { touchable, addresses_only };

  /// Throws ResourceError if the system grants no such range.
  MappedMemory(std::int64_t bytes, Kind kind);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::int64_t bytes_;
  Kind kind_;
};

}  // namespace fsdpbench::backend::cpu
