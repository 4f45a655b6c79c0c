#pragma once

#include <filesystem>

namespace fsdpbench::app {

/// The project's own sources and docs: what a run trains on when data.path is not set.
std::filesystem::path default_data_path();

}  // namespace fsdpbench::app
