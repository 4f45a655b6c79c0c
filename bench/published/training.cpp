#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "config/cluster.h"
#include "config/csv_rows.h"
#include "config/published.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "published/prediction.h"
#include "replay/compute_cost.h"
#include "replay/forecast.h"

namespace fsdpbench::bench {
namespace {

using config::CsvRow;

/// One row as `fsdpbench simulate quickstart --set …` would simulate it, with any efficiency.
class Training {
 public:
  explicit Training(const CsvRow& row) : cluster_(config::load_cluster(row.text("cluster"))) {
    config::RunConfig config = config::published_config(row);
    config::validate(config);
    config::check_fits(cluster_, config.mesh.ranks);
    setup_ = engine::set_up(config);
  }

  /// Tokens a second and rank, in the steady state.
  double tokens_per_second(double efficiency) {
    setup_.config.simulate.efficiency = efficiency;
    const replay::OpTimes times = engine::simulated_times(setup_, &cluster_);
    const double ns = replay::forecast(setup_, times).slowest_ns();
    const config::Train& train = setup_.config.train;
    return static_cast<double>(train.batch_per_rank * train.seq_len * train.accumulate) / (ns * 1e-9);
  }

  const config::Cluster& cluster() const { return cluster_; }

 private:
  config::Cluster cluster_;
  engine::Setup setup_;
};

/// The efficiency with which the row comes out as published: the one number that a group of rows is calibrated by.
double calibrated(Training& training, double published) {
  double low = 0.02, high = 4;
  for (int i = 0; i < 24; ++i) {
    const double middle = std::sqrt(low * high);
    (training.tokens_per_second(middle) < published ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// The efficiencies that calibrating rows set, by GPU, numbers and family.
class Efficiencies {
 public:
  void set(const CsvRow& row, const config::Cluster& cluster, double efficiency) {
    known_.push_back({cluster.gpu.name, row.text("numbers"), row.text("family"), efficiency});
  }

  struct Found {
    double efficiency = 0;
    std::string how;
  };
  /// Of the row's own group; else of the same GPU and family with other numbers, of the GPU in another family, of any.
  Found of(const CsvRow& row, const config::Cluster& cluster) const {
    const auto gpu = [&](const Known& k) { return k.gpu == cluster.gpu.name; };
    const auto family = [&](const Known& k) { return k.family == row.text("family"); };
    const auto numbers = [&](const Known& k) { return k.numbers == row.text("numbers"); };
    if (const auto e = median([&](const Known& k) { return gpu(k) && family(k) && numbers(k); })) return found(*e, "");
    if (const auto e = median([&](const Known& k) { return gpu(k) && family(k); }))
      return found(*e, " of other numbers");
    if (const auto e = median(gpu)) return found(*e, " of other families");
    return found(replay::kTypicalEfficiency, ", the typical one");
  }

 private:
  struct Known {
    std::string gpu, numbers, family;
    double efficiency = 0;
  };
  static Found found(double efficiency, const char* whose) {
    return {efficiency, fmt::format("efficiency {:.3f}{}", efficiency, whose)};
  }
  template <class Holds>
  std::optional<double> median(Holds holds) const {
    std::vector<double> values;
    for (const Known& k : known_) {
      if (holds(k)) values.push_back(k.efficiency);
    }
    if (values.empty()) return std::nullopt;
    std::ranges::sort(values);
    return values[values.size() / 2];
  }

  std::vector<Known> known_;
};

}  // namespace

Predictions predict_training(const std::string& path) {
  const std::vector<CsvRow> rows = config::read_csv(path);
  Efficiencies efficiencies;
  for (const CsvRow& row : rows) {
    if (row.text("calibrates") != "efficiency") continue;
    Training training(row);
    efficiencies.set(row, training.cluster(), calibrated(training, row.number("tokens_per_s")));
  }
  Predictions predictions;
  for (const CsvRow& row : rows) {
    Prediction& p = predictions.emplace_back();
    p.id = row.text("id");
    p.what = config::published_title(row);
    p.published = row.text("tokens_per_s").empty() ? 0 : row.number("tokens_per_s");
    p.calibrates = row.text("calibrates");
    p.assumed = row.text("assumed");
    p.not_predicted = row.text("not_predicted");
    p.source = row.text("source");
    p.note = row.text("note");
    if (!p.not_predicted.empty()) continue;
    Training training(row);
    const Efficiencies::Found found = efficiencies.of(row, training.cluster());
    p.group = fmt::format("{}, {}, {}", training.cluster().gpu.name, row.text("numbers"), row.text("family"));
    p.cluster = training.cluster().name;
    p.ranks = row.integer("ranks");
    p.predicted = training.tokens_per_second(found.efficiency);
    p.typical = training.tokens_per_second(replay::kTypicalEfficiency);
    p.how = found.how;
  }
  return predictions;
}

}  // namespace fsdpbench::bench
