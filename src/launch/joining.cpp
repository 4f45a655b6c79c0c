#include "launch/joining.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "launch/host_identity.h"

namespace fsdpbench::launch {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
/// Rank 0 gives up first, because it can say who is missing.
constexpr double kGraceSeconds = 5;

/// The address of this host that `name` stands for; empty: all of them. A host's own name often stands for a loopback
/// address on that host alone, so loopback counts only where it was asked for.
std::string address_to_listen_at(const std::string& name) {
  const std::vector<std::string> addresses = resolve(name);
  const bool loopback = !addresses.empty() && std::ranges::all_of(addresses, is_loopback);
  if (loopback) return name == "localhost" || is_loopback(name) ? addresses.front() : "";
  const std::vector<std::string> own = interface_addresses();
  const auto found = std::ranges::find_first_of(addresses, own);
  return found == addresses.end() ? "" : *found;
}

}  // namespace

Introduction introduce(const Placement& placement, const JoinOptions& options) {
  return {placement.job, options.version, {}, placement.rank, placement.ranks, host_name(), getpid()};
}

Socket listen_as_root(const Placement& placement) {
  std::string error;
  const std::string address = address_to_listen_at(placement.root_host);
  Socket listener = listen_at(address, placement.root_port, error);
  if (!listener) {
    throw BackendError(fmt::format("rank 0 cannot listen on port {} of {}: {}; set FSDPBENCH_PORT to a free port, the same for all "
                                   "ranks (the port comes from {})",
                                   placement.root_port, address.empty() ? host_name() : address, error,
                                   placement.source));
  }
  return listener;
}

Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline) {
  if (placement.rank == 0) return take_in_all(listen_as_root(placement), self, deadline);
  const Deadline patience = deadline + std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(kGraceSeconds));
  std::string reason;
  for (;;) {
    std::optional<Joined> joined = ask_to_join(placement.root_host, placement.root_port, self, patience, reason);
    if (joined) return std::move(*joined);
    if (std::chrono::steady_clock::now() + kPause > deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  throw BackendError(fmt::format("rank {} cannot join rank 0 at {} (from {}): {}", placement.rank,
                                 endpoint(placement.root_host, placement.root_port), placement.source, reason));
}

}  // namespace fsdpbench::launch
