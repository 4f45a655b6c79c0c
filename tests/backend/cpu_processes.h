#pragma once

// Ranks that know each other only through sockets, as processes do, and are yet threads of one test: the suites for all
// backends then run on the CPU backend between processes as they are.

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/copy_backend.h"
#include "launch/handshake.h"
#include "launch/run_ranks.h"
#include "launch/session.h"

namespace fsdpbench::backend {

/// The process of rank `rank` in a job on this host.
inline launch::Placement placement_of(int rank, int ranks, int root_port) {
  launch::Placement placement;
  placement.rank = placement.local_rank = rank;
  placement.ranks = placement.local_ranks = ranks;
  placement.source = "a test";
  placement.root_host = "127.0.0.1";
  placement.root_port = root_port;
  return placement;
}

/// The session of rank `rank` in a job that has `secret`; rank 0 listens at `listener`, which is at `port`.
inline std::unique_ptr<launch::Session> join_session(int rank, int ranks, int port, const std::string& secret,
                                                     launch::Socket& listener) {
  const launch::Placement placement = placement_of(rank, ranks, port);
  const launch::Introduction self = launch::introduce(placement, {});
  const launch::Deadline deadline = launch::deadline_in(60);
  std::optional<launch::Joined> joined;
  if (rank == 0) joined = launch::take_in_all(std::move(listener), self, secret, deadline);
  for (std::string reason; !joined && launch::Deadline::clock::now() < deadline;) {
    joined = launch::ask_to_join("127.0.0.1", port, self, secret, deadline, reason);
  }
  return std::make_unique<launch::Session>(placement, std::move(joined.value()));
}

/// Joins `ranks` sessions and calls `body` with each on a thread of its own. Throws the exception of the rank that the
/// job holds to be at fault.
inline void run_sessions(int ranks, const std::function<void(launch::Session&)>& body) {
  std::string error;
  launch::Socket listener = launch::listen_at("127.0.0.1", 0, error);
  if (!listener) throw BackendError(error);
  const int port = listener.local_port();
  const std::string secret = launch::random_token();
  std::mutex mutex;
  std::exception_ptr cause;
  const auto one = [&](int rank) {
    const std::unique_ptr<launch::Session> joined = join_session(rank, ranks, port, secret, listener);
    launch::Session& session = *joined;
    try {
      body(session);
    } catch (...) {
      const std::optional<launch::JobFailure> failure = session.control().failure();
      const std::lock_guard lock(mutex);
      if (failure && failure->rank == rank) cause = std::current_exception();
      throw;
    }
  };
  try {
    launch::run_ranks(ranks, one);
  } catch (...) {
    if (cause) std::rethrow_exception(cause);
    throw;
  }
}

/// The CPU backend with a session for each rank. `share_memory`: as CpuOptions.
class CpuProcesses : public Backend {
 public:
  explicit CpuProcesses(bool share_memory = true) : share_memory_(share_memory) {}
  std::string name() const override { return "cpu"; }
  Facts facts() const override { return {}; }
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override {
    run_sessions(options.ranks, [&](launch::Session& session) {
      BackendOptions mine = options;
      mine.session = &session;
      if (!share_memory_) mine.set<CpuOptions>().share_memory = false;
      make_copy_backend()->run(mine, body);
    });
  }

 private:
  const bool share_memory_;
};

}  // namespace fsdpbench::backend
