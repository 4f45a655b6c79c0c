#pragma once

#include <functional>
#include <vector>

#include "accept/step_arms.h"
#include "account/run_view.h"
#include "engine/byte_dataset.h"
#include "engine/run.h"
#include "engine/setup.h"

namespace fsdpbench::app {

/// Steps of a round: the arms there and back again.
inline constexpr int kStepsOfARound = 6;

/// The run of `config` with steps of which only a part is done (schedule/step_builder.h): first its own warm-up, then
/// `rounds` rounds as accept::ArmRound has them, made of the schedule that repeats. `config`: valid.
engine::Setup set_up_arms(const config::RunConfig& config, int rounds);

/// Runs it on this process's ranks; all processes of a job call it. As engine::run. `stop`: as RunHooks have it; what
/// was measured may then end in the middle of a round, or of the warm-up.
engine::Measurement run_arms(const engine::Setup& arms, const engine::BatchSource& batches, launch::Session* session,
                             std::function<bool()> stop = {});

/// The complete rounds of what was measured. `run`: of all ranks, of a set_up_arms() setup.
std::vector<accept::ArmRound> arm_rounds(const account::RunView& run);

}  // namespace fsdpbench::app
