#include "launch/session.h"

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

Joined lead(const Placement& placement, const Introduction& self, Deadline deadline, const std::string& secret,
            const std::string& address) {
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
  return take_in_all(std::move(listener), self, secret, deadline);
}

/// Another rank: tries again until rank 0 is there and takes it in.
Joined follow(const Placement& placement, const Introduction& self, Deadline deadline, const std::string& secret) {
  const std::string host = on_one_host(placement) ? kLoopback : placement.root_host;
  std::string reason;
  do {
    std::optional<Joined> joined = ask_to_join(host, placement.root_port, self, secret, deadline + kGrace, reason);
    if (joined) return std::move(*joined);
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < deadline);
  throw BackendError(fmt::format("rank {} cannot join rank 0: {}: {} (from {})", self.rank,
                                 endpoint(host, placement.root_port), reason, placement.source));
}

}  // namespace

Session::Session(Placement placement, Joined joined) : placement_(std::move(placement)), door_(joined.door) {
  directory_.members = joined.members;
  directory_.token = joined.token;
  directory_.root_address = placement_.rank == 0 ? "127.0.0.1" : joined.links.at(0).socket.peer_address();
  directory_.own_address = own_address(joined.links);
  control_ = std::make_unique<TcpControlChannel>(placement_.rank, std::move(joined));
  directory_.control = control_.get();
}

std::unique_ptr<PeerGroup> Session::peers() {
  const std::string id = fmt::format("peers {}", groups_++);
  Socket listener = PeerGroup::open_listener(directory_);
  const std::vector<std::string> ports = gather(*control_, id, std::to_string(listener.local_port()));
  const std::vector<std::string> all = unpack(broadcast(*control_, id, pack(ports)));
  std::vector<PeerGroup::Seat> seats;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    seats.push_back({static_cast<int>(rank), std::stoi(all[rank])});
  }
  return std::make_unique<PeerGroup>(directory_, id, placement_.rank, std::move(seats), std::move(listener),
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
  const std::string secret = given_secret(environment);
  if (placement.root_host.empty()) {
    throw BackendError(fmt::format(
        "{} says no address, so rank {} of {} does not know where rank 0 is; set MASTER_ADDR to rank 0's host and {} "
        "to "
        "the same random text on all hosts, as `openssl rand -hex 32` makes one (mpirun -x NAME passes a variable on)",
        placement.source, placement.rank, placement.ranks, kSecret));
  }
  if (secret.empty() && !on_one_host(placement)) {
    throw ConfigError(fmt::format(
        "{} says where rank 0 is, but the ranks of several hosts also need a secret that nobody else knows: set {} to "
        "the same random text on all of them, as `openssl rand -hex 32` makes one",
        placement.source, kSecret));
  }
  if (placement.rank != 0) return follow(placement, self, deadline, secret);
  return lead(placement, self, deadline, secret, address_to_listen_at(placement, environment));
}

std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options) {
  const Deadline deadline = deadline_in(options.deadline_s);
  Joined joined = meet(placement, introduce(placement, options), deadline, process_environment());
  if (Variables(process_environment()).has("OMPI_COMM_WORLD_RANK")) end_with_launcher();
  return std::make_unique<Session>(placement, std::move(joined));
}

}  // namespace fsdpbench::launch
