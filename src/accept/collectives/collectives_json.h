#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "accept/collectives/beside.h"
#include "accept/collectives/collective_row.h"
#include "accept/collectives/nccl_table.h"
#include "record/json_fields.h"
#include "runs/world.h"

namespace fsdpbench::app {

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
