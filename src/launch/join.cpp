#include "launch/join.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/rendezvous_file.h"

namespace fsdpbench::launch {
namespace {

/// The address of this host by which its control connections go; empty if they go by several.
std::string own_address(const std::vector<ControlLink>& links) {
  std::string address;
  for (const ControlLink& link : links) {
    if (!link.socket) continue;
    const std::string own = link.socket.local_address();
    if (!address.empty() && own != address) return {};
    address = own;
  }
  return address;
}

constexpr const char* kSecret = "FSDPBENCH_SECRET";
constexpr const char* kListen = "FSDPBENCH_LISTEN";
constexpr std::size_t kFewestCharacters = 16;  // shorter texts of people can be guessed
constexpr auto kBetweenLooksAtLauncher = std::chrono::milliseconds(500);
constexpr auto kPause = std::chrono::milliseconds(50);
constexpr auto kGrace = std::chrono::seconds(5);  // rank 0 gives up first, because it can say who is missing

bool on_one_host(const Placement& placement) { return placement.local_ranks == placement.ranks; }

/// A signal ends this process when the one that has started it has ended: mpirun of Open MPI leaves its ranks behind
/// when it is killed. Asking the system for that (PR_SET_PDEATHSIG) would count threads of the launcher.
void end_with_launcher() {
  std::thread([launcher = getppid()] {
    while (getppid() == launcher) std::this_thread::sleep_for(kBetweenLooksAtLauncher);
    (void)::kill(getpid(), SIGTERM);
  }).detach();
}

/// Secret that all ranks were given; empty: nothing. It is not repeated in messages.
std::string given_secret(const Environment& environment) {
  const std::string text = Variables(environment).text(kSecret);
  if (text.empty() || text.size() >= kFewestCharacters) return text;
  throw ConfigError(
      fmt::format("{} has {} characters, which can be guessed; give all ranks the same random text of {} or "
                  "more, as `openssl rand -hex 32` makes one",
                  kSecret, text.size(), kFewestCharacters));
}

/// The file by which ranks share what only rank 0 knows; a port tells jobs of one host apart.
std::string path_of_file(const Placement& placement, const Environment& environment) {
  const bool address = !placement.root_host.empty();
  std::string folder = Variables(environment).text(kRendezvousFolder);
  if (folder.empty() && !address) {
    throw BackendError(fmt::format(
        "{} says no address, so rank {} of {} does not know where rank 0 is; set {} to a folder that all ranks "
        "share, or MASTER_ADDR to rank 0's host and {} to the same random text on all hosts, as `openssl rand "
        "-hex 32` makes one (mpirun -x NAME passes a variable on)",
        placement.source, placement.rank, placement.ranks, kRendezvousFolder, kSecret));
  }
  if (folder.empty() && !on_one_host(placement)) {
    throw ConfigError(fmt::format(
        "{} says where rank 0 is, but the ranks of several hosts also need a secret that nobody else knows: set "
        "{} to the same random text on all of them, as `openssl rand -hex 32` makes one, or {} to a folder "
        "that they share",
        placement.source, kSecret, kRendezvousFolder));
  }
  if (folder.empty()) folder = private_folder(environment);
  return rendezvous_path(folder, address ? fmt::format("port-{}", placement.root_port) : placement.job);
}

/// Rank 0: without `secret` it makes one, and leaves it at `path`.
Joined lead(const Placement& placement, const Introduction& self, Deadline deadline, std::string secret,
            const std::string& path, const std::string& address) {
  std::string error;
  Socket listener = listen_at(address, placement.root_port, error);
  if (!listener && error == std::generic_category().message(EADDRINUSE)) {
    throw BackendError(
        fmt::format("rank 0 cannot listen on port {} of {}: {}; set FSDPBENCH_PORT to a free port, the same for "
                    "all ranks (the port comes from {})",
                    placement.root_port, address.empty() ? host_name() : address, error, placement.source));
  }
  if (!listener) {
    throw ConfigError(
        fmt::format("rank 0 is to be reached at '{}' ({}), and its host, {}, cannot listen there: {}. Start "
                    "rank 0 there, or set {} to one of its host's addresses, or to all",
                    address, placement.source, host_name(), error, kListen));
  }
  std::optional<RendezvousFile> file;  // after listening: the port is ours, and so is the file
  if (secret.empty()) {
    secret = random_token();
    std::vector<std::string> hosts = address.empty() ? interface_addresses() : std::vector{address};
    if (hosts.empty()) hosts = {kLoopback};
    file.emplace(path, Meeting{std::move(hosts), listener.local_port(), secret});
  }
  return take_in_all(std::move(listener), self, secret, deadline);
}

/// Address where rank 0 may be now; nothing, with the reason, if that is not known so far.
std::optional<Meeting> find_rank_zero(const Placement& placement, const std::string& secret, const std::string& path,
                                      std::string& reason) {
  if (placement.root_host.empty()) return read_rendezvous(path, reason);
  Meeting meeting{{on_one_host(placement) ? kLoopback : placement.root_host}, placement.root_port, secret};
  if (!secret.empty()) return meeting;
  const std::optional<Meeting> file = read_rendezvous(path, reason);
  if (!file) {
    reason = fmt::format("{}: {}", endpoint(meeting.hosts[0], meeting.port), reason);
    return std::nullopt;
  }
  meeting.secret = file->secret;
  return meeting;
}

/// Another rank: tries again until rank 0 is there and takes it in.
Joined follow(const Placement& placement, const Introduction& self, Deadline deadline, const std::string& secret,
              const std::string& path) {
  std::string reason;
  do {
    const std::optional<Meeting> meeting = find_rank_zero(placement, secret, path, reason);
    std::string reasons;
    for (const std::string& host : meeting ? meeting->hosts : std::vector<std::string>()) {
      std::optional<Joined> joined = ask_to_join(host, meeting->port, self, meeting->secret, deadline + kGrace, reason);
      if (joined) return std::move(*joined);
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", endpoint(host, meeting->port), reason);
    }
    if (meeting) reason = std::move(reasons);
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < deadline);
  if (!placement.root_host.empty()) reason += fmt::format(" (from {})", placement.source);
  throw BackendError(fmt::format("rank {} cannot join rank 0: {}", self.rank, reason));
}

}  // namespace

TcpSession::TcpSession(Placement placement, Joined joined) : Session(std::move(placement), joined.door) {
  directory_.members = joined.members;
  directory_.token = joined.token;
  directory_.root_address = this->placement().rank == 0 ? "127.0.0.1" : joined.links.at(0).socket.peer_address();
  directory_.own_address = own_address(joined.links);
  control_ = std::make_unique<TcpControlChannel>(this->placement().rank, std::move(joined));
  directory_.control = control_.get();
}

std::unique_ptr<PeerGroup> TcpSession::peers() {
  const std::string id = fmt::format("peers {}", groups_++);
  Socket listener = TcpPeerGroup::open_listener(directory_);
  const std::vector<std::string> ports = gather(*control_, id, std::to_string(listener.local_port()));
  const std::vector<std::string> all = unpack(broadcast(*control_, id, pack(ports)));
  std::vector<TcpPeerGroup::Seat> seats;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    seats.push_back({static_cast<int>(rank), std::stoi(all[rank])});
  }
  return std::make_unique<TcpPeerGroup>(directory_, id, placement().rank, std::move(seats), std::move(listener),
                                        [] { return false; });
}

std::string address_to_listen_at(const Placement& placement, const Environment& environment) {
  if (on_one_host(placement)) return kLoopback;
  const std::string asked = Variables(environment).text(kListen);
  if (!asked.empty()) return asked == "all" ? "" : asked;
  const std::string& name = placement.root_host;
  if (name == "localhost") return kLoopback;
  // A host's own name often stands for a loopback address on that host alone.
  const std::vector<std::string> addresses = resolve(name);
  const bool own = !addresses.empty() && std::ranges::all_of(addresses, is_loopback);
  return own && !is_loopback(name) ? "" : name;
}

Introduction introduce(const Placement& placement, const JoinOptions& options) {
  return {placement.job, options.version, placement.rank, placement.ranks, host_name(), getpid()};
}

Joined meet(const Placement& placement, const Introduction& self, Deadline deadline, const Environment& environment) {
  const std::string secret = placement.root_host.empty() ? "" : given_secret(environment);
  const std::string path = secret.empty() ? path_of_file(placement, environment) : "";
  if (placement.rank != 0) return follow(placement, self, deadline, secret, path);
  return lead(placement, self, deadline, secret, path, address_to_listen_at(placement, environment));
}

std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options) {
  const Deadline deadline = deadline_in(options.deadline_s);
  Joined joined = meet(placement, introduce(placement, options), deadline, process_environment());
  if (Variables(process_environment()).has("OMPI_COMM_WORLD_RANK")) end_with_launcher();
  return std::make_unique<TcpSession>(placement, std::move(joined));
}

}  // namespace fsdpbench::launch
