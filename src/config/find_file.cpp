#include "config/find_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/plugin.h"
#include "config/nearest.h"

namespace fsdpbench::config {
namespace {

namespace fs = std::filesystem;

const char* folder_name(FileKind kind) {
  switch (kind) {
    case FileKind::run: return "runs";
    case FileKind::sweep: return "sweeps";
    case FileKind::model: return "models";
    case FileKind::cluster: return "clusters";
    case FileKind::accuracy: return "published";
    case FileKind::acceptance: return "acceptance";
    case FileKind::calibration: break;
  }
  return "calibrations";
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_directory(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// Folders that may hold profiles/, best first.
std::vector<fs::path> roots() { return {".", home_folder()}; }

/// Folders in which a name of this kind is looked up, best first, none of them twice.
std::vector<fs::path> named_folders(FileKind kind) {
  std::vector<fs::path> all;
  for (const fs::path& root : roots()) {
    const fs::path folder = (root / "profiles" / folder_name(kind)).lexically_normal();
    const auto same = [&](const fs::path& other) {
      std::error_code error;
      return other == folder || fs::equivalent(other, folder, error);
    };
    if (std::ranges::none_of(all, same)) all.push_back(folder);
  }
  return all;
}

std::optional<fs::path> with_or_without_suffix(const fs::path& path) {
  const fs::path suffixed = path.string() + ".toml";
  if (is_file(path)) return path;
  return is_file(suffixed) ? std::optional(suffixed) : std::nullopt;
}

/// Also a path that begins at a root, as documents write it: profiles/runs/quickstart.toml.
std::optional<fs::path> find_named(FileKind kind, const std::string& given) {
  if (given.empty()) return std::nullopt;
  if (auto found = with_or_without_suffix(given)) return found;
  for (const fs::path& folder : named_folders(kind)) {
    if (auto found = with_or_without_suffix(folder / given)) return found;
  }
  if (!fs::path(given).is_relative() || *fs::path(given).begin() != "profiles") return std::nullopt;
  for (const fs::path& root : roots()) {
    if (auto found = with_or_without_suffix((root / given).lexically_normal())) return found;
  }
  return std::nullopt;
}

void add_names(const fs::path& folder, std::set<std::string>& names) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    if (file.path().extension() == ".toml") names.insert(file.path().stem().string());
  }
}

std::vector<std::string> known_names(FileKind kind) {
  std::set<std::string> names;
  for (const fs::path& folder : named_folders(kind)) add_names(folder, names);
  return {names.begin(), names.end()};
}

std::vector<std::string> as_text(const std::vector<fs::path>& paths) {
  std::vector<std::string> all;
  for (const fs::path& path : paths) all.push_back(path.string());
  return all;
}

/// "; the nearest is 'a' of a, b, c"; "; there are a, b, c" if none is near.
std::string choices(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string near = nearest_clause(wanted, names);
  return fmt::format("{} {}", near.empty() ? "; there are" : near + " of", fmt::join(names, ", "));
}

/// Nothing by that name: says what has it, or what comes nearest.
[[noreturn]] void throw_unknown(FileKind kind, const std::string& given) {
  const bool run = kind == FileKind::run;
  const char* what = run ? "run profile" : "sweep";
  const FileKind other = run ? FileKind::sweep : FileKind::run;
  if (find_named(other, given)) {
    throw ConfigError(fmt::format("{0}: is a {1}, and a {2} is expected; `fsdpbench {3} {0}` runs it.", given,
                                  run ? "sweep" : "run profile", what, run ? "sweep" : "run"));
  }
  if (find_named(FileKind::model, given)) {
    throw ConfigError(
        fmt::format("{0}: is a model, and a {1} is expected; a profile names it, as in `fsdpbench run quickstart --set "
                    "model.preset={0}`.",
                    given, what));
  }
  const std::vector<std::string> names = known_names(kind);
  const std::string wanted =
      fs::path(given).extension() == ".toml" ? fs::path(given).stem().string() : fs::path(given).filename().string();
  throw ConfigError(fmt::format("{}: there is no such file, and no {} of that name in {}{}.", given, what,
                                fmt::join(as_text(named_folders(kind)), ", "),
                                names.empty() ? "" : choices(wanted, names)));
}

std::string find_one(FileKind kind, const std::string& given, const char* what) {
  if (const auto found = find_named(kind, given)) return found->string();
  const std::vector<std::string> names = known_names(kind);
  throw ConfigError(fmt::format("{}: there is no such file, and no {} of that name{}.", given, what,
                                names.empty() ? fmt::format("; profiles/{} is not to be found", folder_name(kind))
                                              : choices(fs::path(given).filename().string(), names)));
}

}  // namespace

const fs::path& home_folder() {
  static const fs::path kFolder = [] {
    const fs::path above = program_folder().parent_path();
    std::error_code none;
    const fs::path share = fs::canonical(above / "share/fsdpbench", none);
    return share.empty() ? above.parent_path() : share;
  }();
  return kFolder;
}

std::string find_profile(const std::string& given) {
  const fs::path path(given);
  if (is_folder(path) && is_file(path / "config.toml")) return (path / "config.toml").string();
  for (const FileKind kind : {FileKind::run, FileKind::model}) {
    if (const auto found = find_named(kind, given)) return found->string();
  }
  if (!is_folder(path)) throw_unknown(FileKind::run, given);
  if (is_file(path / "sweep.json")) {
    throw ConfigError(
        fmt::format("{}: is the folder of a sweep, which has many configurations; expected a run profile, or the "
                    "folder of one run.",
                    given));
  }
  throw ConfigError(
      fmt::format("{}: is a folder without config.toml; expected a run profile (TOML), its name (one of {}), or a "
                  "folder that `fsdpbench run` wrote.",
                  given, fmt::join(known_names(FileKind::run), ", ")));
}

std::string find_sweep(const std::string& given) {
  if (const auto found = find_named(FileKind::sweep, given)) return found->string();
  if (!is_folder(given)) throw_unknown(FileKind::sweep, given);
  throw ConfigError(fmt::format("{}: is a folder; expected a sweep file (TOML) or its name (one of {}){}.", given,
                                fmt::join(known_names(FileKind::sweep), ", "),
                                is_file(fs::path(given) / "sweep.json")
                                    ? fmt::format("; that file with --out {} continues the sweep in this folder", given)
                                    : ""));
}

std::string find_acceptance(const std::string& given) {
  return find_one(FileKind::acceptance, given, "acceptance profile");
}
std::string find_cluster(const std::string& given) { return find_one(FileKind::cluster, given, "cluster"); }

fs::path find_model(const std::string& preset, const std::string& profile) {
  const fs::path beside = fs::path(profile).parent_path();
  if (preset.ends_with(".toml")) {
    const fs::path given(preset);
    for (const fs::path& path : {beside / given, given}) {
      if (path_exists(path)) return fs::absolute(path).lexically_normal();
    }
    throw ConfigError(
        fmt::format("{}: model.preset = \"{}\": there is no such file beside the profile or here.", profile, preset));
  }
  std::vector<fs::path> folders{beside / "../models", beside / "models"};
  for (fs::path& folder : named_folders(FileKind::model)) folders.push_back(std::move(folder));
  std::set<std::string> known;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / (preset + ".toml");
    if (!preset.empty() && path_exists(path)) return path.lexically_normal();
    add_names(folder, known);
  }
  if (known.empty()) {
    for (fs::path& folder : folders) folder = folder.lexically_normal();
    throw ConfigError(fmt::format("{}: model.preset = \"{}\": no model files in {}.", profile, preset,
                                  fmt::join(as_text(folders), ", ")));
  }
  const std::vector<std::string> names(known.begin(), known.end());
  throw ConfigError(fmt::format("{}: model.preset = \"{}\" is not valid{}; known are {}.", profile, preset,
                                nearest_clause(preset, names), fmt::join(names, ", ")));
}

std::string find_named_file(FileKind kind, const std::string& name) {
  for (const fs::path& folder : named_folders(kind)) {
    if (const auto found = with_or_without_suffix(folder / name)) return found->string();
  }
  return "";
}

std::string profile_name(const std::string& profile) {
  const fs::path path = fs::absolute(profile).lexically_normal();
  return path.filename() == "config.toml" ? path.parent_path().filename().string() : path.stem().string();
}

}  // namespace fsdpbench::config
