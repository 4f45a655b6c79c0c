#include "config/check_nested_experts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/fields.h"
#include "config/spelling.h"

namespace fsdpbench::config {

void check_nested_experts(const RunConfig& config, std::vector<std::string>& notes) {
  const Fsdp& fsdp = config.fsdp;
  if (fsdp.expert_unit == ExpertUnit::module && config.mesh.expert == 1) {
    notes.push_back("fsdp.expert_unit = \"module\" has no effect: mesh.expert is 1.");
  }
  const bool nested = fsdp.expert_unit == ExpertUnit::module && config.mesh.expert > 1;
  if (fsdp.recompute_frees && !(nested && fsdp.activation_checkpointing)) {
    notes.push_back(
        "fsdp.recompute_frees has no effect: it needs fsdp.expert_unit = \"module\", mesh.expert above 1 and "
        "fsdp.activation_checkpointing.");
  }
  if (!nested) return;
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds) throw ConfigError(sentence);
  };
  require(
      fsdp.backward_prefetch.mode != Prefetch::Mode::post,
      "fsdp.backward_prefetch = \"post\" does not go with fsdp.expert_unit = \"module\": FSDP2, which has modules in "
      "modules, gathers before a backward; expected \"pre\", \"none\" or a depth.");
  using Limit = AllGatherLimit::Mode;
  require(
      fsdp.all_gather_limit.mode == Limit::fsdp2_event || fsdp.all_gather_limit.mode == Limit::unlimited,
      fmt::format("fsdp.all_gather_limit = {} does not go with fsdp.expert_unit = \"module\": while a block waits for "
                  "its experts it stays gathered; expected \"fsdp2_event\" or \"unlimited\".",
                  to_toml(encode(fsdp.all_gather_limit))));
}

}  // namespace fsdpbench::config
