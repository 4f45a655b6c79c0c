#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "launch/abort.h"
#include "backend/cpu/lane_worker.h"
#include "backend/cpu/link.h"
#include "backend/cpu/mapped_memory.h"

namespace fsdpbench::backend::cpu {

class Group;

/// What all ranks of one run share. Outlives devices and communicators. Thread-safe.
class World {
 public:
  /// Throws BackendError if the options contradict themselves. `kernels` makes each lane's kernels.
  World(const BackendOptions& options, KernelsFactory kernels);

  const BackendOptions& options() const { return options_; }
  const KernelsFactory& kernels() const { return kernels_; }
  launch::Abort& abort() { return abort_; }
  /// Null if transfers are not modelled.
  Links* links() { return links_ ? &*links_ : nullptr; }
  bool computes() const { return !options_.compute_flops_per_s; }
  /// False if both compute and links are emulated: then nobody reads memory, and none is touched.
  bool moves_bytes() const { return computes() || !options_.link; }
  double compute_slowdown(int rank) const;

  /// The memory of one rank's device. It belongs to the world: when a run is aborted, a peer may still be reading it
  /// while the rank has ended.
  MappedMemory& make_memory();

  std::shared_ptr<Group> make_group(std::vector<int> world_ranks);
  /// `rank` will take part in nothing more: whoever waits for it in a collective fails instead of hanging.
  void rank_ended(int rank);

 private:
  const BackendOptions options_;
  const KernelsFactory kernels_;
  launch::Abort abort_;
  std::optional<Links> links_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Group>> groups_;
  std::vector<std::unique_ptr<MappedMemory>> memories_;
};

/// This machine's memory divided among `ranks`.
std::int64_t memory_per_rank(int ranks);

}  // namespace fsdpbench::backend::cpu
