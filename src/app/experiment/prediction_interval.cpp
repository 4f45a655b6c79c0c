#include "app/experiment/prediction_interval.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/simulate.h"
#include "metrics/run_view.h"
#include "metrics/step_breakdown.h"
#include "replay/collective_message.h"
#include "replay/compute_cost.h"
#include "replay/random.h"
#include "replay/replay.h"

namespace fsdpbench::app {
namespace {

bool within(const config::AccuracyRows& rows, const std::string& cluster, int ranks, double bytes) {
  return std::ranges::find(rows.clusters, cluster) != rows.clusters.end() && ranks >= rows.least_ranks &&
         ranks <= rows.most_ranks && bytes >= rows.least_bytes && bytes <= rows.most_bytes;
}

std::vector<double> draw_from(const std::vector<double>& ratios, std::uint64_t seed) {
  replay::Sequence random(seed);
  std::vector<double> drawn;
  for (int draw = 0; draw < replay::Uncertainty::kDraws; ++draw) drawn.push_back(ratios[random.below(ratios.size())]);
  return drawn;
}

}  // namespace

SteadyStep steady_step(const engine::Setup& setup, const replay::OpTimes& times) {
  const int ranks = setup.plan.groups.ranks();
  const bool all = times.ranks_differ() && ranks <= engine::kMostRecordedRanks;
  std::vector<trace::RankTrace> traces(all ? static_cast<std::size_t>(ranks) : 1);
  for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
  const auto replay = replay::make_replay(setup.schedules, setup.plan.groups, times);
  for (std::size_t step = 0; step < setup.schedules.steps.size(); ++step) replay->step({});
  replay->step(traces);
  SteadyStep result;
  const replay::Replay::StepTimes& last = replay->last_step();
  for (std::size_t rank = 0; rank < last.end_ns.size(); ++rank) {
    result.ms = std::max(result.ms, (last.end_ns[rank] - last.begin_ns[rank]) * 1e-6);
  }
  const metrics::RunView run(setup.schedules, traces);
  for (int place = 0; place < run.ranks(); ++place) {
    const metrics::StepBreakdown parts = metrics::break_down(run.steps().front(), place);
    result.exposed_ms += static_cast<double>(parts.exposed_communication) * 1e-6 / run.ranks();
  }
  return result;
}

config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const metrics::RunMetrics& measured) {
  const SteadyStep says = steady_step(setup, engine::calibrated_times(setup, calibration).times);
  return {measured.step_ms.median / says.ms - 1, (measured.exposed_comm_ms - says.exposed_ms) / says.ms};
}

PredictionInterval prediction_interval(const Cell& cell, const metrics::RunMetrics& predicted) {
  PredictionInterval result;
  result.from = cell.basis.from;
  if (!cell.basis.uncertainty) return result;
  result.ops = cell.basis.uncertainty->reach;
  result.leaves_ranks_out = cell.basis.uncertainty->leaves_ranks_out;
  replay::OpTimes times = cell.times;
  if (cell.setup.plan.groups.ranks() > engine::kMostRecordedRanks) {
    times.compute_factor.clear();
    times.link_factor.clear();
    times.delays = {};
  }
  const SteadyStep walked = steady_step(cell.setup, times);
  std::vector<double> steps, exposed;
  for (int draw = 0; draw < replay::Uncertainty::kDraws; ++draw) {
    const SteadyStep step = steady_step(cell.setup, replay::drawn(times, *cell.basis.uncertainty, draw));
    steps.push_back(step.ms);
    exposed.push_back(step.exposed_ms);
  }
  const replay::Uncertainty& uncertainty = *cell.basis.uncertainty;
  result.step_ms =
      replay::interval_around(predicted.step_ms.median, walked.ms, steps, uncertainty.step_miss * walked.ms);
  result.exposed_ms = replay::interval_around(predicted.exposed_comm_ms, walked.exposed_ms, exposed,
                                              uncertainty.exposed_miss * walked.ms);
  return result;
}

replay::Uncertainty published_uncertainty(const config::RunConfig& config, const replay::Training& training,
                                          const config::Cluster& cluster, const config::Accuracy& accuracy,
                                          const replay::OpTimes& times) {
  const bool typical = config.simulate.efficiency == replay::kTypicalEfficiency;
  const std::array<const config::AccuracyRows*, 3> rows{typical ? &accuracy.typical_training : &accuracy.training,
                                                        &accuracy.collectives, &accuracy.small_collectives};
  replay::Uncertainty uncertainty;
  for (std::size_t kind = 0; kind < rows.size(); ++kind) {
    uncertainty.ratios.push_back(draw_from(rows[kind]->time_ratios, kind + 1));
  }
  const plan::Groups& groups = training.groups;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    const schedule::Schedule& schedule = training.schedules.steps[step];
    std::vector<int>& source = uncertainty.source.emplace_back();
    for (const schedule::Op& op : schedule.ops) {
      source.push_back(-1);
      const int ranks = op.is_collective() ? groups.size(op.group()) : groups.ranks();
      if (!op.has_work() || (op.is_collective() && ranks == 1)) continue;
      const double bytes = op.is_collective() ? static_cast<double>(replay::message_of(op, groups).bytes) : 0;
      const int kind = !op.is_collective() ? 0 : bytes >= accuracy.collectives.least_bytes ? 1 : 2;
      source.back() = kind;
      if (&schedule != &training.schedules.steady()) continue;
      const bool known = within(*rows[static_cast<std::size_t>(kind)], cluster.name, ranks, bytes);
      ++uncertainty.reach[known ? replay::Reach::interpolated : replay::Reach::extrapolated];
    }
  }
  return uncertainty;
}

}  // namespace fsdpbench::app
