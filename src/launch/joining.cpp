#include "launch/joining.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "launch/host_identity.h"
#include "launch/rendezvous_file.h"
#include "launch/variables.h"

namespace fsdpbench::launch {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kListen = "FSDPBENCH_LISTEN";
constexpr const char* kSecret = "FSDPBENCH_SECRET";
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

bool on_one_host(const Placement& placement) { return placement.local_ranks == placement.ranks; }

/// The file by which ranks that know where rank 0 is share a secret; the port tells jobs of one host apart. Empty:
/// there is no such place.
std::string secret_path(const Placement& placement, const Environment& environment) {
  std::string folder = Variables(environment).text("FSDPBENCH_RENDEZVOUS");
  if (folder.empty() && on_one_host(placement)) folder = private_folder(environment);
  return folder.empty() ? "" : rendezvous_path(folder, fmt::format("port-{}", placement.root_port));
}

Joined lead_at_address(const Placement& placement, const Introduction& self, Deadline deadline,
                       const std::optional<Secret>& given, const std::string& path, const Environment& environment) {
  std::string error;
  const std::string address =
      on_one_host(placement) ? kLoopback : address_to_listen_at(placement.root_host, placement.source, environment);
  Socket listener = listen_at(address, placement.root_port, error);
  if (!listener) {
    throw BackendError(
        fmt::format("rank 0 cannot listen on port {} of {}: {}; set FSDPBENCH_PORT to a free port, the same for "
                    "all ranks (the port comes from {})",
                    placement.root_port, address.empty() ? host_name() : address, error, placement.source));
  }
  if (given) return take_in_all(std::move(listener), self, *given, deadline);
  const Meeting meeting{{placement.root_host}, placement.root_port, Secret::random(), {}};
  const RendezvousFile file(path, meeting);  // after listening: the port is ours, and so is the file
  return take_in_all(std::move(listener), self, meeting.secret, deadline);
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

Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline,
                       const Environment& environment) {
  std::optional<Secret> given;
  if (const std::string text = Variables(environment).text(kSecret); !text.empty()) given = Secret::of(text);
  const std::string path = given ? "" : secret_path(placement, environment);
  if (!given && path.empty()) {
    throw ConfigError(
        fmt::format("{} says where rank 0 is, but the ranks of several hosts also need a secret that nobody "
                    "else knows: set {} to the same random text on all of them, as `openssl rand -hex 32` "
                    "makes one, or FSDPBENCH_RENDEZVOUS to a folder that they share",
                    placement.source, kSecret));
  }
  if (placement.rank == 0) return lead_at_address(placement, self, deadline, given, path, environment);
  const std::string host = on_one_host(placement) ? kLoopback : placement.root_host;
  return keep_trying(
      [&](std::string& reason) -> std::optional<Meeting> {
        if (given) return Meeting{{host}, placement.root_port, *given, placement.source};
        std::optional<Meeting> meeting = read_rendezvous(path, reason);
        if (meeting) return Meeting{{host}, placement.root_port, meeting->secret, placement.source};
        reason = fmt::format("{}: {} ({})", endpoint(host, placement.root_port), reason, placement.source);
        return std::nullopt;
      },
      self, deadline);
}

}  // namespace fsdpbench::launch
