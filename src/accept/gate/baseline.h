#pragma once

#include <string>
#include <vector>

#include "accept/gate/gated_result.h"

namespace fsdpbench::app {

/// Earlier results of one machine that measured the same: what later ones are held against.
struct Baseline {
  std::string name;
  std::vector<GatedResult> results;   ///< at least one
  std::vector<std::string> left_out;  ///< of the folder, each with the reason

  std::vector<accept::ResultFigures> figures() const;
};

/// Baseline meant by `given`: a result, whether it was accepted or not; or a folder of results (files, or folders
/// of their own), of which those count that fit `now` best: of its kind, the same measurement, then the fewest other
/// facts of the machine, and all of one machine, the program apart. A result that was not accepted is left out, unless
/// `now` was not for the same reason; `now` itself, and a copy of a result, count not at all. Throws ConfigError that
/// says what there is instead, also if any result of the folder is damaged.
Baseline find_baseline(const std::string& given, const GatedResult& now);

}  // namespace fsdpbench::app
