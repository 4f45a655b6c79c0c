#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

/// Reads a run profile (TOML). Later layers win: built-in defaults, presets (model.preset, fsdp.preset), the profile,
/// `overrides` ("key=value", TOML values, bare strings accepted). An explicit key wins over a preset wherever it
/// stands. Types and ranges are checked here, key by key, and reported with file and line; rules about several keys
/// are for validate(). Throws ConfigError.
RunConfig load_profile(const std::string& path, const std::vector<std::string>& overrides = {});

/// Folders in which a model preset is looked up, best first: beside the profile, in the source tree, beside the
/// program.
std::vector<std::filesystem::path> model_folders(const std::filesystem::path& profile);

}  // namespace fsdpbench::config
