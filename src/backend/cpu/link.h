#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/wait_point.h"
#include "base/link_model.h"

namespace fsdpbench::backend::cpu {

/// One transfer on the links of its members.
struct Transfer {
  std::uint64_t id = 0;                     ///< the same in all processes; 0 where all ranks are in this one
  std::int64_t start_ns = 0;                ///< its latency begins
  std::atomic<std::int64_t> end_ns{0};      ///< when the slowest member's link is done; may move later, never earlier
  std::map<int, std::int64_t> link_end_ns;  ///< when each one is, by rank; as end_ns, and guarded by Links
};

/// A transfer on one rank's link as another process may want to know it.
struct FlowState {
  std::uint64_t id = 0;
  double active_ns = 0;  ///< the latency part ends
  double bytes_left = 0;
};

/// The modelled link of every rank (base/link_model.h). A transfer first takes latency * hops, then its bytes go
/// through, in fair shares with the others on the link. Times are absolute and
/// follow from the transfers' starts alone, so late wake-ups do not add up. Thread-safe.
class Links {
 public:
  /// `slowdown`: empty or a factor per rank that divides its bandwidth.
  Links(launch::Abort& abort, const LinkModel& model, int ranks, const std::vector<double>& slowdown);

  /// Starts a transfer of `bytes` on the link of each of `ranks` at `start_ns`.
  std::shared_ptr<Transfer> begin(std::span<const int> ranks, std::int64_t bytes, int hops, std::int64_t start_ns,
                                  std::uint64_t id = 0);
  /// Sleeps until the transfer ends on all its links; throws launch::Stopped if aborted before that.
  void wait(const Transfer& transfer);
  /// When the link of `rank`, a member, was done with a transfer that has ended.
  std::int64_t end_of(const Transfer& transfer, int rank);

  /// Between processes: what is on the link of `rank` at `at_ns`, at most one transfer a lane …
  std::vector<FlowState> flows_of(int rank, std::int64_t at_ns);
  /// … and what another process says is on the link of its own `rank`. Transfers already known by their id stay as
  /// they are here, the others from now on take their share of that link.
  void learn(int rank, std::span<const FlowState> flows, std::int64_t at_ns);

 private:
  using Link = FluidLink<std::shared_ptr<Transfer>>;
  static void predict_ends(Link link, int rank);

  const double latency_ns_;
  std::mutex mutex_;
  std::vector<Link> links_;
  WaitPoint later_;  ///< an end has moved
};

}  // namespace fsdpbench::backend::cpu
