#include "tune/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/load.h"
#include "config/nearest.h"
#include "config/presets.h"
#include "config/validate.h"
#include "plan/units.h"

namespace fsdpbench::tune {
namespace {

using config::RunConfig;

/// Values of an axis' keys, in their order, as --set takes them.
using Values = std::vector<std::string>;

/// An axis of the space: its keys, and what they may be around a configuration.
struct Line {
  std::vector<std::string> keys;
  Part part;
  std::function<std::vector<Values>(const RunConfig&)> values;
  bool alone = false;                               ///< Axis::alone
  std::function<bool(const RunConfig&)> idle = {};  ///< Axis::idle
};

auto listed(std::vector<std::string> values) {
  return [values = std::move(values)](const RunConfig&) {
    std::vector<Values> all;
    for (const std::string& value : values) all.push_back({value});
    return all;
  };
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

/// Strategies, and the hybrid ones with every split of the ranks.
std::vector<Values> meshes(const RunConfig& config) {
  std::vector<Values> all{{"full_shard", "0", "0"}, {"shard_grad_op", "0", "0"}, {"no_shard", "0", "0"}};
  const std::int64_t ranks = config.mesh.data_ranks();
  for (const std::int64_t shard : divisors(ranks)) {
    if (shard == 1 || shard == ranks) continue;
    for (const char* strategy : {"hybrid_shard", "hybrid_shard_grad_op"}) {
      all.push_back({strategy, fmt::format("{}", shard), "0"});
    }
  }
  return all;
}

/// Ranks that split the experts, in the shard group of as many ranks as can be.
std::vector<std::string> expert_splits(const RunConfig& config) {
  std::vector<std::string> all;
  if (config.model.experts == 0) return all;
  for (const std::int64_t expert : divisors(std::gcd(config.model.experts, config.mesh.data_ranks()))) {
    all.push_back(fmt::format("{}", expert));
  }
  return all;
}

std::vector<Values> reshards(const RunConfig& config) {
  std::vector<Values> all{{"auto"}, {"true"}, {"false"}};
  const std::int64_t ranks = config.mesh.data_ranks();
  for (const std::int64_t group : {2, 4, 8, 16}) {
    if (ranks % group == 0 && group < ranks) all.push_back({fmt::format("{}", group)});
  }
  return all;
}

/// Units of 1 to 8 blocks, and by size where that makes other units.
std::vector<Values> wraps(const RunConfig& config) {
  const plan::ModelShapes shapes = plan::model_shapes(config.model, static_cast<int>(config.mesh.tensor));
  std::vector<Values> all;
  std::set<std::vector<std::vector<int>>> seen;
  const auto add = [&](config::Wrap wrap, std::string text) {
    std::vector<std::vector<int>> units;
    for (const plan::UnitMembers& unit : plan::wrap_units(shapes, wrap, config.fsdp.head_unit)) {
      units.push_back(unit.modules);
    }
    if (seen.insert(std::move(units)).second) all.push_back({std::move(text)});
  };
  using Mode = config::Wrap::Mode;
  add({Mode::block, 1, 0}, "block");
  for (const int blocks : {2, 3, 4, 6, 8}) add({Mode::blocks, blocks, 0}, fmt::format("blocks:{}", blocks));
  for (const std::int64_t size : {100'000'000, 500'000'000, 1'000'000'000}) {
    add({Mode::min_size, 1, size}, fmt::format("size:{}", size));
  }
  add({Mode::model, 1, 0}, "model");
  return all;
}

/// None, and of every Nth block.
std::vector<Values> checkpoints() {
  return {{"false", "1"}, {"true", "1"}, {"true", "2"}, {"true", "3"}, {"true", "4"}};
}

/// The same, and of every block in part: torchtitan's, PyTorch's and Megatron's ways. Flash attention saves nothing
/// that attention alone would free.
std::vector<Values> selective_checkpoints() {
  std::vector<Values> all = checkpoints();
  for (Values& values : all) values.push_back("nothing");
  for (const char* keeps : {"every_second_product", "products", "all_but_feed_forward"}) {
    all.push_back({"true", "1", keeps});
  }
  return all;
}

/// Micro-batches of as many sequences as an optimizer step has now.
std::vector<Values> batches_kept(const RunConfig& config) {
  std::vector<Values> all;
  const std::int64_t sequences = config.train.batch_per_rank * config.train.accumulate;
  for (const std::int64_t batch : divisors(sequences)) {
    all.push_back({fmt::format("{}", batch), fmt::format("{}", sequences / batch)});
  }
  return all;
}

std::vector<Values> batches_free(const RunConfig& config) {
  std::vector<Values> all;
  for (std::int64_t batch = 1; batch <= 64; batch *= 2) {
    all.push_back({fmt::format("{}", batch), fmt::format("{}", config.train.accumulate)});
  }
  return all;
}

/// The whole space: a new knob is a line here, its spelling and its limits those of config/fields.cpp.
std::vector<Line> lines(const RunConfig& start, const SpaceOptions& options) {
  using enum Part;
  const auto only_accumulated = [&](std::vector<std::string> values) {
    return listed(start.train.accumulate * start.train.batch_per_rank > 1 ? std::move(values)
                                                                          : std::vector<std::string>());
  };
  // The cost of offloading is known where a PCIe rate is, and who has no memory to spare will have asked for it.
  const bool knows_pcie = start.emulate.pcie_gb_per_s || start.fsdp.cpu_offload != config::CpuOffload::none;
  const auto offloads = knows_pcie ? std::vector<std::string>{"none", "optimizer", "all"} : std::vector<std::string>{};
  const config::Fsdp& fsdp = start.fsdp;
  const bool plain_checkpoints =
      !fsdp.checkpoint_reentrant && (options.computed || fsdp.checkpoint_keeps == config::CheckpointKeeps::nothing);
  const auto one_microbatch = [](const RunConfig& config) { return config.train.accumulate == 1; };
  return {
      {{"fsdp.preset"},
       structure,
       listed(options.any_engine ? config::fsdp_preset_names() : std::vector<std::string>())},
      {{"fsdp.strategy", "mesh.shard", "mesh.replicate"}, structure, meshes},
      {{"mesh.expert"}, structure, listed(options.computed ? expert_splits(start) : std::vector<std::string>())},
      {{"fsdp.reshard_after_forward"}, structure, reshards},
      {{"fsdp.wrap"}, structure, wraps},
      {{"fsdp.head_unit"}, structure, listed({"false", "true"}), true},
      options.computed ? Line{{"fsdp.activation_checkpointing", "fsdp.checkpoint_every", "fsdp.checkpoint_keeps"},
                              structure,
                              [](const RunConfig&) { return selective_checkpoints(); },
                              plain_checkpoints}
                       : Line{{"fsdp.activation_checkpointing", "fsdp.checkpoint_every"},
                              structure,
                              [](const RunConfig&) { return checkpoints(); },
                              plain_checkpoints},
      {{"train.batch_per_rank", "train.accumulate"}, structure, options.free_batch ? batches_free : batches_kept},
      {{"train.accumulate_mode"},
       structure,
       only_accumulated({"reduce_each", "no_sync", "reduce_scatter_only"}),
       fsdp.reduce_bucket == 0,
       one_microbatch},
      {{"fsdp.reshard_after_backward"}, structure, only_accumulated({"true", "false"}), true, one_microbatch},
      {{"fsdp.cpu_offload"}, structure, listed(offloads)},
      {{"fsdp.param_dtype"}, structure, listed(options.dtypes), true},
      {{"fsdp.reduce_dtype"}, structure, listed(options.dtypes), true},
      {{"fsdp.forward_prefetch"}, order, listed({"none", "implicit", "1", "2", "3"})},
      {{"fsdp.backward_prefetch"}, order, listed({"none", "post", "pre", "2", "3"})},
      {{"fsdp.all_gather_limit"},
       order,
       listed({"unlimited", "fsdp2_event", "fsdp1_queue:2", "strict:2", "strict:3", "strict:4", "buffers:2",
               "bytes:2GiB", "bytes:8GiB"})},
      {{"fsdp.reduce_scatter_buffers"}, order, listed({"1", "2", "3", "0"})},
      {{"fsdp.separate_reduce_scatter_comm"}, order, listed({"false", "true"})},
  };
}

Setting setting(const std::string& key, const std::string& text) {
  const config::Entry entry = config::read_override(fmt::format("{}={}", key, text));
  const config::Field* field = config::find_field(key);
  RunConfig scratch;
  if (field->read(scratch, entry.value)) return {field, entry.value};
  if (field->read(scratch, config::Value(entry.raw))) return {field, config::Value(entry.raw)};
  throw ConfigError(fmt::format("{} = {} is not valid; expected {}.", key, text, field->valid));
}

std::string text_of(const std::vector<std::string>& keys, const RunConfig& config) {
  std::string text;
  for (const std::string& key : keys) {
    std::string value = config::to_toml(config::find_field(key)->write(config));
    std::erase(value, '"');
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

/// Adds those of `keys` that differ from the settings in force.
void say_changes(std::vector<std::string> keys, const RunConfig& turned, const RunConfig& in_force, Choice& choice) {
  std::erase_if(keys, [&](const std::string& key) {
    const config::Field* field = config::find_field(key);
    return field->write(turned) == field->write(in_force);
  });
  choice.text = text_of(keys, turned);
  choice.was = text_of(keys, in_force);
}

void apply(const Choice& choice, RunConfig& config) {
  for (const Setting& setting : choice.settings) setting.field->read(config, setting.value);
}

bool is_engine(const Axis& axis) { return axis.name == "fsdp.preset"; }
/// `choice` and the rest of what a preset means.
Choice with_preset(Choice choice) {
  const std::string name = std::get<std::string>(choice.settings.front().value);
  for (auto& [key, value] : config::fsdp_preset(name)) {
    choice.settings.push_back({config::find_field(key), std::move(value)});
  }
  return choice;
}

}  // namespace

bool every_engine_has(const Axis& axis) {
  return is_engine(axis) || axis.name == "fsdp.wrap" || axis.name == "fsdp.activation_checkpointing";
}

Space::Space(RunConfig start, const SpaceOptions& options) : start_(std::move(start)) {
  start_.train.batch_global = 0;  // batch_per_rank and accumulate say it, and may be turned
  for (const std::string& key : options.fixed) {
    const config::Field* field = config::find_field(key);
    if (field == nullptr) {
      throw ConfigError(fmt::format("--fix {}: {}", key, config::unknown_key(key)));
    }
    fixed_.push_back({field, field->write(start_)});
  }
  for (const Line& line : lines(start_, options)) {
    Axis axis{line.keys.front(), line.keys, line.part, {{text_of(line.keys, start_), "", {}}}, line.alone, line.idle};
    for (const Values& values : line.values(start_)) {
      Choice choice;
      for (std::size_t k = 0; k < values.size(); ++k) choice.settings.push_back(setting(line.keys[k], values[k]));
      if (is_engine(axis)) choice = with_preset(std::move(choice));
      RunConfig turned = start_;
      apply(choice, turned);
      try {
        config::validate(turned);
      } catch (const ConfigError&) {
        // Not beside what is in force, but perhaps beside another choice; the mesh is then filled in anew.
        const bool turns_fixed = std::ranges::any_of(choice.settings, [&](const Setting& s) {
          return s.field->table != "mesh" && std::ranges::any_of(fixed_, [&](const Setting& f) {
                   return f.field == s.field && f.value != s.value;
                 });
        });
        if (turns_fixed) continue;
        say_changes(line.keys, turned, start_, choice);
        axis.choices.push_back(std::move(choice));
        continue;
      }
      say_changes(line.keys, turned, start_, choice);
      const bool fixed =
          std::ranges::any_of(fixed_, [&](const Setting& s) { return s.field->write(turned) != s.value; });
      if (fixed || turned == start_ || choice.text.empty()) continue;
      if (options.offers && !options.offers(turned)) continue;
      axis.choices.push_back(std::move(choice));
    }
    axes_.push_back(std::move(axis));
  }
}

bool Space::holds(const Point& point) const {
  if (!other_engine(point)) return true;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (point[a] != 0 && !every_engine_has(axes_[a])) return false;
  }
  return true;
}

Settings Space::settings_at(const Point& point) const {
  Settings settings;
  for (std::size_t a = 0; a < point.size(); ++a) {
    if (point[a] != 0) settings.emplace_back(axes_[a].name, axes_[a].choices[point[a]].text);
  }
  return settings;
}

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [key, set] : settings) text += (text.empty() ? "" : " ") + set;
  return text.empty() ? "as it is" : text;
}

bool Space::other_engine(const Point& point) const {
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (is_engine(axes_[a])) return point[a] != 0;
  }
  return false;
}

std::optional<RunConfig> Space::config_at(const Point& point) const {
  if (!holds(point)) return std::nullopt;
  RunConfig config = start_;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (point[a] == 0) continue;
    // The mesh that was filled in is the strategy's: another strategy fills it in anew.
    const bool other_strategy = axes_[a].name == "fsdp.strategy" || is_engine(axes_[a]);
    if (other_strategy && !config::is_hybrid(config.fsdp.strategy)) config.mesh.shard = config.mesh.replicate = 0;
    apply(axes_[a].choices[point[a]], config);
  }
  try {
    config::validate(config);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  const bool keeps = std::ranges::all_of(fixed_, [&](const Setting& s) { return s.field->write(config) == s.value; });
  return keeps ? std::optional(std::move(config)) : std::nullopt;
}

double Space::size() const {
  double own = 1, other = 1;
  for (const Axis& axis : axes_) {
    const auto choices = static_cast<double>(axis.choices.size());
    if (is_engine(axis)) {
      other *= choices - 1;
      continue;
    }
    own *= choices;
    if (every_engine_has(axis)) other *= choices;
  }
  return own + other;
}

double Space::orders_of(const Point& structure) const {
  double points = 1;
  for (const Axis& axis : axes_) {
    if (axis.part == Part::order && !other_engine(structure)) points *= static_cast<double>(axis.choices.size());
  }
  return points;
}

}  // namespace fsdpbench::tune
