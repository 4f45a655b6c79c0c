#include "config/accuracy.h"

#include <algorithm>

#include "published/prediction.h"

namespace fsdpbench::bench {
namespace {

/// `predicted`: the member that is compared with what was published; both are rates.
config::AccuracyRows rows_of(const Predictions& rows, double Prediction::*predicted,
                             bool (*wanted)(const Prediction&)) {
  config::AccuracyRows result;
  for (const Prediction& row : rows) {
    if (!wanted(row)) continue;
    const bool first = result.time_ratios.empty();
    result.time_ratios.push_back(row.*predicted / row.published);
    if (std::ranges::count(result.clusters, row.cluster) == 0) result.clusters.push_back(row.cluster);
    result.least_ranks = first ? row.ranks : std::min(result.least_ranks, row.ranks);
    result.most_ranks = std::max(result.most_ranks, row.ranks);
    result.least_bytes = first ? row.bytes : std::min(result.least_bytes, row.bytes);
    result.most_bytes = std::max(result.most_bytes, row.bytes);
  }
  std::ranges::sort(result.time_ratios);
  std::ranges::sort(result.clusters);
  return result;
}

bool is_small(const Prediction& row) { return !row.in_domain && row.calibrates.empty() && row.not_predicted.empty(); }

}  // namespace

config::Accuracy accuracy_of(const Predictions& collectives, const Predictions& training) {
  const auto counts = [](const Prediction& row) { return row.counts(); };
  const auto predicted = [](const Prediction& row) { return row.not_predicted.empty(); };
  return {.training = rows_of(training, &Prediction::predicted, counts),
          .typical_training = rows_of(training, &Prediction::typical, predicted),
          .collectives = rows_of(collectives, &Prediction::predicted, counts),
          .small_collectives = rows_of(collectives, &Prediction::predicted, is_small)};
}

}  // namespace fsdpbench::bench
