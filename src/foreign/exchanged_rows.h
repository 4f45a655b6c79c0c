#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/matched_collectives.h"

namespace fsdpbench::foreign {

/// Elements that the ranks of an exchange give (or get) in it.
struct ExchangedRows {
  std::vector<std::int64_t> by_part;  ///< as MatchedCollective::parts
  double mean = 0;
  std::size_t busiest = 0;  ///< the part that has most

  /// How many times the mean a part has; 1 where none has anything.
  double times_mean(std::size_t part) const { return mean > 0 ? static_cast<double>(by_part[part]) / mean : 1; }
};

/// Nothing where a rank's file or its sizes are missing.
std::optional<ExchangedRows> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives);

/// Rows are called uneven where a rank has at least this many times the mean.
inline constexpr double kUneven = 1.1;

}  // namespace fsdpbench::foreign
