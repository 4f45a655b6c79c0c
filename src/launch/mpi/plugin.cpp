#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/abort_guard.h"
#include "base/error.h"
#include "base/plugin.h"
#include "launch/joining.h"
#include "launch/mpi/check.h"
#include "launch/mpi/mpi_peer_group.h"
#include "launch/mpi_plugin.h"
#include "launch/tcp_control_channel.h"

namespace fsdpbench::launch {
namespace {

/// A joined job whose bytes travel through MPI; its control channel is a TCP one all the same, because that one says
/// who has died.
class MpiSession final : public Session {
 public:
  MpiSession(Placement placement, Joined joined)
      : Session(std::move(placement), joined.door),
        control_(std::make_unique<TcpControlChannel>(this->placement().rank, std::move(joined))),
        exceptions_(std::uncaught_exceptions()) {}

  ~MpiSession() override {
    // MPI_Finalize waits for all ranks: it must not be called if one may not come.
    if (std::uncaught_exceptions() > exceptions_ || !all_end_well()) return;
    control_.reset();
    (void)MPI_Finalize();
  }

  ControlChannel& control() override { return *control_; }

  std::unique_ptr<PeerGroup> peers() override {
    barrier(*control_);  // MPI_Comm_dup cannot be stopped: all must have come before
    MPI_Comm all = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "to make a group");
    return std::make_unique<MpiPeerGroup>(*control_, all);
  }

  std::string transport() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int size = 0;
    (void)MPI_Get_library_version(text, &size);
    const std::string whole = text;
    return whole.substr(0, whole.find_first_of(",\n"));
  }

 private:
  bool all_end_well() {
    try {
      barrier(*control_);
      return true;
    } catch (const std::exception&) {
      return false;  // one has failed or has left: whoever waits for news has heard of it
    }
  }

  std::unique_ptr<TcpControlChannel> control_;
  const int exceptions_;
};

/// Rank 0 gives up first, because it may know who is missing.
constexpr double kMpiGrace_s = 5;

void start_mpi(const Placement& placement) {
  int started = 0;
  check_mpi(MPI_Initialized(&started), "to start");
  if (started != 0) throw BackendError("MPI can be started once only, and this process has done so before");
  int threads = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "to start");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "to start");
  int rank = 0;
  int ranks = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "to start");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "to start");
  if (ranks != placement.ranks || rank != placement.rank) {
    throw BackendError(
        fmt::format("{} says rank {} of {}, MPI says rank {} of {}: this program was built with another MPI than "
                    "that of its launcher",
                    placement.source, placement.rank, placement.ranks, rank, ranks));
  }
  if (threads < MPI_THREAD_MULTIPLE) {
    throw BackendError("this MPI does not let several threads communicate (MPI_THREAD_MULTIPLE)");
  }
}

bool share_one_host(int ranks) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "to find hosts");
  int here = 0;
  check_mpi(MPI_Comm_size(host, &here), "to find hosts");
  check_mpi(MPI_Comm_free(&host), "to find hosts");
  // The same answer at all ranks: a job that fits one host of several is on several.
  return here == ranks;
}

/// Everybody gets rank 0's text.
std::string tell_all(std::string text) {
  int size = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD), "to tell rank 0's address");
  text.resize(static_cast<std::size_t>(size));
  check_mpi(MPI_Bcast(text.data(), size, MPI_BYTE, 0, MPI_COMM_WORLD), "to tell rank 0's address");
  return text;
}

/// What all know once MPI has brought them together: where rank 0 is, which is listening there.
struct Met {
  std::optional<OpenDoor> door;  ///< at rank 0
  Meeting meeting;
};

Met meet(const Placement& placement) {
  std::optional<OpenDoor> door;
  const bool one_host = share_one_host(placement.ranks);
  std::string text;
  if (placement.rank == 0) {
    door.emplace(open_door(one_host, process_environment()));
    std::vector<std::string> texts{door->meeting.secret.text(), std::to_string(door->meeting.port)};
    texts.insert(texts.end(), door->meeting.hosts.begin(), door->meeting.hosts.end());
    text = pack(texts);
  }
  const std::vector<std::string> told = unpack(tell_all(text));
  const std::optional<Secret> secret = Secret::from_text(told.at(0));
  if (!secret) throw BackendError("MPI brought something else than rank 0's address");
  return {std::move(door), {{told.begin() + 2, told.end()}, std::stoi(told.at(1)), *secret, "MPI_Bcast"}};
}

Joined join_at(const Placement& placement, Met met, const Introduction& self, Deadline deadline) {
  if (placement.rank == 0) return take_in_all(std::move(met.door->listener), self, met.meeting.secret, deadline);
  return keep_trying([&](std::string&) { return std::optional(met.meeting); }, self, deadline);
}

Session* join_with_mpi(const Placement& placement, const JoinOptions& options) {
  const Deadline deadline = deadline_in(options.deadline_s);
  // Until all have met: MPI waits for all ranks, nothing ends that, and one may have been stopped. Rank 0 speaks first.
  auto guard = std::make_unique<AbortGuard>(
      std::chrono::milliseconds(
          static_cast<std::int64_t>(1000 * (options.deadline_s + (placement.rank == 0 ? 0 : kMpiGrace_s)))),
      fmt::format(
          "rank {} of {} still waits in MPI after {:.0f} s: a rank has not come, was stopped or is lost, and MPI "
          "does not say which",
          placement.rank, placement.ranks, options.deadline_s),
      exit_at_once);
  start_mpi(placement);
  Met met = meet(placement);
  guard.reset();
  return new MpiSession(placement, join_at(placement, std::move(met), introduce(placement, options), deadline));
}

}  // namespace
}  // namespace fsdpbench::launch

extern "C" const fsdpbench::launch::MpiPlugin* fsdpbench_mpi_plugin() {
  using namespace fsdpbench;
  static const launch::MpiPlugin kPlugin = {plugin_interfaces(), launch::join_with_mpi};
  return &kPlugin;
}
