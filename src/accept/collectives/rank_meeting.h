#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace fsdpbench::app {

/// Where ranks bring together what they have measured, whether they are threads or processes: beside the data, whose
/// correctness may be in question. One for all ranks of this process.
class RankMeeting {
 public:
  /// `session`: null if all ranks are threads of this process; must outlive this.
  RankMeeting(int ranks, launch::Session* session);

  /// Rank 0 gets everybody's values by rank, the others nothing. Collective; blocks the host threads.
  std::vector<std::vector<double>> gather(backend::RankContext& context, std::vector<double> mine);
  /// Rank 0 gets everybody's text by rank.
  std::vector<std::string> gather(backend::RankContext& context, std::string mine);
  /// Everybody gets rank 0's values. Collective.
  std::vector<double> broadcast(backend::RankContext& context, std::vector<double> from_root);

 private:
  launch::Session* session_;
  std::vector<std::string> slots_;  // of threads
};

}  // namespace fsdpbench::app
