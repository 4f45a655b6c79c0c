#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"
#include "config/words/words.h"

namespace fsdpbench::config {

/// Profile used where only a model is named: bf16, gradients reduced in fp32, recomputation.
inline constexpr const char* kTypicalProfile = "llama3-8b-emulated";

/// Reads a run profile (TOML). Later layers win: built-in defaults, presets (model.preset, fsdp.preset), the profile,
/// `overrides` ("key=value", TOML values, bare strings accepted). An explicit key wins over a preset wherever it
/// stands; the config.toml of a result names every key, and there only those that differ from its own preset are
/// explicit. Types and ranges are checked here, key by key, and reported with file and line; rules about several keys
/// are for validate(). Keys in the words of other systems are understood (config/nearest.h), and keys that an
/// override makes meaningless are reset (give_way()); `notes`, unless it is null, gets a sentence on each. A model file
/// is trained as kTypicalProfile says. Throws ConfigError.
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

/// The layers of a configuration, weakest first.
struct Layers {
  RunConfig presets;             ///< the built-in defaults and the presets
  std::vector<Entry> profile;    ///< keys of the file
  std::vector<Entry> overrides;  ///< keys of the command line
};

/// Resets in `config`, which all layers made, what the profile sets and an override makes meaningless: the latency of a
/// link that is turned off, emulation on a GPU, a mesh for other ranks or another strategy. A key of the command
/// line itself is never reset: validate() refuses such a contradiction. Returns a note for each reason, with its keys,
/// and one if the profile sets keys that a preset of the command line would have set.
std::vector<std::string> give_way(RunConfig& config, const Layers& layers);

}  // namespace fsdpbench::config
