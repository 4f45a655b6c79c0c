#include "launch/session.h"

#include <fmt/format.h>

#include "base/paths.h"
#include "base/plugin.h"
#include "launch/joining.h"
#include "launch/mpi_plugin.h"
#include "launch/rendezvous_file.h"
#include "launch/tcp_session.h"

namespace fsdpbench::launch {

std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options) {
  const std::filesystem::path mpi = plugin_path(kMpiPluginFile);
  if (placement.launcher == Launcher::mpi && path_exists(mpi)) {
    const auto& plugin = *static_cast<const MpiPlugin*>(load_plugin(kMpiPluginFile));
    return std::unique_ptr<Session>(plugin.join(placement, options));
  }
  const Deadline deadline = deadline_in(options.deadline_s);
  const Introduction self = introduce(placement, options);
  if (!placement.root_host.empty()) {
    return std::make_unique<TcpSession>(placement, join_at_address(placement, self, deadline, process_environment()));
  }
  const char* folder = process_environment()("FSDPBENCH_RENDEZVOUS");
  if (folder != nullptr && *folder != '\0') {
    return std::make_unique<TcpSession>(placement,
                                        join_through_file(folder, placement, self, deadline, process_environment()));
  }
  throw BackendError(fmt::format(
      "{}, so rank {} of {} does not know where rank 0 is; set FSDPBENCH_RENDEZVOUS to a folder that all "
      "ranks share",
      placement.launcher == Launcher::mpi
          ? fmt::format("{} started this process, but the plugin for MPI is missing ({} does not exist; a build "
                        "from source makes it where mpicc is)",
                        placement.source, mpi.string())
          : fmt::format("{} says no address", placement.source),
      placement.rank, placement.ranks));
}

}  // namespace fsdpbench::launch
