#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "base/read_input.h"

namespace fsdpbench::trace {

/// Rules that a trace of ours must keep to; FORMAT.md says each in a sentence and why.
enum class Rule : std::uint8_t {
  json,
  structure,
  limit,
  phase,
  number,
  process,
  track,
  duration,
  nesting,
  flow_id,
  flow_pair,
  flow_order,
  flow_slice,
  counter,
  counter_order,
  instant,
  metadata,
  rank,
  correlation,
  launch,
  stream,
  host_stream,
  collective,
  row_name,
  op_span,
  first_row,
  exposed,
  bound,
  memory,
  op_arrow,
};

constexpr std::string_view to_string(Rule rule) {
  constexpr EnumNames<Rule> kNames{
      "json",     "structure", "limit",       "phase",      "number",     "process",     "track",         "duration",
      "nesting",  "flow_id",   "flow_pair",   "flow_order", "flow_slice", "counter",     "counter_order", "instant",
      "metadata", "rank",      "correlation", "launch",     "stream",     "host_stream", "collective",    "row_name",
      "op_span",  "first_row", "exposed",     "bound",      "memory",     "op_arrow"};
  return kNames[rule];
}

/// One place where a file breaks a rule.
struct Finding {
  Rule rule = Rule::json;
  std::optional<std::int64_t> event;  ///< index in traceEvents, from 0; absent: the file as a whole
  std::string message;                ///< a sentence; names and values in it are those of the file
};
inline constexpr std::size_t kMostOfAFinding = 400;  ///< bytes of a message

/// Findings in the order in which they were found: so many of each rule, the others are only counted.
class Findings {
 public:
  explicit Findings(std::size_t most_per_rule) : most_(most_per_rule) {}

  /// `event`: index in traceEvents; absent: the file as a whole. `message`: a sentence, kept as clean_text() makes it.
  void add(Rule rule, std::optional<std::int64_t> event, std::string_view message) {
    std::size_t& count = counts_[rule];
    if (count++ < most_) list_.push_back({rule, event, clean_text(message, kMostOfAFinding)});
  }
  const std::vector<Finding>& list() const { return list_; }
  /// All of them, those that were only counted included.
  std::size_t count(Rule rule) const { return counts_[rule]; }

 private:
  std::size_t most_;
  std::vector<Finding> list_;
  EnumTable<Rule, std::size_t> counts_;
};

}  // namespace fsdpbench::trace
