#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/step_view.h"
#include "model/model.h"
#include "plan/plan.h"
#include "schedule/policy.h"
#include "support/tiny_run.h"

namespace fsdpbench::testing {

/// A run in which it is known why computation waits: computation and link are emulated, and one, two or no causes are
/// configured or injected.
struct CauseCase {
  std::string name;
  config::RunConfig config;
  std::vector<account::Cause> expected;    ///< besides the ends of the step
  int late_rank = -1;                      ///< expected straggler, or whose link is slow
  std::vector<config::RunConfig> without;  ///< the same without each of them
};

/// Maker of cases: sizes of the emulated model, link and computation.
class CauseCases {
 public:
  /// Which sizes: few ranks and layers, whose runs sleep for a short while only, or as many as a computed clock likes.
  enum class Sizes { small, many };
  explicit CauseCases(unsigned seed, Sizes sizes = Sizes::small) : random_(seed), sizes_(sizes) {}

  /// A step whose communication hides: forward 3 ms a block, backward 6 ms, gather and reduce-scatter about 2 ms each.
  config::RunConfig healthy() {
    config::RunConfig c;
    c.model.layers = sizes_ == Sizes::small ? pick({4, 5, 6}) : pick({4, 6, 8, 12});
    c.model.width = 256;
    c.model.heads = 4;
    c.model.kv_heads = 4;
    c.model.ffn_width = 512;
    c.model.vocab = 64;
    c.mesh.ranks = sizes_ == Sizes::small ? pick({2, 3, 4}) : pick({2, 3, 4, 8});
    c.train.steps = 3;
    c.train.warmup = 1;
    c.train.seq_len = 64;
    c.train.batch_per_rank = 1;
    c.fsdp.layout = pick({0, 1}) == 0 ? config::Layout::flat : config::Layout::per_param;
    set_rates(c, 3.0, std::uniform_real_distribution<>(1.6, 2.4)(random_), 0);
    return c;
  }

  /// Makes a block's forward take `forward_ms` and its gather `bandwidth_ms` + `latency_ms`.
  static void set_rates(config::RunConfig& c, double forward_ms, double bandwidth_ms, double latency_ms) {
    const config::RunConfig whole = settled(c);
    const plan::Plan plan = plan::make_plan(whole);  // a setup has the schedules, too, which takes far longer
    const plan::ModuleSizes block = model::make_model(whole, plan.shapes)->sizes()[1];
    c.emulate.compute_tflops = block.forward_flops / (forward_ms * 1e-3) / 1e12;
    const auto ranks = static_cast<double>(c.mesh.ranks);
    const double wire = static_cast<double>(plan.units[1].layout.gathered_numel()) * 4 * (ranks - 1) / ranks;
    c.emulate.link_gb_per_s = wire / (bandwidth_ms * 1e-3) / 1e9;
    c.emulate.link_latency_us = latency_ms * 1000 / (ranks - 1);
  }

  CauseCase none() { return {"none", healthy(), {}, -1, {}}; }

  CauseCase one(account::Cause cause) {
    CauseCase c{std::string(account::to_string(cause)), healthy(), {}, -1, {}};
    add(c, cause);
    return c;
  }

  CauseCase two(account::Cause a, account::Cause b) {
    CauseCase c{std::string(account::to_string(a)) + " + " + std::string(account::to_string(b)), healthy(), {}, -1, {}};
    config::RunConfig healthy = c.config;
    add(c, a);
    c.without = {healthy, c.config};
    const auto drawn = random_;
    add(c, b);
    {
      CauseCase other{"", healthy, {}, -1, {}};
      random_ = drawn;
      add(other, b);
      c.without.front() = other.config;
    }
    if (a == account::Cause::late_prefetch) {  // in backward, so that it does not mask what happens in forward
      c.config.fsdp.forward_prefetch.mode = config::Prefetch::Mode::implicit;
      c.config.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
      c.without.back().fsdp = c.config.fsdp;
    }
    return c;
  }

 private:
  int pick(std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_)];
  }

  void add(CauseCase& c, account::Cause cause) {
    using account::Cause;
    config::Fsdp& fsdp = c.config.fsdp;
    config::Inject& inject = c.config.inject;
    c.expected.push_back(cause);
    switch (cause) {
      case Cause::late_prefetch:
        if (pick({0, 1}) == 0) {
          fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
        } else {
          fsdp.forward_prefetch.mode = config::Prefetch::Mode::none;
        }
        return;
      case Cause::all_gather_limit: fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, 1, 0}; return;
      case Cause::straggler:
        inject.slow_rank = c.late_rank = pick({0, 1});
        inject.slow_rank_factor = std::uniform_real_distribution<>(1.4, 2.5)(random_);
        return;
      case Cause::host_sync:
        c.config.model.layers = 4;  // one gather is a visible share of a short step
        inject.host_sync_after_layer = pick({0, 1, 2});
        return;
      case Cause::link_bound:
        *c.config.emulate.link_gb_per_s /= std::uniform_real_distribution<>(3.0, 5.0)(random_);
        return;
      case Cause::slow_link:
        inject.slow_link_rank = c.late_rank = pick({0, 1});
        inject.slow_link_factor = std::uniform_real_distribution<>(4.0, 6.0)(random_);
        return;
      case Cause::inefficient_collective:  // no gathers in backward, and latency where bandwidth was
        fsdp.strategy = config::Strategy::shard_grad_op;
        set_rates(c.config, 3.0, 0.3, std::uniform_real_distribution<>(4.0, 5.5)(random_));
        return;
      case Cause::communicator_serialisation:
        // Gathers of bf16 hide in forward; reduce-scatters of fp32, mostly latency, push them out in backward.
        fsdp.param_dtype = DType::bf16;
        set_rates(c.config, 3.0, 1.9, 1.95);
        return;
      case Cause::host_bound: inject.host_delay_us = std::uniform_real_distribution<>(1500, 2500)(random_); return;
      case Cause::unknown:  // something outside the schedule holds a lane
        inject.delay_lane = "copy";
        inject.delay_us = 5000;
        fsdp.layout = config::Layout::per_param;
        return;
      default: return;
    }
  }

  std::mt19937 random_;
  Sizes sizes_;
};

struct Diagnosis {
  account::RunMetrics metrics;
  account::CauseReport report;
};

/// Runs a case by `run`, run_tiny or simulate_tiny, and ranks its causes.
template <typename Run>
Diagnosis diagnose_whole(const config::RunConfig& asked, Run&& run) {
  const config::RunConfig c = settled(asked);
  const engine::Setup p = engine::set_up(c);
  engine::Measurement result = run(c);
  account::fill_peers_arrived(p.schedules, p.plan.groups, result.traces);
  const account::RunView view(p.schedules, result.traces);
  Diagnosis found{account::run_metrics(view, p.plan.groups, 1), {}};
  found.report = account::report_causes(view, p, found.metrics);
  return found;
}
template <typename Run>
account::CauseReport diagnose(const config::RunConfig& asked, Run&& run) {
  return diagnose_whole(asked, std::forward<Run>(run)).report;
}

/// Takes those of two causes out of the expected ones without which the simulated step is not kSmallSharePct shorter:
/// what is hidden behind the other costs nothing.
inline void forget_what_costs_nothing(CauseCase& c) {
  const auto step_ns = [](const config::RunConfig& config) {
    const engine::Measurement run = simulate_tiny(config);
    return account::RunView(engine::set_up(settled(config)).schedules, run.traces).steps().back().slowest_ns();
  };
  if (c.without.size() < 2) return;
  const auto with = static_cast<double>(step_ns(c.config));
  for (std::size_t i = c.without.size(); i-- > 0;) {
    const double gain_pct = 100 * (1 - static_cast<double>(step_ns(c.without[i])) / with);
    if (gain_pct < account::kSmallSharePct) c.expected.erase(c.expected.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// The causes that were found, largest first, the ends of the step left out.
inline std::vector<account::CauseShare> found_causes(const account::CauseReport& report) {
  std::vector<account::CauseShare> found;
  for (const account::CauseShare& c : report.causes) {
    if (c.cause != account::Cause::step_boundary) found.push_back(c);
  }
  return found;
}

/// Right: nothing found where nothing is, the one cause on top, or both of two on top.
inline bool right(const CauseCase& c, const std::vector<account::CauseShare>& found) {
  if (c.expected.empty()) return found.empty();
  if (found.size() < c.expected.size()) return false;
  for (std::size_t i = 0; i < c.expected.size(); ++i) {
    if (std::find(c.expected.begin(), c.expected.end(), found[i].cause) == c.expected.end()) return false;
    const bool of_a_rank = found[i].cause == account::Cause::straggler || found[i].cause == account::Cause::slow_link;
    if (of_a_rank && found[i].late_rank != c.late_rank) return false;
  }
  return true;
}

}  // namespace fsdpbench::testing
