#pragma once

#include <string>

#include "base/lane.h"
#include "hardware/host_topology.h"

namespace fsdpbench::hardware {

/// One of the ranks of a host, and where its GPU is.
struct LocalRank {
  int rank = 0;
  int ranks = 1;
  std::string gpu;  ///< "0000:0f:00.0"; empty: it computes on processors
};

/// The processors of one rank. By `numa` those of the NUMA node that its GPU hangs on (empty where nobody knows which
/// that is); of ranks without one those of one node, neighbours sharing nodes as equally as they can be shared. By
/// `cores` a run of neighbouring cores, all their hardware threads with them; of more ranks than cores several have the
/// same. By `none` all of the host.
Processors processors_of_rank(const HostTopology& host, Binding binding, const LocalRank& rank);

/// While it lives the calling thread, and all that it starts, run on a rank's processors only: so does the memory they
/// touch first come from there. A process that its launcher had bound when the first of these was made stays as it is.
class ThreadBinding {
 public:
  /// Throws ConfigError, with what would be possible, if there are no such processors or the system refuses.
  ThreadBinding(Binding binding, const LocalRank& rank);
  /// The thread runs where it ran before.
  ~ThreadBinding();
  ThreadBinding(const ThreadBinding&) = delete;
  ThreadBinding& operator=(const ThreadBinding&) = delete;

  /// "processors 0-23 of NUMA node 0, near its GPU"; empty: nothing was asked for.
  const std::string& text() const { return text_; }

 private:
  Processors before_;  // empty: the thread was left alone
  std::string text_;
};

}  // namespace fsdpbench::hardware
