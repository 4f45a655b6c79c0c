#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fsdpbench::backend::cpu {

/// How another process of this host finds a shared range. Sent as bytes.
struct SharedName {
  std::int64_t process = 0;  ///< as that process knows itself
  std::int64_t file = -1;    ///< its descriptor
  std::uint64_t device = 0;  ///< with `number`: no other file of this running kernel has both
  std::uint64_t number = 0;
  std::int64_t bytes = 0;  ///< 0: there is no such range
};

/// Owns an address range, which becomes real page by page when touched. Private to this process (with huge pages where
/// the system grants them); or shared: a file in memory that has no name and goes with the last process that maps it,
/// so nothing is left when processes die, and /dev/shm need not be large; or addresses alone, which trap when touched.
class MappedMemory {
 public:
  enum class Kind { touchable, addresses_only };

  /// Throws ResourceError if the system grants no such range.
  MappedMemory(std::int64_t bytes, Kind kind);
  /// A new shared range. Null, with the reason, if this system does not grant one.
  static std::unique_ptr<MappedMemory> make_shared(std::int64_t bytes, std::string& why_not);
  /// Another process's shared range, or this one's once more; it stays when that process ends. As make_shared.
  static std::unique_ptr<MappedMemory> open_shared(const SharedName& name, std::string& why_not);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool contains(const void* address) const { return address >= data_ && address < data_ + bytes_; }
  /// The name of what make_shared() made; empty otherwise.
  SharedName shared_name() const;

 private:
  MappedMemory(std::byte* data, std::int64_t bytes, int file) : data_(data), bytes_(bytes), file_(file) {}

  std::byte* data_;
  std::int64_t bytes_;
  bool mapped_ = true;
  int file_ = -1;
};

}  // namespace fsdpbench::backend::cpu
