#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// Adds one line of fsdpbench.torch.step(), which writes one per rank and step where FSDPBENCH_WATCH names a folder.
/// Returns why it is none; empty: it is added.
std::string add_step_line(JobView& job, const nlohmann::json& line);

bool is_step_line(const nlohmann::json& line);

}  // namespace fsdpbench::watch
