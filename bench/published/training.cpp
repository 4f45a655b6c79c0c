#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "config/cluster.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "published/csv_rows.h"
#include "published/prediction.h"
#include "replay/compute_cost.h"
#include "replay/forecast.h"

namespace fsdpbench::bench {
namespace {

/// One row as `fsdpbench simulate quickstart --set …` would simulate it, with any efficiency.
class Training {
 public:
  explicit Training(const CsvRow& row) : cluster_(config::load_cluster(row.text("cluster"))) {
    config::RunConfig config = config::load_profile(config::find_profile("quickstart"), settings_of(row));
    // The rows of a learned table are as many as the sequences are long.
    if (config.model.learned_positions > 0) config.model.learned_positions = config.train.seq_len;
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
  static std::vector<std::string> settings_of(const CsvRow& row) {
    std::vector<std::string> settings{"device.backend=virtual", "emulate.link_gb_per_s=none", "fsdp.param_dtype=bf16",
                                      "train.warmup=0", "train.steps=1"};
    for (const auto& [key, column] : {std::pair{"simulate.cluster", "cluster"},
                                      {"simulate.compiled", "compiled"},
                                      {"simulate.attention", "attention"},
                                      {"simulate.fused_loss", "fused_loss"},
                                      {"simulate.fused_optimizer", "fused_optimizer"},
                                      {"model.preset", "model"},
                                      {"mesh.ranks", "ranks"},
                                      {"mesh.shard", "shard"},
                                      {"fsdp.strategy", "strategy"},
                                      {"fsdp.preset", "system"},
                                      {"fsdp.reduce_dtype", "reduce"},
                                      {"train.batch_per_rank", "batch"},
                                      {"train.seq_len", "seq_len"},
                                      {"train.accumulate", "accumulate"}}) {
      if (!row.text(column).empty()) settings.push_back(fmt::format("{}={}", key, row.text(column)));
    }
    if (row.text("numbers") == "fp8") settings.emplace_back("fsdp.fp8_products=true");
    add_checkpointing(row, settings);
    return settings;
  }

  /// none; all; every:N, of every N-th block; share:X, that part of all blocks.
  static void add_checkpointing(const CsvRow& row, std::vector<std::string>& settings) {
    const std::string& text = row.text("checkpointing");
    if (text == "none") return;
    settings.emplace_back("fsdp.activation_checkpointing=true");
    if (text == "all") return;
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    if (colon == std::string::npos || (kind != "every" && kind != "share")) {
      throw ConfigError(
          fmt::format("{}: checkpointing = {} is not valid; expected none, all, every:N or share:X.", row.place, text));
    }
    settings.push_back((kind == "every" ? "fsdp.checkpoint_every=" : "fsdp.recompute_share=") + text.substr(colon + 1));
  }

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

std::string title(const CsvRow& row) {
  const std::string& checkpointing = row.text("checkpointing");
  return fmt::format("{}, {} {} on {}, {} x {} tokens{}", row.text("model"), row.text("ranks"), row.text("numbers"),
                     row.text("cluster").empty() ? "?" : row.text("cluster"),
                     row.text("batch").empty() ? "?" : row.text("batch"),
                     row.text("seq_len").empty() ? "?" : row.text("seq_len"),
                     checkpointing.empty() || checkpointing == "none" ? "" : ", checkpointing " + checkpointing);
}

}  // namespace

Predictions predict_training(const std::string& path) {
  const std::vector<CsvRow> rows = read_csv(path);
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
    p.what = title(row);
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
