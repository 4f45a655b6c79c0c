#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"

namespace fsdpbench::config {

/// Profile used where only a model is named: bf16, gradients reduced in fp32, recomputation.
inline constexpr const char* kTypicalProfile = "llama3-8b-emulated";

/// Reads a run profile (TOML). Later layers win: built-in defaults, presets (model.preset, fsdp.preset), the profile,
/// `overrides` ("key=value", TOML values, bare strings accepted). An explicit key wins over a preset wherever it
/// stands; the config.toml of a result names every key, and there only those that differ from its own preset are
/// explicit. Types and ranges are checked here, key by key, and reported with file and line; rules about several keys
/// are for validate(). Words of other systems are understood (config/aliases.h), and what an override makes meaningless
/// gives way (config/give_way.h); both are said in `notes`, if it is not null. A model file is trained
/// as kTypicalProfile says. Throws ConfigError.
RunConfig load_profile(const std::string& path, const std::vector<std::string>& overrides = {},
                       std::vector<std::string>* notes = nullptr);

/// The keys that the file of a profile or an override names, by their names here; a model's file names none.
std::set<std::string, std::less<>> said_keys(const std::string& path, const std::vector<std::string>& overrides);

/// Keys of `config` as its presets (model.preset, fsdp.preset) and the built-in defaults alone would set them.
/// Reads the model file; where it is not found any more, built-in defaults stand for it.
RunConfig presets_of(const RunConfig& config);

/// One `--set` argument. What is not a TOML value is taken as a string. Throws ConfigError if it is not key=value;
/// whether there is such a key is not looked at.
Entry read_override(const std::string& text);

}  // namespace fsdpbench::config
