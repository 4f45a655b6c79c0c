// Words of SimpleFSDP, torchtitan's graph trainer: what torchtitan's file says, but a compiler's pass decides on the
// order.
#include <array>
#include <vector>

#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace graph_trainer {

Said separate_comm(const ExportSource& s) {
  return s.fsdp().separate_reduce_scatter_comm ? written("enable_fsdp_ag_rs_overlap") : same();
}

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing ? roughly("memory_policy = \"full\"") : same();
}

constexpr std::array kOwn = std::to_array<KeyRule>({
    {"fsdp.forward_prefetch", nullptr, "the pass issues each gather one unit ahead"},
    {"fsdp.backward_prefetch", nullptr, "the pass issues each gather one unit ahead"},
    {"fsdp.all_gather_limit", nullptr, "the pass places each gather, and nothing else limits them"},
    {"fsdp.reduce_scatter_buffers", nullptr, "the pass keeps the inputs of two reductions"},
    {"fsdp.separate_reduce_scatter_comm", separate_comm},
    {"fsdp.head_unit", nullptr, "norm and head are a unit of their own, as the embedding is"},
    {"fsdp.activation_checkpointing", checkpointing},
});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = joined_rules(kOwn, torchtitan().rules);
  return kRules;
}

std::string_view engine(const config::RunConfig&) { return "simplefsdp"; }

}  // namespace graph_trainer
}  // namespace

Dialect simplefsdp() {
  return {.name = "simplefsdp",
          .system = "SimpleFSDP of torchtitan's graph trainer (August 2026)",
          .what = "",
          .engine = graph_trainer::engine,
          .rules = graph_trainer::rules(),
          .write = nullptr};
}

}  // namespace fsdpbench::dialects
