#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "dialects/import_source.h"

/// The way back from other systems' words (make_export.h): their settings as keys.
namespace fsdpbench::dialects {

struct ImportFile {
  std::string path;  ///< for messages
  std::string text;
};

/// What some of these systems do not say, but what their words depend on.
struct ImportKnown {
  std::optional<std::int64_t> ranks;
  std::optional<std::int64_t> layers;  ///< of the model, where no file says it
};

/// Later files win. Throws ConfigError for a file of no system that is known, and says which are.
Import make_import(const std::vector<ImportFile>& files, const ImportKnown& known = {});

/// `base` with these keys: first what the preset stands for. Not validated yet. Throws ConfigError if a key does not
/// take its value.
config::RunConfig imported(const Import& import, const config::RunConfig& base);

/// The systems and their files, for help: "torchtitan: TOML, or the arguments of newer versions".
std::vector<std::string_view> import_sources();

}  // namespace fsdpbench::dialects
