#include "launch/join.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/host_identity.h"
#include "launch/rendezvous_file.h"
#include "launch/tcp_session.h"
#include "launch/variables.h"

namespace fsdpbench::launch {
namespace {

constexpr const char* kSecret = "FSDPBENCH_SECRET";

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

std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options) {
  const Deadline deadline = deadline_in(options.deadline_s);
  const Introduction self = introduce(placement, options);
  if (!placement.root_host.empty()) {
    return std::make_unique<TcpSession>(placement, join_at_address(placement, self, deadline, process_environment()));
  }
  const char* folder = process_environment()("FSDPBENCH_RENDEZVOUS");
  if (folder != nullptr && *folder != '\0') {
    return std::make_unique<TcpSession>(placement,
                                        join_through_file(folder, placement, self, deadline, process_environment()));
  }
  throw BackendError(
      fmt::format("{} says no address, so rank {} of {} does not know where rank 0 is; set FSDPBENCH_RENDEZVOUS to a folder "
                  "that all ranks share, or MASTER_ADDR to rank 0's host and {} to the same random text on all hosts, as "
                  "`openssl rand -hex 32` makes one (mpirun -x NAME passes a variable on)",
                  placement.source, placement.rank, placement.ranks, kSecret));
}

}  // namespace fsdpbench::launch
