#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/matched_collectives.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// Elements that the ranks of an exchange give (or get) in it.
struct ExchangedRows {
  std::vector<std::int64_t> by_part;  ///< as MatchedCollective::parts
  double mean = 0;
  std::size_t busiest = 0;  ///< the part that has most

  /// Part divided by the mean; 1 where none has anything.
  double times_mean(std::size_t part) const { return mean > 0 ? static_cast<double>(by_part[part]) / mean : 1; }
};

/// Nothing where a rank's file or its sizes are missing.
std::optional<ExchangedRows> exchanged_rows(const JobTrace& job, const MatchedCollective& one, bool receives);

/// Rows are called uneven where a rank has at least this many times the mean.
inline constexpr double kUneven = 1.1;

/// Rows of tokens on their way to the ranks that have their experts, and back: dispatch and combine. Milliseconds are
/// means over ranks and steps.
struct Exchanges {
  double times = 0;                        ///< a step
  double ms = 0, exposed_ms = 0;           ///< while any runs; of that, while nothing computes
  double attention_ms = 0, beside_ms = 0;  ///< of attention; of that, beside an exchange
  /// Two halves of a batch (or a forward and a backward of two batches) take turns. A layer's attention is over before
  /// its dispatch begins, and the next one needs the combine: attention beside an exchange is of another half. Nothing:
  /// there is no attention in the trace, or too little of it beside exchanges to tell.
  std::optional<bool> two_halves;
  /// Rows that the busiest rank receives or sends, ÷ the mean: the median over exchanges whose sizes all ranks' files
  /// have. Absent: there is none.
  std::optional<double> imbalance;
  int busiest_rank = -1;  ///< the number of the rank that has most rows most often; -1: not told
  int syncs = 0;          ///< waits of the host for the device within forward and backward, of a step of the first rank
  double sync_ms = 0;     ///< how long these took
};

/// Nothing: no tokens are exchanged.
std::optional<Exchanges> find_exchanges(const JobTrace& job, const Recognition& found,
                                        const MatchedCollectives& matched);

/// Sentences about them, with what would help; each a sentence with its full stop.
std::vector<std::string> exchange_sentences(const Exchanges& exchanges);

}  // namespace fsdpbench::foreign
