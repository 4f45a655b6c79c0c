#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// Adds one line of NCCL's Inspector (plugins/profiler/inspector/inspector_json.cc, output format v4.0). Returns why it
/// is none; empty: it is added. Ranks are those of the communicator: the Inspector tells no others. Lines of sends and
/// receives are accepted and not kept: what one takes depends on the pipeline around it.
std::string add_inspector_line(JobView& job, const nlohmann::json& line);

bool is_inspector_line(const nlohmann::json& line);

}  // namespace fsdpbench::watch
