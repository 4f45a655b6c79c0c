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
#include "base/bytes.h"
#include "base/error.h"
#include "clock/caching_allocator.h"
#include "clock/cluster_times.h"
#include "clock/emulated_times.h"
#include "clock/forecast.h"
#include "clock/measured_host.h"
#include "config/cluster.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"
#include "engine/simulate.h"
#include "record/table.h"
#include "runs/result_fields.h"
#include "runs/run_table.h"
#include "runs/simulated_machine.h"
#include "tune/answer.h"

namespace fsdpbench::app {
namespace {

/// Keys whose effect no op time of the run tells.
constexpr std::array<std::string_view, 12> kOtherRun{"model.",
                                                     "simulate.",
                                                     "device.",
                                                     "nccl.",
                                                     "mesh.ranks",
                                                     "mesh.tensor",
                                                     "mesh.sequence_parallel",
                                                     "mesh.context",
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

/// Factors by which each rank's computation and link were slowed down.
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

/// All measured steps again. Under PyTorch's allocator, if the run was simulated so.
ReplayedRun replay_steps(const engine::Setup& setup, const clock::OpTimes& times, const clock::MeasuredTimes& measured,
                         const Trial& trial) {
  std::vector<trace::RankTrace> traces;
  for (int rank = 0; rank < setup.plan.groups.ranks(); ++rank) traces.emplace_back().rank = rank;
  const std::size_t first = measured.first_step();
  clock::forecast_run(setup, times, first + measured.steps(), first, traces);
  const double tokens_per_step = trial.metrics->tokens_per_s * trial.metrics->step_ms.median / 1e3;
  const account::RunView view(setup.schedules, traces);
  ReplayedRun run;
  run.metrics = account::run_metrics(view, setup.plan.groups, tokens_per_step);
  std::vector<double> exposed;
  for (const account::StepRecords& step : view.steps()) exposed.push_back(exposed_ms(step));
  run.exposed_ms = account::summarize(exposed);
  run.peak_bytes = setup.memory.peak_occupied_total;
  if (!trial.caching_allocator) return run;
  const auto needs = clock::allocator_forecast(setup, times, trial.device_bytes.value_or(0));
  run.peak_bytes = needs.peak_reserved;
  if (needs.failures > 0) {
    run.does_not_fit = fmt::format("it does NOT fit in the {} of its GPU", format_bytes(*trial.device_bytes));
  } else if (needs.retries > 0) {
    run.does_not_fit = fmt::format(
        "it fits in the {} of its GPU only if PyTorch's allocator returns memory to the driver in the middle of a "
        "step, "
        "which is not in these times",
        format_bytes(*trial.device_bytes));
  }
  return run;
}

/// Luck of the run's steps, and independently of it what else is in doubt: of a simulated machine what its times rest
/// on, as `of_machine` bounds the change. If nobody knows the doubt, the intervals stay those of the run's own steps.
void give_interval(const FinishedRun& run, const std::optional<clock::Bounds>& of_machine, WhatIf& answer) {
  const std::optional<double> whole = answer.doubt.whole();
  if (!whole) return;
  account::Summary &change = answer.change, &step_ms = answer.changed.metrics.step_ms;
  const double doubt = (1 + change.median) * *whole;
  const double beside = (1 + change.median) * answer.doubt.beside;
  const auto [less, more] = of_machine.value_or(clock::Bounds{change.median, change.median});
  change.ci_low =
      std::max(-1.0, change.median - std::hypot(change.median - change.ci_low, doubt, change.median - less) +
                         std::min(0.0, beside));
  change.ci_high =
      change.median + std::hypot(change.ci_high - change.median, doubt, more - change.median) + std::max(0.0, beside);
  const double measured_ms = run.trial.metrics->step_ms.median;
  step_ms.ci_low = measured_ms * (1 + change.ci_low);
  step_ms.ci_high = measured_ms * (1 + change.ci_high);
  change.interval = step_ms.interval = account::IntervalKind::prediction;
}

/// Steps of the run and of `changed`, with the luck that the configurations draw, by the machine that simulated the
/// run.
void simulate_again(const FinishedRun& run, const clock::MeasuredTimes& measured, const SimulatedMachine& machine,
                    const engine::Setup& changed, const clock::Changes& scales, WhatIf& answer) {
  const auto walked = [&](const engine::Setup& setup, clock::OpTimes undrawn) {
    const int ranks = setup.plan.groups.ranks();
    return replay_steps(setup, engine::with_draws(setup.config.simulate, ranks, std::move(undrawn)), measured,
                        run.trial);
  };
  SimulatedTimes times = machine.times(changed, true, scales);
  answer.machine = machine.basis();
  if (times.uncertainty) answer.reach = times.uncertainty->reach;
  answer.changed = walked(changed, std::move(times.times));
  answer.changed.exposed_ms.interval = account::IntervalKind::one_value;  // nobody asked how wrong that may be
  answer.replayed = walked(run.setup, machine.times(run.setup, false).times);
}

/// The same by the op times of the run alone. Returns what ops that were not measured leave in doubt, in milliseconds.
double replay(const FinishedRun& run, const clock::MeasuredTimes& measured, const engine::Setup& changed,
              const clock::Changes& changes, WhatIf& answer) {
  const clock::HostCosts host = clock::measured_host(run.setup.schedules, run.traces, delays_of(run.setup.config));
  const std::string& cluster = run.setup.config.simulate.cluster;
  const auto replayed = [&](const engine::Setup& setup, clock::OpTimes times) {
    times.host = host;
    times.delays = delays_of(setup.config);
    times.workspace_bytes = cluster.empty() ? 0 : clock::library_bytes(config::load_cluster(cluster));
    return replay_steps(setup, times, measured, run.trial);
  };
  clock::WhatIfTimes times = clock::what_if_times(measured, changed, changes);
  answer.origins = times.origins;
  answer.reach = times.reach;
  answer.changed = replayed(changed, std::move(times.times));
  answer.replayed = replayed(run.setup, clock::what_if_times(measured, run.setup).times);
  return times.doubt_ns / 1e6;
}

std::string interval(const account::Summary& s) {
  if (s.interval == account::IntervalKind::one_value) return "one step";
  return fmt::format("{} {:.1f} to {:.1f} %", to_string(s.interval), 100 * s.ci_low, 100 * s.ci_high);
}

std::string question_text(const WhatIfQuestion& question) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const std::string& set : question.overrides) add(set);
  if (question.link_scale != 1) add(fmt::format("links {} times as fast", question.link_scale));
  if (question.compute_scale != 1) add(fmt::format("computation {} times as fast", question.compute_scale));
  if (question.without_straggler) add("without its slowest rank");
  return text.empty() ? "nothing changed" : text;
}

std::string link_line(const clock::MeasuredTimes::Link& link) {
  const double rate = link.fit.ns_per_amount > 0 ? 1 / link.fit.ns_per_amount : 0;
  const std::string latency =
      link.fit.fixed_ns > 0 ? fmt::format("{:.2f} us a hop + ", link.fit.fixed_ns / 1e3) : std::string();
  return fmt::format("{} over {}: {}{}", to_string(link.kind), to_string(link.group), latency,
                     rate > 0 ? fmt::format("{:.3f} GB/s", rate) : std::string("no time for bytes"));
}

/// Notes about what the prediction rests on.
std::string basis(const WhatIf& answer) {
  if (!answer.machine.empty()) {
    std::string text = fmt::format("simulated again, as the run was, by {}; the interval is theirs\n", answer.machine);
    if (std::abs(answer.replay_error) >= 0.0005) {
      text +=
          fmt::format("the unchanged run takes {:+.2f} % now: its cluster, calibration or this program has changed\n",
                      100 * answer.replay_error);
    }
    return text;
  }
  const auto count = [&](clock::TimeOrigin origin) { return answer.origins[origin]; };
  std::string text =
      fmt::format("{}: {}\nop times: {} of a step's ops as measured", to_string(clock::least_sure(answer.reach)),
                  reach_text(answer.reach), count(clock::TimeOrigin::measured));
  if (const int n = count(clock::TimeOrigin::scaled); n > 0) {
    text += fmt::format(", {} scaled by FLOPs from the same module", n);
  }
  if (const int n = count(clock::TimeOrigin::fitted); n > 0) {
    text += fmt::format(", {} by size from others of their kind", n);
  }
  if (const int n = count(clock::TimeOrigin::borrowed); n > 0) {
    text += fmt::format(", {} of kinds that were never measured, by size from other kinds", n);
  }
  text += "\n";
  for (const clock::MeasuredTimes::Link& link : answer.links) text += link_line(link) + "\n";
  const RunDoubt& doubt = answer.doubt;
  const std::string runs =
      doubt.between_runs ? fmt::format("{:.1f} %", 100 * *doubt.between_runs) : std::string("an unknown part");
  text += text_line(fmt::format(
      "in doubt: {:.1f} % of the step because the replay misses the run, {} because runs differ, {:.1f} % because "
      "of ops that were not measured",
      100 * doubt.replay, runs, 100 * doubt.reach));
  if (std::abs(doubt.beside) >= 0.0005) {
    text += fmt::format("a step may be {:.1f} % {} still, because computation runs beside other collectives\n",
                        100 * std::abs(doubt.beside), doubt.beside > 0 ? "longer" : "shorter");
  }
  if (!doubt.between_runs) text += fmt::format("{}\n", kNoInterval);
  const double error = answer.replay_error;
  text += text_line(fmt::format("replaying the unchanged run misses the measured step by {:+.2f} %: {}", 100 * error,
                                std::abs(error) <= std::abs(answer.change.median)
                                    ? "a smaller predicted change means nothing"
                                    : "more than the predicted change, so the prediction is not usable"));
  return text;
}

std::string straggler_line(const WhatIf& answer) {
  const double more = 100 * (answer.straggler.ratio - 1);
  return fmt::format("the slowest rank is {}: its computation takes {:+.1f} % against the others' median{}\n",
                     answer.straggler.rank, more, more < 1 ? "; no rank stands out" : "");
}

template <class Enum>
std::string name(Enum value) {
  return std::string(to_string(value));
}

}  // namespace

WhatIf what_if(const FinishedRun& run, const WhatIfQuestion& question) {
  const config::RunConfig& was = run.setup.config;
  WhatIf answer;
  answer.run = run.folder;
  answer.question = question;
  answer.by_allocator = run.trial.caching_allocator.has_value();
  answer.measured = {
      *run.trial.metrics,
      {},
      answer.by_allocator ? run.trial.caching_allocator->peak_reserved : run.trial.memory.peak_occupied_total,
      {}};
  answer.measured.metrics.steps_ms.clear();
  answer.disturbed_because = why_disturbed(run);
  config::RunConfig is = config::load_profile(run.folder + "/config.toml", question.overrides, &answer.notes);
  for (std::string& note : config::validate(is)) answer.notes.push_back(std::move(note));
  answer.keys = differing_keys(config::to_json(was), config::to_json(is));
  check(was, answer.keys, answer.notes);

  const auto link = was.emulate.link();
  const bool shared_link = was.simulate.cluster.empty();
  const clock::MeasuredTimes measured(run.setup, run.traces,
                                      link ? std::optional(link->latency_seconds * 1e9) : std::nullopt, shared_link, {},
                                      one_fabric(run));
  answer.links = measured.links();
  answer.straggler = measured.straggler();
  clock::Changes changes = replay_changes(was, is, question);
  if (question.without_straggler) {
    if (answer.straggler.rank < 0)
      throw ConfigError("--without-straggler: the run had one rank; nobody waited for it.");
    changes.straggler = answer.straggler.rank;
  }

  const engine::Setup setup = engine::set_up(is);
  const auto machine = machine_of_run(is);
  if (machine && question.without_straggler) {
    throw ConfigError(
        "--without-straggler: the run was simulated, so ask for what slowed its rank: --set inject.slow_rank=-1.");
  }
  clock::Changes scales;
  scales.link_scale = changes.link_scale;
  scales.compute_scale = changes.compute_scale;
  double doubt_ms = 0;
  if (machine) {
    simulate_again(run, measured, *machine, setup, scales, answer);
  } else {
    doubt_ms = replay(run, measured, setup, changes, answer);
  }

  std::vector<double> ratios;
  for (std::size_t step = 0; step < measured.steps(); ++step) {
    ratios.push_back(answer.changed.metrics.steps_ms[step] / answer.replayed.metrics.steps_ms[step] - 1);
  }
  answer.change = account::summarize(ratios);
  const double change = answer.change.median;
  answer.replay_error = answer.replayed.metrics.step_ms.median / answer.measured.metrics.step_ms.median - 1;
  answer.doubt = doubt_of(run, answer.replayed.metrics.step_ms.median);
  answer.doubt.reach = doubt_ms / answer.changed.metrics.step_ms.median;
  answer.doubt.beside = beside_collectives(run, setup, changes, change);
  std::optional<clock::Bounds> of_machine;
  if (machine && machine->in_doubt()) {
    const double doubt = machine->doubt(setup, -change).value_or(0) * (1 + change);
    constexpr int kThreads = 2;
    const clock::Bounds gain = tune::gain_bounds(*machine, run.setup, setup, doubt, 1, kThreads, scales);
    of_machine = {std::min(change, -gain.high), std::max(change, -gain.low)};
  }
  give_interval(run, of_machine, answer);
  return answer;
}

StepAnswer ReplayedRun::answer() const {
  StepAnswer answer = answer_of(metrics, peak_bytes);
  if (exposed_ms.n > 0) answer.exposed_comm_ms->bounds = estimate_of(exposed_ms).bounds;
  return answer;
}

std::string what_if_text(const WhatIf& answer) {
  std::string text =
      format_table(answer_table(
          {.title = fmt::format("{}: {}", answer.run, question_text(answer.question)),
           .columns = {{"measured", answer.measured.answer()},
                       {"replayed", answer.replayed.answer()},
                       {"what-if", answer.changed.answer()}},
           .change = true,
           .interval = "interval",
           .memory_note = answer.by_allocator ? "reserved by PyTorch's allocator" : "from the schedule"})) +
      "\n";
  const double change = 100 * answer.change.median;
  text += fmt::format("a step would take {:.1f} % {} ({})\n", std::abs(change), change > 0 ? "longer" : "less",
                      answer.doubt.between_runs ? interval(answer.change) : std::string("no interval"));
  if (!answer.changed.does_not_fit.empty()) text += answer.changed.does_not_fit + "\n";
  if (answer.question.without_straggler) text += straggler_line(answer);
  if (!answer.disturbed_because.empty()) text += answer.disturbed_because + "\n";
  return text + basis(answer);
}

// clang-format off
template <>
Fields<ReplayedRun> declared<ReplayedRun>() {
  using R = ReplayedRun;
  using M = account::RunMetrics;
  return {"ReplayedRun", "Steps of a run.", "tune/what_if.h", {
      spread(&R::answer),
      {"step_ms", via(&R::metrics, &M::step_ms), "ms", "the step, of its slowest rank"},
      {"steps_ms", via(&R::metrics, &M::steps_ms), "ms", "each step; absent of what was measured", if_any},
      {"exposed_comm_by_step_ms", &R::exposed_ms, "ms", "exposed communication, by step", when([](const R& r) { return r.exposed_ms.n > 0; })},
      {"peak_bytes", &R::peak_bytes, "B", "peak memory of a rank: from the schedule, or reserved by PyTorch's allocator, if the run was simulated with it"},
      {"does_not_fit", &R::does_not_fit, "", "why it does not fit in the GPU that was simulated, or only with retries", if_any}}};
}

template <>
Fields<RunDoubt> declared<RunDoubt>() {
  using D = RunDoubt;
  return {"RunDoubt", "Half widths of 95 % intervals, and what moves one end, as shares of a step.", "tune/run_doubt.h", {
      {"replay", &D::replay, "", "how far the replay is from the run"},
      {"between_runs", &D::between_runs, "", "by how much two runs of one configuration differ; null: not known", or_null},
      {"reach", &D::reach, "", "by how much ops that were never measured may lengthen or shorten a step"},
      {"beside", &D::beside, "", "by how much a step may be longer, or shorter if below 0, because computation runs beside other collectives"}}};
}

const Fields<DifferingKey>& changed_key_fields() {
  using K = DifferingKey;
  static const Fields<K> kAll{"ChangedKey", "A key that the question changes.", "tune/what_if.h", {
      {"key", &K::key, "", "its name"},
      {"was", &K::a, "", "in the run"},
      {"is", &K::b, "", "in the question"}}};
  return kAll;
}

template <>
Fields<clock::MeasuredTimes::Link> declared<clock::MeasuredTimes::Link>() {
  using L = clock::MeasuredTimes::Link;
  return {"MeasuredLink", "Collectives of one kind and group: a line through their times.", "clock/measured_times.h", {
      {"kind", [](const L& l) { return name(l.kind); }, "", "`all_gather`, …"},
      {"group", [](const L& l) { return name(l.group); }, "", "whose ranks take part"},
      {"hop_us", [](const L& l) { return l.fit.fixed_ns / 1e3; }, "us", "latency of a hop"},
      {"ns_per_byte", [](const L& l) { return l.fit.ns_per_amount; }, "", "time of a byte"},
      {"samples", [](const L& l) { return l.fit.samples; }, "", "collectives that it is fitted to"}}};
}

template <>
Fields<clock::MeasuredTimes::Straggler> declared<clock::MeasuredTimes::Straggler>() {
  using S = clock::MeasuredTimes::Straggler;
  return {"SlowestRank", "The slowest rank of the run.", "clock/measured_times.h", {
      {"rank", &S::rank, "", "its number"},
      {"compute_ratio", &S::ratio, "", "its computation over the others' median"}}};
}

template <>
Fields<WhatIf> declared<WhatIf>() {
  using W = WhatIf;
  using Q = WhatIfQuestion;
  return {"WhatIf", "what_if.json", "tune/what_if.h", {
      {"schema_version", [](const W&) { return 1; }, "", "version of this format"},
      {"run", &W::run, "", "the run that was replayed"},
      {"set", via(&W::question, &Q::overrides), "", "keys of the question, as `key=value`"},
      {"link_scale", via(&W::question, &Q::link_scale), "", "links so many times as fast"},
      {"compute_scale", via(&W::question, &Q::compute_scale), "", "computation so many times as fast"},
      {"without_straggler", via(&W::question, &Q::without_straggler), "", "whether the slowest rank computes as the others"},
      {"measured", &W::measured, "", "the run as it was measured"},
      {"replayed", &W::replayed, "", "the run as it was, replayed"},
      {"what_if", &W::changed, "", "the run as it would be"},
      {"replay_error", &W::replay_error, "", "replayed / measured - 1, of the step"},
      {"doubt", &W::doubt, "", "what makes the interval wide"},
      {"change", &W::change, "", "step by step: what_if / replayed - 1"},
      {"notes", &W::notes, "", "what is to be known of keys and times"},
      {"keys", as<ListOf<changed_key_fields>>(&W::keys), "", "keys that the question changes"},
      {"links", &W::links, "", "what the run's collectives tell of its links"},
      {"op_times", &W::origins, "", "ops with work of a step, by where their time is from"},
      {"reach", [](const W& w) { return name(clock::least_sure(w.reach)); }, "", "how far the least known op is from what was measured"},
      {"ops", &W::reach, "", "ops with work of a step, by how far they are from what was measured"},
      {"machine", &W::machine, "", "what simulated the run, and this answer; absent: the run's own op times answered", if_any},
      {"slowest_rank", &W::straggler, "", "absent of a run of one rank", when([](const W& w) { return w.straggler.rank >= 0; })},
      {"disturbed_because", &W::disturbed_because, "", "why the answer holds for a busy machine only", if_any}}};
}
// clang-format on

}  // namespace fsdpbench::app
