#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/dialect.h"
#include "foreign/kineto_text.h"
#include "support/simulated_run.h"

namespace fsdpbench::foreign::corpus {

/// A row of the device that communicates, as it was in the run that the trace is of.
struct CollectiveTruth {
  std::int64_t begin_ns = 0;  ///< as in the file; with the stream it says which row
  std::int64_t stream = 0;
  std::int32_t step = 0;
  schedule::OpKind kind = schedule::OpKind::all_gather;
  schedule::Phase phase = schedule::Phase::forward;
  int unit = -1;            ///< of the plan; -1: of none
  std::vector<int> others;  ///< units that share it
  bool prefetch = false;
};

struct WrittenRank {
  int rank = 0;
  KinetoText text;
  std::vector<CollectiveTruth> collectives;  ///< in order of begin, then of stream
};

/// One rank of a run on the computed clock as torch.profiler would have written it. `shift_ns`: of its clock. All that
/// is drawn (other ops of the host, small gaps) follows from `seed`.
WrittenRank write_rank(const testing::SimulatedRun& run, std::size_t place, const Dialect& dialect, std::uint64_t seed,
                       std::int64_t shift_ns = 0);

}  // namespace fsdpbench::foreign::corpus
