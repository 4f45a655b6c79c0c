#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/run.h"
#include "metrics/cause_report.h"
#include "metrics/run_metrics.h"
#include "plan/communication.h"

namespace fsdpbench::app {

/// Raised on every change of result.json that a reader must know of.
inline constexpr int kResultSchemaVersion = 1;

/// What run.cpp has learnt about a run, ready to be written and shown.
struct RunReport {
  const engine::Setup* setup = nullptr;
  launch::Session* session = nullptr;  ///< of the job; null: the ranks are threads of this process
  const engine::Measurement* result = nullptr;
  std::optional<metrics::RunMetrics> metrics;  ///< absent if no measured step was completed
  std::optional<metrics::CauseReport> causes;  ///< absent with the metrics
  plan::CommunicationVolume expected_volume;   ///< per rank and step
  std::vector<std::string> command_line;
  std::string date;  ///< ISO 8601, local time with offset
};

/// What of result.json is known before the run: configuration, world, what is to be trained. Needs no result.
nlohmann::json result_frame(const RunReport& report);

/// The content of result.json. What was not measured is not in it.
nlohmann::json result_json(const RunReport& report);

}  // namespace fsdpbench::app
