#pragma once

#include <filesystem>
#include <string>

#include "runs/trial.h"

namespace fsdpbench::app {

/// What to call the model: the name of its file; of a model of another kind or width than the file's, as an imported
/// one is, what it is.
std::string model_text(const config::RunConfig& config);

/// One line before a run: model, ranks, strategy, what is emulated.
std::string run_headline(const engine::Setup& setup);

/// What a person reads after a trial, ending with the paths of the files in `folder`.
std::string run_table(const engine::Setup& setup, const Trial& trial, const std::filesystem::path& folder);

}  // namespace fsdpbench::app
