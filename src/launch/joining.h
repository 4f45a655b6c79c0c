#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/handshake.h"
#include "launch/placement.h"
#include "launch/secret.h"
#include "launch/session.h"

namespace fsdpbench::launch {

/// What this process says of itself.
Introduction introduce(const Placement& placement, const JoinOptions& options);

/// Where rank 0 may be found, and what shows that it is ours.
struct Meeting {
  std::vector<std::string> hosts;  ///< names or numeric addresses, tried in turn
  int port = 0;
  Secret secret;
  std::string source;  ///< for people: how this is known
};

/// The numeric address of this host at which rank 0 must listen so that others reach it as `name`; empty: all of them,
/// because `name` is this host's own and stands for loopback here. FSDPBENCH_LISTEN (a numeric address of this host, or
/// "all") says it instead. Throws ConfigError if `name` is unknown or no address of this host's; `source` says where
/// the name comes from.
std::string address_to_listen_at(const std::string& name, const std::string& source, const Environment& environment);
/// Asks once at each host.
std::optional<Joined> try_to_join(const Meeting& meeting, const Introduction& self, Deadline deadline,
                                  std::string& reason);
/// Tries again until rank 0 is there and takes this process in. `find` says where it may be at that time, or nothing
/// and why. Throws BackendError after `deadline`.
Joined keep_trying(const std::function<std::optional<Meeting>(std::string& reason)>& find, const Introduction& self,
                   Deadline deadline);

/// Rank 0 where its address is told to the others: listening, and what to tell them.
struct OpenDoor {
  Socket listener;
  Meeting meeting;
};
/// `one_host`: all ranks are on this host; then nobody else can reach it. Throws BackendError, ConfigError for
/// FSDPBENCH_LISTEN.
OpenDoor open_door(bool one_host, const Environment& environment);

}  // namespace fsdpbench::launch
