#include "accept/gate/baseline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/file_lock.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

bool is_result_folder(const fs::path& folder) {
  return path_exists(folder / "result.json") || path_exists(folder / "sweep.json");
}

/// By name: each folder that holds a result, and each JSON file.
std::vector<GatedResult> results_in(const fs::path& folder) {
  std::set<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool file = entry.path().extension() == ".json" && !entry.is_directory(error);
    if (file || is_result_folder(entry.path())) paths.insert(entry.path());
  }
  std::vector<GatedResult> all;
  for (const fs::path& path : paths) all.push_back(read_gated_result(path.string()));
  return all;
}

/// Distance of a result from the same measurement and machine.
std::tuple<bool, std::ptrdiff_t, std::ptrdiff_t> distance(const GatedResult& a, const GatedResult& b) {
  const auto all = differences(a.machine, b.machine);
  return {a.measured != b.measured, std::ranges::count(all, MachinePrint::Part::hardware, &MachineDifference::part),
          std::ranges::count(all, MachinePrint::Part::software, &MachineDifference::part)};
}

}  // namespace

std::vector<accept::ResultFigures> Baseline::figures() const {
  std::vector<accept::ResultFigures> all;
  for (const GatedResult& result : results) all.push_back(result.figures);
  return all;
}

Baseline find_baseline(const std::string& given, const GatedResult& now) {
  std::error_code error;
  if (!fs::is_directory(given, error) || is_result_folder(given)) {
    const GatedResult alone = read_gated_result(given);
    return {alone.name, {alone}, {}};
  }
  std::vector<GatedResult> all = results_in(given);
  if (all.empty())
    throw ConfigError(fmt::format(
        "{}: holds no result; expected folders or files of results, as `fsdpbench run` writes them.", given));
  std::set<std::string> kinds, seen{now.digest};
  std::erase_if(all, [&](const GatedResult& result) {
    kinds.insert(result.kind);
    return result.kind != now.kind || !seen.insert(result.digest).second;
  });
  if (all.empty() && kinds.contains(now.kind)) {
    throw ConfigError(fmt::format("{}: each result of its kind ({}) there is {} itself.", given, now.kind, now.name));
  }
  if (all.empty()) {
    throw ConfigError(fmt::format("{}: no other result there is of a{} {}, as {} is; there are results of: {}.", given,
                                  now.kind.starts_with('a') ? "n" : "", now.kind, now.name, fmt::join(kinds, ", ")));
  }
  const GatedResult nearest =
      *std::ranges::min_element(all, {}, [&](const GatedResult& result) { return distance(result, now); });
  Baseline baseline{fs::weakly_canonical(given, error).filename().string(), {}, {}};
  for (GatedResult& result : all) {
    if (distance(result, nearest) != std::tuple(false, 0, 0)) continue;
    const std::string& why = result.not_accepted_because;
    if (why.empty() || why == now.not_accepted_because) {
      baseline.results.push_back(std::move(result));
    } else {
      baseline.left_out.push_back(fmt::format("{} was not accepted: {}", result.name, why));
    }
  }
  if (baseline.results.empty()) {
    throw ConfigError(fmt::format("{}: no result there was accepted: {}.", given, fmt::join(baseline.left_out, "; ")));
  }
  return baseline;
}

}  // namespace fsdpbench::app
