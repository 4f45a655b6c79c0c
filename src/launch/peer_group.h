#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace fsdpbench::launch {

/// Bytes between the processes of one group, each pair directly: what a communicator between processes is built of.
/// One thread at a time calls it, and all members make the same calls in the same order.
class PeerGroup {
 public:
  struct Send {
    int to = 0;  ///< rank in the group, not this one
    std::span<const std::byte> bytes;
  };
  struct Receive {
    int from = 0;
    std::span<std::byte> bytes;
  };

  virtual ~PeerGroup() = default;
  virtual int rank() const = 0;  ///< in the group
  /// Members, this one included.
  virtual int size() const = 0;

  /// Moves all of it at once, at most one message each way between any two members; returns when every buffer is the
  /// caller's again. Sizes of a pair must match. Asks `stopped` at least every 10 ms: if true, throws Stopped, and
  /// the group is of no use any more. Throws BackendError that names the peer if a connection breaks.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives,
                        const std::function<bool()>& stopped) = 0;

  /// Collective: members with equal `color` form a new group, ordered by `key`, then by rank.
  virtual std::unique_ptr<PeerGroup> split(int color, int key, const std::function<bool()>& stopped) = 0;
};

}  // namespace fsdpbench::launch
