// How well the computed clock predicts real concurrency: policies of an emulated cluster are run on this machine and
// simulated by a calibration of ten others. Beside each error stands what the machine differs from itself by, and how
// many measured steps lie in the 95 % interval of their prediction.
//   bench_simulate [POLICIES a number of ranks [CSV [RANKS]]]
// CSV: a file, or "" for none. RANKS: 2, 4 or 8, emulated, with random policies; computing, for two ranks that really
// compute; engines, for four emulated ones with the presets of all engines in turn; all five.
#include <fmt/format.h>
#include <fmt/os.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "account/run_metrics.h"
#include "account/statistics.h"
#include "account/step_view.h"
#include "backend/cpu/backend.h"
#include "clock/calibration.h"
#include "clock/measured_host.h"
#include "config/presets.h"
#include "engine/run.h"
#include "engine/simulate.h"
#include "support/presets.h"

namespace fsdpbench {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr int kCalibrating = 10;

class SomeTokens : public engine::BatchSource {
 public:
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::int32_t>((sample * 31 + static_cast<std::int64_t>(i) * 7) % 256);
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}
};

/// Ranks on this machine, on an emulated link; whether they compute, or computation is emulated, too; whether they do
/// as the presets say, or as random policies do.
struct Ranks {
  int count;
  bool compute = false, engines = false;
  std::string name() const { return compute ? "computing" : engines ? "engines" : fmt::format("{}", count); }
};
const std::vector<Ranks> kRanks{{2}, {4}, {8}, {.count = 2, .compute = true}, {.count = 4, .engines = true}};

/// Six blocks whose forward takes 3 ms, if it is emulated; a gather of one about as long.
RunConfig cluster_of(const Ranks& ranks) {
  RunConfig c;
  c.model.layers = 6;
  c.model.width = 256;
  c.model.heads = c.model.kv_heads = 4;
  c.model.ffn_width = 512;
  c.model.vocab = 256;
  c.mesh = {ranks.count, ranks.count, 1};
  c.train.steps = 5;
  c.train.warmup = 2;
  c.train.seq_len = 64;
  c.train.batch_per_rank = 1;
  const engine::Setup p = engine::set_up(c);
  if (!ranks.compute) c.emulate.compute_tflops = p.sizes[1].forward_flops / 3e-3 / 1e12;
  c.emulate.link_gb_per_s = static_cast<double>(p.plan.units[1].layout.gathered_numel()) * 4 / 3e-3 / 1e9;
  c.emulate.link_latency_us = 50;
  return c;
}

template <typename T>
T pick(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

RunConfig random_policy(std::mt19937& random, const Ranks& of) {
  const int ranks = of.count;
  RunConfig c = cluster_of(of);
  Fsdp& f = c.fsdp;
  const bool coin = random() % 2 == 0;
  f.strategy =
      pick(random, {Strategy::full_shard, Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard});
  if (ranks < 4 && f.strategy == Strategy::hybrid_shard) f.strategy = Strategy::full_shard;
  if (f.strategy == Strategy::hybrid_shard) c.mesh = {ranks, ranks / 2, 2};
  f.layout = pick(random, {Layout::flat, Layout::per_param});
  f.forward_prefetch = {pick(random, {Prefetch::Mode::none, Prefetch::Mode::implicit, Prefetch::Mode::explicit_}), 2};
  f.backward_prefetch = {pick(random, {Prefetch::Mode::none, Prefetch::Mode::post, Prefetch::Mode::pre}), 1};
  using Limit = AllGatherLimit::Mode;
  f.all_gather_limit = {pick(random, {Limit::unlimited, Limit::fsdp1_queue, Limit::fsdp2_event, Limit::strict}),
                        pick(random, {1, 2, 3}), 0};
  f.reduce_scatter_buffers = pick(random, {0, 1, 2});
  f.separate_reduce_scatter_comm = coin;
  f.wrap = {pick(random, {Wrap::Mode::block, Wrap::Mode::block, Wrap::Mode::blocks}), 2, 0};
  f.activation_checkpointing = random() % 3 == 0;
  c.train.accumulate = pick(random, {1, 1, 2});
  return c;
}

/// Presets in turn; their elements suit the size of these units. Whole rounds take checkpointing by turns, so that what
/// calibrates, two microbatches a step, is no policy of these.
RunConfig preset_policy(int i, int accumulate, const Ranks& of) {
  const std::vector<std::string> names = config::fsdp_preset_names();
  const std::size_t number = static_cast<std::size_t>(i) % names.size();
  RunConfig c = cluster_of(of);
  const std::int64_t unit = engine::set_up(c).plan.units[1].layout.parameter_numel();
  c = testing::with_scaled_preset(c, names[number], unit);
  if (c.fsdp.reshard_after_forward.mode == ReshardAfterForward::Mode::group) c.fsdp.reshard_after_forward.group = 2;
  if (static_cast<std::size_t>(i) / names.size() % 2 == 1) {
    c.fsdp.activation_checkpointing = !c.fsdp.activation_checkpointing;
  }
  c.train.accumulate = accumulate;
  return c;
}

struct Step {
  double ms = 0;
  double exposed_ms = 0;
};

Step step_of(const engine::Setup& p, engine::Measurement& m, bool real) {
  if (real) account::fill_peers_arrived(p.schedules, p.plan.groups, m.traces);
  const account::RunMetrics metrics = account::run_metrics({p.schedules, m.traces}, p.plan.groups, 1);
  return {metrics.step_ms.median, metrics.exposed_comm_ms};
}

engine::Measurement run(const engine::Setup& p) {
  return engine::run(*backend::cpu::make_cpu_backend(), p, SomeTokens());
}

Step simulated(const engine::Setup& p, const clock::OpTimes& times) {
  engine::Measurement m = engine::simulate(p, times);
  return step_of(p, m, false);
}

/// None of them is predicted. Of random ones the first see to it that every kind of op is measured.
std::vector<RunConfig> calibrating_policies(std::mt19937& random, const Ranks& of) {
  std::vector<RunConfig> policies;
  if (of.engines) {
    for (int i = 0; i < 2 * static_cast<int>(config::fsdp_preset_names().size()); ++i) {
      policies.push_back(preset_policy(i, 2, of));
    }
    return policies;
  }
  for (int i = 0; i < kCalibrating; ++i) policies.push_back(random_policy(random, of));
  if (of.count >= 4) {
    policies[0].fsdp.strategy = Strategy::hybrid_shard;
    policies[0].mesh = {of.count, of.count / 2, 2};
  }
  policies[1].fsdp.layout = Layout::flat;
  policies[2].fsdp.layout = Layout::per_param;
  policies[3].fsdp.activation_checkpointing = true;
  policies[4].train.accumulate = 2;
  return policies;
}

config::Calibration calibrate(const std::vector<RunConfig>& policies) {
  clock::Calibrator calibrator;
  std::vector<std::pair<engine::Setup, Step>> runs;
  for (const RunConfig& c : policies) {
    engine::Setup p = engine::set_up(c);
    engine::Measurement m = run(p);
    const Step measured = step_of(p, m, true);
    calibrator.add({p, m.traces, c.emulate.link_latency_us * 1e3, true},
                   clock::measured_host(p.schedules, m.traces, {}));
    runs.emplace_back(std::move(p), measured);
  }
  config::Calibration calibration = calibrator.result();
  for (const auto& [p, measured] : runs) {
    const Step says = simulated(p, engine::calibrated_times(p, calibration).times);
    calibration.misses.push_back({measured.ms / says.ms - 1, (measured.exposed_ms - says.exposed_ms) / says.ms});
  }
  return calibration;
}

struct Row {
  int ranks;
  bool compute;
  std::string preset;  // of an engine
  Step measured, again, predicted;
  clock::Bounds interval_ms;  // of the prediction
  double error() const { return std::abs(predicted.ms / measured.ms - 1); }
  double exposed_error() const { return std::abs(predicted.exposed_ms - measured.exposed_ms) / measured.ms; }
  double noise() const { return std::abs(again.ms / measured.ms - 1); }
  bool holds() const { return interval_ms.low <= measured.ms && measured.ms <= interval_ms.high; }
};

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Rank correlation of rows that ran alike, predicted against measured, as the mean by their number.
double kendall_tau(const std::vector<Row>& rows) {
  std::map<std::pair<int, bool>, std::vector<std::pair<double, double>>> alike;
  for (const Row& row : rows) alike[{row.ranks, row.compute}].emplace_back(row.predicted.ms, row.measured.ms);
  double sum = 0;
  for (const auto& [of, figures] : alike) {
    sum += account::kendall_tau(figures).value_or(1) * static_cast<double>(figures.size());
  }
  return sum / static_cast<double>(rows.size());
}

void print(const std::string& what, const std::vector<Row>& rows) {
  std::vector<double> error, exposed, noise;
  for (const Row& row : rows) {
    error.push_back(100 * row.error());
    exposed.push_back(100 * row.exposed_error());
    noise.push_back(100 * row.noise());
  }
  const auto held = static_cast<double>(std::ranges::count_if(rows, &Row::holds));
  fmt::print("{:<16} {:>8} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.3f} {:>9.0f}\n", what,
             rows.size(), quantile(error, 0.5), quantile(error, 0.95), quantile(exposed, 0.5), quantile(exposed, 0.95),
             quantile(noise, 0.5), quantile(noise, 0.95), kendall_tau(rows),
             100 * held / static_cast<double>(rows.size()));
  std::fflush(stdout);
}

void print_presets(const std::vector<Row>& rows) {
  for (const std::string& preset : config::fsdp_preset_names()) {
    std::vector<Row> of_preset;
    std::ranges::copy_if(rows, std::back_inserter(of_preset), [&](const Row& row) { return row.preset == preset; });
    if (!of_preset.empty()) print(preset, of_preset);
  }
}

/// The simulated step by the calibration, and the least and greatest with its errors drawn.
void predict(const engine::Setup& p, const config::Calibration& calibration, Row& row) {
  const clock::CalibratedTimes times = engine::calibrated_times(p, calibration);
  row.predicted = simulated(p, times.times);
  std::vector<double> drawn;
  for (int draw = 0; draw < clock::Uncertainty::kDraws; ++draw) {
    drawn.push_back(simulated(p, clock::drawn(times.times, times.uncertainty, draw)).ms);
  }
  const double ms = row.predicted.ms;
  row.interval_ms = clock::interval_around(ms, ms, drawn, times.uncertainty.step_miss * ms);
}

int measure(int policies, const std::string& csv, const std::vector<Ranks>& wanted) {
  fmt::print("{:<16} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9}\n", "", "", "step", "step", "exposed",
             "exposed", "A/A", "A/A", "Kendall", "in 95 %");
  fmt::print("{:<16} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9}\n", "ranks", "policies", "median %", "p95 %",
             "median %", "p95 %", "median %", "p95 %", "tau", "interval %");
  std::vector<Row> all;
  for (const Ranks& of : wanted) {
    const int ranks = of.count;
    std::mt19937 random(static_cast<unsigned>(ranks));
    const config::Calibration calibration = calibrate(calibrating_policies(random, of));
    std::vector<Row> rows;
    for (int i = 0; i < policies; ++i) {
      const RunConfig c = of.engines ? preset_policy(i, 1, of) : random_policy(random, of);
      const engine::Setup p = engine::set_up(c);
      Row row{};
      row.ranks = ranks;
      row.compute = of.compute;
      if (of.engines) row.preset = c.fsdp.preset;
      engine::Measurement first = run(p), second = run(p);
      row.measured = step_of(p, first, true);
      row.again = step_of(p, second, true);
      predict(p, calibration, row);
      rows.push_back(row);
    }
    if (of.engines) print_presets(rows);
    print(of.compute ? fmt::format("{} computing", ranks) : of.name(), rows);
    all.insert(all.end(), rows.begin(), rows.end());
    if (ranks == 8 && wanted.size() > 1) print("2, 4, 8", all);
  }
  if (csv.empty()) return 0;
  auto file = fmt::output_file(csv);
  file.print(
      "ranks;computing;measured_ms;again_ms;predicted_ms;measured_exposed_ms;predicted_exposed_ms;low_ms;high_ms;"
      "preset\n");
  for (const Row& r : all) {
    file.print("{};{};{:.4f};{:.4f};{:.4f};{:.4f};{:.4f};{:.4f};{:.4f};{}\n", r.ranks, r.compute ? 1 : 0, r.measured.ms,
               r.again.ms, r.predicted.ms, r.measured.exposed_ms, r.predicted.exposed_ms, r.interval_ms.low,
               r.interval_ms.high, r.preset);
  }
  return 0;
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  const int policies = argc > 1 ? std::atoi(argv[1]) : 34;
  if (policies < 2) {
    fmt::print(stderr, "error: {} policies say nothing; expected a number from 2\n", argv[1]);
    return 2;
  }
  std::vector<fsdpbench::Ranks> wanted;
  for (const fsdpbench::Ranks& ranks : fsdpbench::kRanks) {
    if (argc <= 3 || ranks.name() == argv[3]) wanted.push_back(ranks);
  }
  if (wanted.empty()) {
    fmt::print(stderr, "error: ranks = {} is not valid; expected 2, 4, 8, computing or engines\n", argv[3]);
    return 2;
  }
  return fsdpbench::measure(policies, argc > 2 ? argv[2] : "", wanted);
}
