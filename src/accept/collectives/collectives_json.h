#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_row.h"
#include "record/json_fields.h"
#include "runs/world.h"

namespace fsdpbench::app {

/// Summary of a table of rows: the last lines of nccl-tests.
struct TableEnd {
  std::int64_t wrong = 0;       ///< elements
  double bus_gb_per_s_sum = 0;  ///< of all timings
  int timings = 0;
  std::optional<double> least_gb_per_s;  ///< the average must reach 0.9 of it; absent: any will do

  void add(const CollectiveRow& row);
  double average_gb_per_s() const { return timings > 0 ? bus_gb_per_s_sum / timings : 0; }
  bool fast_enough() const { return !least_gb_per_s || average_gb_per_s() >= 0.9 * *least_gb_per_s; }
};

/// nccl-tests' output, line by line: comments begin with '#', columns are separated by spaces, and the last lines are
/// what the tools around it read. All end in newlines.
std::string nccl_header(const CollectivesArguments& arguments, backend::Collective op, int ranks,
                        const std::vector<World::RankPlace>& places, const std::string& processor);
std::string nccl_row(const CollectivesArguments& arguments, const CollectiveRow& row);
std::string nccl_footer(const TableEnd& end, backend::Collective op);

/// Who slows whom: a matrix a size.
std::string beside_table(const BesideRow& row);

/// Measured table of one operation.
struct CollectivesTable {
  backend::Collective op = backend::Collective::all_gather;
  std::vector<CollectiveRow> rows;
  TableEnd end;
};

/// One row with both halves and all times.
template <>
Fields<CollectiveRow> declared();

/// Everything, for programs (docs/result-format.md).
nlohmann::json collectives_json(const CollectivesArguments& arguments, const World& world,
                                const std::vector<CollectivesTable>& tables, const std::vector<BesideRow>& beside);
const ObjectFacts& collectives_file_facts();

}  // namespace fsdpbench::app
