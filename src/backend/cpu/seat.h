#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/cpu/collective_rules.h"

namespace fsdpbench::backend::cpu {

/// State of one member of a group, in memory that all members see.
struct Seat {
  static constexpr std::size_t kMostBytes = 448;

  // Used in rank 0's seat, for all ranks: how often all have come, how many are there, how many sleep until the rest
  // are.
  alignas(64) std::atomic<std::uint32_t> phase{0};
  std::atomic<std::int32_t> sleepers{0};
  alignas(64) std::atomic<std::int32_t> here{0};
  // The member's messages, counted. Whoever says the next but one has met all others since, so they have read
  // this one: two are enough.
  alignas(64) std::atomic<std::uint32_t> said{0};
  std::array<std::array<std::byte, kMostBytes>, 2> words{};
};

/// The seats of a group of processes on one host: what is said there needs no message. One thread at a time uses it.
class RoundTable {
 public:
  /// `seats` by rank in the group, this one's own among them, as this process sees them.
  RoundTable(std::vector<Seat*> seats, int rank);

  /// Says `bytes` (Seat::kMostBytes at most), and writes what all have said one behind the other to `all`. Asks
  /// `stopped` at least every 10 ms while it waits; then it throws launch::Stopped, with what others have said already
  /// in `all`, and the table is of no use any more.
  void say(const std::byte* mine, std::byte* all, std::size_t bytes, const std::function<bool()>& stopped);
  /// Returns when all have called it.
  void meet(const std::function<bool()>& stopped);

 private:
  void hear(std::byte* all, std::size_t bytes) const;

  const std::vector<Seat*> seats_;
  const int rank_;
  int looks_ = 0;  ///< before a core is given away: none where members outnumber cores
  std::uint32_t said_ = 0;
};

/// Rank `rank`'s part in moving the bytes of a collective among ranks that see each other's memory: every byte is
/// copied once, and sums are taken in rank order by who needs them. `calls` by rank, the same everywhere but for where
/// each process sees the buffers. All have called `meet` before, and must again before a buffer is the caller's own; it
/// returns when all members have called it.
void move_directly(int rank, std::span<const CollectiveCall> calls, const std::function<void()>& meet);

}  // namespace fsdpbench::backend::cpu
