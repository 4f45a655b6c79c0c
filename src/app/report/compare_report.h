#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/experiment/trial.h"
#include "metrics/compare.h"

namespace fsdpbench::app {

/// What the trials of one side gave, in the order in which they ran.
struct ComparedSide {
  std::string name;           ///< as the user wrote it: profile and overrides
  nlohmann::json config;      ///< resolved
  std::vector<Trial> trials;  ///< each with metrics

  /// Step times in milliseconds, by trial.
  std::vector<std::vector<double>> steps() const;
};

/// The verdict in one sentence: "B is 5.2 % slower than A (98 % interval: 4.1 % to 6.3 % slower) …".
std::string verdict_sentence(const metrics::Comparison& comparison, double threshold);

/// "A = …, B = …", medians, parts of the step, memory, and the verdict.
std::string compare_table(const ComparedSide& a, const ComparedSide& b, const metrics::Comparison& comparison,
                          double threshold);

/// The content of compare.json (docs/compare.md).
nlohmann::json compare_json(const ComparedSide& a, const ComparedSide& b, const metrics::Comparison& comparison,
                            double threshold);

}  // namespace fsdpbench::app
