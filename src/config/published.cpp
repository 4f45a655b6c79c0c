#include "config/published.h"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"

namespace fsdpbench::config {
namespace {

/// none; all; every:N, of every N-th block; share:X, that part of all blocks; keeps:OUTPUTS, all but those of them.
void add_checkpointing(const CsvRow& row, std::vector<std::string>& settings) {
  const std::string& text = row.text("checkpointing");
  if (text == "none") return;
  settings.emplace_back("fsdp.activation_checkpointing=true");
  if (text == "all") return;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string key = kind == "every"   ? "fsdp.checkpoint_every="
                          : kind == "share" ? "fsdp.recompute_share="
                          : kind == "keeps" ? "fsdp.checkpoint_keeps="
                                            : "";
  if (colon == std::string::npos || key.empty()) {
    throw ConfigError(
        fmt::format("{}: checkpointing = {} is not valid; expected none, all, every:N, share:X or "
                    "keeps:OUTPUTS.",
                    row.place, text));
  }
  settings.push_back(key + text.substr(colon + 1));
}

std::vector<std::string> settings_of(const CsvRow& row) {
  std::vector<std::string> settings{"device.backend=virtual", "emulate.link_gb_per_s=none", "fsdp.param_dtype=bf16",
                                    "train.warmup=0", "train.steps=1"};
  for (const auto& [key, column] : {std::pair{"simulate.cluster", "cluster"},
                                    {"simulate.compiled", "compiled"},
                                    {"simulate.attention", "attention"},
                                    {"simulate.fused_loss", "fused_loss"},
                                    {"simulate.eager_loss", "eager_loss"},
                                    {"simulate.fused_optimizer", "fused_optimizer"},
                                    {"model.preset", "model"},
                                    {"mesh.ranks", "ranks"},
                                    {"mesh.shard", "shard"},
                                    {"mesh.expert", "expert"},
                                    {"fsdp.strategy", "strategy"},
                                    {"fsdp.preset", "system"},
                                    {"fsdp.reduce_dtype", "reduce"},
                                    {"train.batch_per_rank", "batch"},
                                    {"train.seq_len", "seq_len"},
                                    {"train.accumulate", "accumulate"}}) {
    if (!row.text(column).empty()) settings.push_back(fmt::format("{}={}", key, row.text(column)));
  }
  // Its run_train.sh sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
  if (row.text("family") == "torchtitan") settings.emplace_back("simulate.expandable_segments=true");
  // Tables of others may be older than these columns.
  for (const auto& [key, column] : {std::pair{"mesh.expert_rows", "expert_rows"}, {"fsdp.fp8_recipe", "fp8_recipe"}}) {
    const auto given = row.fields.find(column);
    if (given != row.fields.end() && !given->second.empty())
      settings.push_back(fmt::format("{}={}", key, given->second));
  }
  if (row.text("numbers") == "fp8") settings.emplace_back("fsdp.fp8_products=true");
  add_checkpointing(row, settings);
  return settings;
}

}  // namespace

std::string find_published_trainings() {
  const std::filesystem::path path = home_folder() / "profiles/published/training.csv";
  if (!std::filesystem::exists(path)) {
    throw ConfigError(fmt::format("{}: is not there; it belongs to this program.", path.string()));
  }
  return path.string();
}

RunConfig published_config(const CsvRow& row) {
  RunConfig config = load_profile(find_profile("quickstart"), settings_of(row));
  // The rows of a learned table are as many as the sequences are long.
  if (config.model.learned_positions > 0) config.model.learned_positions = config.train.seq_len;
  return config;
}

std::string published_title(const CsvRow& row) {
  const auto known = [&](const char* column) -> const std::string& {
    static const std::string kUnknown = "?";
    return row.text(column).empty() ? kUnknown : row.text(column);
  };
  const std::string& checkpointing = row.text("checkpointing");
  return fmt::format("{}, {} {} on {}, {} x {} tokens{}", row.text("model"), row.text("ranks"), row.text("numbers"),
                     known("cluster"), known("batch"), known("seq_len"),
                     checkpointing.empty() || checkpointing == "none" ? "" : ", checkpointing " + checkpointing);
}

}  // namespace fsdpbench::config
