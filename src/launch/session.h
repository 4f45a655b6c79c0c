#pragma once

#include <memory>
#include <string>

#include "launch/control_channel.h"
#include "launch/handshake.h"
#include "launch/peer_group.h"
#include "launch/placement.h"

namespace fsdpbench::launch {

/// The processes of one job, joined. One a process; made before threads are, destroyed last.
class Session {
 public:
  Session(Placement placement, Joined joined);

  /// Place of this process in the job.
  const Placement& placement() const { return placement_; }
  /// Messages between rank 0 and the others; the session owns it.
  ControlChannel& control() { return *control_; }
  /// All processes of the job, as a new group, which the session outlives. Collective.
  std::unique_ptr<PeerGroup> peers();
  /// For people and result files: how bytes travel.
  std::string transport() const { return "TCP sockets"; }
  /// For people, at rank 0: where it listened for the others, "127.0.0.1:29501".
  const std::string& door() const { return door_; }

 private:
  Placement placement_;
  std::string door_;
  Directory directory_;
  std::unique_ptr<TcpControlChannel> control_;
  int groups_ = 0;
};

struct JoinOptions {
  double deadline_s = 60;  ///< for all ranks to arrive
  std::string version;     ///< of the program: must be the same on all ranks
};

/// Joins the job of `placement`: finds rank 0 at root_host:root_port, connects, and checks that all ranks are there and
/// run the same version. Throws BackendError that says which ranks are missing after `deadline_s`.
std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options = {});

/// Introduction of this process.
Introduction introduce(const Placement& placement, const JoinOptions& options);

/// Joins as far as the links. The secret is FSDPBENCH_SECRET of `environment`; ranks of one host need none. Throws
/// ConfigError if those of several have none, BackendError if nobody says where rank 0 is.
Joined meet(const Placement& placement, const Introduction& self, Deadline deadline, const Environment& environment);

/// Address on which rank 0 must listen to be reached: the loopback address if all are on its host, else what
/// FSDPBENCH_LISTEN says (an address of this host, or "all"), else root_host; empty: at all addresses, because that
/// name is this host's own and stands for loopback here, or because there is none.
std::string address_to_listen_at(const Placement& placement, const Environment& environment);

}  // namespace fsdpbench::launch
