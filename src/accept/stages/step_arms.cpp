#include "accept/stages/step_arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "base/bytes.h"
#include "clock/compute_cost.h"
#include "clock/forecast.h"
#include "clock/measured_host.h"
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

using LinkLines = std::map<std::pair<CollectiveKind, int>, clock::LineFit>;  // by kind and ranks

LinkLines lines_through(const std::vector<CollectiveRow>& rows) {
  std::map<std::pair<CollectiveKind, int>, std::vector<clock::LineSample>> samples;
  for (const CollectiveRow& row : rows) {
    const CollectiveKind kind = row.message.op;
    const bool gathers = kind == CollectiveKind::all_gather;
    const std::optional<Timing>& timing = gathers || !row.out_of_place ? row.in_place : row.out_of_place;
    if (!timing || timing->iterations_us.empty()) continue;
    const int passes = kind == CollectiveKind::all_reduce ? 2 : 1;
    const int ranks = row.message.ranks;
    samples[{kind, ranks}].push_back({static_cast<double>(ring_hops(ranks, passes)),
                                      static_cast<double>(row.message.bytes()) * ring_share(ranks, passes),
                                      timing->scatter.p50_us * 1e3, timing->scatter.deviation_us * 1e3});
  }
  LinkLines lines;
  for (const auto& [key, of_key] : samples) lines[key] = clock::fit_line(of_key);
  return lines;
}

/// Nanoseconds by rank and op of what is no collective: medians over the steps that had none.
std::vector<std::vector<std::int64_t>> computation_ns(const account::RunView& run, std::size_t ops) {
  std::vector<std::vector<std::int64_t>> table(run.ranks(), std::vector<std::int64_t>(ops, 0));
  for (int rank = 0; rank < run.ranks(); ++rank) {
    for (std::size_t i = 0; i < ops; ++i) {
      std::vector<double> ns;
      for (std::size_t s = 0; s < run.steps().size(); ++s) {
        if (part_of(s) != StepPart::computation) continue;
        const trace::Record& r = run.steps()[s].of(rank)[i];
        if (r.begin_ns > 0) ns.push_back(static_cast<double>(r.end_ns - r.begin_ns));
      }
      if (!ns.empty()) {
        table[rank][i] = std::llround(account::median(std::move(ns)));
      }
    }
  }
  return table;
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

PredictedStep predict_step(const engine::Setup& arms, const account::RunView& run,
                           const std::vector<CollectiveRow>& rows) {
  const auto whole = std::ranges::find(kRound, StepPart::whole) - kRound.begin();
  if (run.steps().size() < kStepsOfARound) return {std::nullopt, "no round of the step's arms was measured"};
  schedule::Training one = arms;
  one.schedules.steps = {run.steps()[whole].schedule()};
  const std::vector<schedule::Op>& ops = one.schedules.steady().ops;
  const LinkLines lines = lines_through(rows);

  clock::OpTimes times;
  times.steps.emplace_back(ops.size());
  times.given.push_back(computation_ns(run, ops.size()));
  times.ops = arms.config.emulate.link_gb_per_s ? clock::OpTimes::Ops::given_alone : clock::OpTimes::Ops::given;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].is_collective()) continue;
    const int ranks = arms.plan.groups.size(ops[i].group());
    const CollectiveKind kind = schedule::collective_kind(ops[i].kind);
    if (ranks < 2) continue;
    const auto line = lines.find({kind, ranks});
    if (line == lines.end()) {
      return {std::nullopt,
              fmt::format("no {} of {} ranks was measured alone, and the step has one", to_string(kind), ranks)};
    }
    const clock::OpWork work = clock::work_of(ops[i], one.schedules.steady(), arms.plan.groups, arms.sizes);
    times.steps.front()[i].run_ns = std::nearbyint(line->second.fixed_ns * work.fixed);
    for (std::vector<std::int64_t>& mine : times.given.front()) {
      mine[i] = std::llround(line->second.ns(work.fixed, work.amount));
    }
  }
  times.host = clock::measured_host(run.schedules(), run.traces(), {});
  return {clock::forecast(one, times).slowest_ns() * 1e-6, {}};
}

}  // namespace fsdpbench::app
