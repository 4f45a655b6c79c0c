#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/collective_use.h"
#include "foreign/job_steps.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

/// Launches of a host in a step that FSDP's order consists of: collectives, and computation between them.
struct LaunchToken {
  enum class What : std::uint8_t { computation, gather, reduce, replicate, exchange };
  What what = What::computation;
  int unit = -1;           ///< of the plan: 0 the root, then in forward order, then experts; of computation -1
  int begin = 0, end = 0;  ///< places in JobStep::device, or ops of the schedule; of a run of computation all of it
  bool same_as(const LaunchToken& other) const { return what == other.what && unit == other.unit; }
};

/// The order in a step of a trace. `compute_stream`: only what it computes counts, without copies between layouts; nor
/// does what the optimizer does. `units`: false leaves all units -1.
std::vector<LaunchToken> launch_order(const RankRows& rank, const JobStep& step, const std::vector<CollectiveUse>& uses,
                                      const UnitTable& table, int compute_stream, bool units);
/// The order in a schedule. `root`: false leaves out what the root gathers, reduces and computes, for a training that
/// has none.
std::vector<LaunchToken> launch_order(const schedule::Schedule& schedule, bool root, bool units);

/// Which unit of the table unit `unit` of the plan is: the other way round. -1: none.
int table_unit(const UnitTable& table, int unit);
/// Which unit of the plan `unit` of the table is: 0 is the root.
int plan_unit(const UnitTable& table, int unit);

/// Difference of two orders. A collective more or less costs 1, a run of computation more or less a quarter.
struct OrderDifference {
  double distance = 0;
  /// The k-th token of one is that of the other; -1: it has none.
  std::vector<int> to_other;
};
OrderDifference compare_orders(const std::vector<LaunchToken>& one, const std::vector<LaunchToken>& other);

/// "AG3", "RSR", "AGE3": as schedule::collective_order() has it; of computation "compute". `modules`: units that have
/// modules, the root among them; those behind them are experts.
std::string token_name(const LaunchToken& token, int modules = std::numeric_limits<int>::max());

}  // namespace fsdpbench::foreign
