#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/collective_rules.h"
#include "backend/cpu/seat.h"
#include "backend/device.h"
#include "launch/clock_offset.h"
#include "launch/session.h"

namespace fsdpbench::backend::cpu {

/// Meeting place where the members of a communicator move bytes between their memories: threads of one process or
/// processes.
class Group {
 public:
  virtual ~Group() = default;

  virtual int size() const = 0;

  /// Takes part in a collective; called by every member, from a lane's thread, for one collective at a time.
  /// Returns when the caller's buffers are its own again and the modelled links (if any) are done.
  virtual void run(int rank, const CollectiveCall& call, Stamp& stamp) = 0;

  /// Blocks until all members have called it. Host threads only.
  virtual void host_barrier() = 0;
  /// As Communicator::split; `new_rank` becomes the caller's rank in the group returned. Host threads only.
  virtual std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank) = 0;

  /// If `world_rank` (of all ranks) is a member: it will call nothing more, and whoever waits for it fails instead of
  /// hanging. Returns at once.
  virtual void member_ended(int world_rank) = 0;
  /// After member_ended() of a rank of this process: blocks until that has been settled with the others.
  virtual void wait_ended() = 0;
};

/// The other processes of a group, as one thread at a time deals with them. Every wait ends when the run is aborted.
class Peers {
 public:
  /// `abort`: the run's, which must outlive this. `stall_s`: CpuOptions::stall_s.
  Peers(launch::Abort& abort, std::optional<double> stall_s, std::unique_ptr<launch::PeerGroup> group);

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

  /// From now on say() and meet() go through `table`, which all members have.
  void sit_down(RoundTable table) { table_.emplace(std::move(table)); }
  bool at_table() const { return table_.has_value(); }
  /// Everybody says `bytes` bytes, Seat::kMostBytes at most; `all` gets what each has said, by rank. Fails as
  /// exchange(); `all` then has what those have said who came.
  void say(const std::byte* mine, std::byte* all, std::size_t bytes, const std::function<std::string()>& missing = {});
  /// At a table only: returns when all have called it.
  void meet();

  /// CpuOptions::stall_s; 0 if absent.
  double patience_s() const { return stall_s_.value_or(0); }

  /// As launch::PeerGroup.
  Peers split(int color, int key);

 private:
  using Stopped = std::function<bool()>;
  void guarded(const std::function<void()>& action);
  void patiently(const std::function<std::string()>& missing, const std::function<void(const Stopped&)>& action);
  bool aborted() const { return abort_.is_set(); }

  launch::Abort& abort_;
  std::optional<double> stall_s_;
  std::unique_ptr<launch::PeerGroup> group_;
  std::optional<RoundTable> table_;
  std::vector<launch::PeerGroup::Send> sends_;
  std::vector<launch::PeerGroup::Receive> receives_;
};

}  // namespace fsdpbench::backend::cpu
