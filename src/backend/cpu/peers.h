#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/peer_group.h"

namespace fsdpbench::backend::cpu {

class Team;

/// The other processes of a group, as one thread at a time deals with them. Every wait ends when the team is aborted.
class Peers {
 public:
  Peers(Team& team, std::unique_ptr<launch::PeerGroup> group);

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  /// Notes `bytes` to go from this rank to rank `to`, or from rank `from` to this one, in the next exchange(). At most
  /// one message each way. No bytes are no message.
  void send(int to, const std::byte* source, std::int64_t bytes);
  void receive(int from, std::byte* target, std::int64_t bytes);
  /// Moves what was noted; then all buffers are the caller's again. Throws launch::Stopped after an abort and
  /// BackendError if a peer is lost and nothing is known of its end, or, with what `missing` says, once it has taken
  /// CpuOptions::stall_s.
  void exchange(const std::function<std::string()>& missing = {});

  /// CpuOptions::stall_s; 0 if absent.
  double patience_s() const;

  /// As launch::PeerGroup.
  std::unique_ptr<launch::PeerGroup> split(int color, int key);

 private:
  void guarded(const std::function<void()>& action);
  bool aborted() const;

  Team& team_;
  std::unique_ptr<launch::PeerGroup> group_;
  std::vector<launch::PeerGroup::Send> sends_;
  std::vector<launch::PeerGroup::Receive> receives_;
};

}  // namespace fsdpbench::backend::cpu
