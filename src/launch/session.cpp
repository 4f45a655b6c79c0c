#include "launch/session.h"

#include <fmt/format.h>

#include "launch/joining.h"
#include "launch/tcp_session.h"

namespace fsdpbench::launch {

std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options) {
  const Deadline deadline = deadline_in(options.deadline_s);
  const Introduction self = introduce(placement, options);
  if (!placement.root_host.empty()) {
    return std::make_unique<TcpSession>(placement, join_at_address(placement, self, deadline));
  }
  throw BackendError(fmt::format("rank {} of {} ({}) does not know where rank 0 is", placement.rank, placement.ranks, placement.source));
}

}  // namespace fsdpbench::launch
