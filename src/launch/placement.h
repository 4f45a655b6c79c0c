#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/addresses.h"

namespace fsdpbench::launch {

/// Place of this process in a job of several processes, one rank each, as its launcher says.
struct Placement {
  int rank = 0;           ///< of this process, 0..ranks-1
  int ranks = 1;          ///< processes of the job
  int local_rank = 0;     ///< among the processes of this host: chooses the GPU
  int local_ranks = 1;    ///< processes of the job on this host
  std::string source;     ///< for people: "torchrun (RANK, WORLD_SIZE, MASTER_ADDR)"
  std::string job;        ///< tells this job from others on the same machines and file systems; empty: unknown
  std::string root_host;  ///< where rank 0 listens; empty: nobody says it
  int root_port = 0;      ///< of root_host
};

/// The job this process belongs to, or nothing if it was started alone (a job of one process is nothing, too).
/// If the environment is of several launchers, the first of torchrun, MPI, Slurm counts. Throws ConfigError, naming the
/// variables and their values, if what counts contradicts itself.
std::optional<Placement> find_placement(const Environment& environment);

/// The first host of a Slurm node list: "node003" of "node[003-007,9],login1". Nothing if it is no such list.
std::optional<std::string> first_host(std::string_view node_list);
/// Element `node` of a list such as "8(x2),4", which stands for 8,8,4. Nothing if it is no such list or too short.
std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace fsdpbench::launch
