#pragma once

#include <filesystem>

#include "app/report/verification.h"

namespace fsdpbench::app {

class Job;

/// Runs the configuration in force, the same once more, and the `count` best policies that fit, in rounds of
/// `trials` trials each, in turns. After each round the slower half of the policies leaves; the last one is chosen if
/// it is faster than what is in force for certain. The last trial of each is kept in `folder`/1, 2, … with its traces.
/// A policy that fails leaves with its reason. Throws Interrupted if the user stopped it. The
/// configuration must be one that runs: not of device.backend = "virtual". `job`: null, or the job whose rank 0 this
/// is.
Verification verify_tuning(const Tuning& tuning, int count, int trials, const std::filesystem::path& folder, Job* job);

}  // namespace fsdpbench::app
