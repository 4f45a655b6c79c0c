#include "dialects/make_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/nearest.h"
#include "config/presets.h"

namespace fsdpbench::dialects {
namespace {

/// The defaults of a system, as the preset of that name has them.
config::RunConfig reference_config(std::string_view engine) {
  config::RunConfig reference;
  for (const auto& [key, value] : config::fsdp_preset(engine)) config::find_field(key)->read(reference, value);
  return reference;
}

std::vector<KeyFate> fates_in(const Dialect& target, const ExportSource& source,
                              std::span<const config::Field* const> fields) {
  std::vector<KeyFate> fates;
  for (const config::Field* field : fields) {
    fates.push_back({field->name(), config::to_toml(field->write(source.config)), target.say(source, *field)});
  }
  return fates;
}

std::string count(std::int64_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

std::string model_line(const config::RunConfig& config, bool traced) {
  const config::Model& model = config.model;
  const config::Train& train = config.train;
  const bool decoder = model.kind == config::ModelKind::decoder;
  if (traced) {
    return fmt::format("Chosen for {} and {}, {} a step.", count(config.mesh.ranks, "rank", "ranks"),
                       count(model.layers, "block", "blocks"), count(train.accumulate, "microbatch", "microbatches"));
  }
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

std::vector<std::string> notes_of(const Dialect& target, const config::RunConfig& config, const Export& made,
                                  bool traced) {
  std::vector<std::string> lines{fmt::format("Settings for {}, written by fsdpbench export.", target.system),
                                 model_line(config, traced)};
  if (traced) lines.emplace_back(kNotTold);
  if (std::string frozen = frozen_line(config.model); !frozen.empty()) lines.push_back(std::move(frozen));
  add_notes(lines, made, Fate::lost, "No word for these here; what it does instead:");
  add_notes(lines, made, Fate::roughly, "Near, not the same:");
  add_notes(lines, made, Fate::yours, "For your training script, launcher or environment:");
  return lines;
}

/// The system's own file, then the one whose rules count where it has none, then common.toml.
std::vector<const SystemFile*> files_of(const SystemFile& own) {
  std::vector<const SystemFile*> files{&own};
  const auto add = [&](const std::string& name) {
    const auto found = std::ranges::find(system_files(), name, &SystemFile::name);
    if (found == system_files().end()) refuse(own, *own.table.get("export"), fmt::format("there is no {}.toml", name));
    files.push_back(&*found);
  };
  if (const toml::node* others = own.table.at_path("export.rules_of").node()) add(text_of(own, *others));
  add("common");
  return files;
}

}  // namespace

std::span<const Dialect> dialects() {
  static const std::vector<Dialect> kDialects = [] {
    std::vector<Dialect> all;
    for (const SystemFile& file : system_files()) {
      if (file.table.contains("export")) all.emplace_back(files_of(file));
    }
    std::ranges::sort(all, {}, &Dialect::place);
    return all;
  }();
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

std::vector<KeyFate> key_fates(const Dialect& target, const config::RunConfig& config,
                               std::span<const config::Field* const> fields) {
  const plan::Plan plan = plan::make_plan(config);
  const config::RunConfig reference = reference_config(target.engine(config));
  return fates_in(target, {config, reference, &plan, {}}, fields);
}

Export make_export(const Dialect& target, const config::RunConfig& config, bool traced) {
  const plan::Plan plan = plan::make_plan(config);
  const config::RunConfig reference = reference_config(target.engine(config));
  Export made;
  made.keys = fates_in(target, {config, reference, &plan, {}}, exported_fields());
  if (traced) {
    std::erase_if(made.keys, [](const KeyFate& one) {
      return one.key.starts_with("train.") && !one.key.starts_with("train.accumulate");
    });
  }
  const std::vector<std::string> notes = notes_of(target, config, made, traced);
  made.files = target.write({config, reference, &plan, notes, traced});
  return made;
}

}  // namespace fsdpbench::dialects
