#pragma once

#include <string>
#include <vector>

namespace fsdpbench::config {

/// How published measurements lie about what the models of simulation say of them.
struct AccuracyRows {
  std::vector<double> time_ratios;    ///< what was measured over what is predicted, row by row, ascending
  std::vector<std::string> clusters;  ///< of profiles/clusters, that the rows are of
  int least_ranks = 1, most_ranks = 1;
  double least_bytes = 0, most_bytes = 0;  ///< of collectives
};

/// profiles/published/accuracy.toml, which bench_published writes: the only home of these figures.
struct Accuracy {
  static constexpr int kVersion = 1;
  AccuracyRows training;  ///< by the efficiency of a row's group; steps, which are computation for the most part
  AccuracyRows typical_training;   ///< of all rows by replay::kTypicalEfficiency, as for those who know none
  AccuracyRows collectives;        ///< from 32 MiB
  AccuracyRows small_collectives;  ///< below
};

/// The file's text, TOML.
std::string to_toml(const Accuracy& accuracy);
/// Throws ConfigError with file, line, key, value and what would be valid; also for another version.
Accuracy read_accuracy(const std::string& path);
/// Where it lies: profiles/published of the working folder, of the source tree, or beside the program. Throws
/// ConfigError if there is none.
std::string find_accuracy();

}  // namespace fsdpbench::config
