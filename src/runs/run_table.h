#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "clock/forecast.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Reach of a prediction beyond what was measured, in the words of all who predict: "of a step's ops 12 measured, 3
/// interpolated".
inline std::string reach_text(const clock::ReachCounts& ops) {
  std::vector<std::string> parts;
  for (const clock::Reach reach : kEnumerators<clock::Reach>) {
    if (ops[reach] > 0) parts.push_back(fmt::format("{} {}", ops[reach], to_string(reach)));
  }
  return fmt::format("of a step's ops {}", fmt::join(parts, ", "));
}

/// Name of the model: the name of its file; of a model of another kind or width than the file's, as an imported
/// one is, what it is.
std::string model_text(const config::RunConfig& config);

/// One line before a run: model, ranks, strategy, what is emulated.
std::string run_headline(const engine::Setup& setup);
/// Counts of a simulated memory, with the keys that would change them.
std::string memory_basis(const config::RunConfig& config);

/// Table that is printed after a trial, ending with the paths of the files in `folder`.
std::string run_table(const engine::Setup& setup, const Trial& trial, const std::filesystem::path& folder);

}  // namespace fsdpbench::app
