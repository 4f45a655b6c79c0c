// How many policies a second the tuner looks at, and how good its answers are when they run.
//   bench_tune speed [SECONDS [RANKS…]]   Llama 3 8B at emulated rates; default: 60 s each of 8 and 64 ranks
//   bench_tune parts                      what one policy costs, part by part
//   bench_tune regret [CSV]               ten emulated clusters in real time: the answer against 30 measured policies
#include <fmt/format.h>
#include <fmt/os.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "account/statistics.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "runs/measure.h"
#include "runs/simulated_machine.h"
#include "schedule/memory_walk.h"
#include "tune/bound.h"
#include "tune/search.h"
#include "tune/tune_report.h"

namespace fsdpbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

config::RunConfig profile(const std::vector<std::string>& overrides) {
  config::RunConfig config = config::load_profile(config::find_profile("llama3-8b-emulated"), overrides);
  config::validate(config);
  return config;
}

void speed(double seconds, std::int64_t ranks) {
  const config::RunConfig config = profile({fmt::format("mesh.ranks={}", ranks)});
  const tune::Space space(config, {});
  const app::SimulatedMachine machine(config);
  tune::SearchOptions options;
  options.evaluations = std::int64_t{1} << 40;
  options.budget = tune::memory_budget(config, std::int64_t{70} << 30, tune::MemoryKind::live);
  const Clock::time_point begin = Clock::now();
  options.stop = [&] { return seconds_since(begin) > seconds; };
  const tune::SearchResult result = tune::search(space, machine, options);
  const double took = seconds_since(begin);
  fmt::print(
      "{} ranks, {:.1f} s: {:.0f} policies walked ({:.0f} a second), {:.0f} the same as one of them, {:.0f} "
      "pruned, {:.0f} contradictory, {:.0f} left; the best is {:.1f} % off its bound\n",
      ranks, took, result.evaluated, result.evaluated / took, result.same, result.pruned, result.contradictory,
      result.left, 100 * optimality_gap(options.objective, result));
}

void parts() {
  const config::RunConfig config = profile({});
  const app::SimulatedMachine machine(config);
  const tune::Space space(config, {});
  constexpr int kTimes = 100;
  const auto time = [&](const char* name, auto&& what) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kTimes; ++i) what();
    fmt::print("{:<24} {:.3f} ms\n", name, seconds_since(begin) * 1e3 / kTimes);
  };
  const std::vector<plan::ModuleSizes> sizes = machine.sizes(config);
  const schedule::Training training = schedule::make_training(config, sizes);
  const clock::StepCosts least = machine.least_times(training).costs;
  time("configuration", [&] { space.config_at(space.origin()); });
  time("plan", [&] { plan::make_plan(config); });
  time("plan and schedules", [&] { schedule::make_training(config, sizes); });
  time("fingerprint", [&] { schedule::fingerprint(training); });
  time("op times", [&] { machine.least_times(training); });
  time("op times and walk", [&] { machine.forecast(training).slowest_ns(); });
  time("memory", [&] { schedule::memory_walk(training.schedules, 6); });
  time("bound", [&] { tune::lower_bound(training, least); });
}

// --------------------------------------------------------------------------------------------- answers in real time

struct Measured {
  std::size_t tried = 0;
  std::vector<double> medians_ms;
  double median() const { return account::median(medians_ms); }
};

/// Six blocks on four emulated ranks whose step takes some 20 ms.
std::vector<std::string> cluster(int number) {
  const std::vector<const char*> links{"0.1", "0.2", "0.4", "0.8", "1.6"};
  return {"model.preset=quickstart",
          "model.layers=6",
          "mesh.ranks=4",
          "train.steps=5",
          "train.warmup=2",
          "train.seq_len=128",
          "train.batch_per_rank=1",
          "fsdp.param_dtype=fp32",
          "fsdp.activation_checkpointing=false",
          "emulate.compute_tflops=0.05",
          fmt::format("emulate.link_gb_per_s={}", links.at(static_cast<std::size_t>(number) % links.size())),
          fmt::format("emulate.link_latency_us={}", number < 5 ? 20 : 200)};
}

struct Regret {
  double gain = 0;    ///< measured, against what is in force
  double regret = 0;  ///< measured, against the best of those measured
  double tau = 0;     ///< Kendall's tau-b of predicted and measured steps
};

/// Adds predicted and measured ms of all policies to `steps`, and a line of each to `csv`.
Regret regret_of(int number, std::string& csv, std::vector<std::pair<double, double>>& steps) {
  const config::RunConfig config = profile(cluster(number));
  const tune::Space space(config, {});
  const app::SimulatedMachine machine(config);
  tune::SearchOptions options;
  options.evaluations = 3000;
  const tune::SearchResult result = tune::search(space, machine, options);
  std::vector<Measured> measured{{0, {}}, {*result.best, {}}};
  std::mt19937 random(static_cast<unsigned>(number));
  std::set<std::uint64_t> seen{result.start().fingerprint, result.tried[*result.best].fingerprint};
  while (measured.size() < 30) {
    const std::size_t i = random() % result.tried.size();
    // Half from anywhere, half from those that are nearly as good.
    const bool near = result.tried[i].step_ns < 1.1 * result.tried[*result.best].step_ns;
    if ((near || measured.size() % 2 == 0) && seen.insert(result.tried[i].fingerprint).second)
      measured.push_back({i, {}});
  }
  for (int trial = 0; trial < 3; ++trial) {
    for (Measured& policy : measured) {
      const app::Trial ran = app::whole_trial(*space.config_at(result.tried[policy.tried].point), nullptr);
      policy.medians_ms.push_back(account::median(ran.metrics->steps_ms));
    }
  }
  std::vector<std::pair<double, double>> here;
  for (const Measured& policy : measured) {
    const tune::Tried& tried = result.tried[policy.tried];
    here.emplace_back(tried.step_ns / 1e6, policy.median());
    csv += fmt::format("{},{:.4f},{:.4f},{}\n", number, tried.step_ns / 1e6, policy.median(),
                       tune::settings_text(space.settings_at(tried.point)));
  }
  const double best = std::ranges::min_element(measured, {}, &Measured::median)->median();
  steps.insert(steps.end(), here.begin(), here.end());
  return {1 - measured[1].median() / measured[0].median(), measured[1].median() / best - 1,
          account::kendall_tau(here).value_or(0)};
}

void regret(const char* path) {
  std::string csv = "cluster,predicted_ms,measured_ms,settings\n";
  std::vector<std::pair<double, double>> steps;
  for (int number = 0; number < 10; ++number) {
    const Regret found = regret_of(number, csv, steps);
    fmt::print("cluster {}: {:.1f} % less than in force, {:.1f} % longer than the best of 30, Kendall's tau {:.2f}\n",
               number, 100 * found.gain, 100 * found.regret, found.tau);
    std::fflush(stdout);
  }
  fmt::print("all {} policies: Kendall's tau {:.2f}\n", steps.size(), account::kendall_tau(steps).value_or(0));
  if (path != nullptr) fmt::output_file(path).print("{}", csv);
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "speed";
  if (what == "parts") {
    fsdpbench::parts();
  } else if (what == "regret") {
    fsdpbench::regret(argc > 2 ? argv[2] : nullptr);
  } else if (what == "speed") {
    const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
    for (int a = 3; a < std::max(argc, 4); ++a) fsdpbench::speed(seconds, argc > a ? std::atoll(argv[a]) : 8);
    if (argc <= 3) fsdpbench::speed(seconds, 64);
  } else {
    fmt::print(stderr, "bench_tune {}: expected speed, parts or regret\n", what);
    return 2;
  }
  return 0;
}
