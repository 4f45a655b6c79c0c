#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/handshake.h"
#include "launch/placement.h"
#include "launch/session.h"

namespace fsdpbench::launch {

/// What this process says of itself.
Introduction introduce(const Placement& placement, const JoinOptions& options);
/// Where rank 0 may be found.
struct Meeting {
  std::vector<std::string> hosts;  ///< names or numeric addresses, tried in turn
  int port = 0;
  std::string token;   ///< of rank 0's start; empty: not known
  std::string source;  ///< for people: how this is known
};

/// The address of this host that `name` stands for; empty: all of them.
std::string address_to_listen_at(const std::string& name);
/// Asks once at each host.
std::optional<Joined> try_to_join(const Meeting& meeting, Introduction self, Deadline deadline, std::string& reason);
/// Tries again until rank 0 is there and takes this process in. `find` says where it may be at that time, or nothing
/// and why. Throws BackendError after `deadline`.
Joined keep_trying(const std::function<std::optional<Meeting>(std::string& reason)>& find, const Introduction& self,
                   Deadline deadline);
/// Rank 0 where its address is told to the others: listening, and what to tell them.
struct OpenDoor {
  Socket listener;
  Meeting meeting;
};
/// `one_host`: all ranks are on this host. Throws BackendError.
OpenDoor open_door(bool one_host);
/// The job at root_host:root_port of `placement`.
Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline);

}  // namespace fsdpbench::launch
