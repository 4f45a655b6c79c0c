#pragma once

#include <string>

namespace fsdpbench::launch {

/// This host's name, for people.
std::string host_name();
/// What this host is called in lists of nodes: as Slurm (SLURMD_NODENAME) or Kubernetes (NODE_NAME) knows it, else by its
/// own name.
std::string node_name();
/// Equal for two processes exactly if base/clock.h tells them the same time: the running kernel and its time
/// namespace. Empty if that cannot be known.
std::string clock_identity();
/// 16 random hex digits.
std::string random_token();

}  // namespace fsdpbench::launch
