#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/report/result_json.h"
#include "config/run_config.h"
#include "engine/byte_dataset.h"
#include "engine/run.h"
#include "metrics/causes.h"

namespace fsdpbench::app {

/// A configuration that can run: valid, prepared, its memory there, its data open.
struct PreparedRun {
  engine::Setup setup;
  std::vector<std::string> notes;  ///< of validate(): settings that have no effect or were replaced
  std::unique_ptr<engine::ByteDataset> data;
};

/// Throws ConfigError if the configuration or its data is wrong, ResourceError if the memory of this machine will not
/// suffice for the ranks on it: `local_ranks`, 0 for all.
PreparedRun prepare_run(config::RunConfig config, int local_ranks = 0);

/// What is known of the link: the modelled one's figures; nothing of a real one.
std::optional<LinkModel> link_facts(const config::RunConfig& config);

/// What a run gave. The report points into `result` and into the PreparedRun, which must outlive it.
struct MeasuredRun {
  std::unique_ptr<engine::Measurement> result;
  RunReport report;
};

class Job;

/// For whom a run is measured.
struct RunPlace {
  Job* job = nullptr;                     ///< null: all ranks are threads of this process; else this is its rank 0
  std::filesystem::path folder;           ///< in a job: where a failed run leaves what it did; empty: nowhere
  std::vector<std::string> command_line;  ///< for the result file
};

/// Trains, computes the metrics and checks them against what plan and formulas say. Throws what a failing rank threw,
/// and Error with ExitCode::check_failed if a measurement contradicts itself.
MeasuredRun measure(const PreparedRun& prepared, engine::RunHooks hooks, const RunPlace& place);

}  // namespace fsdpbench::app
