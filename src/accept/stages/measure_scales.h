#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accept/collectives/collective_row.h"
#include "accept/collectives/rank_meeting.h"
#include "accept/scale.h"
#include "accept/stages/stage_clock.h"
#include "backend/backend.h"

namespace fsdpbench::app {

/// The collectives in groups of ranks.
struct ScaleMeasurements {
  std::vector<CollectiveRow> rows;  ///< by scale: all-gather in place, reduce-scatter; and what hybrid has, alone
  /// For hybrid sharding: groups of `shard` ranks reduce-scatter while groups of `replicate` all-reduce. 0: there are
  /// not so many ranks.
  int shard = 0;
  int replicate = 0;
  std::vector<double> reduce_alone_us;   ///< of single reduce-scatters, on the slowest rank
  std::vector<double> reduce_beside_us;  ///< while the others' all-reduces run
};

/// What is asked of it.
struct ScaleEffort {
  std::int64_t count = 0;  ///< elements of a rank
  DType gathered = DType::f32;
  DType reduced = DType::f32;
  int shard = 0;  ///< ranks of the run's shard groups, if it is hybrid; else 0: whole nodes, or half of the ranks
  int iterations = 20;
  double link_bytes_per_s = 0;  ///< about what a link carries, for estimates; 0: not known
};

/// Bytes of device memory that measure_scales() needs on each of `ranks` ranks.
std::int64_t scale_bytes(const ScaleEffort& effort, int ranks);

/// Collective; all ranks of the world call it. What it returns means something on rank 0 only. `clock`: null on
/// all other ranks. `skips` is asked on all ranks before each stage, by its name and about how many seconds it takes, and
/// says the same to all: true leaves out all that comes.
ScaleMeasurements measure_scales(const accept::Cluster& cluster, const ScaleEffort& effort,
                                 backend::RankContext& context, RankMeeting& meeting, StageClock* clock,
                                 const std::function<bool(const std::string&, double)>& skips);

}  // namespace fsdpbench::app
