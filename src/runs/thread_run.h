#pragma once

#include <filesystem>

#include "runs/trial.h"

namespace fsdpbench::app {

/// Trains all ranks on threads of this process, for trials measured in `world`, and keeps what is done whatever
/// happens. A signal of the user's ends the run after its step, or in the middle of it if that takes longer than
/// kPatienceWithSteps_s. If a rank throws, what the ranks had done is saved in `folder` (empty: nowhere) before that is
/// rethrown. If a kernel is still busy kPatienceWithAll_s after the signal, the same is saved and the process ends
/// here.
Train train_on_kept_threads(std::filesystem::path folder, World world);

}  // namespace fsdpbench::app
