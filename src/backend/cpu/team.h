#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/lane_worker.h"
#include "backend/cpu/link.h"
#include "backend/cpu/mapped_memory.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cpu {

class Group;

/// State that all ranks of one run share in this process. Outlives devices and communicators. Thread-safe.
class Team : private launch::Abort::Listener {
 public:
  /// Throws BackendError if the options contradict themselves or the session. `kernels` makes each lane's kernels.
  /// From here on a failure of another process, or the caller's interrupt, aborts this team.
  Team(const BackendOptions& options, KernelsFactory kernels);
  ~Team() override;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  const BackendOptions& options() const { return options_; }
  const CpuOptions& emulation() const { return emulation_; }
  const KernelsFactory& kernels() const { return kernels_; }
  launch::Abort& abort() { return abort_; }
  /// Stops all ranks, those of other processes too. A launch::Stopped is no failure of its own.
  void fail(const std::exception_ptr& failure);
  /// Null if transfers are not modelled.
  Links* links() { return links_ ? &*links_ : nullptr; }
  bool computes() const { return !emulation_.compute_flops_per_s; }
  /// False if both compute and links are emulated: then nobody reads memory, and none is touched.
  bool moves_bytes() const { return computes() || !emulation_.link; }
  double compute_slowdown(int rank) const;

  /// Bytes at the end of a rank's memory that are pinned host memory.
  std::int64_t host_pool_bytes() const;
  /// The memory of one rank: its device's, then the host's. It belongs to the team: when a run is aborted, a peer may
  /// still be reading it while the rank has ended.
  MappedMemory& make_memory();
  /// Between processes, before anything else of a run: makes this rank's memory so that other processes of this host
  /// can see it, and finds out whose memory this one sees. `all`: all ranks. Collective.
  void find_neighbours(Peers& all);
  /// Only after find_neighbours().
  Neighbours& neighbours() { return *neighbours_; }
  /// For people: how the bytes of collectives travel between processes. Nothing between threads.
  Facts facts() const;

  void add(std::shared_ptr<Group> group);
  /// `rank` will take part in nothing more: whoever waits for it in a collective fails instead of hanging.
  void rank_ended(int rank);
  /// After rank_ended() for all ranks of this process: blocks until the other processes' ranks have ended, too.
  /// Throws launch::Stopped if one fails instead.
  void wait_for_others();

 private:
  void aborted() override;  // the caller's interrupt
  std::int64_t memory_bytes() const;

  const BackendOptions options_;
  const CpuOptions emulation_;
  const KernelsFactory kernels_;
  launch::Abort abort_;
  std::optional<Links> links_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::vector<std::unique_ptr<MappedMemory>> memories_;
  MappedMemory* process_memory_ = nullptr;  ///< of this process's one rank, if it has been made already
  std::optional<Neighbours> neighbours_;
};

/// This machine's memory divided among the `ranks` on it.
std::int64_t memory_per_rank(int ranks);

}  // namespace fsdpbench::backend::cpu
