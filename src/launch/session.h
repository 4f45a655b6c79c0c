#pragma once

#include <memory>
#include <string>

#include "launch/control_channel.h"
#include "launch/peer_group.h"
#include "launch/placement.h"

namespace fsdpbench::launch {

/// The processes of one job, joined. One a process; made before threads are, destroyed last.
class Session {
 public:
  virtual ~Session() = default;

  /// Where this process stands in the job.
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
