#include "config/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/paths.h"
#include "config/default_folders.h"
#include "config/fields.h"
#include "config/read_entries.h"

namespace fsdpbench::config {
namespace {

namespace fs = std::filesystem;

/// What the two systems do unless told otherwise. Both gather in order of use and prefetch one unit in backward.
std::vector<Entry> fsdp_preset(std::string_view name) {
  const auto text = [](const char* key, const char* value) {
    return Entry{key, std::string(value), "fsdp.preset", {}};
  };
  const bool first = name == "fsdp1";
  return {text("fsdp.layout", first ? "flat" : "per_param"),
          text("fsdp.forward_prefetch", "implicit"),
          {"fsdp.learn_execution_order", first, "fsdp.preset", {}},
          text("fsdp.backward_prefetch", "pre"),
          text("fsdp.all_gather_limit", first ? "fsdp1_queue:2" : "fsdp2_event"),
          {"fsdp.reduce_scatter_buffers", std::int64_t{first ? 0 : 1}, "fsdp.preset", {}},
          text("fsdp.gradient_scaling", first ? "pre_post_divide" : "average")};
}

void take(RunConfig& config, const Entry& entry) {
  const Field* field = find_field(entry.name);
  if (field == nullptr) {
    throw ConfigError(fmt::format("{}: unknown key '{}'; the nearest valid key is '{}'.", entry.place, entry.name,
                                  nearest_field(entry.name)));
  }
  if (field->read(config, entry.value)) return;
  // `--set data.path=1984` means the folder, not the number.
  if (!entry.raw.empty() && field->read(config, Value(entry.raw))) return;
  throw ConfigError(fmt::format("{}: {} = {} is not valid; expected {}.", entry.place, entry.name, to_toml(entry.value),
                                field->valid));
}

void take(RunConfig& config, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) take(config, entry);
}

/// Takes the presets' own names out of the layers above them; the last mention wins.
RunConfig preset_names(const std::vector<Entry>& profile, const std::vector<Entry>& overrides) {
  RunConfig names;
  for (const std::vector<Entry>* layer : {&profile, &overrides}) {
    for (const Entry& entry : *layer) {
      if (entry.name == "model.preset" || entry.name == "fsdp.preset") take(names, entry);
    }
  }
  return names;
}

fs::path find_model(const std::string& preset, const std::string& profile) {
  if (preset.ends_with(".toml")) {
    const fs::path given(preset);
    for (const fs::path& path : {fs::path(profile).parent_path() / given, given}) {
      if (path_exists(path)) return fs::absolute(path).lexically_normal();
    }
    throw ConfigError(
        fmt::format("{}: model.preset = \"{}\": there is no such file beside the profile or here.", profile, preset));
  }
  std::set<std::string> known;
  std::vector<std::string> looked;
  for (const fs::path& folder : model_folders(profile)) {
    const fs::path path = folder / (preset + ".toml");
    if (!preset.empty() && path_exists(path)) return path.lexically_normal();
    looked.push_back(folder.lexically_normal().string());
    std::error_code error;
    for (const auto& file : fs::directory_iterator(folder, error)) {
      if (file.path().extension() == ".toml") known.insert(file.path().stem().string());
    }
  }
  if (known.empty()) {
    throw ConfigError(
        fmt::format("{}: model.preset = \"{}\": no model files in {}.", profile, preset, fmt::join(looked, ", ")));
  }
  throw ConfigError(
      fmt::format("{}: model.preset = \"{}\" is not valid; known are {}.", profile, preset, fmt::join(known, ", ")));
}

std::vector<Entry> model_preset(const fs::path& path) {
  std::vector<Entry> entries = read_file(path.string());
  for (const Entry& entry : entries) {
    if (!entry.name.starts_with("model.") || entry.name == "model.preset") {
      throw ConfigError(fmt::format("{}: '{}' has no place in a model file: only keys of [model] (but preset) have.",
                                    entry.place, entry.name));
    }
  }
  return entries;
}

}  // namespace

std::vector<fs::path> model_folders(const fs::path& profile) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders{profile.parent_path() / "../models", profile.parent_path() / "models",
                                fs::path(kSourceFolder) / "profiles/models"};
  if (!program.empty()) folders.push_back(program / "../../profiles/models");
  return folders;
}

RunConfig load_profile(const std::string& path, const std::vector<std::string>& overrides) {
  const std::vector<Entry> profile = read_file(path);
  std::vector<Entry> set;
  for (const std::string& text : overrides) set.push_back(read_override(text));
  const RunConfig names = preset_names(profile, set);

  RunConfig config;
  const fs::path model = find_model(names.model.preset, path);
  take(config, model_preset(model));
  take(config, fsdp_preset(names.fsdp.preset));
  take(config, profile);
  take(config, set);
  // A path is kept absolute: the resolved configuration is read back from another folder.
  if (config.model.preset.ends_with(".toml")) config.model.preset = model.string();
  return config;
}

}  // namespace fsdpbench::config
