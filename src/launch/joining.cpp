#include "launch/joining.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "launch/host_identity.h"

namespace fsdpbench::launch {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr auto kPause = std::chrono::milliseconds(50);
/// Rank 0 gives up first, because it can say who is missing.
constexpr int kGraceSeconds = 5;

}  // namespace

// A host's own name often stands for a loopback address on that host alone, so loopback counts only where it was asked
// for.
std::string address_to_listen_at(const std::string& name) {
  const std::vector<std::string> addresses = resolve(name);
  if (!addresses.empty() && std::ranges::all_of(addresses, is_loopback)) {
    if (name != "localhost" && !is_loopback(name)) return {};
    // Where IPv6 is switched off, its loopback name may still be there.
    return std::ranges::find(addresses, kLoopback) != addresses.end() ? kLoopback : addresses.front();
  }
  const std::vector<std::string> own = interface_addresses();
  const auto found = std::ranges::find_first_of(addresses, own);
  return found == addresses.end() ? "" : *found;
}

Introduction introduce(const Placement& placement, const JoinOptions& options) {
  return {placement.job, options.version, {}, placement.rank, placement.ranks, host_name(), getpid()};
}

std::optional<Joined> try_to_join(const Meeting& meeting, Introduction self, Deadline deadline, std::string& reason) {
  self.token = meeting.token;
  std::string reasons;
  for (const std::string& host : meeting.hosts) {
    if (std::optional<Joined> joined = ask_to_join(host, meeting.port, self, deadline, reason)) return joined;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", endpoint(host, meeting.port), reason);
  }
  reason = fmt::format("{} (from {})", reasons, meeting.source);
  return std::nullopt;
}

Joined keep_trying(const std::function<std::optional<Meeting>(std::string& reason)>& find, const Introduction& self,
                   Deadline deadline) {
  const Deadline patience = deadline + std::chrono::seconds(kGraceSeconds);
  std::string reason;
  for (;;) {
    if (const std::optional<Meeting> meeting = find(reason)) {
      if (std::optional<Joined> joined = try_to_join(*meeting, self, patience, reason)) return std::move(*joined);
    }
    if (std::chrono::steady_clock::now() + kPause > deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  throw BackendError(fmt::format("rank {} cannot join rank 0: {}", self.rank, reason));
}

OpenDoor open_door(bool one_host) {
  std::string error;
  Socket listener = listen_at(one_host ? kLoopback : "", 0, error);
  if (!listener) throw BackendError(fmt::format("rank 0 cannot listen for the other ranks: {}", error));
  const int port = listener.local_port();
  std::vector<std::string> hosts = interface_addresses();
  if (one_host || hosts.empty()) hosts = {kLoopback};
  return {std::move(listener), {std::move(hosts), port, random_token(), {}}};
}

Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline) {
  if (placement.rank == 0) {
    std::string error;
    const std::string address = address_to_listen_at(placement.root_host);
    Socket listener = listen_at(address, placement.root_port, error);
    if (listener) return take_in_all(std::move(listener), self, deadline);
    throw BackendError(
        fmt::format("rank 0 cannot listen on port {} of {}: {}; set FSDPBENCH_PORT to a free port, the same for "
                    "all ranks (the port comes from {})",
                    placement.root_port, address.empty() ? host_name() : address, error, placement.source));
  }
  const Meeting meeting{{placement.root_host}, placement.root_port, {}, placement.source};
  return keep_trying([&](std::string&) { return std::optional(meeting); }, self, deadline);
}

}  // namespace fsdpbench::launch
