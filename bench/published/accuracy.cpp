#include "config/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "clock/forecast.h"
#include "published/prediction.h"

namespace fsdpbench::bench {
namespace {

using config::AccuracyRows;
using config::ErrorKind;

/// `predicted`: the member that is compared with what was published; both are rates.
AccuracyRows rows_of(const Predictions& all, double Prediction::*predicted,
                     const std::function<bool(const Prediction&)>& wanted) {
  std::vector<const Prediction*> rows;
  for (const Prediction& row : all) {
    if (row.not_predicted.empty() && !row.experts && wanted(row)) rows.push_back(&row);
  }
  const auto ratio = [&](const Prediction* row) { return row->*predicted / row->published; };
  std::ranges::sort(rows, {}, ratio);
  AccuracyRows result;
  for (const Prediction* row : rows) {
    const bool first = result.time_ratios.empty();
    result.time_ratios.push_back(ratio(row));
    result.sources.push_back(row->source);
    if (std::ranges::count(result.clusters, row->cluster) == 0) result.clusters.push_back(row->cluster);
    result.least_ranks = first ? row->ranks : std::min(result.least_ranks, row->ranks);
    result.most_ranks = std::max(result.most_ranks, row->ranks);
    result.least_bytes = first ? row->bytes : std::min(result.least_bytes, row->bytes);
    result.most_bytes = std::max(result.most_bytes, row->bytes);
    result.least_tokens = first ? row->tokens : std::min(result.least_tokens, row->tokens);
    result.most_tokens = std::max(result.most_tokens, row->tokens);
  }
  std::ranges::sort(result.clusters);
  return result;
}

/// 95 % interval of the next source's row: measured over predicted time.
clock::Bounds interval_of(const AccuracyRows& rows) {
  const int sources = rows.distinct_sources();
  return {clock::quantile_of_next(rows.time_ratios, sources, 0.025),
          clock::quantile_of_next(rows.time_ratios, sources, 0.975)};
}

}  // namespace

config::Accuracy accuracy_of(const Predictions& collectives, const Trainings& training) {
  const auto of_trainings = [&](double Prediction::*predicted, auto wanted) {
    return rows_of(training.rows, predicted, wanted);
  };
  const auto of_collectives = [&](auto wanted) {
    // Whoever asks of a cluster does not know how its site differs from others: without sites.
    return rows_of(collectives, &Prediction::plain,
                   [&](const Prediction& row) { return !row.calibrates_plain() && !row.symmetric && wanted(row); });
  };
  config::Accuracy accuracy;
  accuracy.rows[ErrorKind::framework] = of_trainings(
      &Prediction::predicted, [](const Prediction& row) { return row.by_framework && row.calibrates.empty(); });
  accuracy.rows[ErrorKind::gpu] =
      of_trainings(&Prediction::by_gpu, [](const Prediction& row) { return row.by_gpu > 0; });
  accuracy.rows[ErrorKind::typical] = of_trainings(&Prediction::typical, [](const Prediction&) { return true; });
  accuracy.rows[ErrorKind::in_node] =
      of_collectives([](const Prediction& row) { return row.in_domain && row.nodes == 1; });
  accuracy.rows[ErrorKind::between_nodes] =
      of_collectives([](const Prediction& row) { return row.in_domain && row.nodes > 1; });
  accuracy.rows[ErrorKind::small] = of_collectives([](const Prediction& row) { return !row.in_domain; });
  accuracy.efficiencies = training.efficiencies;
  return accuracy;
}

namespace {

/// Size of the error that 95 of 100 do not exceed.
double most_of_95(std::vector<double> errors) {
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  return errors[static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(errors.size()))) - 1];
}

void print_errors(const char* name, const std::vector<double>& errors) {
  if (errors.empty()) return;
  fmt::print("{:<72} {:>4} {:>8.1f} % {:>6.1f} %\n", name, errors.size(), 100 * median_error(errors),
             100 * most_of_95(errors));
}

}  // namespace

void print_summary(const Predictions& collectives, const Trainings& training) {
  std::vector<double> large, stated, small, all, others, alone;
  for (const Prediction& row : collectives) {
    if (row.calibrates.empty() && !row.symmetric && row.not_predicted.empty()) {
      (row.in_domain ? large : small).push_back(row.error());
      if (row.in_domain && row.assumed.empty()) stated.push_back(row.error());
    }
  }
  for (const Prediction& row : training.rows) {
    if (!row.not_predicted.empty() || row.experts) continue;
    all.push_back(row.by_all / row.published - 1);
    (row.by_framework ? others : alone).push_back(row.error());
  }
  fmt::print("\n{:<72} {:>4} {:>10} {:>8}\n", "Errors, whatever their sign", "rows", "median", "p95");
  print_errors("collectives from 32 MiB", large);
  print_errors("  of which the source states everything, its fabric too", stated);
  print_errors("smaller collectives", small);
  print_errors("trainings by the efficiency that simulations take", all);
  print_errors("trainings whose group has another source, by it", others);
  print_errors("trainings whose group has none, by their GPU or the typical efficiency", alone);
}

void print_coverage(const config::Accuracy& accuracy) {
  fmt::print(
      "\nInterval of 95 %: measured over predicted time; rows in the interval that all other sources give\n\n{:<16} "
      "{:>5} {:>8} {:>20} {:>10}\n",
      "rows of", "rows", "sources", "interval", "inside");
  for (const ErrorKind kind : kEnumerators<ErrorKind>) {
    const AccuracyRows& rows = accuracy.rows[kind];
    if (rows.distinct_sources() < 2) continue;  // another's table: there is no other source that could give an interval
    int inside = 0;
    for (std::size_t i = 0; i < rows.time_ratios.size(); ++i) {
      AccuracyRows others;
      for (std::size_t k = 0; k < rows.time_ratios.size(); ++k) {
        if (rows.sources[k] == rows.sources[i]) continue;
        others.time_ratios.push_back(rows.time_ratios[k]);
        others.sources.push_back(rows.sources[k]);
      }
      if (others.sources.empty()) continue;
      const clock::Bounds bounds = interval_of(others);
      inside += rows.time_ratios[i] >= bounds.low && rows.time_ratios[i] <= bounds.high;
    }
    const clock::Bounds all = interval_of(rows);
    fmt::print("{:<16} {:>5} {:>8} {:>20} {:>10} {:>6.1f} %\n", to_string(kind), rows.time_ratios.size(),
               rows.distinct_sources(), fmt::format("{:.3f} to {:.3f}", all.low, all.high),
               fmt::format("{} of {}", inside, rows.time_ratios.size()),
               100.0 * inside / static_cast<double>(rows.time_ratios.size()));
  }
}

}  // namespace fsdpbench::bench
