#include "config/check_experts.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/spelling.h"

namespace fsdpbench::config {
namespace {

bool counts_elements(const Prefetch& prefetch) {
  return prefetch.mode == Prefetch::Mode::window || prefetch.mode == Prefetch::Mode::rate;
}

/// Checks keys that do not go with experts as a module of their own. After the mesh is settled.
void check_nested(const RunConfig& config, std::vector<std::string>& notes) {
  const Fsdp& fsdp = config.fsdp;
  const std::string_view unit = to_string(fsdp.expert_unit);
  if (fsdp.expert_unit != ExpertUnit::group && config.mesh.expert == 1) {
    notes.push_back(fmt::format("fsdp.expert_unit = \"{}\" has no effect: mesh.expert is 1.", unit));
  }
  const bool ordered = fsdp.expert_unit == ExpertUnit::ordered_module && config.mesh.expert > 1;
  const bool nested = ordered || (fsdp.expert_unit == ExpertUnit::module && config.mesh.expert > 1);
  require(!ordered || !fsdp.recompute_frees,
          "fsdp.recompute_frees = true needs fsdp.expert_unit = \"module\": it is \"ordered_module\", whose hooks free "
          "nothing in a recomputation; expected false.");
  without_effect(notes, fsdp.recompute_frees && !(nested && fsdp.activation_checkpointing), "fsdp.recompute_frees",
                 "it needs fsdp.expert_unit = \"module\", mesh.expert above 1 and fsdp.activation_checkpointing");
  if (!nested) return;
  require(fsdp.backward_prefetch.mode != Prefetch::Mode::post,
          "fsdp.backward_prefetch = \"post\" does not go with fsdp.expert_unit = \"{}\": engines that have modules in "
          "modules gather before a backward; expected \"pre\", \"none\" or a depth.",
          unit);
  for (const auto& [key, prefetch] :
       {std::pair("forward_prefetch", fsdp.forward_prefetch), std::pair("backward_prefetch", fsdp.backward_prefetch)}) {
    require(!counts_elements(prefetch),
            "fsdp.{} = {} does not go with fsdp.expert_unit = \"{}\": engines that count elements have no modules in "
            "modules; expected a depth, or fsdp.expert_unit = \"group\" or \"bucket\".",
            key, to_toml(encode(prefetch)), unit);
  }
  using Limit = AllGatherLimit::Mode;
  require(fsdp.all_gather_limit.mode == Limit::fsdp2_event || fsdp.all_gather_limit.mode == Limit::unlimited,
          "fsdp.all_gather_limit = {} does not go with fsdp.expert_unit = \"{}\": while a block waits for "
          "its experts it stays gathered; expected \"fsdp2_event\" or \"unlimited\".",
          to_toml(encode(fsdp.all_gather_limit)), unit);
}

}  // namespace

void check_routing(const Model& model) {
  require((model.experts > 0) == (model.active_experts > 0) && model.active_experts <= model.experts,
          "model.active_experts = {} does not fit model.experts = {}; expected {}.", model.active_experts,
          model.experts,
          model.experts > 0 ? fmt::format("1 to {}", model.experts) : "0, since there is nothing to choose");
  require(model.experts > 0 || model.shared_experts == 0,
          "model.shared_experts = {} come beside routed experts: model.experts is 0.", model.shared_experts);
  // As many parameters as one matrix may have without experts: sums over a model then fit 64 bits.
  constexpr std::int64_t kMostOfExperts = std::int64_t{1} << 44;
  require(model.experts <= kMostOfExperts / (model.ffn_width * model.width),
          "model.experts = {} of {} x {} weights are too many; expected at most {} of that size.", model.experts,
          model.ffn_width, model.width, kMostOfExperts / (model.ffn_width * model.width));
  require(model.shared_experts <= kMostOfExperts / (model.ffn_width * model.width),
          "model.shared_experts = {} of {} x {} weights are too many; expected at most {} of that size.",
          model.shared_experts, model.ffn_width, model.width, kMostOfExperts / (model.ffn_width * model.width));
}

void check_expert_mesh(const RunConfig& config, std::vector<std::string>& notes) {
  const Mesh& mesh = config.mesh;
  const std::int64_t expert = mesh.expert;
  check_nested(config, notes);
  if (expert == 1) {
    without_effect(notes, mesh.expert_imbalance != 1, "mesh.expert_imbalance", "mesh.expert is 1");
    without_effect(notes, !mesh.expert_sync, "mesh.expert_sync = false", "mesh.expert is 1");
    without_effect(notes, mesh.expert_rows != Mesh().expert_rows, "mesh.expert_rows", "mesh.expert is 1");
    return;
  }
  const Model& model = config.model;
  const Fsdp& fsdp = config.fsdp;
  require(model.kind == ModelKind::decoder && model.experts > 0,
          "mesh.expert = {} splits the experts of a decoder: model.experts is 0.", expert);
  require(model.experts % expert == 0, "mesh.expert = {} does not divide model.experts = {}.", expert, model.experts);
  require(mesh.shard % expert == 0, "mesh.expert = {} does not divide the shard group of {} ranks.", expert,
          mesh.shard);
  require(mesh.expert_imbalance <= static_cast<double>(expert),
          "mesh.expert_imbalance = {} is more than mesh.expert = {}: then one rank has all rows; expected 1 to {}.",
          mesh.expert_imbalance, expert, expert);
  require(
      !fsdp.gradients_after_views,
      "mesh.expert = {} does not go with fsdp.gradients_after_views = true: FSDP1 has no experts on a mesh of their "
      "own; expected false.",
      expert);
  require(
      fsdp.layout == Layout::per_param || expert < mesh.shard,
      "mesh.expert = {} of a shard group of {} ranks leaves nobody to share experts with, which fsdp.layout = \"flat\" "
      "needs; expected less, or fsdp.layout = \"per_param\".",
      expert, mesh.shard);
  require(fsdp.wrap.mode == Wrap::Mode::block, "mesh.expert = {} needs fsdp.wrap = \"block\": it is {}.", expert,
          to_toml(encode(fsdp.wrap)));
  const auto without = [&](bool given, const char* key, std::string_view expected) {
    require(!given, "mesh.expert = {} does not go with fsdp.{}; expected {}.", expert, key, expected);
  };
  const auto other = [](const Prefetch& p) {
    return p.mode == Prefetch::Mode::ahead || p.mode == Prefetch::Mode::rate;
  };
  without(other(fsdp.forward_prefetch), "forward_prefetch", "\"implicit\", \"none\", a depth or a window");
  without(other(fsdp.backward_prefetch), "backward_prefetch", "\"pre\", \"post\", \"none\", a depth or a window");
  without(fsdp.reshard_after_forward.mode == ReshardAfterForward::Mode::group, "reshard_after_forward as a number",
          "true, false or \"auto\"");
  without(fsdp.cpu_offload != CpuOffload::none, "cpu_offload", "\"none\"");
  without(fsdp.shard_threshold > 0, "shard_threshold", "0");
  without(fsdp.learn_execution_order, "learn_execution_order", "false");
}

}  // namespace fsdpbench::config
