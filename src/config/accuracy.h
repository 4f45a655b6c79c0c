#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "config/cluster.h"
#include "config/run_config.h"

namespace fsdpbench::config {

/// How published measurements lie about what the models of simulation say of them.
struct AccuracyRows {
  std::vector<double> time_ratios;    ///< what was measured over what is predicted, row by row, ascending
  std::vector<std::string> sources;   ///< of each, in the same order: rows of one source err together
  std::vector<std::string> clusters;  ///< of profiles/clusters, that the rows are of
  int least_ranks = 1, most_ranks = 1;
  double least_bytes = 0, most_bytes = 0;    ///< of collectives
  double least_tokens = 0, most_tokens = 0;  ///< of trainings: a rank and microbatch

  int distinct_sources() const;
};

/// Kinds of errors, each with rows of its own.
enum class ErrorKind : std::uint8_t {
  framework,      ///< trainings by the efficiency of others on this GPU, with these numbers and this framework
  gpu,            ///< trainings by that of other frameworks on this GPU, with these numbers
  typical,        ///< trainings by the typical efficiency
  in_node,        ///< collectives of at least Accuracy::kLargeBytes within a node
  between_nodes,  ///< the same of several nodes
  small,          ///< smaller collectives
};
std::string_view to_string(ErrorKind kind);

/// What trainings of one framework reach on a GPU, with one kind of numbers: the median of published rows.
struct KnownEfficiency {
  std::string gpu, numbers, framework;  ///< as ClusterGpu::name; "bf16", "fp8"; the family of profiles/published
  double value = 0;
  std::vector<std::string> rows;  ///< that say it
};

/// profiles/published/accuracy.toml, which bench_published writes: the only home of these figures.
struct Accuracy {
  static constexpr int kVersion = 2;
  static constexpr double kLargeBytes = 32.0 * (1 << 20);  ///< of the full tensor: a collective where rates count most

  EnumTable<ErrorKind, AccuracyRows> rows;
  std::vector<KnownEfficiency> efficiencies;  ///< by GPU, numbers and framework
};

/// The median of efficiencies, at least one; of an even count the geometric mean of the two in the middle.
double median_efficiency(const std::vector<double>& efficiencies);

/// The efficiency of a training, and how far off a prediction by it is.
struct EfficiencyUsed {
  double value = 0;
  ErrorKind kind = ErrorKind::typical;
  std::string from;  ///< for people: "torchtitan with bf16 on H100 SXM 80 GB (T025, T099)"
};

/// What `simulate.efficiency` means on this cluster. "auto": the median of all frameworks on its GPU with these
/// numbers, else the typical one. A number that a framework is known to reach there has that framework's errors; any
/// other number those of the typical one, as nothing says that it is right. No group has models with experts, so these
/// have the typical one's errors, too. Throws ConfigError for a framework that is not known there.
EfficiencyUsed efficiency_used(const RunConfig& config, const Cluster& cluster, const Accuracy& accuracy);

/// The file's text, TOML.
std::string to_toml(const Accuracy& accuracy);
/// Throws ConfigError with file, line, key, value and what would be valid; also for another version.
Accuracy read_accuracy(const std::string& path);
/// The file where it lies, read once.
const Accuracy& published_accuracy();
/// Where it lies: profiles/published of the working folder, of the source tree, or beside the program. Throws
/// ConfigError if there is none.
std::string find_accuracy();

}  // namespace fsdpbench::config
