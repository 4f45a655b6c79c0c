#include "config/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/nearest.h"
#include "config/presets.h"
#include "config/spelling.h"
#include "config/toml_file.h"
#include "config/validate.h"

namespace fsdpbench::config {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_table_name(std::string_view name) {
  return std::ranges::any_of(fields(), [&](const Field& field) { return field.table == name; });
}

[[noreturn]] void throw_bad_top_level(const std::string& place, const std::string& name) {
  if (is_table_name(name)) {
    throw ConfigError(
        fmt::format("{}: '{}' is a table: write [{}] on a line of its own, its keys below.", place, name, name));
  }
  throw ConfigError(fmt::format("{}: {}", place, unknown_key(name)));
}

/// All keys of a TOML file, in file order. Throws ConfigError if it is not of the shape [table] key = value.
std::vector<Entry> read_file(const std::string& path, FileKind kind) {
  const toml::table file = parse_toml(path, kind);
  std::vector<std::pair<toml::source_position, Entry>> found;
  for (const auto& [table_name, node] : file) {
    const std::string table(table_name.str());
    const toml::table* keys = node.as_table();
    if (keys == nullptr) throw_bad_top_level(place_of(path, node), table);
    if (!is_table_name(table)) {
      std::vector<std::string> tables;
      for (const Field& field : fields()) tables.push_back(field.table);
      tables.erase(std::ranges::unique(tables).begin(), tables.end());
      const std::string near = nearest(table, tables);
      throw ConfigError(fmt::format("{}: unknown table [{}]; {}.", place_of(path, node), table,
                                    near.empty() ? fmt::format("valid are [{}]", fmt::join(tables, "], ["))
                                                 : fmt::format("the nearest valid one is [{}]", near)));
    }
    for (const auto& [key, value] : *keys) {
      const std::string name = fmt::format("{}.{}", table, key.str());
      const std::optional<Value> read = scalar(value);
      // A name nobody knows is the more helpful complaint, so it comes first.
      const Field* field = find_field(name);
      if (!read && field != nullptr) {
        throw ConfigError(fmt::format("{}: {} is not valid as {}; expected {}.", place_of(path, value), name,
                                      value.is_table()   ? "a table"
                                      : value.is_array() ? "an array"
                                                         : "a date or time",
                                      field->valid));
      }
      found.emplace_back(value.source().begin, Entry{name, read.value_or(Value(false)), place_of(path, value), {}});
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& item) { return std::pair(item.first.line, item.first.column); });
  std::vector<Entry> entries;
  for (auto& [position, entry] : found) entries.push_back(std::move(entry));
  return entries;
}

std::vector<Entry> fsdp_preset_entries(std::string_view name) {
  std::vector<Entry> entries;
  for (auto& [key, value] : fsdp_preset(name)) entries.push_back({key, std::move(value), "fsdp.preset", {}});
  return entries;
}

using Notes = std::vector<std::string>;

void take(RunConfig& config, const Entry& entry, Notes& notes) {
  const Field* field = find_field(entry.name);
  if (field == nullptr) {
    throw ConfigError(fmt::format("{}: {}{}", entry.place, unknown_key(entry.name), words_for_key(entry.name)));
  }
  if (field->read(config, entry.value)) return;
  // `--set data.path=1984` means the folder, not the number.
  if (!entry.raw.empty() && field->read(config, Value(entry.raw))) return;
  if (const std::optional<Value> meaning = meant_by(*field, entry.value); meaning && field->read(config, *meaning)) {
    notes.push_back(fmt::format("{} = {} is taken for {}.", entry.name, to_toml(entry.value), to_toml(*meaning)));
    return;
  }
  throw ConfigError(fmt::format("{}: {} = {} is not valid; expected {}.{}", entry.place, entry.name,
                                to_toml(entry.value), field->valid, right_word(*field, entry.value)));
}

void take(RunConfig& config, const std::vector<Entry>& entries, Notes& notes) {
  for (const Entry& entry : entries) take(config, entry, notes);
}

/// Takes the presets' own names out of the layers above them; the last mention wins.
RunConfig preset_names(const std::vector<Entry>& profile, const std::vector<Entry>& overrides) {
  RunConfig names;
  Notes ignored;  // taking all layers notes it again
  for (const std::vector<Entry>* layer : {&profile, &overrides}) {
    for (const Entry& entry : *layer) {
      if (entry.name == "model.preset" || entry.name == "fsdp.preset") take(names, entry, ignored);
    }
  }
  return names;
}

/// A file that names every key of a table was written by this program, as the configuration of a finished run. What
/// such a file says as its own preset would is not somebody's choice, and must not keep another preset from setting it:
/// these entries leave `profile` where `overrides` name a preset for the table.
void forget_preset_of_result(std::vector<Entry>& profile, const std::vector<Entry>& overrides) {
  const auto names = [](const std::vector<Entry>& layer, std::string_view key) {
    return std::ranges::any_of(layer, [&](const Entry& entry) { return entry.name == key; });
  };
  for (const std::string_view table : {"model", "fsdp"}) {
    const std::string preset = fmt::format("{}.preset", table);
    const bool whole = std::ranges::all_of(
        fields(), [&](const Field& field) { return field.table != table || names(profile, field.name()); });
    if (!whole || !names(overrides, preset)) continue;
    const RunConfig own = presets_of(preset_names(profile, {}));
    // An engine's may say how microbatches are accumulated, too.
    const std::vector<Entry> beside =
        table == "fsdp" ? fsdp_preset_entries(preset_names(profile, overrides).fsdp.preset) : std::vector<Entry>();
    std::erase_if(profile, [&](const Entry& entry) {
      const Field* field = find_field(entry.name);
      if (field == nullptr || entry.name == preset) return false;
      if (field->table != table && !names(beside, entry.name)) return false;
      RunConfig with = own;
      return field->read(with, entry.value) && field->write(with) == field->write(own);
    });
  }
}

/// Whether a file is one of a model: it says what kind, names no preset, and has nothing beside [model].
bool is_model_file(const std::vector<Entry>& entries) {
  const auto is = [](const char* name) { return [name](const Entry& entry) { return entry.name == name; }; };
  return std::ranges::any_of(entries, is("model.kind")) && std::ranges::none_of(entries, is("model.preset")) &&
         std::ranges::all_of(entries, [](const Entry& entry) { return entry.name.starts_with("model."); });
}

/// The typical training, with the model of the file at `path`.
std::vector<Entry> typical_training_of(const std::string& path, Notes& notes) {
  namespace fs = std::filesystem;
  const fs::path file = fs::absolute(path).lexically_normal();
  const std::string known = find_named_file(FileKind::model, file.stem().string());
  const std::string name = !known.empty() && fs::equivalent(known, file) ? file.stem().string() : file.string();
  const std::string typical = find_profile(kTypicalProfile);
  std::vector<Entry> entries = read_file(typical, FileKind::run);
  std::erase_if(entries, [](const Entry& entry) { return entry.name == "model.preset"; });
  entries.push_back({"model.preset", Value(name), path, {}});
  const std::string model = name == file.string() ? path : name;
  notes.push_back(fmt::format("{} is a model: it is trained as the profile {} says, but for what --set changes", model,
                              kTypicalProfile));
  return entries;
}

std::vector<Entry> model_preset(const std::filesystem::path& path) {
  std::vector<Entry> entries = read_file(path.string(), FileKind::model);
  for (const Entry& entry : entries) {
    if (!entry.name.starts_with("model.") || entry.name == "model.preset") {
      throw ConfigError(fmt::format("{}: '{}' has no place in a model file: only keys of [model] (but preset) have.",
                                    entry.place, entry.name));
    }
  }
  return entries;
}

class GiveWay {
 public:
  GiveWay(RunConfig& config, const Layers& layers) : config_(config), layers_(layers) {}

  std::vector<std::string> settle() {
    settle_emulation();
    settle_mesh();
    settle_batch();
    settle_presets();
    return std::move(notes_);
  }

 private:
  static bool names(const std::vector<Entry>& layer, std::string_view key) {
    return std::ranges::any_of(layer, [&](const Entry& entry) { return entry.name == key; });
  }
  bool overridden(std::string_view key) const { return names(layers_.overrides, key); }

  /// Back to the built-in defaults, unless the command line asks for the values; with one note for all.
  void drop(std::initializer_list<std::string_view> keys, std::string_view why) {
    static const RunConfig kDefaults;
    std::vector<std::string> dropped;
    for (const std::string_view key : keys) {
      const Field& field = *find_field(key);
      const Value value = field.write(config_), otherwise = field.write(kDefaults);
      if (value == otherwise || overridden(key)) continue;
      field.read(config_, otherwise);
      dropped.push_back(fmt::format("{} = {}", key, to_toml(value)));
    }
    if (dropped.empty()) return;
    notes_.push_back(fmt::format("ignoring the profile's {}: {}.", fmt::join(dropped, ", "), why));
  }

  void settle_emulation() {
    const bool gpu = config_.device.backend == BackendKind::cuda && overridden("device.backend");
    if (gpu) {
      drop({"emulate.link_gb_per_s", "emulate.link_latency_us", "emulate.compute_tflops", "emulate.pcie_gb_per_s",
            "emulate.pcie_latency_us"},
           "links, computation and PCIe of a GPU are real");
      drop({"inject.slow_rank"}, "a GPU cannot be slowed down like this");
    }
    const bool simulated = config_.device.backend == BackendKind::virtual_;
    if (simulated && !config_.simulate.cluster.empty() && overridden("simulate.cluster")) {
      drop({"emulate.link_gb_per_s", "emulate.link_latency_us", "emulate.compute_tflops", "emulate.pcie_gb_per_s",
            "emulate.pcie_latency_us"},
           "simulate.cluster defines links, GPUs and PCIe");
      return;
    }
    if (config_.emulate.link_gb_per_s || !(gpu || overridden("emulate.link_gb_per_s"))) return;
    drop({"emulate.link_latency_us", "inject.slow_link_rank"}, "there is no modelled link");
  }

  void settle_mesh() {
    const Mesh& mesh = config_.mesh;
    const std::string_view strategy = to_string(config_.fsdp.strategy);
    if (overridden("fsdp.strategy") && config_.fsdp.strategy == Strategy::no_shard &&
        config_.fsdp.reshard_after_forward.mode == ReshardAfterForward::Mode::group) {
      drop({"fsdp.reshard_after_forward"}, "no_shard shards nothing");
    }
    const bool asked = std::ranges::any_of(layers_.overrides, [](const Entry& entry) {
      return entry.name == "fsdp.strategy" || entry.name.starts_with("mesh.");
    });
    if (!asked) return;
    const std::int64_t ranks = mesh.data_ranks();
    const std::string_view key = mesh.tensor == 1 ? "mesh.ranks" : "mesh.ranks / mesh.tensor";
    if (ranks > 1 && is_hybrid(config_.fsdp.strategy)) {
      if (mesh.shard == 0 || mesh.replicate == 0 || mesh.shard * mesh.replicate == ranks) return;
      const std::string why = fmt::format("mesh.shard * mesh.replicate is {} = {}", key, ranks);
      if (overridden("mesh.replicate")) {
        drop({"mesh.shard"}, why);
      } else {
        drop({"mesh.replicate"}, why);
      }
      return;
    }
    const bool none = config_.fsdp.strategy == Strategy::no_shard || ranks == 1;
    const std::string why = fmt::format("it follows from fsdp.strategy = \"{}\" and {} = {}", strategy, key, ranks);
    if (mesh.shard != (none ? 1 : ranks)) drop({"mesh.shard"}, why);
    if (mesh.replicate != (none ? ranks : 1)) drop({"mesh.replicate"}, why);
  }

  /// The batch of one rank and the batch of all ranks are two ways to set one number.
  void settle_batch() {
    if (config_.train.batch_global == 0 || !overridden("train.batch_per_rank")) return;
    if (overridden("train.batch_global")) {
      throw ConfigError(fmt::format(
          "train.batch_per_rank = {} and train.batch_global = {} both say how large a batch is; leave one out.",
          config_.train.batch_per_rank, config_.train.batch_global));
    }
    drop({"train.batch_global"}, "train.batch_per_rank says how large a batch is");
  }

  /// An explicit key wins over a preset, also over one of the command line: who names a preset should know.
  void settle_presets() {
    for (const std::string_view table : {"model", "fsdp"}) {
      const std::string preset = fmt::format("{}.preset", table);
      if (!overridden(preset)) continue;
      std::vector<std::string> kept;
      for (const Entry& entry : layers_.profile) {
        const Field& field = *find_field(entry.name);
        if (field.table != table || entry.name == preset || overridden(entry.name)) continue;
        const Value value = field.write(config_);
        if (value != field.write(layers_.presets)) kept.push_back(fmt::format("{} = {}", entry.name, to_toml(value)));
      }
      if (kept.empty()) continue;
      notes_.push_back(fmt::format("{} = {} leaves these alone, because the profile sets them explicitly: {}.", preset,
                                   to_toml(find_field(preset)->write(config_)), fmt::join(kept, ", ")));
    }
  }

  RunConfig& config_;
  const Layers& layers_;
  std::vector<std::string> notes_;
};

}  // namespace

RunConfig presets_of(const RunConfig& config) {
  RunConfig presets;
  Notes ignored;  // loading said it
  presets.model.preset = config.model.preset;
  presets.fsdp.preset = config.fsdp.preset;
  try {
    take(presets, model_preset(find_model(config.model.preset, "")), ignored);
  } catch (const ConfigError&) {
    // The model file has gone since: its keys count as the profile's own.
  }
  take(presets, fsdp_preset_entries(config.fsdp.preset), ignored);
  return presets;
}

Entry read_override(const std::string& text) {
  const auto equals = text.find('=');
  const std::string name(trim(text.substr(0, equals)));
  if (equals == std::string::npos || name.empty()) {
    throw ConfigError(fmt::format("--set {}: expected key=value, as in --set mesh.ranks=8.", text));
  }
  Entry entry{name, Value(false), fmt::format("--set {}", text),
              std::string(trim(std::string_view(text).substr(equals + 1)))};
  entry.value = entry.raw;
  if (too_deep(entry.raw)) return entry;  // a path, or nothing that any key takes
  try {
    const toml::table parsed = toml::parse(fmt::format("value = {}\n", entry.raw));
    if (parsed.size() == 1) entry.value = scalar(*parsed.get("value")).value_or(Value(entry.raw));
  } catch (const toml::parse_error&) {
    // A bare word: full_shard, bytes:64MiB, a path.
  }
  return entry;
}

RunConfig load_profile(const std::string& path, const std::vector<std::string>& overrides,
                       std::vector<std::string>* notes) {
  Layers layers;
  Notes all;
  layers.profile = read_file(path, FileKind::run);
  if (is_model_file(layers.profile)) layers.profile = typical_training_of(path, all);
  for (const std::string& text : overrides) layers.overrides.push_back(read_override(text));
  forget_preset_of_result(layers.profile, layers.overrides);
  const RunConfig names = preset_names(layers.profile, layers.overrides);

  RunConfig config;
  const std::filesystem::path model = find_model(names.model.preset, path);
  take(config, model_preset(model), all);
  take(config, fsdp_preset_entries(names.fsdp.preset), all);
  layers.presets = config;
  take(config, layers.profile, all);
  take(config, layers.overrides, all);
  if (config.model.preset.ends_with(".toml")) {
    // A path is kept absolute: the resolved configuration is read back from another folder.
    config.model.preset = model.string();
  }
  for (std::string& note : give_way(config, layers)) all.push_back(std::move(note));
  if (notes != nullptr) notes->insert(notes->end(), all.begin(), all.end());
  return config;
}

std::set<std::string, std::less<>> said_keys(const std::string& path, const std::vector<std::string>& overrides) {
  std::vector<Entry> entries = read_file(path, FileKind::run);
  if (is_model_file(entries)) entries.clear();
  for (const std::string& text : overrides) entries.push_back(read_override(text));
  std::set<std::string, std::less<>> said;
  for (const Entry& entry : entries) said.insert(entry.name);
  return said;
}

std::vector<std::string> give_way(RunConfig& config, const Layers& layers) { return GiveWay(config, layers).settle(); }

}  // namespace fsdpbench::config
