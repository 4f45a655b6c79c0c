#include "config/give_way.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "config/fields.h"
#include "config/spelling.h"
#include "config/validate.h"

namespace fsdpbench::config {
namespace {

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

  /// What one rank sees and what all see are two ways to say one thing.
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

std::vector<std::string> give_way(RunConfig& config, const Layers& layers) { return GiveWay(config, layers).settle(); }

}  // namespace fsdpbench::config
