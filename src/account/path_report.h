#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "account/critical_path.h"
#include "account/run_view.h"
#include "base/enum_table.h"
#include "plan/plan.h"

namespace fsdpbench::account {

/// What one rank has of the critical path: a mean over steps.
struct PathRank {
  int rank = 0;  ///< its number
  double ms = 0, share_pct = 0;
  EnumTable<PathKind, double> kinds_ms;
};

/// Neighbours on the path of one step that are of one rank and kind.
struct PathSegment {
  int rank = 0;
  PathKind kind = PathKind::unknown;
  double begin_us = 0, us = 0;  ///< since the step began, and how long
  std::size_t parts = 0;
  std::string row;  ///< the op or the row of a trace that has most of it, or began after it; empty: none
};

/// The critical path of a run or a job, as answers have it.
struct PathReport {
  std::vector<PathRank> ranks;        ///< the most first
  std::int64_t step = 0;              ///< number of the step of median length, which `segments` are of
  std::vector<PathSegment> segments;  ///< in order of time; together exactly that step
};

/// `sums`: of the paths of `steps` steps (add_path). `median`: the path of step `step`. `rank_at`: the number of the rank
/// in a place. `name_of`: of an op of a rank's step, by place and op.
PathReport report_path(const std::vector<PathOfRank>& sums, std::size_t steps, const CriticalPath& median,
                       std::int64_t step, const std::function<int(int)>& rank_at,
                       const std::function<std::string(int, int)>& name_of);

/// The same for a run, over all its measured steps, of which there must be one. The run's schedules were made of `plan`.
PathReport report_path(const RunView& run, const plan::Plan& plan);

}  // namespace fsdpbench::account
