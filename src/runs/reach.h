#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "clock/uncertainty.h"

namespace fsdpbench::app {

/// How far a prediction is from what was measured, in the words of all who predict: "of a step's ops 12 measured, 3
/// interpolated".
inline std::string reach_text(const clock::ReachCounts& ops) {
  std::vector<std::string> parts;
  for (const clock::Reach reach : kEnumerators<clock::Reach>) {
    if (ops[reach] > 0) parts.push_back(fmt::format("{} {}", ops[reach], to_string(reach)));
  }
  return fmt::format("of a step's ops {}", fmt::join(parts, ", "));
}

}  // namespace fsdpbench::app
