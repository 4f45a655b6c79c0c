#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/cluster.h"
#include "foreign/job_trace.h"
#include "foreign/xla_module.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

/// A collective with its place in the program.
struct PlacedCollective {
  HloCollective facts;
  std::string name;         ///< of the instruction
  std::string label{};      ///< in the order: "AG3"
  std::string parameter{};  ///< of the program, of which it gathers a shard: "params[0]['up']"; "" if none is found
  std::string path;         ///< op_name: the line of the program that it was made for
  std::int64_t times = 1;   ///< in an execution
  int depth = 0;            ///< loops around it
  std::int64_t ranks = -1;  ///< of its group; -1: not told
  int products = 0, kernels = 0, collectives = 0;  ///< between its start and its end
  bool first = false;                              ///< no product is before it in its computation
  bool sliced = false;                             ///< an all-reduce of which only a slice is used
  double seconds = 0, exposed_seconds = 0;         ///< of all times, on a cluster; 0 without one

  std::optional<schedule::Phase> phase() const { return phase_of_path(path); }
  /// The whole tensor: what is gathered, or what is reduced.
  std::int64_t bytes() const { return std::max(facts.bytes_in, facts.bytes_out); }
};

struct PlacedLoop {
  std::string name;
  int depth = 0;           ///< loops around it
  std::int64_t trips = 1;  ///< -1: not told
  bool doubled = false;    ///< two iterations of the source are one
};

/// Communication of a compiled program, in the order of its launches.
struct HloProgram {
  std::string name;
  bool scheduled = false;
  std::int64_t devices = 1;
  std::vector<PlacedCollective> collectives{};
  std::vector<PlacedLoop> loops{};
  std::vector<std::string> order{};         ///< a line for each computation: "loop x4: +AG0 G -AG0 …"
  std::vector<std::string> advice{};        ///< sentences with the flag or PartitionSpec that changes something
  double seconds = 0, compute_seconds = 0;  ///< of an execution, on a cluster
};

/// `cluster`: times are computed for it. Throws ConfigError: its GPUs are fewer than the program's devices.
///
/// [Note: times of a compiled program]
/// Instructions begin in the order of the text. A kernel takes its matrix product's FLOP at the rate of the GPU's best,
/// or its operands' and results' bytes at that of the memory, whichever is longer. An asynchronous collective begins
/// when the one before it is done, and holds up only its -done; all others hold up everything.
HloProgram place_collectives(const HloModule& module, const config::Cluster* cluster = nullptr);

/// Reads a module of a file, gzipped or not: text of XLA, an HloModuleProto, or the largest module in an xplane.pb.
/// Throws ConfigError, which does not name the file.
HloModule read_hlo(const std::string& path);

/// XLA's flag for gathers an iteration ahead, in a sentence. Absent: both of its names.
std::string gathers_ahead(std::optional<bool> since_0_11_1);
/// The sentence on what makes XLA's scheduler overlap. `others`: it did, of other collectives.
std::string why_synchronous(bool others, bool since_0_7_2 = false);

/// Sentences about collectives that XLA launched on the stream of its products, which it does with those that are not
/// asynchronous.
std::vector<std::string> on_compute_stream(const RankRows& rank);

std::string hlo_report(const HloProgram& program);
std::string hlo_json(const HloProgram& program);

/// The answer that commands print of a file. `cluster`: a name or a file; empty: no times.
std::string hlo_answer(const std::string& path, const std::string& cluster, bool json);

}  // namespace fsdpbench::foreign
