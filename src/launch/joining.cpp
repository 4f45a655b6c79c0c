#include "launch/joining.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "launch/addresses.h"
#include "launch/host_identity.h"
#include "launch/variables.h"

namespace fsdpbench::launch {
namespace {

constexpr const char* kListen = "FSDPBENCH_LISTEN";
constexpr auto kPause = std::chrono::milliseconds(50);
/// Rank 0 gives up first, because it can say who is missing.
constexpr int kGraceSeconds = 5;

/// What FSDPBENCH_LISTEN says, if it says anything: empty for all interfaces.
std::optional<std::string> asked_to_listen_at(const Environment& environment) {
  const std::string asked = Variables(environment).text(kListen);
  if (asked.empty()) return std::nullopt;
  if (asked == "all") return "";
  std::vector<std::string> own = interface_addresses();
  if (is_loopback(asked) || std::ranges::count(own, asked) > 0) return asked;
  throw ConfigError(fmt::format("{}={} in the environment is no address of this host; valid: all, {}, {}", kListen,
                                asked, kLoopback, fmt::join(own, ", ")));
}

}  // namespace

// A host's own name often stands for a loopback address on that host alone, so loopback counts only where it was asked
// for.
std::string address_to_listen_at(const std::string& name, const std::string& source, const Environment& environment) {
  if (const std::optional<std::string> asked = asked_to_listen_at(environment)) return *asked;
  const std::vector<std::string> addresses = resolve(name);
  if (addresses.empty()) {
    throw ConfigError(
        fmt::format("rank 0 is to be reached at '{}' ({}), and that name is unknown on its host", name, source));
  }
  if (std::ranges::all_of(addresses, is_loopback)) {
    if (name != "localhost" && !is_loopback(name)) return {};
    // Where IPv6 is switched off, its loopback name may still be there.
    return std::ranges::find(addresses, kLoopback) != addresses.end() ? kLoopback : addresses.front();
  }
  const std::vector<std::string> own = interface_addresses();
  const auto found = std::ranges::find_first_of(addresses, own);
  if (found != addresses.end()) return *found;
  throw ConfigError(
      fmt::format("rank 0 is to be reached at '{}' ({}), which is {}: no address of its host, {}, which has {}. Start "
                  "rank 0 there, or set {} to one of its addresses, or to all",
                  name, source, fmt::join(addresses, ", "), host_name(), fmt::join(own, ", "), kListen));
}

Introduction introduce(const Placement& placement, const JoinOptions& options) {
  return {placement.job, options.version, placement.rank, placement.ranks, host_name(), getpid()};
}

std::optional<Joined> try_to_join(const Meeting& meeting, const Introduction& self, Deadline deadline,
                                  std::string& reason) {
  std::string reasons;
  for (const std::string& host : meeting.hosts) {
    if (std::optional<Joined> joined = ask_to_join(host, meeting.port, self, meeting.secret, deadline, reason)) {
      return joined;
    }
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

OpenDoor open_door(bool one_host, const Environment& environment) {
  std::string error;
  const std::string address = one_host ? kLoopback : asked_to_listen_at(environment).value_or("");
  Socket listener = listen_at(address, 0, error);
  if (!listener) throw BackendError(fmt::format("rank 0 cannot listen for the other ranks: {}", error));
  const int port = listener.local_port();
  std::vector<std::string> hosts{address};
  if (address.empty()) hosts = interface_addresses();
  if (hosts.empty()) hosts = {kLoopback};
  return {std::move(listener), {std::move(hosts), port, Secret::random(), {}}};
}

}  // namespace fsdpbench::launch
