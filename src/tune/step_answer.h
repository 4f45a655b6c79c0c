#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/run_metrics.h"
#include "clock/forecast.h"
#include "record/json_fields.h"
#include "record/table.h"

namespace fsdpbench::app {

/// A value and where it lies 95 times of 100.
struct Estimate {
  double value = 0;
  std::optional<clock::Bounds> bounds;  ///< absent: nothing is in doubt, or nobody knows how much is
};
/// Median and interval of a Summary; one value has no interval.
Estimate estimate_of(const account::Summary& summary);

/// Answer of the clock about a step: what-if, expect, tune and explain show columns of it.
struct StepAnswer {
  std::optional<Estimate> tokens_per_s_rank, tokens_per_s;  ///< of one rank, of all ranks
  Estimate step_ms;
  std::optional<Estimate> mfu_pct, exposed_comm_ms, compute_ms, comm_ms, idle_ms;
  std::int64_t peak_bytes = 0;  ///< of a rank
};
StepAnswer answer_of(const account::RunMetrics& metrics, std::int64_t peak_bytes);

template <>
Fields<Estimate> declared<Estimate>();
/// With numbers as figures.
template <>
Fields<StepAnswer> declared<StepAnswer>();
/// With estimates.
const Fields<StepAnswer>& bounded_fields();

/// Answers beside each other.
struct AnswerTable {
  struct Column {
    std::string name;
    StepAnswer answer;
  };
  std::string title;
  std::vector<Column> columns;
  bool change = false;                 ///< what the last column is of the one before it
  std::string interval{};              ///< what bounds of the last column are called; empty: not shown
  std::string memory = "peak memory";  ///< what of it is meant
  std::string memory_note{};           ///< beside it
};
/// A line for each figure that all columns have.
Table answer_table(const AnswerTable& what);

}  // namespace fsdpbench::app
