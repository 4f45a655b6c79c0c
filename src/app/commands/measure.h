#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/experiment/trial.h"

namespace fsdpbench::app {

class Job;

/// Ranks of this host, as open_cell() wants them: of a job (null: none) whose rank 0 this is, else 0.
int local_ranks(const Job* job);
/// Where this process stands in its job; null without one. Lives as long as the job.
const launch::Placement* placement_of(const Job* job);

/// One trial of `cell`: on threads of this process, or on the processes of `job`, whose ranks then save what they have
/// done in `folder` if it fails (empty: nowhere). Throws as run_trial().
Trial measure(const Cell& cell, const engine::RunHooks& hooks, Job* job, const std::filesystem::path& folder,
              std::vector<std::string> command_line);

/// One trial of a sweep or a comparison, whose steps are all there. If `keep` is not empty, its result folder is
/// written there. Throws as run_trial(), and Interrupted if the user stopped it: a part of a trial is no trial.
Trial whole_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep = {});

}  // namespace fsdpbench::app
