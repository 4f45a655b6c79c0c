#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "launch/control_channel.h"
#include "launch/placement.h"

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

/// The processes of one job, joined. One a process; made before threads are, destroyed last.
class Session {
 public:
  virtual ~Session() = default;

  /// Place of this process in the job.
  const Placement& placement() const { return placement_; }
  /// Messages between rank 0 and the others; the session owns it.
  virtual ControlChannel& control() = 0;
  /// All processes of the job, as a new group, which the session outlives. Collective.
  virtual std::unique_ptr<PeerGroup> peers() = 0;
  /// For people and result files: how bytes travel ("TCP sockets").
  virtual std::string transport() const = 0;
  /// For people, at rank 0: where it listened for the others, "127.0.0.1:29501".
  const std::string& door() const { return door_; }

 protected:
  Session(Placement placement, std::string door) : placement_(std::move(placement)), door_(std::move(door)) {}

 private:
  Placement placement_;
  std::string door_;
};

struct JoinOptions {
  double deadline_s = 60;  ///< for all ranks to arrive
  std::string version;     ///< of the program: must be the same on all ranks
};

}  // namespace fsdpbench::launch
