#include "foreign/match_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "config/fields.h"
#include "config/presets.h"
#include "config/validate.h"
#include "dialects/sayable.h"
#include "schedule/training.h"

namespace fsdpbench::foreign {
namespace {

using config::RunConfig;

/// The order asks for none.
std::vector<plan::ModuleSizes> any_sizes(const plan::Plan& plan) {
  plan::ModuleSizes sizes;
  sizes.batch_input_bytes = sizes.batch_target_bytes = 1024;
  sizes.output_bytes = sizes.saved_bytes = 1024;
  sizes.forward_workspace_bytes = sizes.backward_workspace_bytes = 1024;
  sizes.forward_flops = sizes.recompute_flops = sizes.backward_flops = 1;
  std::vector<plan::ModuleSizes> all(plan.shapes.modules.size(), sizes);
  if (plan.mesh.expert == 1) return all;
  // Rows go to experts and come back; around that are the hooks of experts that are a module.
  using Exchange = plan::ModulePart::Exchange;
  const std::vector<plan::ModulePart> parts{{.flops = 1, .exchange = Exchange::dispatch, .count = 1},
                                            {.flops = 1, .exchange = Exchange::combine, .count = 1},
                                            {.flops = 1}};
  for (std::size_t m = 0; m < all.size(); ++m) {
    if (plan.shapes.modules[m].kind != plan::ModuleKind::block) continue;
    all[m].forward_parts = all[m].recompute_parts = all[m].backward_parts = parts;
  }
  return all;
}

void set(RunConfig& config, std::string_view key, const config::Value& value) {
  const config::Field* field = config::find_field(key);
  if (field == nullptr || !field->read(config, value)) throw ConfigError(fmt::format("{} cannot be set", key));
}

/// Budgets of elements are meant for units of billions of parameters' models; jobs of other sizes mostly have them set
/// in proportion. `scale`: to what they are.
RunConfig with_preset(const TrainingFacts& facts, const std::string& preset, double scale = 1) {
  RunConfig config;
  config.model = model_of_sizes(facts);
  config.mesh.ranks = static_cast<std::int64_t>(facts.shard) * facts.replicate;
  if (facts.replicate > 1) config.mesh = {config.mesh.ranks, facts.shard, facts.replicate};
  if (facts.expert > 1) {
    config.mesh.expert = facts.expert;
    config.model.experts = facts.expert;
    config.model.active_experts = 1;
  }
  config.fsdp.preset = preset;
  for (const auto& [key, value] : config::fsdp_preset(preset)) set(config, key, value);
  config::Fsdp& f = config.fsdp;
  // Parameters that are used again soon are not freed, whatever the strategy says: no gather of backward tells nothing.
  const bool keeps_for_reuse = f.max_reuse_distance > 0;
  for (std::int64_t* elements : {&f.forward_prefetch.elements, &f.backward_prefetch.elements, &f.max_live_parameters,
                                 &f.max_reuse_distance, &f.reduce_bucket, &f.reduce_scatter_elements}) {
    *elements = std::llround(static_cast<double>(*elements) * scale);
  }
  if (scale != 1 && f.persistence_threshold < 1'000'000) f.persistence_threshold = 0;
  if (f.head_unit) {
    config.model.layers = std::max<std::int64_t>(1, config.model.layers - 1);
    config.model.tied_head = false;
  }
  const bool hybrid = facts.replicate > 1;
  if (keeps_for_reuse) {
    config.fsdp.strategy = hybrid ? config::Strategy::hybrid_shard : config::Strategy::full_shard;
  } else if (facts.reshards) {
    config.fsdp.strategy = hybrid ? config::Strategy::hybrid_shard : config::Strategy::full_shard;
    if (facts.root_reshards) config.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  } else {
    config.fsdp.strategy = hybrid ? config::Strategy::hybrid_shard_grad_op : config::Strategy::shard_grad_op;
  }
  if (facts.backward_shard > 1 && facts.backward_shard < facts.shard) {
    config.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, facts.backward_shard};
  }
  if (facts.prefetch) {
    using Mode = config::Prefetch::Mode;
    config::Prefetch &forward = config.fsdp.forward_prefetch, &backward = config.fsdp.backward_prefetch;
    const bool ahead = forward.mode == Mode::explicit_ || forward.mode == Mode::ahead;
    if (facts.prefetch->forward && !ahead) forward = {Mode::explicit_, 1};
    if (!facts.prefetch->forward && ahead) forward = config::Prefetch{Mode::implicit};
    if (facts.prefetch->backward != ToldPrefetch::Backward::unknown && !facts.prefetch->allows(config.fsdp)) {
      backward = config::Prefetch{facts.prefetch->backward == ToldPrefetch::Backward::none   ? Mode::none
                                  : facts.prefetch->backward == ToldPrefetch::Backward::post ? Mode::post
                                                                                             : Mode::pre};
    }
  }
  if (facts.reentrant) config.fsdp.activation_checkpointing = config.fsdp.checkpoint_reentrant = true;
  config.fsdp.param_dtype = facts.param_dtype;
  config.fsdp.reduce_dtype = facts.reduce_dtype;
  config.fsdp.separate_reduce_scatter_comm = facts.separate_reductions;
  config.train.accumulate = facts.accumulate;
  if (facts.accumulate > 1) config.train.accumulate_mode = facts.accumulate_mode;
  config.simulate.compiled = false;
  config.device.backend = config::BackendKind::virtual_;
  config.emulate.compute_tflops = 100;
  config.emulate.link_gb_per_s = 100;
  return config;
}

constexpr double kUsualUnit = 218e6;  // elements of a block of Llama-2-7B or Llama-3-8B

/// Whether anything is counted in elements.
bool has_budgets(const config::Fsdp& f) {
  return f.forward_prefetch.elements > 0 || f.max_live_parameters > 0 || f.reduce_bucket > 0;
}

struct Tried {
  RunConfig config;
  OrderDifference difference;
  std::vector<LaunchToken> order, with_units;
};

class Matcher {
 public:
  Matcher(const TrainingFacts& facts, const std::vector<LaunchToken>& order)
      : facts_(facts), order_(order), units_(std::ranges::any_of(order, [](const auto& t) { return t.unit >= 0; })) {}

  /// Nothing where the configuration is not a valid one.
  std::optional<Tried> attempt(RunConfig config) const {
    try {
      config::validate(config);
      if (facts_.prefetch && !facts_.prefetch->allows(config.fsdp)) return std::nullopt;
      const schedule::Training training = schedule::make_training(config, any_sizes);
      const schedule::Schedule& steady = training.schedules.steady();
      Tried tried{
          std::move(config), {}, launch_order(steady, facts_.root, units_), launch_order(steady, facts_.root, true)};
      tried.difference = compare_orders(order_, tried.order);
      return tried;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  const TrainingFacts& facts_;
  const std::vector<LaunchToken>& order_;
  bool units_;
};

using Mode = config::Prefetch::Mode;
constexpr config::Prefetch kForwardPrefetches[] = {{Mode::none},         {Mode::implicit},     {Mode::explicit_, 1},
                                                   {Mode::explicit_, 2}, {Mode::explicit_, 3}, {Mode::ahead, 1}};
constexpr config::Prefetch kBackwardPrefetches[] = {{Mode::pre},          {Mode::post},         {Mode::none},
                                                    {Mode::explicit_, 2}, {Mode::explicit_, 3}, {Mode::ahead, 1}};
/// Where a unit has experts, a list of one is another order than what backward finds by itself.
constexpr config::Prefetch kListed{Mode::explicit_, 1};

/// Knobs that are turned, one at a time, from the best preset on.
std::vector<RunConfig> neighbours(const RunConfig& from) {
  std::vector<RunConfig> all;
  const auto add = [&](auto change) {
    RunConfig config = from;
    change(config);
    if (!(config == from)) all.push_back(std::move(config));
  };
  for (const config::Prefetch& forward : kForwardPrefetches) {
    add([&](RunConfig& c) { c.fsdp.forward_prefetch = forward; });
  }
  for (const config::Prefetch& backward : kBackwardPrefetches) {
    add([&](RunConfig& c) { c.fsdp.backward_prefetch = backward; });
  }
  if (from.mesh.expert > 1) {
    using Unit = config::ExpertUnit;
    add([&](RunConfig& c) { c.fsdp.backward_prefetch = kListed; });
    for (const Unit unit : {Unit::group, Unit::bucket, Unit::module, Unit::ordered_module}) {
      add([&](RunConfig& c) { c.fsdp.expert_unit = unit; });
    }
    add([&](RunConfig& c) { c.fsdp.root_prefetches_forward = !c.fsdp.root_prefetches_forward; });
  }
  using Reshard = config::ReshardAfterForward::Mode;
  if (from.fsdp.reshard_after_forward.mode != Reshard::group && from.fsdp.max_reuse_distance == 0) {
    for (const Reshard mode : {Reshard::automatic, Reshard::always, Reshard::never}) {
      add([&](RunConfig& c) { c.fsdp.reshard_after_forward.mode = mode; });
    }
  }
  if (from.train.accumulate > 1) {
    for (const auto mode : {config::AccumulateMode::reduce_each, config::AccumulateMode::no_sync,
                            config::AccumulateMode::reduce_scatter_only}) {
      add([&](RunConfig& c) { c.train.accumulate_mode = mode; });
    }
    add([&](RunConfig& c) { c.fsdp.reshard_after_backward = !c.fsdp.reshard_after_backward; });
  }
  add([&](RunConfig& c) { c.fsdp.activation_checkpointing = !c.fsdp.activation_checkpointing; });
  add([&](RunConfig& c) { c.fsdp.gradients_after_views = !c.fsdp.gradients_after_views; });
  return all;
}

std::vector<std::string> deviations_of(const std::vector<LaunchToken>& order, const Tried& tried, int modules) {
  std::vector<std::string> found;
  const auto token_name = [&](const LaunchToken& token) { return foreign::token_name(token, modules); };
  std::vector<bool> met(tried.order.size(), false);
  const auto before = [&](const std::vector<LaunchToken>& tokens, std::size_t at) -> std::string {
    while (at-- > 0) {
      if (tokens[at].what != LaunchToken::What::computation) return "after " + token_name(tokens[at]);
    }
    return "at the beginning";
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int to = tried.difference.to_other[i];
    if (to >= 0) met[to] = true;
  }
  std::vector<std::size_t> missing;
  for (std::size_t j = 0; j < tried.order.size(); ++j) {
    if (!met[j] && tried.order[j].what != LaunchToken::What::computation) missing.push_back(j);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (tried.difference.to_other[i] >= 0 || order[i].what == LaunchToken::What::computation) continue;
    const auto moved = std::ranges::find_if(missing, [&](std::size_t j) { return tried.order[j].same_as(order[i]); });
    if (moved != missing.end()) {
      found.push_back(fmt::format("{} is launched {}, where the schedule has it {}", token_name(order[i]),
                                  before(order, i), before(tried.order, *moved)));
      missing.erase(moved);
    } else {
      found.push_back(
          fmt::format("{} is launched {}, where the schedule has none", token_name(order[i]), before(order, i)));
    }
  }
  for (std::size_t j : missing) {
    found.push_back(
        fmt::format("{} of the schedule ({}) is not launched", token_name(tried.order[j]), before(tried.order, j)));
  }
  // Collectives in the right order may still be launched before or after other computation than the schedule's.
  std::vector<std::size_t> elsewhere;
  for (std::size_t j = 0; j < tried.order.size(); ++j) {
    if (!met[j] && tried.order[j].what == LaunchToken::What::computation) elsewhere.push_back(j);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (tried.difference.to_other[i] >= 0 || order[i].what != LaunchToken::What::computation) continue;
    if (elsewhere.empty()) {
      found.push_back(fmt::format("computation is launched {}, where the schedule has none", before(order, i)));
    } else {
      found.push_back(fmt::format("computation is launched {}, where the schedule has it {}", before(order, i),
                                  before(tried.order, elsewhere.front())));
      elsewhere.erase(elsewhere.begin());
    }
  }
  for (std::size_t j : elsewhere) {
    found.push_back(fmt::format("computation of the schedule ({}) is not launched there", before(tried.order, j)));
  }
  if (found.size() > kMostDeviations) found.resize(kMostDeviations);
  return found;
}

int collectives_off(const std::vector<LaunchToken>& order, const Tried& tried) {
  int off = 0, met = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].what == LaunchToken::What::computation) continue;
    if (tried.difference.to_other[i] < 0) {
      ++off;
    } else {
      ++met;
    }
  }
  for (const LaunchToken& token : tried.order) off += token.what != LaunchToken::What::computation;
  return off - met;
}

}  // namespace

bool ToldPrefetch::allows(const config::Fsdp& fsdp) const {
  using Mode = config::Prefetch::Mode;
  const bool ahead = fsdp.forward_prefetch.mode == Mode::explicit_ || fsdp.forward_prefetch.mode == Mode::ahead;
  if (ahead != forward) return false;
  if (backward == Backward::unknown) return true;
  switch (fsdp.backward_prefetch.mode) {
    case Mode::post: return backward == Backward::post;
    case Mode::none:
    case Mode::implicit: return backward == Backward::none;
    default: return backward == Backward::pre;
  }
}

config::Model model_of_sizes(const TrainingFacts& facts) {
  config::Model model;
  model.layers = std::max(facts.units, 1);
  if (facts.unit_elements <= 0) return model;
  const std::int64_t unit = facts.unit_elements;
  const std::int64_t rest = facts.root_elements > 0 ? facts.root_elements : unit;
  double best = std::numeric_limits<double>::max();
  for (const bool tied : {false, true}) {
    for (std::int64_t width = 32; width <= 32768; width += width < 1024 ? 32 : 128) {
      for (const std::int64_t share : {1, 2, 4, 8}) {  // query heads a key head
        const std::int64_t head = width >= 1024 ? 128 : width >= 512 ? 64 : 32;
        const std::int64_t heads = width / head;
        if (heads * head != width || heads % share != 0) continue;
        const std::int64_t left = unit - 2 * width * width - 2 * width * width / share - 2 * width;
        if (left < 3 * width) break;
        const double ffn = static_cast<double>(left) / (3.0 * static_cast<double>(width));
        const double ratio = ffn / static_cast<double>(width);
        const double vocab = static_cast<double>(rest - width) / (static_cast<double>(width) * (tied ? 1 : 2));
        if (ratio < 1 || ratio > 8 || vocab < 1) continue;
        const auto fraction = [](double x) { return std::abs(x - std::round(x)); };
        // Sizes that fit to the element first, then round ones, then the shapes that are usual.
        const double score = (fraction(ffn) > 1e-9 ? 10.0 : 0.0) + (fraction(vocab) > 1e-9 ? 10.0 : 0.0) +
                             (fraction(ffn / 32) > 1e-9 ? 2.0 : 0.0) + std::abs(ratio - 3.25) + (tied ? 0.5 : 0.0) +
                             (share == 1 ? 0.1 : 0.0) + std::abs(std::log2(vocab / 32000)) * 0.1;
        if (score >= best) continue;
        best = score;
        model.width = width;
        model.heads = heads;
        model.kv_heads = heads / share;
        model.ffn_width = std::max<std::int64_t>(1, std::llround(ffn));
        model.vocab = std::max<std::int64_t>(256, std::llround(vocab));
        model.tied_head = tied;
      }
    }
  }
  return model;
}

std::vector<config::Value> equal_values(const TrainingFacts& facts, const std::vector<LaunchToken>& order,
                                        const ScheduleMatch& match, std::string_view key) {
  const config::Field& field = *config::find_field(key);
  const dialects::Dialect* system = dialects::dialect_of(match.config);
  std::vector<config::Value> values{field.write(match.config)};
  if (system == nullptr) return values;
  const Matcher matcher(facts, order);
  const dialects::Sayable sayable(*system, match.config, dialects::Fit::exact);
  const bool forward = key == "fsdp.forward_prefetch";
  for (const config::Prefetch& other : forward ? kForwardPrefetches : kBackwardPrefetches) {
    RunConfig config = match.config;
    (forward ? config.fsdp.forward_prefetch : config.fsdp.backward_prefetch) = other;
    if (config == match.config) continue;
    config::Value value = field.write(config);
    const auto tried = matcher.attempt(std::move(config));
    if (!tried || tried->difference.distance > match.distance || !sayable.says(key, value)) continue;
    values.push_back(std::move(value));
  }
  return values;
}

schedule::Training training_of(const ScheduleMatch& match) { return schedule::make_training(match.config, any_sizes); }

ScheduleMatch match_schedule(const TrainingFacts& facts, const std::vector<LaunchToken>& order) {
  const Matcher matcher(facts, order);
  std::vector<std::pair<std::string, Tried>> tried;
  for (const std::string& preset : facts.presets) {
    const RunConfig config = with_preset(facts, preset);
    if (auto result = matcher.attempt(config)) tried.emplace_back(preset, std::move(*result));
    if (!has_budgets(config.fsdp) || facts.unit_elements <= 0) continue;
    const double scale = static_cast<double>(facts.unit_elements) / kUsualUnit;
    if (auto result = matcher.attempt(with_preset(facts, preset, scale)))
      tried.emplace_back(preset, std::move(*result));
  }
  if (tried.empty()) {
    throw ConfigError(
        fmt::format("No schedule is known for {} units on {} x {} ranks{}.", facts.units, facts.replicate, facts.shard,
                    facts.expert > 1 ? fmt::format(", {} of which split the experts of a block", facts.expert) : ""));
  }
  // The order of the list is the order of likelihood: it decides between equals.
  std::ranges::stable_sort(tried, {}, [](const auto& t) { return t.second.difference.distance; });
  constexpr std::size_t kStarts = 3;
  std::optional<Tried> best;
  for (std::size_t start = 0; start < std::min(kStarts, tried.size()); ++start) {
    Tried here = tried[start].second;
    for (bool better = here.difference.distance > 0; better;) {
      better = false;
      for (RunConfig& config : neighbours(here.config)) {
        auto next = matcher.attempt(std::move(config));
        if (!next || next->difference.distance >= here.difference.distance) continue;
        here = std::move(*next);
        better = here.difference.distance > 0;
        if (!better) break;
      }
    }
    if (!best || here.difference.distance < best->difference.distance) best = std::move(here);
    if (best->difference.distance == 0) break;
  }
  ScheduleMatch match;
  match.config = best->config;
  match.distance = best->difference.distance;
  match.order = best->with_units;
  match.collectives_off = collectives_off(order, *best);
  for (std::size_t i = 0; i < order.size() && match.first_off < 0; ++i) {
    const bool off = best->difference.to_other[i] < 0 && order[i].what != LaunchToken::What::computation;
    if (off) match.first_off = order[i].begin;
  }
  match.deviations = deviations_of(order, *best, facts.units + 1);
  for (const auto& [preset, other] : tried) {
    if (preset != best->config.fsdp.preset && other.difference.distance == match.distance)
      match.same_order.push_back(preset);
  }
  return match;
}

}  // namespace fsdpbench::foreign
