#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "replay/uncertainty.h"

namespace fsdpbench::app {

/// How far a prediction is from what was measured, in the words of all who predict: "of a step's ops 12 measured, 3
/// interpolated".
inline std::string reach_text(const replay::ReachCounts& ops) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i] > 0) parts.push_back(fmt::format("{} {}", ops[i], to_string(static_cast<replay::Reach>(i))));
  }
  return fmt::format("of a step's ops {}", fmt::join(parts, ", "));
}

inline nlohmann::json reach_json(const replay::ReachCounts& ops) {
  nlohmann::json j;
  for (std::size_t i = 0; i < ops.size(); ++i) j[std::string(to_string(static_cast<replay::Reach>(i)))] = ops[i];
  return j;
}

}  // namespace fsdpbench::app
