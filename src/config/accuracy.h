#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "config/cluster.h"
#include "config/run_config.h"

namespace fsdpbench::config {

/// Errors of the simulation's models against published measurements.
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

/// Efficiency that trainings of one framework reach on a GPU, with one kind of numbers: the median of published rows.
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
  std::string from;       ///< for people: "torchtitan with bf16 on H100 SXM 80 GB (T025, T099)"
  bool measured = false;  ///< it is Cluster::measured: no training has its errors
};

/// Meaning of `simulate.efficiency` on this cluster. "measured": what Cluster::measured says, else the typical one.
/// "auto": the median of all frameworks on its GPU with these numbers, else the typical one. A number that a framework
/// is known to reach there has that framework's errors; any other number those of the typical one, as nothing says that
/// it is right. No group has models with experts, so these have the typical one's errors, too. Throws ConfigError for a
/// framework that is not known there.
EfficiencyUsed efficiency_used(const RunConfig& config, const Cluster& cluster, const Accuracy& accuracy);

/// The file's text, TOML.
std::string to_toml(const Accuracy& accuracy);
/// Throws ConfigError with file, line, key, value and what would be valid; also for another version.
Accuracy read_accuracy(const std::string& path);
/// The file where it lies, read once.
const Accuracy& published_accuracy();
/// Path of that file: in profiles/published of the working folder, of the source tree, or beside the program. Throws
/// ConfigError if there is none.
std::string find_accuracy();

/// Rates that a healthy machine of some fabric reaches, and their source.
struct AcceptanceReference {
  /// "gemm" in TFLOP/s a rank; "memory" in GB/s a rank, read and written; "pair" in GB/s one way; "all_gather" and
  /// "reduce_scatter" in GB/s of bus bandwidth for large messages; "launch" in us, of which less is better.
  std::string figure;
  double value = 0;
  double hop_us = 0;   ///< of the collectives: what a step of the ring takes beside its bytes
  double ceiling = 0;  ///< that the links can carry, or the device can do, at most; 0: not known
  std::string source;

  /// Bandwidth of a collective of so many bytes on so many ranks: `value` is of large messages, and any pays for the
  /// steps of its ring, too.
  double at(double bytes, int ranks) const {
    const double moved = bytes * (ranks - 1) / ranks;
    const double us = hop_us * (ranks - 1) + moved / value * 1e-3;
    return us > 0 ? moved / us * 1e-3 : 0;
  }
};

/// Requirements of `fsdpbench accept`: a file of profiles/acceptance.
struct Acceptance {
  static constexpr int kVersion = 1;

  std::string fabric;                  ///< for people
  std::string run;                     ///< a run profile, whose plan gives the sizes and whose steps are measured
  int ranks = 0;                       ///< that must be there; 0: any number
  int ranks_per_node = 0;              ///< that each node must have; 0: any number
  int nodes = 1;                       ///< that must be there, at least
  int nodes_per_switch = 0;            ///< that share a leaf switch, in the order of ranks; 0: not told
  int matrix = 1024;                   ///< rows and columns of the products that a rank's rate is measured by
  double exposed_pct = 100;            ///< of a step, at most, in which a rank only waits for communication
  double tolerance_pct = 90;           ///< of a reference that must be reached
  double cliff_pct = 15;               ///< that a larger message may carry less than a smaller one, at most
  double scale_pct = 80;               ///< of what a small group of ranks carries that a large one must
  std::vector<std::string> transport;  ///< words, one of which names each way that bytes may take; none: any
  std::int64_t memory_mib = 32;        ///< that a rank copies to measure its memory
  double rated_pct = 50;               ///< of the rules, at least, that must be rated
  std::optional<double> slowdown;      ///< of computation beside communication, at most; absent: not rated
  std::vector<AcceptanceReference> references;  ///< those that are known; none: nothing is rated by a floor

  const AcceptanceReference* find(const std::string& figure) const;
};

/// Reads such a file. Throws ConfigError with file, line, key and what would be valid.
Acceptance read_acceptance(const std::string& path);

}  // namespace fsdpbench::config
