#pragma once

#include <cstdint>
#include <vector>

#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// One collective on all ranks that have it in their files.
struct MatchedCollective {
  struct Part {
    int rank = 0;  ///< place in JobTrace::ranks
    std::int32_t row = -1;
  };
  std::vector<Part> parts;  ///< at least one, by rank
};

/// Offsets between the clocks of the ranks' files, and who waited for whom.
///
/// [Note: clocks]
/// A collective ends on all its ranks at about the same moment, so the median difference of ends is the difference of
/// clocks. Ranks that share no collective with the first one, nor with one that does, cannot be placed. Where the files
/// say that they share a clock nothing is moved.
class MatchedCollectives {
 public:
  explicit MatchedCollectives(const JobTrace& job);

  const std::vector<MatchedCollective>& all() const { return all_; }
  /// To be added to a rank's times so that they are the first rank's.
  std::int64_t offset_ns(int rank) const { return offsets_[rank]; }
  /// Half of the collectives end within so much of each other on the two ranks, once offsets are taken out; of all
  /// pairs the worst.
  std::int64_t residual_ns() const { return residual_; }

  /// Time at which the last of the known ranks had arrived at the collective of device row `row`, on the clock of
  /// `rank`, and who that was. Its own begin and -1 where it was last itself, or alone.
  struct Arrival {
    std::int64_t at_ns = 0;
    int late_rank = -1;  ///< place
  };
  Arrival last_arrival(int rank, std::int32_t row) const;
  /// When the last of its ranks ended it, on the clock of `rank`: ranks that take turns on one device end it apart. Its
  /// own end where the files do not share a clock.
  std::int64_t last_end_ns(int rank, std::int32_t row) const;
  /// The index in all() of device row `row`; -1: it is no collective, or nothing tells its group.
  int of_row(int rank, std::int32_t row) const;

 private:
  const JobTrace& job_;
  std::vector<MatchedCollective> all_;
  std::vector<std::vector<std::int32_t>> of_row_;  // by rank and device row
  std::vector<std::int64_t> offsets_;
  std::int64_t residual_ = 0;
};

/// For each part of an exchange, what its rank gives (or gets) divided by the mean; 1 where none has anything. Empty
/// where a rank's file or its sizes are missing.
std::vector<double> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives);

}  // namespace fsdpbench::foreign
