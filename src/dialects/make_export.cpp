#include "dialects/make_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/nearest.h"
#include "config/presets.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {

constexpr std::array kTables{"mesh", "train", "fsdp", "nccl"};
/// Keys of those tables that say how to measure, not how to train; and fsdp.preset, which stands for other keys.
constexpr std::array kOfTheMeasurement{"train.steps",         "train.warmup",   "train.seed",
                                       "train.params_digest", "nccl.timeout_s", "fsdp.preset"};

/// The defaults of a system, as the preset of that name has them.
config::RunConfig reference_config(std::string_view engine) {
  config::RunConfig reference;
  for (const auto& [key, value] : config::fsdp_preset(engine)) config::find_field(key)->read(reference, value);
  return reference;
}

Said say(const Dialect& target, const ExportSource& source, const config::Field& field) {
  const KeyRule* rule = find_rule(target, field.name());
  if (rule == nullptr) return lost("no rule says what becomes of it");
  if (rule->say != nullptr) return rule->say(source);
  const config::Value theirs = field.write(source.reference);
  if (field.write(source.config) == theirs) return same();
  return lost(rule->instead.empty()
                  ? fmt::format("it does as {} = {} ({})", field.key, config::to_toml(theirs), field.meaning)
                  : std::string(rule->instead));
}

std::vector<KeyFate> fates_in(const Dialect& target, const ExportSource& source,
                              std::span<const config::Field* const> fields) {
  std::vector<KeyFate> fates;
  for (const config::Field* field : fields) {
    fates.push_back({field->name(), config::to_toml(field->write(source.config)), say(target, source, *field)});
  }
  return fates;
}

std::string count(std::int64_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

std::string model_line(const config::RunConfig& config) {
  const config::Model& model = config.model;
  const config::Train& train = config.train;
  const bool decoder = model.kind == config::ModelKind::decoder;
  return fmt::format(
      "Chosen for {} and a{} of {}, width {}{}; {} a rank and microbatch, {} a step.",
      count(config.mesh.ranks, "rank", "ranks"), decoder ? " decoder" : "n mlp",
      decoder ? count(model.layers, "block", "blocks") : count(model.layers, "layer", "layers"), model.width,
      decoder && model.fused_projections ? ", fused projections" : "",
      decoder ? fmt::format("{} of {} tokens", count(train.batch_per_rank, "sequence", "sequences"), train.seq_len)
              : count(train.batch_per_rank, "sample", "samples"),
      count(train.accumulate, "microbatch", "microbatches"));
}

/// Whose parameters train is not a system's setting: the model that it gets brings that along. Empty: all do.
std::string frozen_line(const config::Model& model) {
  if (!model.freezes()) return "";
  const bool all = model.trainable.mode == config::Trainable::Mode::all;
  const std::string blocks =
      all ? "all blocks" : fmt::format("blocks {} to {}", model.trainable.first, model.trainable.last);
  if (model.lora_rank == 0) {
    return fmt::format("Only {} train: call requires_grad_(False) on all else before the model is wrapped.", blocks);
  }
  return fmt::format(
      "Only adapters train, beside every linear layer of {}: wrap peft's get_peft_model(model, LoraConfig(r={}, "
      "lora_alpha={}, target_modules=...)).",
      blocks, model.lora_rank, model.lora_alpha);
}

void add_notes(std::vector<std::string>& lines, const Export& made, Fate fate, std::string_view title) {
  const std::vector<KeyFate> keys = made.with(fate);
  if (keys.empty()) return;
  lines.emplace_back();
  lines.emplace_back(title);
  for (const KeyFate& key : keys) lines.push_back(fmt::format("  {} = {}: {}", key.key, key.value, key.said.text));
}

std::vector<std::string> notes_of(const Dialect& target, const ExportSource& source, const Export& made) {
  std::vector<std::string> lines{fmt::format("Settings for {}, written by fsdpbench export.", target.system),
                                 model_line(source.config)};
  if (std::string frozen = frozen_line(source.config.model); !frozen.empty()) lines.push_back(std::move(frozen));
  add_notes(lines, made, Fate::lost, "No word for these here; what it does instead:");
  add_notes(lines, made, Fate::roughly, "Near, not the same:");
  add_notes(lines, made, Fate::yours, "For your training script, launcher or environment:");
  return lines;
}

}  // namespace

std::span<const Dialect> dialects() {
  static const std::array kDialects{pytorch_fsdp2(), pytorch_fsdp1(), deepspeed(),  megatron_fsdp(),
                                    torchtitan(),    accelerate(),    hf_trainer(), maxtext()};
  return kDialects;
}

const Dialect& find_export_target(std::string_view name) {
  const auto targets = dialects();
  const auto found = std::ranges::find(targets, name, &Dialect::name);
  if (found != targets.end()) return *found;
  std::vector<std::string> names;
  for (const Dialect& target : targets) names.emplace_back(target.name);
  throw ConfigError(fmt::format("There is no export '{}'{}; known are {}.", name, config::nearest_clause(name, names),
                                fmt::join(names, ", ")));
}

std::vector<const Dialect*> read_export_targets(std::string_view names) {
  std::vector<const Dialect*> found;
  if (names == "all") {
    for (const Dialect& target : dialects()) found.push_back(&target);
    return found;
  }
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const Dialect* target = &find_export_target(names.substr(begin, end - begin));
    if (std::ranges::count(found, target) == 0) found.push_back(target);
    begin = end + 1;
  }
  return found;
}

std::span<const config::Field* const> exported_fields() {
  static const std::vector<const config::Field*> kFields = [] {
    std::vector<const config::Field*> fields;
    for (const config::Field& field : config::fields()) {
      if (std::ranges::count(kTables, field.table) == 0 || std::ranges::count(kOfTheMeasurement, field.name()) > 0)
        continue;
      fields.push_back(&field);
    }
    return fields;
  }();
  return kFields;
}

const KeyRule* find_rule(const Dialect& target, std::string_view key) {
  for (const std::span<const KeyRule> rules : {target.rules, common_rules()}) {
    const auto found = std::ranges::find(rules, key, &KeyRule::key);
    if (found != rules.end()) return &*found;
  }
  return nullptr;
}

std::vector<KeyFate> key_fates(const Dialect& target, const config::RunConfig& config,
                               std::span<const config::Field* const> fields) {
  const plan::Plan plan = plan::make_plan(config);
  const config::RunConfig reference = reference_config(target.engine(config));
  const ExportSource source{config, reference, plan};
  return fates_in(target, source, fields);
}

Export make_export(const Dialect& target, const config::RunConfig& config) {
  const plan::Plan plan = plan::make_plan(config);
  const config::RunConfig reference = reference_config(target.engine(config));
  const ExportSource source{config, reference, plan};
  Export made;
  made.keys = fates_in(target, source, exported_fields());
  made.files = target.write(source, notes_of(target, source, made));
  return made;
}

}  // namespace fsdpbench::dialects
