#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace fsdpbench::bench {

/// A published figure and what the model says of it.
struct Prediction {
  std::string id;     ///< of the row
  std::string group;  ///< rows that one median is taken of
  std::string what;   ///< for people: what was measured on what
  double published = 0;
  double predicted = 0;
  std::string how;            ///< what the model took: an algorithm, a limit
  std::string calibrates;     ///< not empty: a figure of the model was set by this row, so it is no prediction
  std::string assumed;        ///< what the source does not state and was assumed
  bool in_domain = true;      ///< of the size that the goal speaks of
  std::string not_predicted;  ///< not empty: why there is no prediction; then predicted is 0
  std::string source;
  std::string note;

  /// Relative: +0.1 is 10 % too much.
  double error() const { return predicted / published - 1; }
  bool counts() const { return in_domain && calibrates.empty() && not_predicted.empty(); }
};

using Predictions = std::vector<Prediction>;

/// Every row of profiles/published/collectives.csv, or of another file of that form. Throws ConfigError that names the
/// line.
Predictions predict_collectives(const std::string& path);

/// Every row of profiles/published/training.csv, or of another file of that form: tokens a second and rank. Rows that
/// calibrate set the efficiency of their group first, wherever they stand. Throws ConfigError that names the line.
Predictions predict_training(const std::string& path);

/// As a table with errors row by row, then medians: of what counts, of what counts and states everything, and by group.
void print(const Predictions& rows, const char* title, const char* unit);

/// As CSV with the same numbers. Throws OutputError.
void write_csv(const Predictions& rows, const std::string& path);

}  // namespace fsdpbench::bench
