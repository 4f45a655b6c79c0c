#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "record/json_fields.h"
#include "runs/sweep_grid.h"
#include "runs/trial_log.h"

namespace fsdpbench::app {

/// The content of sweep.json (docs/result-format.md) from the trials done so far. If a trial has several records (a
/// failed cell was tried again), the last counts; trials of unknown cells do not.
nlohmann::json sweep_json(const SweepGrid& grid, const std::vector<LoggedTrial>& trials);

const ObjectFacts& sweep_file_facts();

/// Table of what sweep_json() gave, one line per cell.
std::string sweep_table(const nlohmann::json& sweep);

}  // namespace fsdpbench::app
