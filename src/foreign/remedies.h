#pragma once

#include <string>
#include <vector>

#include "foreign/explain.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// What would take a cause away, in the words of the program that the trace is of.
struct Remedy {
  Why why = Why::unknown;
  double most_ms = 0;   ///< a step: what the cause has; no remedy gains more by it alone
  std::string advice;   ///< a sentence
  std::string setting;  ///< "set_modules_to_forward_prefetch([next])"; empty: nothing to set
  std::string cost;     ///< what it costs; may be empty
};

/// Advice, setting and cost, with a full stop.
std::string remedy_sentence(const Remedy& remedy);

/// Of the causes that have at least kLeastSharePct of the step, the largest first. A job that is not sharded gets no
/// advice about sharding.
std::vector<Remedy> find_remedies(const JobTrace& job, const Recognition& found, const Explanation& explained);
inline constexpr double kLeastSharePct = 1.0;

}  // namespace fsdpbench::foreign
