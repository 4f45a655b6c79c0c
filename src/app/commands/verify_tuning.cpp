#include "app/commands/verify_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

class Verifier {
 public:
  Verifier(const Tuning& tuning, int trials, fs::path folder, Job* job)
      : tuning_(tuning), trials_(trials), folder_(std::move(folder)), job_(job) {}

  Verification verify(int count) {
    for (const std::size_t tried : best_ones(count)) result_.proposals.push_back({.tried = tried});
    std::vector<VerifiedPolicy*> alive;
    for (VerifiedPolicy& proposal : result_.proposals) alive.push_back(&proposal);
    for (int round = 1; !alive.empty(); ++round) {
      run_round(round, alive);
      std::erase_if(alive, [](const VerifiedPolicy* policy) { return !policy->failed.empty(); });
      if (alive.size() <= 1) break;
      std::ranges::stable_sort(alive, {}, [](const VerifiedPolicy* policy) { return policy->median_ms(); });
      alive.resize((alive.size() + 1) / 2);
    }
    compare(result_.control);
    for (VerifiedPolicy& proposal : result_.proposals) compare(proposal);
    if (!alive.empty() && alive.front()->against && alive.front()->against->verdict == metrics::Verdict::faster) {
      result_.chosen = alive.front()->tried;
    }
    return std::move(result_);
  }

 private:
  /// Each schedule once, without the one in force; only those whose memory is known.
  std::vector<std::size_t> best_ones(int count) const {
    const std::vector<tune::Tried>& tried = tuning_.result.tried;
    std::vector<std::size_t> order(tried.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) { return objective_of(tuning_.options.objective, tried[i]); });
    std::set<std::uint64_t> seen{tried.front().fingerprint};
    std::vector<std::size_t> chosen;
    for (const std::size_t i : order) {
      if (static_cast<int>(chosen.size()) == count) break;
      if (tried[i].fits && tried[i].exact && seen.insert(tried[i].fingerprint).second) chosen.push_back(i);
    }
    return chosen;
  }

  void run_round(int round, const std::vector<VerifiedPolicy*>& alive) {
    std::vector<VerifiedPolicy*> turns{&result_.in_force};
    turns.insert(turns.end(), alive.begin(), alive.end());
    turns.push_back(&result_.control);
    for (int trial = 0; trial < trials_; ++trial) {
      // Forth and back: what drifts slowly hits all alike.
      if (trial > 0) std::ranges::reverse(turns);
      for (VerifiedPolicy* policy : turns) {
        if (policy->failed.empty()) run_one(round, trial, *policy);
      }
    }
  }

  void run_one(int round, int trial, VerifiedPolicy& policy) {
    if (interrupt_requested()) throw Interrupted();
    const config::RunConfig config = *tuning_.space.config_at(tuning_.result.tried[policy.tried].point);
    console().progress(fmt::format("verifying: round {}, trial {} of {}: {}", round, trial + 1, trials_,
                                   settings_of(tuning_.space, tuning_.result.tried[policy.tried].point)));
    const bool proposal = &policy != &result_.in_force && &policy != &result_.control;
    fs::path keep;
    if (proposal) keep = folder_ / fmt::format("{}", &policy - result_.proposals.data() + 1);
    if (&policy == &result_.in_force) keep = folder_ / "in-force";
    try {
      const Trial measured = whole_trial(config, job_, trial + 1 == trials_ ? keep : fs::path());
      policy.trials_ms.push_back(measured.metrics->steps_ms);
      policy.live_bytes = std::max(policy.live_bytes, measured.memory.peak_occupied_total);
    } catch (const Error& error) {
      const ExitCode code = error.code();
      // The configuration in force must run, and being stopped or a full disk is no fault of a policy.
      if (!proposal || code == ExitCode::interrupted || code == ExitCode::cannot_write) throw;
      policy.failed = error.what();
      console().warning(fmt::format("a policy failed: {}", error.what()));
    }
  }

  void compare(VerifiedPolicy& policy) const {
    const std::size_t pairs = std::min(policy.trials_ms.size(), result_.in_force.trials_ms.size());
    if (pairs < metrics::kFewestTrials) return;
    const auto first = [&](const VerifiedPolicy& side) {
      return std::vector<std::vector<double>>(side.trials_ms.begin(),
                                              side.trials_ms.begin() + static_cast<std::ptrdiff_t>(pairs));
    };
    policy.against = metrics::compare_samples(first(result_.in_force), first(policy), tuning_.least_gain);
  }

  const Tuning& tuning_;
  int trials_;
  fs::path folder_;
  Job* job_;
  Verification result_;
};

}  // namespace

Verification verify_tuning(const Tuning& tuning, int count, int trials, const fs::path& folder, Job* job) {
  return Verifier(tuning, trials, folder, job).verify(count);
}

}  // namespace fsdpbench::app
