#pragma once

#include "base/plugin.h"
#include "launch/session.h"

namespace fsdpbench::launch {

/// What the plugin for MPI exports under kMpiPluginFile.symbol. Plain data, so that it can be read before it is known
/// to fit.
struct MpiPlugin {
  PluginInterfaces interfaces;  ///< first for ever
  /// join() for a process that MPI's launcher started; the session is the caller's.
  Session* (*join)(const Placement& placement, const JoinOptions& options) = nullptr;
};

inline constexpr PluginFile kMpiPluginFile = {"The transport over MPI", "fsdpbench_mpi.so", "FSDPBENCH_MPI_PLUGIN",
                                              "fsdpbench_mpi_plugin", "make build"};

}  // namespace fsdpbench::launch
