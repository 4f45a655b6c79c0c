#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clean_text.h"
#include "base/enum_table.h"

namespace fsdpbench::trace {

/// What a trace file must keep to; FORMAT.md says each in a sentence and why.
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
  begin_end,
  async,
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
      "json",          "structure", "limit",    "phase",     "number",      "process",    "track",      "duration",
      "nesting",       "begin_end", "async",    "flow_id",   "flow_pair",   "flow_order", "flow_slice", "counter",
      "counter_order", "instant",   "metadata", "rank",      "correlation", "launch",     "stream",     "host_stream",
      "collective",    "row_name",  "op_span",  "first_row", "exposed",     "bound",      "memory",     "op_arrow"};
  return kNames[rule];
}

/// What a named reader loses where a file that some profiler wrote breaks the rule; empty: all of them read the file,
/// and show or count one row otherwise than was meant, at worst. Perfetto: its json_trace_tokenizer.cc and
/// json_trace_parser. Public traces of PyTorch's profiler, which are HTA's own test data, break the rules that have
/// nothing here.
constexpr std::string_view what_breaks(Rule rule) {
  constexpr EnumTable<Rule, std::string_view> kBreaks{
      /*json*/ "Python's json, and with it HTA, refuses the file",
      /*structure*/ "HTA finds no events, and Perfetto does not know the file, or takes another value",
      /*limit*/ "Perfetto refuses the file, or it was not checked to its end",
      /*phase*/ "Perfetto leaves the event out",
      /*number*/ "Perfetto leaves the event out",
      /*process*/ "",
      /*track*/ "",
      /*duration*/ "Perfetto leaves the slice out",
      /*nesting*/ "",
      /*begin_end*/ "",
      /*async*/ "",
      /*flow_id*/ "",
      /*flow_pair*/ "",
      /*flow_order*/ "",
      /*flow_slice*/ "",
      /*counter*/ "Perfetto leaves the value out",
      /*counter_order*/ "",
      /*instant*/ "Perfetto leaves the event out",
      /*metadata*/ "",
      /*rank*/ "",
      /*correlation*/ "",
      /*launch*/ "",
      /*stream*/ "",
      /*host_stream*/ "",
      /*collective*/ "",
      /*row_name*/ "",
      /*op_span*/ "",
      /*first_row*/ "",
      /*exposed*/ "",
      /*bound*/ "",
      /*memory*/ "",
      /*op_arrow*/ ""};
  return kBreaks[rule];
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
  /// How many findings of this rule are not in the list.
  std::size_t left_out(Rule rule) const { return count(rule) - std::min(count(rule), most_); }

 private:
  std::size_t most_;
  std::vector<Finding> list_;
  EnumTable<Rule, std::size_t> counts_;
};

}  // namespace fsdpbench::trace
