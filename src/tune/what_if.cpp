#include "tune/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "account/step_breakdown.h"
#include "base/error.h"
#include "clock/emulated_times.h"
#include "clock/forecast.h"
#include "clock/measured_host.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"

namespace fsdpbench::app {
namespace {

/// Keys whose effect no op time of the run tells.
constexpr std::array<std::string_view, 13> kOtherRun{"model.",
                                                     "simulate.",
                                                     "device.",
                                                     "nccl.",
                                                     "mesh.ranks",
                                                     "mesh.tensor",
                                                     "mesh.sequence_parallel",
                                                     "mesh.context",
                                                     "mesh.context_method",
                                                     "mesh.expert",
                                                     "mesh.expert_imbalance",
                                                     "mesh.expert_rows",
                                                     "train.optimizer"};
/// Which kernels run: told only where a rate stands for them.
constexpr std::array<std::string_view, 6> kOtherKernels{"fsdp.param_dtype",     "fsdp.fp32_gradients",
                                                        "fsdp.fp8_products",    "fsdp.fp8_recipe",
                                                        "fsdp.recompute_share", "fsdp.checkpoint_keeps"};
constexpr std::array<std::string_view, 15> kNoEffect{"train.steps",
                                                     "train.warmup",
                                                     "train.seed",
                                                     "train.learning_rate",
                                                     "train.beta1",
                                                     "train.beta2",
                                                     "train.epsilon",
                                                     "train.weight_decay",
                                                     "train.params_digest",
                                                     "data.path",
                                                     "trace.ranks",
                                                     "checkpoint.",
                                                     "inject.poison_freed_memory",
                                                     "fsdp.gradient_divide_factor",
                                                     "fsdp.preset"};

template <std::size_t N>
bool among(std::string_view key, const std::array<std::string_view, N>& keys) {
  return std::ranges::any_of(keys,
                             [&](std::string_view k) { return k.ends_with('.') ? key.starts_with(k) : key == k; });
}

[[noreturn]] void refuse(const DifferingKey& key, std::string_view why) {
  throw ConfigError(
      fmt::format("{} was {} in this run and would be {}: {}.", key.key, key.a.dump(), key.b.dump(), why));
}

void check(const config::RunConfig& was, const std::vector<DifferingKey>& keys, std::vector<std::string>& notes) {
  for (const DifferingKey& key : keys) {
    if (among(key.key, kOtherRun)) {
      refuse(key, "that is another run, whose op times were not measured; `fsdpbench run` or `simulate` it");
    }
  }
  for (const DifferingKey& key : keys) {
    if (!was.emulate.compute_tflops && among(key.key, kOtherKernels)) {
      refuse(key, "other kernels run then, whose times were not measured; `fsdpbench run` it");
    }
    if (key.key.starts_with("emulate.") && (key.a.is_null() || key.b.is_null())) {
      refuse(key, "nothing measured tells what is real from what is modelled; use --link-scale or --compute-scale");
    }
    if (key.key == "emulate.link_latency_us" && !was.emulate.link_gb_per_s) {
      refuse(key, "the link was a real one");
    }
    if (key.key != "fsdp.preset" && among(key.key, kNoEffect)) {
      notes.push_back(fmt::format("{} has no effect on a replay", key.key));
    }
    if (key.key == "train.seq_len" || key.key == "train.batch_per_rank") {
      notes.push_back(fmt::format("{} changes the work of every module: its time is scaled by its FLOPs", key.key));
    }
  }
}

/// What each rank's computation and link were slowed down by.
std::pair<std::vector<double>, std::vector<double>> slow_ranks(const config::RunConfig& config) {
  config::Inject slow;
  slow.slow_rank = config.inject.slow_rank;
  slow.slow_rank_factor = config.inject.slow_rank_factor;
  slow.slow_link_rank = config.inject.slow_link_rank;
  slow.slow_link_factor = config.inject.slow_link_factor;
  clock::OpTimes times;
  const auto ranks = static_cast<std::size_t>(config.mesh.ranks);
  clock::add_trouble(slow, 0, static_cast<int>(ranks), times);
  times.compute_factor.resize(ranks, 1.0);
  times.link_factor.resize(ranks, 1.0);
  return {std::move(times.compute_factor), std::move(times.link_factor)};
}

clock::Delays delays_of(const config::RunConfig& config) {
  config::Inject late = config.inject;
  late.slow_rank = late.slow_link_rank = -1;
  clock::OpTimes times;
  clock::add_trouble(late, config.train.seed, static_cast<int>(config.mesh.ranks), times);
  return times.delays;
}

clock::Changes replay_changes(const config::RunConfig& was, const config::RunConfig& is,
                               const WhatIfQuestion& question) {
  clock::Changes changes;
  changes.link_scale = question.link_scale;
  changes.compute_scale = question.compute_scale;
  if (was.emulate.link_gb_per_s) {
    changes.link_scale *= *is.emulate.link_gb_per_s / *was.emulate.link_gb_per_s;
    changes.hop_ns = (is.emulate.link_latency_us - was.emulate.link_latency_us) * 1e3;
  }
  if (was.emulate.compute_tflops) changes.compute_scale *= *is.emulate.compute_tflops / *was.emulate.compute_tflops;
  auto [compute_was, link_was] = slow_ranks(was);
  auto [compute_is, link_is] = slow_ranks(is);
  for (std::size_t rank = 0; rank < compute_is.size(); ++rank) compute_is[rank] /= compute_was[rank];
  changes.compute_factor = std::move(compute_is);
  changes.link_was = std::move(link_was);
  changes.link_is = std::move(link_is);
  changes.issue_ns = std::nearbyint((is.inject.host_delay_us - was.inject.host_delay_us) * 1e3);
  return changes;
}

double exposed_ms(const account::StepRecords& step) {
  double sum = 0;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    sum += static_cast<double>(account::break_down(step, rank).exposed_communication);
  }
  return sum / step.ranks() / 1e6;
}

ReplayedRun replay_steps(const engine::Setup& setup, const clock::OpTimes& times, std::size_t first,
                         double tokens_per_step) {
  std::vector<trace::RankTrace> traces;
  for (int rank = 0; rank < setup.plan.groups.ranks(); ++rank) traces.emplace_back().rank = rank;
  clock::forecast_run(setup, times, times.given.size(), first, traces);
  const account::RunView view(setup.schedules, traces);
  ReplayedRun run;
  run.metrics = account::run_metrics(view, setup.plan.groups, tokens_per_step);
  std::vector<double> exposed;
  for (const account::StepRecords& step : view.steps()) exposed.push_back(exposed_ms(step));
  run.exposed_ms = account::summarize(exposed);
  run.peak_bytes = setup.memory.peak_occupied_total;
  return run;
}

/// Luck of the run's steps, and independently of it what else is in doubt. If nobody knows that, the intervals stay
/// those of the run's own steps.
void give_interval(const FinishedRun& run, WhatIf& answer) {
  const std::optional<double> whole = answer.doubt.whole();
  if (!whole) return;
  account::Summary &change = answer.change, &step_ms = answer.changed.metrics.step_ms;
  const double doubt = (1 + change.median) * *whole;
  change.ci_low = std::max(-1.0, change.median - std::hypot(change.median - change.ci_low, doubt));
  change.ci_high = change.median + std::hypot(change.ci_high - change.median, doubt);
  const double measured_ms = run.trial.metrics->step_ms.median;
  step_ms.ci_low = measured_ms * (1 + change.ci_low);
  step_ms.ci_high = measured_ms * (1 + change.ci_high);
  change.interval = step_ms.interval = account::IntervalKind::prediction;
}

}  // namespace

WhatIf what_if(const FinishedRun& run, const WhatIfQuestion& question) {
  const config::RunConfig& was = run.setup.config;
  WhatIf answer;
  config::RunConfig is = config::load_profile(run.folder + "/config.toml", question.overrides, &answer.notes);
  for (std::string& note : config::validate(is)) answer.notes.push_back(std::move(note));
  answer.keys = differing_keys(config::to_json(was), config::to_json(is));
  check(was, answer.keys, answer.notes);

  const bool virtual_cluster = !was.simulate.cluster.empty();
  const auto link = was.emulate.link();
  const clock::MeasuredTimes measured(
      run.setup, run.traces, link ? std::optional(link->latency_seconds * 1e9) : std::nullopt, !virtual_cluster);
  answer.links = measured.links();
  answer.straggler = measured.straggler();
  clock::Changes changes = replay_changes(was, is, question);
  if (question.without_straggler) {
    if (answer.straggler.rank < 0)
      throw ConfigError("--without-straggler: the run had one rank; nobody waited for it.");
    changes.straggler = answer.straggler.rank;
  }

  const clock::Delays delays = delays_of(was);
  const clock::HostCosts host = clock::measured_host(run.setup.schedules, run.traces, delays);
  const double tokens = run.trial.metrics->tokens_per_s * run.trial.metrics->step_ms.median / 1e3;
  clock::WhatIfTimes base = clock::what_if_times(measured, run.setup);
  base.times.host = host;
  base.times.delays = delays;
  answer.replayed = replay_steps(run.setup, base.times, measured.first_step(), tokens);

  const engine::Setup setup = engine::set_up(is);
  clock::WhatIfTimes changed = clock::what_if_times(measured, setup, changes);
  changed.times.host = host;
  changed.times.delays = delays_of(is);
  answer.origins = changed.origins;
  answer.reach = changed.reach;
  answer.changed = replay_steps(setup, changed.times, measured.first_step(), tokens);

  std::vector<double> ratios;
  for (std::size_t step = 0; step < measured.steps(); ++step) {
    ratios.push_back(answer.changed.metrics.steps_ms[step] / answer.replayed.metrics.steps_ms[step] - 1);
  }
  answer.change = account::summarize(ratios);
  answer.doubt = doubt_of(run, answer.replayed.metrics.step_ms.median);
  answer.doubt.reach = changed.doubt_ns / 1e6 / answer.changed.metrics.step_ms.median;
  give_interval(run, answer);
  return answer;
}

double replay_error(const FinishedRun& run, const WhatIf& answer) {
  return answer.replayed.metrics.step_ms.median / run.trial.metrics->step_ms.median - 1;
}

}  // namespace fsdpbench::app
