#include "app/experiment/published_uncertainty.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "replay/collective_message.h"
#include "replay/compute_cost.h"
#include "replay/random.h"

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

replay::Uncertainty published_uncertainty(const schedule::Training& training, const config::Cluster& cluster,
                                          const config::Accuracy& accuracy, const replay::OpTimes& times) {
  const bool typical = training.config.simulate.efficiency == replay::kTypicalEfficiency;
  const std::array<const config::AccuracyRows*, 3> rows{typical ? &accuracy.typical_training : &accuracy.training,
                                                        &accuracy.collectives, &accuracy.small_collectives};
  replay::Uncertainty uncertainty;
  for (std::size_t kind = 0; kind < rows.size(); ++kind) {
    uncertainty.ratios.push_back(draw_from(rows[kind]->time_ratios, kind + 1));
  }
  const plan::Groups& groups = training.plan.groups;
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
