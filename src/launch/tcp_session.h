#pragma once

#include <memory>

#include "launch/session.h"
#include "launch/tcp_control_channel.h"
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

}  // namespace fsdpbench::launch
