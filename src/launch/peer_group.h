#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launch/control_channel.h"
#include "launch/handshake.h"
#include "launch/socket.h"

namespace fsdpbench::launch {

/// Addresses of a job's processes. Outlives all groups.
struct Directory {
  std::vector<Member> members;  ///< by rank of the job
  std::string token;            ///< a secret of this start of the job
  std::string root_address;     ///< numeric: rank 0's host, as this process reaches it
  std::string own_address;      ///< numeric: of this host, where the others reach it; empty: several
  ControlChannel* control = nullptr;

  /// Address at which this process reaches another; whether all are on its own host.
  const std::string& address(int job_rank) const;
  bool one_host() const;
};

/// Bytes between the processes of one group, by one TCP connection between any two: what a communicator between
/// processes is built of. One thread at a time calls it, and all members make the same calls in the same order.
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
  /// One member's answer to "who are you, and where do you listen".
  struct Seat {
    int job_rank = 0;
    int port = 0;
  };

  /// A socket where the other members of a group to be can connect.
  static Socket open_listener(const Directory& directory);
  /// Connects all members, `seats` by rank in the group. `id` is the same for all members and for no other group.
  /// Collective. Throws Stopped when `stopped` says so, BackendError if a member cannot be reached within a minute.
  PeerGroup(const Directory& directory, std::string id, int rank, std::vector<Seat> seats, Socket listener,
            const std::function<bool()>& stopped);

  int rank() const { return rank_; }  ///< in the group
  /// Members, this one included.
  int size() const { return static_cast<int>(seats_.size()); }

  /// Moves all of it at once, at most one message each way between any two members; returns when every buffer is the
  /// caller's again. Sizes of a pair must match. Asks `stopped` at least every 10 ms: if true, throws Stopped, and
  /// the group is of no use any more. Throws BackendError that names the peer if a connection breaks.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives, const std::function<bool()>& stopped);

  /// Collective: members with equal `color` form a new group, ordered by `key`, then by rank.
  std::unique_ptr<PeerGroup> split(int color, int key, const std::function<bool()>& stopped);

 private:
  struct Flow;

  void connect_to_lower(const std::function<bool()>& stopped);
  void accept_higher(Socket listener, const std::function<bool()>& stopped);
  /// For what one knocks at the door of a member.
  std::string door_of(int peer) const;
  Socket& socket_of(int peer);
  Socket::Moved move(Flow& flow);
  std::string who(int peer) const;
  [[noreturn]] void lost(int peer, const std::string& error, const std::function<bool()>& stopped) const;
  void throw_if(const std::function<bool()>& stopped) const;

  const Directory& directory_;
  const std::string id_;
  const int rank_;
  const std::vector<Seat> seats_;
  std::vector<Socket> sockets_;  ///< by rank in the group; none at this one
  int splits_ = 0;
};

}  // namespace fsdpbench::launch
