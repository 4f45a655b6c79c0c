#pragma once

#include <functional>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_row.h"
#include "backend/backend.h"
#include "runs/world.h"

namespace fsdpbench::app {

/// Callbacks by which rank 0 follows a measurement while it goes on; called on its host thread.
struct CollectivesListener {
  /// Once, before anything is measured: where each rank runs.
  std::function<void(const std::vector<World::RankPlace>& places)> begin;
  /// Before the first row of an operation.
  std::function<void(backend::Collective op)> table;
  std::function<void(const CollectiveRow& row)> row;
  /// After the last one.
  std::function<void(backend::Collective op)> table_end;
  /// With arguments.beside, instead of tables: one size.
  std::function<void(const BesideRow& row)> beside;
};

/// Number of ranks asked for. `session`: null, or of the job. Throws ConfigError if they contradict the job.
int ranks_asked_for(const CollectivesArguments& arguments, const launch::Session* session);

/// Options of the backend for these ranks; `rank_bytes`: device memory that each needs.
backend::BackendOptions backend_options_for(const CollectivesArguments& arguments, int ranks, launch::Session* session,
                                            std::int64_t rank_bytes);

/// Runs on all ranks: threads of this process, or this process's rank of `session`; rank 0's `listener` hears it all.
/// Throws ResourceError before anything runs if this host's memory does not suffice, ConfigError, and as Backend::run;
/// BackendError if a rank waits for longer than arguments.timeout_s.
void measure_collectives(const CollectivesArguments& arguments, launch::Session* session,
                         const CollectivesListener& listener);

}  // namespace fsdpbench::app
