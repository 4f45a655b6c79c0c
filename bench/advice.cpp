// Is advice worth following? On emulated clusters with known trouble each knob that a run's report advises is turned,
// and the gain that was predicted held against the steps of both configurations, run in turns on this machine.
//   bench_advice [CASES] [FILE.json]
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "account/counterfactual.h"
#include "account/statistics.h"
#include "support/cause_cases.h"

namespace fsdpbench {
namespace {

using account::Cause;

constexpr int kTurns = 3;
constexpr double kWithin = 0.03;  // of the step

struct Measured {
  std::vector<double> steps_ms;
  account::CauseReport report;
};

Measured measure(const config::RunConfig& asked) {
  const testing::Diagnosis run = testing::diagnose_whole(asked, [](const auto& c) { return testing::run_tiny(c); });
  return {run.metrics.steps_ms, run.report};
}

/// A case whose first run advises a knob.
struct Advised {
  testing::CauseCase known;
  account::Counterfactual advice;
  config::RunConfig followed;
};

std::optional<Advised> advised(const testing::CauseCase& known) {
  const Measured first = measure(known.config);
  for (const account::Counterfactual& knob : first.report.knobs) {
    if (!knob.advised) continue;
    for (const account::Knob& k : account::knobs_of(testing::settled(known.config))) {
      if (k.set == knob.set) return Advised{known, knob, k.config};
    }
  }
  return std::nullopt;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  using namespace fsdpbench;
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 20;
  testing::CauseCases cases(7);
  constexpr Cause kCauses[] = {Cause::late_prefetch, Cause::all_gather_limit,       Cause::host_sync,
                               Cause::link_bound,    Cause::inefficient_collective, Cause::communicator_serialisation};
  nlohmann::json list = nlohmann::json::array();
  int near = 0, done = 0;
  fmt::print("{:<30} {:<40} {:>10} {:>20} {:>10} {:>8}\n", "known", "advice", "predicted", "interval", "measured",
             "step");
  for (int i = 0; done < wanted && i < 3 * wanted; ++i) {
    testing::CauseCase known = cases.one(kCauses[static_cast<std::size_t>(i) % std::size(kCauses)]);
    known.config.train.steps = 9;
    const std::optional<Advised> a = advised(known);
    if (!a) {
      fmt::print("{:<30} nothing\n", known.name);
      continue;
    }
    std::vector<double> before, after;
    for (int turn = 0; turn < kTurns; ++turn) {
      append(before, measure(a->known.config).steps_ms);
      append(after, measure(a->followed).steps_ms);
    }
    const double step = account::median(before), gain = step - account::median(after);
    const account::Counterfactual& said = a->advice;
    const bool good = std::abs(gain - said.gain_ms) <= kWithin * step || (gain >= said.ci_low && gain <= said.ci_high);
    near += good ? 1 : 0;
    ++done;
    fmt::print("{:<30} {:<40} {:>7.2f} ms {:>20} {:>7.2f} ms {:>8.2f}{}\n", known.name, said.set, said.gain_ms,
               fmt::format("{:.2f} to {:.2f}", said.ci_low, said.ci_high), gain, step, good ? "" : "  off");
    std::fflush(stdout);
    list.push_back({{"known", known.name},
                    {"set", said.set},
                    {"predicted_ms", said.gain_ms},
                    {"ci_low", said.ci_low},
                    {"ci_high", said.ci_high},
                    {"measured_ms", gain},
                    {"step_ms", step},
                    {"near", good}});
  }
  fmt::print("\nwithin {:.0f} % of the step or the stated interval: {} of {}\n", 100 * kWithin, near, done);
  if (argc > 2)
    std::ofstream(argv[2]) << nlohmann::json{{"near", near}, {"cases", done}, {"list", list}}.dump(2) << '\n';
  return 0;
}
