#pragma once

#include <filesystem>
#include <string>

#include "app/report/result_json.h"

namespace fsdpbench::app {

/// One line before a run: model, ranks, strategy, what is emulated.
std::string run_headline(const engine::Setup& setup);

/// What a person reads after a run, ending with the paths of the files.
std::string run_table(const RunReport& report, const std::filesystem::path& folder);

}  // namespace fsdpbench::app
