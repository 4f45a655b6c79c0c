#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "account/run_view.h"
#include "account/step_view.h"
#include "base/enum_table.h"
#include "base/intervals.h"
#include "plan/plan.h"

namespace fsdpbench::account {

/// Kind of a part of the critical path.
enum class PathKind : std::uint8_t {
  kernels,      ///< computation
  collectives,  ///< from the arrival of the last rank to the end
  copies,
  host,     ///< the host had not issued what runs next, or updated state itself
  waits,    ///< for a rank that is not in view, or for a core
  unknown,  ///< nothing tells what was waited for
};
std::string_view to_string(PathKind kind);

struct PathPart {
  int place = 0;  ///< of the rank, among those in view
  Interval time;  ///< on the clock that ranks share
  PathKind kind = PathKind::unknown;
  int op = -1;  ///< of that rank's step, which ran or began afterwards; -1: none
};

/// The chain of what decided how long a step was. Parts are in order of time and adjoin: together they are exactly the
/// step of the rank in `place`.
struct CriticalPath {
  int place = 0;
  Interval step;
  std::vector<PathPart> parts;
};

/// One step of all ranks, as the path asks for it. Ranks are places among those in view.
class PathStep {
 public:
  struct At {
    int place = -1;  ///< -1: it is not in view
    int op = -1;
  };
  /// Moment at which the host last stopped waiting before it issued an op, and the op that it had waited for (-1: for
  /// none).
  struct Release {
    int op = -1;
    std::int64_t at_ns = 0;
  };
  virtual ~PathStep() = default;
  /// The rank whose step is explained.
  virtual int slowest() const = 0;
  /// Called only for ranks that the path visits; must stay valid.
  virtual const StepView& view(int place) const = 0;
  /// To be added to a rank's times.
  virtual std::int64_t offset_ns(int place) const = 0;
  /// Who came last to a collective of `at`, and its op there.
  virtual At last_to_arrive(const At& at) const = 0;
  /// When the host had issued the op at the latest.
  virtual std::int64_t issued_until(const At& at) const = 0;
  /// Before it issued op `at.op`, or all of the step's if that is the view's size. In the time of the rank.
  virtual Release released(const At& at) const = 0;
  /// Kind of the time after all that is known to have held an op back was over, and it had not begun.
  virtual PathKind gap(const At& at) const = 0;
};

/// [Note: the critical path]
/// It is walked backwards from the end of the step. What ran last is on it; before that what held it back longest: the
/// op before it on its lane or its communicator, an event, or the host, who issued it late. All of the host is
/// on the path back to the moment at which it last stopped waiting for an op of the device, which is next. A collective
/// can move bytes only when its last rank is there, so the path goes to that rank. It ends where the step of the first
/// rank began; what another rank did before its own step is unknown. Constraints are those of find_stalls().
CriticalPath find_critical_path(const PathStep& step);

/// The path of a recorded step.
CriticalPath find_critical_path(const StepRecords& step, const plan::Groups& groups);

/// Parts of a path, or of several, by rank.
struct PathOfRank {
  int place = 0;
  EnumTable<PathKind, std::int64_t> ns;
  std::int64_t all() const;
};
/// Adds a path to the sums, which are sorted by their time, the most first.
void add_path(const CriticalPath& path, std::vector<PathOfRank>& sums);

/// One rank's share of the critical path: a mean over steps.
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

/// `sums`: of the paths of `steps` steps (add_path). `median`: the path of step `step`. `rank_at`: the number of the
/// rank in a place. `name_of`: of an op of a rank's step, by place and op.
PathReport report_path(const std::vector<PathOfRank>& sums, std::size_t steps, const CriticalPath& median,
                       std::int64_t step, const std::function<int(int)>& rank_at,
                       const std::function<std::string(int, int)>& name_of);

/// Critical paths of all measured steps of a run, of which there must be one. The run's schedules were made of
/// `plan`.
PathReport report_path(const RunView& run, const plan::Plan& plan);

}  // namespace fsdpbench::account
