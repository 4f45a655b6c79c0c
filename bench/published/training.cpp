#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "clock/compute_cost.h"
#include "clock/forecast.h"
#include "config/accuracy.h"
#include "config/cluster.h"
#include "config/published.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "published/prediction.h"

namespace fsdpbench::bench {
namespace {

using config::CsvRow;

/// One row as `fsdpbench simulate quickstart --set …` would simulate it, with any efficiency.
class Training {
 public:
  explicit Training(const CsvRow& row) {
    const config::RunConfig config = config::published_config(row);
    try {
      cluster_ = config::load_cluster(config.simulate.cluster);
      config::check_fits(cluster_, config.mesh.ranks);
      setup_ = engine::set_up(config);
    } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}", row.place, error.what()));
    }
  }

  /// Tokens a second and rank, in the steady state.
  double tokens_per_second(double efficiency) {
    setup_.config.simulate.efficiency = {efficiency, {}};
    const clock::OpTimes times = engine::simulated_times(setup_, &cluster_);
    const double ns = clock::forecast(setup_, times).slowest_ns();
    const config::Train& train = setup_.config.train;
    const config::Mesh& mesh = setup_.config.mesh;
    const auto tokens = static_cast<double>(train.batch_per_rank * train.seq_len * train.accumulate);
    return tokens * static_cast<double>(mesh.sample_groups()) / static_cast<double>(mesh.ranks) / (ns * 1e-9);
  }

  const config::Cluster& cluster() const { return cluster_; }

 private:
  config::Cluster cluster_;
  engine::Setup setup_;
};

/// The efficiency with which the row comes out as published.
double calibrated(Training& training, double published) {
  double low = 0.02, high = 4;
  for (int i = 0; i < 24; ++i) {
    const double middle = std::sqrt(low * high);
    (training.tokens_per_second(middle) < published ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// Efficiencies that one row tells of its framework on its GPU.
struct Told {
  std::string id, source;
  std::string gpu, numbers, framework;
  double efficiency = 0;

  bool same_group(const Told& other) const {
    return gpu == other.gpu && numbers == other.numbers && framework == other.framework;
  }
};

/// Efficiencies from rows that calibrate. A row is predicted by other sources, never by its own: rows of one source err
/// together.
class Efficiencies {
 public:
  void add(Told told) { told_.push_back(std::move(told)); }

  /// The median of the rows that `holds`; absent if there are none.
  template <class Holds>
  std::optional<double> median(Holds holds) const {
    std::vector<double> values;
    for (const Told& t : told_) {
      if (holds(t)) values.push_back(t.efficiency);
    }
    if (values.empty()) return std::nullopt;
    return config::median_efficiency(values);
  }

  /// Median over frameworks on this GPU with these numbers, each its own median, without `row`'s framework and source.
  std::optional<double> of_others(const Told& row) const {
    std::map<std::string, std::vector<double>> frameworks;
    for (const Told& t : told_) {
      if (t.gpu != row.gpu || t.numbers != row.numbers) continue;
      if (t.framework != row.framework && t.source != row.source) frameworks[t.framework].push_back(t.efficiency);
    }
    std::vector<double> medians;
    for (const auto& [framework, values] : frameworks) medians.push_back(config::median_efficiency(values));
    if (medians.empty()) return std::nullopt;
    return config::median_efficiency(medians);
  }

  std::vector<config::KnownEfficiency> groups() const {
    std::vector<config::KnownEfficiency> known;
    for (const Told& t : told_) {
      const auto same = [&](const config::KnownEfficiency& k) {
        return k.gpu == t.gpu && k.numbers == t.numbers && k.framework == t.framework;
      };
      auto found = std::ranges::find_if(known, same);
      if (found == known.end()) {
        const auto of_group = [&](const Told& other) { return other.same_group(t); };
        found = known.insert(known.end(), {t.gpu, t.numbers, t.framework, *median(of_group), {}});
      }
      found->rows.push_back(t.id);
    }
    std::ranges::sort(known, {}, [](const auto& k) { return std::tuple(k.gpu, k.numbers, k.framework); });
    return known;
  }

 private:
  std::vector<Told> told_;
};

Told told_by(const CsvRow& row, const config::Cluster& cluster) {
  return {row.text("id"), row.text("source"), cluster.gpu.name, row.text("numbers"), row.text("family"), 0};
}

}  // namespace

Trainings predict_training(const std::string& path) {
  const std::vector<CsvRow> rows = config::read_csv(path);
  Efficiencies efficiencies;
  for (const CsvRow& row : rows) {
    if (row.text("calibrates") != "efficiency") continue;
    Training training(row);
    Told told = told_by(row, training.cluster());
    told.efficiency = calibrated(training, row.number("tokens_per_s"));
    efficiencies.add(std::move(told));
  }
  Trainings result;
  for (const CsvRow& row : rows) {
    Prediction& p = result.rows.emplace_back();
    p.id = row.text("id");
    p.what = config::published_title(row);
    p.published = row.text("tokens_per_s").empty() ? 0 : row.number("tokens_per_s");
    p.assumed = row.text_if_any("assumed");
    p.not_predicted = row.text_if_any("not_predicted");
    p.source = row.text("source");
    p.note = row.text_if_any("note");
    p.experts = !row.text_if_any("expert").empty();
    if (!p.not_predicted.empty()) continue;
    Training training(row);
    const Told own = told_by(row, training.cluster());
    p.group = fmt::format("{}, {}, {}", own.gpu, own.numbers, own.framework);
    p.cluster = training.cluster().name;
    p.ranks = row.integer("ranks");
    p.tokens = row.number("batch") * row.number("seq_len");
    p.typical = training.tokens_per_second(clock::kTypicalEfficiency);
    const std::optional<double> by_framework =
        efficiencies.median([&](const Told& t) { return t.same_group(own) && t.source != own.source; });
    const std::optional<double> by_gpu = efficiencies.of_others(own);
    if (by_gpu) p.by_gpu = training.tokens_per_second(*by_gpu);
    p.by_framework = by_framework.has_value();
    const std::optional<double> by_all = efficiencies.median([&](const Told& t) { return t.same_group(own); });
    p.by_all = training.tokens_per_second(by_all.value_or(clock::kTypicalEfficiency));
    // A row of its group's only source is predicted by less, and is no measure of how well groups predict.
    const double used = by_framework.value_or(by_gpu.value_or(clock::kTypicalEfficiency));
    p.predicted = training.tokens_per_second(used);
    p.how = fmt::format("efficiency {:.3f}{}", used,
                        by_framework ? ""
                        : by_gpu     ? " of other frameworks"
                                     : ", the typical one");
    if (row.text("calibrates") != "efficiency") p.calibrates = row.text("calibrates");
    if (!by_framework && p.calibrates.empty() && !p.experts) p.calibrates = "efficiency, alone";
  }
  result.efficiencies = efficiencies.groups();
  return result;
}

}  // namespace fsdpbench::bench
