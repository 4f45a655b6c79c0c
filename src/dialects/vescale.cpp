// Words of veScale: FSDP2's, whose order it keeps; where parameters lie is its planner's to decide. Read, not tried.
#include <array>
#include <vector>

#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace planner {

constexpr std::array kOwn = std::to_array<KeyRule>({
    {"fsdp.layout", nullptr, "parameters lie at planned places of one buffer, which is gathered and reduced in place"},
    {"fsdp.unit_padding_pct", nullptr, "its planner pads as blocks and collectives need it"},
});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = joined_rules(kOwn, pytorch_fsdp2().rules);
  return kRules;
}

std::string_view engine(const config::RunConfig&) { return "vescale"; }

}  // namespace planner
}  // namespace

Dialect vescale() {
  return {.name = "vescale",
          .system = "veScale's FSDP",
          .what = "",
          .engine = planner::engine,
          .rules = planner::rules(),
          .write = nullptr};
}

}  // namespace fsdpbench::dialects
