#include "accept/stages/step_arms.h"

#include <algorithm>
#include <array>
#include <utility>

#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "config/spelling.h"
#include "runs/select_backend.h"
#include "schedule/memory_walk.h"
#include "schedule/step_builder.h"

namespace fsdpbench::app {
namespace {

using account::OpClass;
using account::StepRecords;
using schedule::StepPart;

constexpr std::array<StepPart, kStepsOfARound> kRound{StepPart::computation,   StepPart::communication,
                                                      StepPart::whole,         StepPart::whole,
                                                      StepPart::communication, StepPart::computation};

StepPart part_of(std::size_t measured_step) { return kRound[measured_step % kStepsOfARound]; }

/// Milliseconds that ops of one class take in a step, added up, mean over ranks.
double busy_ms(const StepRecords& step, OpClass wanted) {
  std::int64_t ns = 0;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    const std::span<const trace::Record> records = step.of(rank);
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (account::classify(step.schedule().ops[i]) != wanted) continue;
      ns += records[i].end_ns - std::max(records[i].begin_ns, records[i].peers_arrived_ns);
    }
  }
  return static_cast<double>(ns) * 1e-6 / step.ranks();
}

}  // namespace

engine::Setup set_up_arms(const config::RunConfig& config, int rounds) {
  config::RunConfig arms = config;
  arms.checkpoint = {};
  const auto steps_until_it_repeats = [](const schedule::Schedules& s) { return std::ssize(s.steps) - 1; };
  engine::Setup setup = engine::set_up(arms);
  setup.config.train.warmup = std::max<std::int64_t>(arms.train.warmup, steps_until_it_repeats(setup.schedules));
  setup.config.train.steps = std::int64_t{rounds} * kStepsOfARound;
  const schedule::Schedule steady = setup.schedules.steady();
  setup.schedules.steps.resize(setup.config.train.warmup, steady);
  for (int round = 0; round < rounds; ++round) {
    for (const StepPart part : kRound) setup.schedules.steps.push_back(schedule::only(steady, part));
  }
  const PoolStatistics memory =
      schedule::memory_walk(setup.schedules, setup.config.train.warmup + setup.config.train.steps);
  setup.pool_bytes += std::max<std::int64_t>(0, memory.reserved - setup.memory.reserved);
  setup.memory = memory;
  return setup;
}

engine::Measurement run_arms(const engine::Setup& arms, const engine::BatchSource& batches, launch::Session* session,
                             std::function<bool()> stop) {
  engine::RunHooks hooks;
  hooks.stop = std::move(stop);
  hooks.meet_before_steps = true;
  const auto backend = select_backend(std::string(config::to_string(arms.config.device.backend)));
  engine::Measurement measurement = engine::run(*backend, arms, batches, hooks, session);
  const bool all_are_here = session == nullptr || session->placement().rank == 0;
  if (all_are_here) account::fill_peers_arrived(arms.schedules, arms.plan.groups, measurement.traces);
  return measurement;
}

std::vector<accept::ArmRound> arm_rounds(const account::RunView& run) {
  std::vector<accept::ArmRound> rounds(run.steps().size() / kStepsOfARound);
  for (std::size_t s = 0; s < rounds.size() * kStepsOfARound; ++s) {
    const StepRecords& step = run.steps()[s];
    accept::ArmRound& round = rounds[s / kStepsOfARound];
    const double half_ms = static_cast<double>(step.slowest_ns()) * 1e-6 / 2;
    switch (part_of(s)) {
      case StepPart::computation:
        round.computation_ms += half_ms;
        round.kernels_alone_ms += busy_ms(step, OpClass::computation) / 2;
        break;
      case StepPart::communication:
        round.communication_ms += half_ms;
        round.transfers_alone_ms += busy_ms(step, OpClass::communication) / 2;
        break;
      case StepPart::whole:
        round.whole_ms += half_ms;
        round.kernels_beside_ms += busy_ms(step, OpClass::computation) / 2;
        round.transfers_beside_ms += busy_ms(step, OpClass::communication) / 2;
        break;
    }
  }
  return rounds;
}

}  // namespace fsdpbench::app
