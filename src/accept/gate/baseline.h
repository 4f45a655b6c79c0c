#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "accept/gate/gated_result.h"

namespace fsdpbench::app {

/// Raised on every change of baseline files that a reader must know of. No other version is read.
inline constexpr int kBaselineSchemaVersion = 3;

/// Results of one machine that measured the same, accepted, in the order in which they were added. One file.
struct Baseline {
  std::filesystem::path path;
  std::vector<GatedResult> results;  ///< at least one, unless it is new

  /// "acceptance-1f2e3d4c": what the file is called.
  std::string name() const { return path.stem().string(); }
  std::vector<accept::ResultFigures> figures() const;
};

/// Reads a baseline file. Throws ConfigError that names file and key.
Baseline read_baseline(const std::filesystem::path& path);

/// All of a folder, by name; none if the folder is not there. Throws as read_baseline().
std::vector<Baseline> read_baselines(const std::filesystem::path& folder);

/// Adds `result` to the file in `folder` whose results are of the same kind, machine (program apart) and measurement,
/// or to a new one, and writes it. Throws ConfigError if that file has this result already, or the result was not
/// accepted and nobody said why to keep it anyway; OutputError, also if another process has kept the folder to itself
/// for longer than `patience`.
Baseline add_to_baseline(const std::filesystem::path& folder, GatedResult result,
                         std::chrono::seconds patience = std::chrono::seconds(30));

/// What a person means by `given`: a baseline file; the name of one in baselines/; a folder of them, of which the one
/// that fits `result` best is taken (of its kind, the same measurement, then the fewest other facts of the machine); or
/// a result, which then is a baseline of one, whether it was accepted or not. Throws ConfigError that says what there
/// is instead.
Baseline find_baseline(const std::string& given, const GatedResult& result);

/// Where baselines are kept unless somebody says otherwise: in the working folder, to be committed beside the profiles.
inline constexpr const char* kBaselineFolder = "baselines";

/// What `show` prints: who is in it, and each figure with its interval and what was left out.
std::string baseline_text(const Baseline& baseline);
/// A line a baseline.
std::string baselines_table(const std::vector<Baseline>& baselines);

const ObjectFacts& baseline_file_facts();

}  // namespace fsdpbench::app
