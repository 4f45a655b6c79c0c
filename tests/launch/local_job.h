#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "launch/run_ranks.h"
#include "launch/session.h"
#include "launch/socket.h"

namespace fsdpbench::launch::testing {

/// A port of this host that nobody listens on now. Not of the range from which the system takes the ports of outgoing
/// connections: there anybody may take it before it is used.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = std::uniform_int_distribution(20000, 31999)(random);
    std::string error;
    if (listen_at("127.0.0.1", port, error)) return port;
  }
}

/// An environment variable of this process, while this lives.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~WithVariable() { unsetenv(name_); }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
};

/// As a launcher would place `rank` of a job on this host.
inline Placement place(int rank, int ranks, int port, const std::string& job = "a test") {
  Placement placement;
  placement.rank = placement.local_rank = rank;
  placement.ranks = placement.local_ranks = ranks;
  placement.source = "a test";
  placement.job = job;
  placement.root_host = "127.0.0.1";
  placement.root_port = port;
  return placement;
}

/// Calls `body` for each rank of a job whose processes are threads, each with a session of its own, and then, when that
/// session is closed, `after`.
inline void run_job(
    int ranks, const std::function<void(Session& session, int rank)>& body,
    const std::function<void(int rank)>& after = [](int) {}) {
  const int port = free_port();
  run_ranks(ranks, [&](int rank) {
    {
      const std::unique_ptr<Session> session = join(place(rank, ranks, port), {.deadline_s = 60, .version = "v"});
      body(*session, rank);
    }
    after(rank);
  });
}

}  // namespace fsdpbench::launch::testing
