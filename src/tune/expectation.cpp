#include "tune/expectation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "clock/collective_kinds.h"
#include "clock/forecast.h"
#include "config/cluster.h"
#include "config/published.h"
#include "config/spelling.h"
#include "config/write.h"
#include "engine/setup.h"
#include "record/json_fields.h"
#include "record/table.h"
#include "runs/run_table.h"
#include "runs/simulated_machine.h"
#include "runs/world.h"

namespace fsdpbench::app {
namespace {

using What = PossibleReason::What;

constexpr double kSameWithin = 0.01;  // a step that differs by less is the same

double tokens_of_rank(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.train.batch_per_rank * sample * c.train.accumulate / c.mesh.context);
}

/// Something that falls as the step grows: `at_one_ms` over the step in ms.
Estimate over_step(const Estimate& step_ms, double at_one_ms) {
  Estimate result{at_one_ms / step_ms.value, {}};
  if (step_ms.bounds && step_ms.bounds->low > 0) {
    result.bounds = {at_one_ms / step_ms.bounds->high, at_one_ms / step_ms.bounds->low};
  }
  return result;
}

/// The amount by which `grow` makes the step `times` as long; `grow` never falls as its argument goes from `from` to
/// `to`. Absent if it does not reach that.
std::optional<double> amount_for(double times, double from, double to, const std::function<double(double)>& grow) {
  if (times <= 1) return from;
  if (grow(to) < times) return std::nullopt;
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(from * to);
    (grow(middle) < times ? from : to) = middle;
  }
  return std::sqrt(from * to);
}

/// The largest all-gather of the steady step.
struct LargestGather {
  clock::CollectiveMessage message;
  double other_ns = 0, bytes_ns = 0;  ///< of it while its bytes do not flow, and while they do
};
std::optional<LargestGather> largest_gather(const schedule::Training& training, const clock::StepCosts& costs) {
  std::optional<LargestGather> largest;
  const std::vector<schedule::Op>& ops = training.schedules.steady().ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != schedule::OpKind::all_gather) continue;
    const clock::CollectiveMessage message = clock::message_of(ops[i], training.plan.groups);
    if (message.ranks < 2 || (largest && largest->message.bytes >= message.bytes)) continue;
    largest = {message, costs[i].run_ns, costs[i].link_ns};
  }
  return largest;
}

/// Its bus bandwidth in GB/s (base/bytes.h) where bytes flow at this part of their rate.
double bus_gb_per_s(const LargestGather& gather, double link_speed) {
  const double share = static_cast<double>(gather.message.ranks - 1) / gather.message.ranks;
  return static_cast<double>(gather.message.bytes) * share / (gather.other_ns + gather.bytes_ns / link_speed);
}

/// Explanations of a measured step, one at a time: each would alone make the step as long as measured.
class Explainer {
 public:
  Explainer(const Cell& cell, const Trial& trial, const Expectation& expectation)
      : setup_(cell.setup),
        trial_(trial),
        expectation_(expectation),
        machine_(cell.setup.config),
        plain_ns_(machine_.forecast(setup_).slowest_ns()) {}

  std::vector<PossibleReason> all() const {
    std::vector<PossibleReason> found;
    if (auto part = part_of(&clock::Changes::compute_scale)) {
      const double ms = trial_.metrics->compute_ms;
      found.push_back({What::computation, *part,
                       fmt::format("the kernels of a rank take {:.0f} ms a step, not {:.0f}", ms / part->value, ms),
                       "one profiled step: `fsdpbench trace explain TRACES` says what computation takes"});
    }
    const std::optional<LargestGather> gather =
        largest_gather(setup_, machine_.times(setup_, false).times.steps.back());
    if (auto part = part_of(&clock::Changes::link_scale); part && gather) {
      const std::string size = format_bytes(gather->message.bytes);
      found.push_back(
          {What::links, *part,
           fmt::format("an all-gather of {} over {} ranks has {:.3g} GB/s of bus bandwidth, not {:.3g}", size,
                       gather->message.ranks, bus_gb_per_s(*gather, part->value), bus_gb_per_s(*gather, 1)),
           fmt::format("nccl-tests on these ranks: all_gather_perf -b {0} -e {0}; or `fsdpbench accept`",
                       gather->message.bytes)});
    }
    if (slower()) {
      if (auto late = host_ms()) {
        found.push_back({What::host, *late, "GPUs wait for launches: gaps between kernels",
                         "the same profiled step: the cause host_bound"});
      }
      const double ms = expectation_.measured->step_ms - expectation_.step_ms.value;
      PossibleReason outside{What::outside,
                             {ms, {}},
                             "input, logging, checkpoints, a late rank: the GPU has nothing to do",
                             "`with fsdpbench.torch.step():` around the step: step time, waits and the late rank"};
      if (const auto& bounds = expectation_.step_ms.bounds) {
        outside.amount.bounds = {std::max(0.0, expectation_.measured->step_ms - bounds->high),
                                 expectation_.measured->step_ms - bounds->low};
      }
      found.push_back(std::move(outside));
    }
    if (waits_for_host()) {
      std::ranges::stable_partition(found, [](const PossibleReason& reason) { return reason.what == What::host; });
    }
    return found;
  }

 private:
  /// Whether the step is expected to be a tenth longer for its host: then that is the first to ask.
  bool waits_for_host() const {
    clock::OpTimes times = machine_.times(setup_, false).times;
    times.own_issue.clear();
    return plain_ns_ > 1.1 * clock::forecast(setup_, times).slowest_ns();
  }
  bool slower() const { return expectation_.measured->step_ms > expectation_.step_ms.value; }
  /// How many times as long the measured step is as one of `step_ms`.
  double times(double step_ms) const { return expectation_.measured->step_ms / step_ms; }
  double grown(const clock::Changes& changes) const {
    return machine_.forecast(setup_, changes).slowest_ns() / plain_ns_;
  }

  /// The value at the expected step, and at the ends of its interval: `beyond` at one that nothing reaches, `nothing`
  /// where the step may be expected to be as measured or further. Absent with the value.
  template <class Find>
  std::optional<Estimate> with_bounds(const Find& find, double nothing, double beyond) const {
    const std::optional<double> value = find(times(expectation_.step_ms.value));
    if (!value) return std::nullopt;
    Estimate result{*value, {}};
    const auto end = [&](double step_ms) {
      const double there = times(step_ms);
      return (there > 1) == slower() ? find(there).value_or(beyond) : nothing;
    };
    if (const auto& step = expectation_.step_ms.bounds; step && step->low > 0) {
      const double a = end(step->low), b = end(step->high);
      result.bounds = {std::min(a, b), std::max(a, b)};
    }
    return result;
  }

  /// At which part of its speed, above 1 if the measured step is shorter than expected, something has to go.
  std::optional<Estimate> part_of(double clock::Changes::*scale) const {
    constexpr double kMostTimes = 1000;
    const auto find = [&](double times) -> std::optional<double> {
      const bool slower = times > 1;
      const auto grow = [&](double by) {
        clock::Changes changes;
        changes.*scale = slower ? 1 / by : by;
        return slower ? grown(changes) : 1 / grown(changes);
      };
      const std::optional<double> by = amount_for(slower ? times : 1 / times, 1, kMostTimes, grow);
      return by ? std::optional(slower ? 1 / *by : *by) : std::nullopt;
    };
    return with_bounds(find, 1, slower() ? 0 : std::numeric_limits<double>::infinity());
  }

  /// By how many ms a step the host issues its ops later.
  std::optional<Estimate> host_ms() const {
    const auto ops = static_cast<double>(setup_.schedules.steady().ops.size());
    const auto find = [&](double times) -> std::optional<double> {
      if (times <= 1) return 0;
      const auto grow = [&](double step_ns) {
        clock::Changes changes;
        changes.issue_ns = std::nearbyint(step_ns / ops);
        return grown(changes);
      };
      const std::optional<double> ns = amount_for(times, 1, 1e3 * plain_ns_ * times, grow);
      return ns ? std::optional(*ns / 1e6) : std::nullopt;
    };
    return with_bounds(find, 0, std::numeric_limits<double>::infinity());
  }

  const engine::Setup& setup_;
  const Trial& trial_;
  const Expectation& expectation_;
  SimulatedMachine machine_;
  double plain_ns_;
};

/// Says how much is recomputed: "checkpointing that keeps every_second_product".
std::string checkpointing_of(const config::Fsdp& fsdp) {
  if (!fsdp.activation_checkpointing) return "no checkpointing";
  if (fsdp.checkpoint_keeps != config::CheckpointKeeps::nothing) {
    return fmt::format("checkpointing that keeps {}", config::to_string(fsdp.checkpoint_keeps));
  }
  if (fsdp.recompute_share < 1) return fmt::format("checkpointing of {:.3g} % of a block", 100 * fsdp.recompute_share);
  return fsdp.checkpoint_every == 1 ? "checkpointing of all blocks"
                                    : fmt::format("checkpointing of one block in {}", fsdp.checkpoint_every);
}

/// Features of a training that others must share for their measurements to say something about it.
struct TrainingFeatures {
  std::string model, gpu, cluster, framework, checkpointing;
  double parameters = 0, ranks = 0, tokens = 0;  ///< tokens: a rank and step
  bool fp8 = false, compiled = false;
  config::Strategy strategy = config::Strategy::full_shard;

  TrainingFeatures(const config::RunConfig& c, const plan::ModelShapes& shapes, const config::Cluster& on,
                   std::string whose)
      : model(c.model.preset),
        gpu(on.gpu.name),
        cluster(on.name),
        framework(std::move(whose)),
        checkpointing(checkpointing_of(c.fsdp)),
        parameters(static_cast<double>(shapes.parameter_count())),
        ranks(static_cast<double>(c.mesh.ranks)),
        tokens(tokens_of_rank(c)),
        fp8(c.fsdp.fp8_products),
        compiled(c.simulate.compiled),
        strategy(c.fsdp.strategy) {}

  /// The model and the framework count most, then the hardware, the size of the model, and the rest.
  double distance(const TrainingFeatures& other) const {
    const auto fold = [](double a, double b) { return std::abs(std::log2(a / b)); };
    return 12 * (model != other.model) + 6 * !same_framework(other) + 8 * (gpu != other.gpu) + 4 * (fp8 != other.fp8) +
           2 * fold(parameters, other.parameters) + fold(ranks, other.ranks) / 2 + fold(tokens, other.tokens) / 2 +
           2 * (compiled != other.compiled) + (checkpointing != other.checkpointing) + (strategy != other.strategy) +
           (cluster != other.cluster);
  }
  /// PyTorch's own modules are in every framework of theirs.
  bool same_framework(const TrainingFeatures& other) const {
    return framework == "pytorch" || other.framework.starts_with(framework);
  }
  /// In what `other` is not this.
  std::vector<std::string> differs(const TrainingFeatures& other) const {
    std::vector<std::string> all;
    const auto add = [&](bool differs, std::string what) {
      if (differs) all.push_back(std::move(what));
    };
    add(cluster != other.cluster, other.cluster);
    add(model != other.model, other.model);
    add(!same_framework(other), other.framework);
    add(ranks != other.ranks, fmt::format("{} ranks", other.ranks));
    add(tokens != other.tokens, fmt::format("{} tokens a rank and step", other.tokens));
    add(fp8 != other.fp8, other.fp8 ? "fp8 products" : "no fp8 products");
    add(compiled != other.compiled, other.compiled ? "compiled" : "not compiled");
    add(checkpointing != other.checkpointing, other.checkpointing);
    add(strategy != other.strategy, std::string(config::to_string(other.strategy)));
    return all;
  }
};

NearestPublished nearest_published(const engine::Setup& setup, const config::Cluster& cluster) {
  const TrainingFeatures own(setup.config, setup.plan.shapes, cluster, framework_of(setup.config));
  struct Candidate {
    config::CsvRow row;
    config::RunConfig config;
    std::vector<std::string> differs;
    double distance = 0;
  };
  std::optional<Candidate> best;
  for (const config::CsvRow& row : config::read_csv(config::find_published_trainings())) {
    if (!row.text("not_predicted").empty()) continue;
    config::RunConfig config = config::published_config(row);
    const TrainingFeatures other(config, plan::model_shapes(config.model),
                                 config::load_cluster(config.simulate.cluster), row.text("family"));
    const double distance = own.distance(other);
    if (!best || distance < best->distance) best = {row, std::move(config), own.differs(other), distance};
  }
  if (!best) throw ConfigError(config::find_published_trainings() + ": has no training that is predicted.");
  const SimulatedMachine machine(best->config);
  const engine::Setup theirs = engine::set_up(best->config);
  return {best->row.text("id"),
          fmt::format("{}, {}", config::published_title(best->row), checkpointing_of(best->config.fsdp)),
          best->row.text("source"),
          best->row.number("tokens_per_s"),
          tokens_of_rank(best->config) / (machine.forecast(theirs).slowest_ns() * 1e-9),
          std::move(best->differs)};
}

/// Assumptions that move the step on their own, each to both ends of what is known of it.
class Hinges {
 public:
  Hinges(const Cell& cell, const std::vector<Assumption>& assumptions)
      : setup_(cell.setup), assumptions_(assumptions), machine_(cell.setup.config), sure_(machine_.times(setup_)) {}

  std::vector<Hinge> all() {
    if (!sure_.uncertainty) return {};
    drawn(
        "what computation reaches of its rates", [](const schedule::Op& op, bool) { return !op.is_collective(); },
        "--framework NAME, or a profiled step: `fsdpbench trace explain`");
    drawn(
        "the network between nodes", [](const schedule::Op& op, bool inter) { return op.is_collective() && inter; },
        "--between-nodes RATE, or a log of nccl-tests");
    drawn(
        "links within a node", [](const schedule::Op& op, bool inter) { return op.is_collective() && !inter; },
        "a cluster file with measured rates");
    host();
    if (const double more = second_step_ms(setup_.config, sure_.times); more > 0) {
      found_.push_back(
          {fmt::format("the second step, {:.4g} ms longer", more * static_cast<double>(setup_.config.train.steps)),
           ms(sure_.times), ms(sure_.times) + more,
           fmt::format("measure without the first two steps; high: a mean of {} with it", setup_.config.train.steps)});
    }
    const config::Simulate& s = setup_.config.simulate;
    other("simulate.compiled", s.compiled ? "false" : "true",
          [](config::RunConfig& c) { c.simulate.compiled = !c.simulate.compiled; });
    // Some of the trainings that say how doubtful a measured curve is took so long.
    if (!machine_.cluster()->inter.curve_nodes.empty()) {
      other("simulate.collective_checks", s.collective_checks ? "false" : "true",
            [](config::RunConfig& c) { c.simulate.collective_checks = !c.simulate.collective_checks; });
    }
    using Attention = config::Simulate::Attention;
    const bool old = machine_.cluster()->gpu.fp8_gemm_fraction == 0;
    const Attention kind = s.attention != Attention::flash2 ? Attention::flash2
                           : old                            ? Attention::flash1
                                                            : Attention::current;
    other("simulate.attention", std::string(config::to_string(kind)),
          [=](config::RunConfig& c) { c.simulate.attention = kind; });
    std::ranges::stable_sort(found_, std::ranges::greater(), [](const Hinge& h) { return h.high_ms / h.low_ms; });
    constexpr double kSay = 1.02;  // less is no matter
    std::erase_if(found_, [](const Hinge& h) { return h.high_ms < kSay * h.low_ms; });
    if (found_.size() > 3) found_.resize(3);
    return std::move(found_);
  }

 private:
  double ms(const clock::OpTimes& times) const { return clock::forecast(setup_, times).slowest_ns() * 1e-6; }

  /// All ops that `wanted` take the least and the most of what is drawn for them.
  void drawn(const char* what, bool (*wanted)(const schedule::Op&, bool inter), const char* say) {
    std::array<double, 2> ends{};
    for (const bool most : {false, true}) {
      clock::OpTimes times = sure_.times;
      for (std::size_t step = 0; step < times.steps.size(); ++step) {
        const std::vector<schedule::Op>& ops = setup_.schedules.steps[step].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          clock::OpCost& cost = times.steps[step][i];
          const int source = sure_.uncertainty->source[step][i];
          if (source < 0 || !wanted(ops[i], cost.fabric == static_cast<int>(clock::Fabric::inter))) continue;
          const std::vector<double>& ratios = sure_.uncertainty->ratios[source];
          const double ratio = most ? std::ranges::max(ratios) : std::ranges::min(ratios);
          cost.run_ns *= ratio, cost.link_ns *= ratio;
        }
      }
      ends[most] = ms(times);
    }
    found_.push_back({what, ends[0], ends[1], say});
  }

  void host() {
    const std::vector<double>& draws = sure_.uncertainty->own_issue;
    if (draws.empty()) return;
    const auto with = [&](double ratio) {
      clock::OpTimes times = sure_.times;
      for (std::vector<double>& of_step : times.own_issue) {
        for (double& ns : of_step) ns *= ratio;
      }
      return ms(times);
    };
    found_.push_back({"the time of the host", with(std::ranges::min(draws)), with(std::ranges::max(draws)),
                      "a profiled step: gaps between kernels"});
  }

  /// A setting that nobody said might be another.
  void other(const std::string& key, const std::string& value, const std::function<void(config::RunConfig&)>& change) {
    const auto said = std::ranges::find(assumptions_, key, &Assumption::key);
    if (said != assumptions_.end() && said->said) return;
    config::RunConfig config = setup_.config;
    change(config);
    const double there = SimulatedMachine(config).forecast(engine::set_up(config)).slowest_ns() * 1e-6;
    const double here = ms(sure_.times);
    found_.push_back({fmt::format("{}: {:.4g} ms if {}", key, there, value), std::min(here, there),
                      std::max(here, there), fmt::format("--set {}={}", key, value)});
  }

  const engine::Setup& setup_;
  const std::vector<Assumption>& assumptions_;
  SimulatedMachine machine_;
  SimulatedTimes sure_;
  std::vector<Hinge> found_;
};

double step_of(const MeasuredRate& measured, const Expectation& expectation) {
  switch (measured.unit) {
    case MeasuredRate::Unit::step_ms: return measured.value;
    case MeasuredRate::Unit::tokens_per_s:
      return expectation.step_ms.value * expectation.tokens_per_s_rank->value / measured.value;
    case MeasuredRate::Unit::mfu_pct:
      if (!expectation.mfu_pct) {
        throw ConfigError("--measured is an MFU, and no peak is known here: name a --cluster, or give tokens/s.");
      }
      return expectation.step_ms.value * expectation.mfu_pct->value / measured.value;
  }
  throw std::logic_error("MeasuredRate::Unit");
}

/// Name of a reason, words for its amount, and its unit in JSON.
struct ReasonWords {
  std::string_view name, of, unit;
};
constexpr EnumTable<What, ReasonWords> kReasonWords{
    ReasonWords{"computation", " % of its speed", "part"}, ReasonWords{"links", " % of their rate", "part"},
    ReasonWords{"host", " ms to issue a step", "ms"}, ReasonWords{"outside", " ms a step", "ms"}};

std::string amount_text(const PossibleReason& e) {
  const bool part = kReasonWords[e.what].unit == "part";
  // Above a hundred milliseconds the digits behind the point say nothing.
  const auto number = [&](double v) { return fmt::format("{:.{}f}", part ? 100 * v : v, part || v >= 100 ? 0 : 1); };
  const std::string text = fmt::format("{}{}", number(e.amount.value), kReasonWords[e.what].of);
  if (!e.amount.bounds) return text;
  const auto& [low, high] = *e.amount.bounds;
  return text + fmt::format(" (95 %: {} {})", number(low), std::isinf(high) ? "or more" : "to " + number(high));
}

std::string published_text(const NearestPublished& p) {
  return text_line("nearest published training: " + p.title) +
         text_line(fmt::format("  {} tokens/s a rank; {} is predicted for it, {:+.1f} % ({} of "
                               "profiles/published/training.csv, source {})",
                               three_digits(p.published), three_digits(p.predicted),
                               100 * (p.predicted / p.published - 1), p.id, p.source)) +
         text_line(p.differs.empty() ? "  as this one" : fmt::format("  differs in: {}", fmt::join(p.differs, ", ")));
}

std::string measured_text(const Expectation& e) {
  const double rate = e.measured->tokens_per_s_rank;
  const auto away = [](double from, double to) {
    const double percent = 100 * (to / from - 1);
    return fmt::format("{:.1f} % {}", std::abs(percent), percent < 0 ? "below" : "above");
  };
  std::string text = fmt::format("measured: {:.0f} tokens/s a rank, {:.2f} ms a step: {} what is expected", rate,
                                 e.measured->step_ms, away(e.tokens_per_s_rank->value, rate));
  const auto& bounds = e.tokens_per_s_rank->bounds;
  if (e.measured->as_expected) {
    return text_line(text + (bounds ? ", within the interval: it need not have a reason." : ": as expected."));
  }
  if (bounds) text += fmt::format(", {} the interval", away(rate < bounds->low ? bounds->low : bounds->high, rate));
  return text_line(text + ".");
}

}  // namespace

MeasuredRate read_measured_rate(std::string_view text) {
  const auto invalid = [&] {
    return ConfigError(
        fmt::format("--measured {} is not valid; expected a number above 0: '6150' or '6150 tok/s' (a rank), '2.31 s' "
                    "or '2310 ms' (a "
                    "step), '41 %' (MFU).",
                    text));
  };
  MeasuredRate rate;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rate.value);
  if (status != std::errc() || !std::isfinite(rate.value) || rate.value <= 0) throw invalid();
  std::string_view unit(end, text.data() + text.size() - end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty() || unit == "tok/s" || unit == "tokens/s") return rate;
  if (unit == "%") return rate.unit = MeasuredRate::Unit::mfu_pct, rate;
  if (unit != "s" && unit != "ms") throw invalid();
  rate.unit = MeasuredRate::Unit::step_ms;
  if (unit == "s") rate.value *= 1e3;
  return rate;
}

Expectation expect(const Cell& cell, const Trial& trial, const std::optional<MeasuredRate>& measured,
                   std::vector<Assumption> assumptions) {
  const account::RunMetrics& m = trial.metrics.value();
  Expectation e;
  e.assumptions = std::move(assumptions);
  e.headline = run_headline(cell.setup);
  e.config = config::to_json(cell.setup.config);
  e.step_ms.value = m.step_ms.median;
  e.exposed_comm_ms = {m.exposed_comm_ms, {}};
  if (trial.sureness) {
    e.step_ms.bounds = trial.sureness->step_ms;
    e.exposed_comm_ms->bounds = trial.sureness->exposed_ms;
  }
  e.tokens_per_s_rank = over_step(e.step_ms, tokens_of_rank(cell.setup.config) * 1e3);
  if (trial.flops && trial.flops->mfu_pct) e.mfu_pct = over_step(e.step_ms, *trial.flops->mfu_pct * e.step_ms.value);
  e.peak_bytes = trial.caching_allocator ? trial.caching_allocator->peak_reserved : trial.memory.peak_occupied_total;
  e.fits = trial.fits.value_or(true);
  e.retries = e.fits && trial.caching_allocator && trial.caching_allocator->retries > 0;
  e.memory_basis = memory_basis(cell.setup.config);
  if (trial.caching_allocator) {
    e.memory_basis += fmt::format("; {} of it allocated", format_bytes(trial.caching_allocator->peak_allocated));
  }
  e.device_bytes = trial.device_bytes;
  if (!cell.setup.config.simulate.cluster.empty()) {
    e.published = nearest_published(cell.setup, config::load_cluster(cell.setup.config.simulate.cluster));
    if (e.step_ms.bounds) e.hangs_on = Hinges(cell, e.assumptions).all();
  }
  if (!measured) return e;
  const double step = step_of(*measured, e), expected = e.step_ms.value;
  const clock::Bounds bounds =
      e.step_ms.bounds.value_or(clock::Bounds{expected * (1 - kSameWithin), expected * (1 + kSameWithin)});
  e.measured = {step, e.tokens_per_s_rank->value * expected / step, step >= bounds.low && step <= bounds.high};
  if (std::abs(step / expected - 1) > kSameWithin) e.reasons = Explainer(cell, trial, e).all();
  return e;
}

std::string expectation_text(const Expectation& e) {
  AnswerTable table{.title = e.headline, .columns = {{"expected", e}}, .interval = "95 % interval"};
  table.memory = "peak memory of a rank";
  table.memory_note = "computed; an allocator reserves more";
  if (e.device_bytes) {
    table.memory_note = fmt::format("{} the {} of its GPU",
                                    !e.fits     ? "does NOT fit in"
                                    : e.retries ? "fits only with retries in"
                                                : "fits in",
                                    format_bytes(*e.device_bytes));
  }
  std::string text = format_table(answer_table(table)) + assumptions_text(e.assumptions);
  if (e.device_bytes) text += text_line(e.memory_basis);
  Table hinges{"the interval hangs on, each alone", {"", "step, ms", "say"}, {}};
  for (const Hinge& h : e.hangs_on) {
    hinges.rows.push_back({h.what, fmt::format("{:.4g} to {:.4g}", h.low_ms, h.high_ms), h.say});
  }
  if (!hinges.rows.empty()) text += "\n" + format_table(hinges);
  if (e.published) text += "\n" + published_text(*e.published);
  if (!e.measured) return text;
  text += "\n" + measured_text(e);
  if (e.reasons.empty()) return text;
  Table causes, ways;
  for (const PossibleReason& x : e.reasons) {
    const std::string name(kReasonWords[x.what].name);
    causes.rows.push_back({name, amount_text(x), x.seen_as});
    ways.rows.push_back({name, x.measure});
  }
  return text + "\nEach of these alone would explain the difference:\n" + format_table(causes) +
         "\nMeasure to know which it is:\n" + format_table(ways);
}

// clang-format off
template <>
Fields<NearestPublished> declared<NearestPublished>() {
  using P = NearestPublished;
  return {"NearestPublished", "The published training that is most like this one.", "tune/expectation.h", {
      {"id", &P::id, "", "its line in profiles/published/training.csv"},
      {"title", &P::title, "", "model, ranks, cluster, batch and checkpointing"},
      {"source", &P::source, "", "where it was published"},
      {"tokens_per_s_rank", &P::published, "1/s", "tokens of one rank a second, as published"},
      {"predicted", &P::predicted, "1/s", "the same as it is predicted"},
      {"differs", &P::differs, "", "in what it is not this training"}}};
}

template <>
Fields<Hinge> declared<Hinge>() {
  using H = Hinge;
  return {"Hinge", "Assumption that the interval of a step depends on.", "tune/expectation.h", {
      {"what", &H::what, "", "what the answer takes for granted"},
      {"low_ms", &H::low_ms, "ms", "the step at one end of it, where all else is as expected"},
      {"high_ms", &H::high_ms, "ms", "the step at the other"},
      {"say", &H::say, "", "how to say what is the case"}}};
}

template <>
Fields<MeasuredStep> declared<MeasuredStep>() {
  using M = MeasuredStep;
  return {"MeasuredStep", "Measured step, beside the expected one.", "tune/expectation.h", {
      {"step_ms", &M::step_ms, "ms", "the step"},
      {"tokens_per_s_rank", &M::tokens_per_s_rank, "1/s", "tokens of one rank a second"},
      {"as_expected", &M::as_expected, "", "in the interval; without one within 1 %"}}};
}

template <>
Fields<PossibleReason> declared<PossibleReason>() {
  using R = PossibleReason;
  return {"PossibleReason", "Reason that alone would make the step as long as measured.", "tune/expectation.h", {
      {"what", [](const R& r) { return kReasonWords[r.what].name; }, "", "`computation`, `links`, `host` or `outside`"},
      {"unit", [](const R& r) { return kReasonWords[r.what].unit; }, "", "of the amount: `part` of its speed, or `ms`"},
      spread(&R::amount),
      {"seen_as", &R::seen_as, "", "what a measurement would show then"},
      {"measure", &R::measure, "", "how to measure that"}}};
}

template <>
Fields<Expectation> declared<Expectation>() {
  using E = Expectation;
  return {"Expectation", "expect.json", "tune/expectation.h", {
      {"kind", [](const E&) { return std::string_view("expect"); }, "", "`expect`"},
      {"schema_version", [](const E&) { return 1; }, "", "version of this format"},
      {"config", &E::config, "", "all keys"},
      {"assumptions", &E::assumptions, "", "on what the answer depends, and whether anybody said so"},
      spread([](const E& e) -> const StepAnswer& { return e; }, bounded_fields()),
      {"memory", {"ExpectedMemory", "Memory of a rank.", "tune/expectation.h", {
          {"peak_bytes", &E::peak_bytes, "B", "reserved by PyTorch's allocator; without a GPU, exact blocks"},
          {"device_bytes", &E::device_bytes, "B", "what its GPU has", or_null},
          {"basis", &E::memory_basis, "", "states, loss and activations that are counted"}}}},
      {"hangs_on", &E::hangs_on, "", "the three things that move the step most; empty: it has no interval"},
      {"published", &E::published, "", "null where no cluster is named", or_null},
      {"measured", &E::measured, "", "null without --measured", or_null},
      {"reasons", &E::reasons, "", "empty if nothing was measured, or the same as expected"}}};
}
// clang-format on

}  // namespace fsdpbench::app
