#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::config {

/// What a healthy machine of some fabric reaches, and where that is written.
struct AcceptanceReference {
  /// "gemm" in TFLOP/s a rank; "memory" in GB/s a rank, read and written; "pair" in GB/s one way; "all_gather" and
  /// "reduce_scatter" in GB/s of bus bandwidth for large messages; "host_memory" in GB/s a rank, read and written by
  /// the processors; "host_to_device" and "device_to_host" in GB/s a rank; "launch" in us, of which less is better.
  std::string figure;
  double value = 0;
  double hop_us = 0;   ///< of the collectives: what a step of the ring takes beside its bytes
  double ceiling = 0;  ///< that the links can carry, or the device can do, at most; 0: not known
  std::string source;
};

/// What `fsdpbench accept` asks of a machine: a file of profiles/acceptance.
struct Acceptance {
  static constexpr int kVersion = 1;

  std::string fabric;                   ///< for people
  std::string run;                      ///< a run profile, whose plan gives the sizes and whose steps are measured
  int ranks = 0;                        ///< that must be there; 0: any number
  int ranks_per_node = 0;               ///< that each node must have; 0: any number
  int nodes = 1;                        ///< that must be there, at least
  int nodes_per_switch = 0;             ///< that share a leaf switch, in the order of ranks; 0: not told
  std::string topology;                 ///< a file of Slurm's topology or of Kubernetes' nodes; empty: none
  std::string node_topology;            ///< a file of NCCL's or hwloc's topology of a node; empty: none
  int matrix = 1024;                    ///< rows and columns of the products that a rank's rate is measured by
  double exposed_pct = 100;             ///< of a step, at most, in which a rank only waits for communication
  double tolerance_pct = 90;            ///< of a reference that must be reached
  double cliff_pct = 15;                ///< that a larger message may carry less than a smaller one, at most
  double scale_pct = 80;                ///< of what a small group of ranks carries that a large one must
  std::vector<std::string> transport;   ///< words, one of which names each way that bytes may take; none: any
  std::int64_t memory_mib = 32;         ///< that a rank copies to measure its memory
  std::optional<double> slowdown;       ///< of computation beside communication, at most; absent: not rated
  std::optional<double> explained_pct;  ///< of a step, at least, that follows from its parts; absent: not rated
  std::vector<AcceptanceReference> references;  ///< those that are known; none: nothing is rated by a floor

  const AcceptanceReference* find(const std::string& figure) const;
};

/// Reads such a file. Throws ConfigError with file, line, key and what would be valid.
Acceptance read_acceptance(const std::string& path);

}  // namespace fsdpbench::config
