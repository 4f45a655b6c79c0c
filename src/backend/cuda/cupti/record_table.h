#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/cupti/decode.h"

namespace fsdpbench::backend::cuda {

/// External ids say which timer's op a call belongs to: the timer's number, from 1, and a number of the op's own.
struct OpId {
  std::uint32_t timer = 0;
  std::uint32_t op = 0;

  std::uint64_t packed() const { return (std::uint64_t{timer} << 32U) | op; }
  static OpId unpack(std::uint64_t id) {
    return {static_cast<std::uint32_t>(id >> 32U), static_cast<std::uint32_t>(id)};
  }
};

/// A stream as the records name it.
struct StreamKey {
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  bool operator==(const StreamKey&) const = default;
};

/// One call of CUDA and what came of it, joined by their correlation.
struct Launch {
  std::optional<Call> call;  ///< of a runtime call and the driver call inside it, the outer one
  std::optional<OpId> owner;
  std::vector<Work> works;
};

/// Joins the records of all threads, in whatever order they arrive, and keeps them until their timer takes them.
/// Records that belong to nobody go once `most_unowned` newer correlations have been seen. Any thread.
class RecordTable {
 public:
  explicit RecordTable(std::size_t most_unowned = std::size_t{1} << 18U) : most_unowned_(most_unowned) {}

  /// Joins the records of one buffer to what is there.
  void add(Decoded decoded);

  struct State {
    std::size_t marks = 0;  ///< calls seen that only mark
    std::size_t works = 0;
    std::size_t open = 0;       ///< launches whose kernel has not been seen, or has not ended
    std::size_t nameless = 0;   ///< owners without a call: late, or of a call that is not among the known ones
    std::size_t transfers = 0;  ///< copies and fills that have left nothing; they may have had no bytes
  };
  /// State of the calls that the timer owns, for ops from number `first` on: earlier ones come late and are not wanted.
  State state(std::uint32_t timer, std::uint32_t first = 0) const;
  /// Takes out what the timer owns, and what nobody owns but ran on one of its `streams`: NCCL may launch from a
  /// thread of its own.
  std::vector<Launch> take(std::uint32_t timer, const std::vector<StreamKey>& streams);

  /// Drops everything that nobody took.
  void clear();

  struct Counts {
    std::int64_t unknown = 0;         ///< records of kinds that nobody asked for
    std::int64_t damaged = 0;         ///< buffers that could not be read to their end
    std::int64_t duplicates = 0;      ///< the same work of the same call again
    std::int64_t without_launch = 0;  ///< works that were given up and had no call
  };
  /// Since the table was made.
  Counts counts() const;
  /// Launches that nobody has taken.
  std::size_t size() const;

 private:
  Launch& entry(std::uint32_t correlation);
  void forget_old();

  const std::size_t most_unowned_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, Launch> launches_;
  std::deque<std::uint32_t> order_;  // of first arrival
  Counts counts_;
};

}  // namespace fsdpbench::backend::cuda
