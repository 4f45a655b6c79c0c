#pragma once

#include <filesystem>
#include <string>

#include "app/experiment/trial.h"

namespace fsdpbench::app {

/// One line before a run: model, ranks, strategy, what is emulated.
std::string run_headline(const engine::Setup& setup);

/// What a person reads after a trial, ending with the paths of the files in `folder`.
std::string run_table(const engine::Setup& setup, const Trial& trial, const std::filesystem::path& folder);

}  // namespace fsdpbench::app
