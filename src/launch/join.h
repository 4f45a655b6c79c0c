#pragma once

#include <memory>

#include "launch/control_channel.h"
#include "launch/handshake.h"
#include "launch/placement.h"
#include "launch/session.h"
#include "launch/tcp_peer_group.h"

namespace fsdpbench::launch {

/// A joined job whose bytes travel through TCP.
class TcpSession : public Session {
 public:
  TcpSession(Placement placement, Joined joined);

  ControlChannel& control() override { return *control_; }
  std::unique_ptr<PeerGroup> peers() override;
  std::string transport() const override { return "TCP sockets"; }

 private:
  Directory directory_;
  std::unique_ptr<TcpControlChannel> control_;
  int groups_ = 0;
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
