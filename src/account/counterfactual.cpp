#include "account/counterfactual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>

#include "base/error.h"
#include "clock/forecast.h"
#include "dialects/sayable.h"
#include "schedule/memory_walk.h"
#include "schedule/training.h"

namespace fsdpbench::account {

using LimitMode = config::AllGatherLimit::Mode;
using PrefetchMode = config::Prefetch::Mode;

std::vector<Knob> knobs_of(const config::RunConfig& config) {
  std::vector<Knob> knobs;
  const auto add = [&](Cause cause, std::string set, auto change) {
    Knob knob{cause, std::move(set), config};
    change(knob.config);
    knobs.push_back(std::move(knob));
  };
  const config::Fsdp& fsdp = config.fsdp;
  if (fsdp.strategy == config::Strategy::no_shard || config.mesh.data_ranks() == 1) return knobs;

  if (fsdp.forward_prefetch.mode == PrefetchMode::none) {
    add(Cause::late_prefetch, "fsdp.forward_prefetch=implicit", [](config::RunConfig& c) {
      c.fsdp.forward_prefetch = {PrefetchMode::implicit, 1};
    });
  }
  if (fsdp.backward_prefetch.mode == PrefetchMode::none || fsdp.backward_prefetch.mode == PrefetchMode::post) {
    add(Cause::late_prefetch, "fsdp.backward_prefetch=pre", [](config::RunConfig& c) {
      c.fsdp.backward_prefetch = {PrefetchMode::pre, 1};
    });
  }
  const config::AllGatherLimit& limit = fsdp.all_gather_limit;
  const bool counts = limit.mode == LimitMode::strict || limit.mode == LimitMode::fsdp1_queue;
  if (counts) {
    const char* const mode = limit.mode == LimitMode::strict ? "strict" : "fsdp1_queue";
    add(Cause::all_gather_limit, fmt::format("fsdp.all_gather_limit={}:{}", mode, limit.count + 1),
        [](config::RunConfig& c) { ++c.fsdp.all_gather_limit.count; });
  } else if (limit.mode != LimitMode::unlimited) {
    add(Cause::all_gather_limit, "fsdp.all_gather_limit=unlimited", [](config::RunConfig& c) {
      c.fsdp.all_gather_limit = {LimitMode::unlimited, 2, 0};
    });
  }
  if (fsdp.reduce_scatter_buffers > 0) {
    add(Cause::reduce_scatter_buffers, fmt::format("fsdp.reduce_scatter_buffers={}", fsdp.reduce_scatter_buffers + 1),
        [](config::RunConfig& c) { ++c.fsdp.reduce_scatter_buffers; });
  }
  if (fsdp.reduce_lane == config::ReduceLane::compute) {
    add(Cause::serialised, "fsdp.reduce_lane=reduce_scatter",
        [](config::RunConfig& c) { c.fsdp.reduce_lane = config::ReduceLane::reduce_scatter; });
  }
  const bool separate = fsdp.separate_reduce_scatter_comm;
  add(separate ? Cause::contention : Cause::communicator_serialisation,
      fmt::format("fsdp.separate_reduce_scatter_comm={}", !separate),
      [](config::RunConfig& c) { c.fsdp.separate_reduce_scatter_comm ^= true; });
  if (fsdp.wrap.mode == config::Wrap::Mode::block && config.mesh.expert == 1) {  // experts need units of one block
    add(Cause::inefficient_collective, "fsdp.wrap=blocks:2", [](config::RunConfig& c) {
      c.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};
    });
  }
  if (fsdp.layout == config::Layout::per_param &&
      config.mesh.expert == 1) {  // no engine lays out experts so under FSDP2's hooks
    add(Cause::copy, "fsdp.layout=flat", [](config::RunConfig& c) { c.fsdp.layout = config::Layout::flat; });
  }
  if (fsdp.strategy == config::Strategy::full_shard || fsdp.strategy == config::Strategy::hybrid_shard) {
    const bool full = fsdp.strategy == config::Strategy::full_shard;
    add(Cause::link_bound, full ? "fsdp.strategy=shard_grad_op" : "fsdp.strategy=hybrid_shard_grad_op",
        [full](config::RunConfig& c) {
          c.fsdp.strategy = full ? config::Strategy::shard_grad_op : config::Strategy::hybrid_shard_grad_op;
        });
  }
  if (fsdp.reduce_dtype == DType::f32) {
    add(Cause::link_bound, "fsdp.reduce_dtype=bf16", [](config::RunConfig& c) { c.fsdp.reduce_dtype = DType::bf16; });
  }
  if (const dialects::Dialect* system = dialects::dialect_of(config)) {
    const dialects::Sayable words(*system, config);
    for (Knob& knob : knobs) knob.sayable = words.says(knob.config, dialects::Sayable::Own::may_change);
  }
  return knobs;
}

config::RunConfig lifted(Cause cause, config::RunConfig config) {
  config::Fsdp& fsdp = config.fsdp;
  switch (cause) {
    case Cause::late_prefetch:
      if (fsdp.forward_prefetch.mode == PrefetchMode::none) fsdp.forward_prefetch = {PrefetchMode::implicit, 1};
      if (fsdp.backward_prefetch.mode == PrefetchMode::none) fsdp.backward_prefetch = {PrefetchMode::pre, 1};
      break;
    case Cause::all_gather_limit: fsdp.all_gather_limit = {LimitMode::unlimited, 2, 0}; break;
    case Cause::reduce_scatter_buffers: fsdp.reduce_scatter_buffers = 0; break;
    case Cause::communicator_serialisation: fsdp.separate_reduce_scatter_comm = true; break;
    case Cause::serialised: fsdp.reduce_lane = config::ReduceLane::reduce_scatter; break;
    case Cause::host_sync:
      config.inject.host_sync_after_layer = -1;
      if (config.mesh.expert > 1) config.mesh.expert_sync = false;
      break;
    default: break;
  }
  return config;
}
namespace {

constexpr double kAtOnce = 1e12;  // so many times as fast

/// Question to a forecast.
struct Question {
  Counterfactual answer;
  clock::Changes changes;
  std::unique_ptr<schedule::Training> rebuilt;  ///< steady, under another policy; null: the schedule as it is
  std::optional<double> ratio;  ///< of its step to the typical one, if the run's machine says so; absent: replays do
};

class Finder {
 public:
  Finder(const TypicalStep& typical, double noise_ms, const MachineFacts& machine = {},
         const TypicalStep* contended = nullptr)
      : typical_(typical), noise_ms_(noise_ms), machine_(machine), contended_(contended) {
    typical_ms_ = step_ms({});
    if (machine_.clock != nullptr) machine_ns_ = machine_.clock->forecast(typical_.training()).slowest_ns();
    if (contended_ != nullptr) contended_ns_ = contended_->forecast(contended_->training()).slowest_ns();
  }

  Counterfactuals find(const std::vector<Asked>& causes) {
    std::vector<Question> questions;
    for (const Asked& asked : causes) questions.push_back(about(asked));
    Counterfactuals result;
    const std::vector<Knob> knobs = knobs_of(typical_.training().config);
    for (const Knob& knob : knobs) {
      if (!knob.sayable) {
        result.unsaid.push_back(knob.set);
        continue;
      }
      Question question = rebuilt(knob.config);
      question.answer.cause = knob.cause;
      question.answer.set = knob.set;
      if (question.rebuilt) questions.push_back(std::move(question));
    }
    for (Question& question : questions) ask(question);
    std::erase_if(questions, [&](const Question& q) { return !q.answer.set.empty() && q.answer.gain_ms <= noise_ms_; });
    if (!typical_.repeats()) find_intervals(questions);

    for (Question& question : questions) {
      Counterfactual& answer = question.answer;
      add_doubts(question);
      advise(answer);
      if (answer.set.empty()) {
        const auto unsaid = [&](const Knob& knob) { return knob.cause == answer.cause && !knob.sayable; };
        if (question.rebuilt && std::ranges::any_of(knobs, unsaid)) answer.advised = false;
        result.causes.push_back(std::move(answer));
        continue;
      }
      // Memory of a framework is its allocator's, which only a simulation of both tells.
      const bool own = question.rebuilt->config.framework() == config::Simulate::Framework::own;
      if (answer.advised && (own || machine_.peak_bytes) && own_peak_bytes()) {
        const std::optional<std::int64_t> needs = peak_bytes(question.rebuilt->config);
        if (!needs) continue;
        answer.more_bytes = *needs - *own_peak_bytes();
      }
      result.knobs.push_back(std::move(answer));
    }
    std::ranges::stable_sort(result.knobs, std::ranges::greater(), &Counterfactual::gain_ms);
    return result;
  }

  Counterfactual gain_of(const config::RunConfig& other) {
    std::vector<Question> questions(1);
    questions.front().rebuilt = std::make_unique<schedule::Training>(training(other).steady());
    ask(questions.front());
    if (!typical_.repeats()) find_intervals(questions);
    advise(questions.front().answer);
    return questions.front().answer;
  }

 private:
  void ask(Question& question) const {
    question.answer.step_ms = step_ms(question);
    question.answer.gain_ms = question.answer.ci_low = question.answer.ci_high = typical_ms_ - question.answer.step_ms;
    if (!question.rebuilt) return;
    std::map<std::tuple<schedule::OpKind, plan::Group, std::int64_t>, int> more;
    const auto count = [&](const schedule::Training& training, int by) {
      for (const schedule::Op& op : training.schedules.steady().ops) {
        if (const auto* sent = std::get_if<schedule::Collective>(&op.work))
          more[{op.kind, sent->group, sent->bytes()}] += by;
      }
    };
    count(*question.rebuilt, 1);
    count(typical_.training(), -1);
    question.answer.adds_collectives = std::ranges::any_of(more, [](const auto& entry) { return entry.second > 0; });
  }

  /// Beside the luck of the run's steps.
  void add_doubts(Question& question) const {
    if (!question.rebuilt) return;
    Counterfactual& answer = question.answer;
    if (question.ratio) {
      const double gain = 1 - *question.ratio;
      const double doubt_ms =
          machine_.clock->doubt(*question.rebuilt, gain).value_or(0) * *question.ratio * typical_ms_;
      if (doubt_ms > 0 && answer.interval == IntervalKind::one_value) answer.interval = IntervalKind::prediction;
      answer.ci_low = answer.gain_ms - std::hypot(answer.gain_ms - answer.ci_low, doubt_ms);
      answer.ci_high = answer.gain_ms + std::hypot(answer.ci_high - answer.gain_ms, doubt_ms);
    }
    if (contended_ == nullptr) return;
    const double contended_ms = contended_->forecast(*question.rebuilt).slowest_ns() / contended_ns_ * typical_ms_;
    answer.ci_low = std::min(answer.ci_low, answer.ci_low + answer.step_ms - contended_ms);
    answer.ci_high = std::max(answer.ci_high, answer.ci_high + answer.step_ms - contended_ms);
    if (answer.interval == IntervalKind::one_value) answer.interval = IntervalKind::range;
  }

  void advise(Counterfactual& answer) const {
    const bool certain =
        typical_.steps() > 1 || typical_.training().config.device.backend == config::BackendKind::virtual_;
    answer.advised = certain && answer.ci_low > 0 && answer.gain_ms > noise_ms_;
  }

  Question rebuilt(const config::RunConfig& config) const {
    Question question;
    try {
      auto steady = std::make_unique<schedule::Training>(training(config).steady());
      if (machine_.clock != nullptr) question.ratio = machine_.clock->forecast(*steady).slowest_ns() / machine_ns_;
      question.rebuilt = std::move(steady);
    } catch (const Error&) {  // not for this model, plan, memory or machine: nothing to advise
    }
    return question;
  }

  Question about(const Asked& asked) const {
    Question question;
    using clock::Part;
    clock::Changes& changes = question.changes;
    const auto leave_out = [&](Part part) { changes.without.insert(part); };
    switch (asked.cause) {
      case Cause::link_bound: changes.link_scale = kAtOnce; break;
      case Cause::inefficient_collective: changes.hop_ns = -kAtOnce; break;
      case Cause::contention: leave_out(Part::link_sharing); break;
      case Cause::straggler: changes.late_rank = asked.late_rank; break;
      case Cause::host_bound: leave_out(Part::host); break;
      case Cause::copy: leave_out(Part::copies); break;
      case Cause::pcie: leave_out(Part::pcie); break;
      case Cause::host_update: leave_out(Part::host_update); break;
      case Cause::step_boundary: leave_out(Part::step_ends); break;
      case Cause::slow_link: changes.slow_link = asked.late_rank; break;
      case Cause::tensor_group: leave_out(Part::tensor_group); break;
      case Cause::expert_exchange: leave_out(Part::expert_rows); break;
      case Cause::expert_imbalance: changes.op_factor = asked.even_rows; break;
      case Cause::cores_busy: leave_out(Part::core_waits); break;
      case Cause::unknown: leave_out(Part::lane_lags); break;
      case Cause::slow_transfer:
      case Cause::data_loading: break;  // of traces alone, which are not asked
      case Cause::late_prefetch:
      case Cause::all_gather_limit:
      case Cause::reduce_scatter_buffers:
      case Cause::communicator_serialisation:
      case Cause::serialised:
      case Cause::host_sync: question = rebuilt(lifted(asked.cause, typical_.training().config)); break;
    }
    question.answer.cause = asked.cause;
    question.answer.late_rank = asked.late_rank;
    return question;
  }

  double step_ms(const Question& question, int draw = -1) const {
    clock::Changes changes = question.changes;
    changes.draw = draw;
    const bool replays = question.rebuilt && !question.ratio;
    const schedule::Training& training = replays ? *question.rebuilt : typical_.training();
    return typical_.forecast(training, changes).slowest_ns() / 1e6 * question.ratio.value_or(1);
  }

  void find_intervals(std::vector<Question>& questions) const {
    const Question nothing;
    for (int draw = 0; draw < clock::Uncertainty::kDraws; ++draw) {
      const double as_it_is = step_ms(nothing, draw);
      for (Question& question : questions) {
        const double gain = as_it_is - step_ms(question, draw);
        Counterfactual& answer = question.answer;
        answer.interval = IntervalKind::bootstrap;
        answer.ci_low = std::min(answer.ci_low, gain);
        answer.ci_high = std::max(answer.ci_high, gain);
      }
    }
  }

  schedule::Training training(const config::RunConfig& config) const {
    return schedule::make_training(config, typical_.training().sizes);
  }

  std::optional<std::int64_t> peak_bytes(const config::RunConfig& config) const {
    if (machine_.peak_bytes) return machine_.peak_bytes(training(config));
    return schedule::memory_walk(training(config).schedules, config.train.warmup + config.train.steps)
        .peak_occupied_total;
  }

  const std::optional<std::int64_t>& own_peak_bytes() {
    if (!peak_bytes_) peak_bytes_ = peak_bytes(typical_.training().config);
    return *peak_bytes_;
  }

  const TypicalStep& typical_;
  double noise_ms_;
  MachineFacts machine_;
  const TypicalStep* contended_;
  double machine_ns_ = 0, contended_ns_ = 0;  // of their steps as they are
  double typical_ms_ = 0;
  std::optional<std::optional<std::int64_t>> peak_bytes_;  // absent: not asked yet
};

}  // namespace

Counterfactuals find_counterfactuals(const TypicalStep& typical, const std::vector<Asked>& causes, double noise_ms,
                                     const MachineFacts& machine, const TypicalStep* contended) {
  return Finder(typical, noise_ms, machine, contended).find(causes);
}

Counterfactual find_gain(const TypicalStep& typical, const config::RunConfig& other, double noise_ms) {
  return Finder(typical, noise_ms).gain_of(other);
}

}  // namespace fsdpbench::account
