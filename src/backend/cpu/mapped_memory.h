#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backend/cpu/peers.h"
#include "backend/cpu/seat.h"

namespace fsdpbench::backend::cpu {

/// Name by which another process of this host finds a shared range. Sent as bytes.
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

/// The memory of the ranks of a job that are processes of this host, as this process sees it: each can read and write
/// the others' device memory and seats. Whoever cannot be seen, for whatever reason, is reached by messages. What a
/// peer has shared stays readable when it dies. Thread-safe after construction.
class Neighbours {
 public:
  /// `all`: all ranks of the job. `memory`: this rank's device memory, shared, which must outlive this; null on all
  /// ranks if nobody reads memory. `why_not`: why this process shares nothing; empty if it does. Collective.
  Neighbours(Peers& all, const MappedMemory* memory, std::string why_not);

  /// Whether device memory and seats of `world_rank` are seen here; always this process's own, unless it shares none.
  bool sees(int world_rank) const { return seen_.contains(world_rank); }
  /// Address at which this process sees a byte of the device memory of `world_rank`, who must be seen.
  std::byte* address(int world_rank, std::int64_t offset) const;
  /// The offset in device memory of an address of this rank. 0 for null, which nobody reads; -1: it is not there.
  std::int64_t offset_of(const std::byte* address) const;

  /// A new seat of this process's, by number; -1: there are no more.
  int new_seat();
  /// Null if there is none such here.
  Seat* seat(int world_rank, std::int64_t number) const;

  /// For people: why a rank of this host is not seen; empty if all are, or are on other hosts.
  const std::string& why_not() const { return why_not_; }

 private:
  struct PeerMemory {
    std::byte* memory = nullptr;
    std::byte* seats = nullptr;
    std::unique_ptr<MappedMemory> their_memory, their_seats;
  };

  const MappedMemory* const memory_;
  const int rank_;
  std::string why_not_;
  std::unique_ptr<MappedMemory> seats_;  ///< null: this process shares nothing
  std::map<int, PeerMemory> seen_;       ///< by world rank
  std::mutex mutex_;
  int seats_taken_ = 0;
};

}  // namespace fsdpbench::backend::cpu
