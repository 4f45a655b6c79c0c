#include "plan/alike_units.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdpbench::plan {
namespace {

bool alike(const ModelShapes& shapes, const std::vector<ParameterPlacement>& a,
           const std::vector<ParameterPlacement>& b) {
  return std::ranges::equal(a, b, [&](const ParameterPlacement& p, const ParameterPlacement& q) {
    return shapes.parameters[p.parameter].shape == shapes.parameters[q.parameter].shape;
  });
}

/// Offsets and shard sizes follow from shapes, layout and shard count.
bool alike(const ModelShapes& shapes, const Unit& a, const Unit& b) {
  const auto kind = [&](int module) { return shapes.modules[module].kind; };
  return std::ranges::equal(a.members.modules, b.members.modules, {}, kind, kind) &&
         alike(shapes, a.layout.sharded, b.layout.sharded) && alike(shapes, a.layout.replicated, b.layout.replicated);
}

const std::string& label(const Plan& plan, int unit) { return plan.units[unit].label(); }

const std::vector<int>& modules(const Plan& plan, int unit) { return plan.units[unit].members.modules; }

const ModuleShape& shape(const Plan& plan, int module) { return plan.shapes.modules[module]; }

/// "blocks.0-31" for modules that are counted, "embedding … head" for others.
std::string span(const ModuleShape& first, const ModuleShape& last) {
  if (first.name == last.name) return first.name;
  if (first.kind == last.kind) return fmt::format("{}-{}", first.name, last.index);
  return fmt::format("{} … {}", first.name, last.name);
}

std::string unit_module_names(const Plan& plan, int unit) {
  const std::vector<int>& all = modules(plan, unit);
  if (all.empty()) return "";
  const ModuleShape& first = shape(plan, all.front());
  const ModuleShape& last = shape(plan, all.back());
  return all.size() == 2 && first.kind != last.kind ? first.name + ", " + last.name : span(first, last);
}

}  // namespace

std::vector<AlikeUnits> alike_units(const Plan& plan) {
  std::vector<AlikeUnits> runs;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const bool more = u > Plan::kRoot + 1 && alike(plan.shapes, plan.units[u - 1], plan.units[u]);
    if (more) {
      ++runs.back().count;
    } else {
      runs.push_back({u, 1});
    }
  }
  return runs;
}

std::string unit_names(const Plan& plan, const AlikeUnits& units) {
  return units.count == 1 ? label(plan, units.first)
                          : fmt::format("{}-{}", label(plan, units.first), label(plan, units.last()));
}

std::string module_names(const Plan& plan, const AlikeUnits& units) {
  if (plan.units[units.first].is_experts()) return "experts";
  if (units.count == 1) return unit_module_names(plan, units.first);
  const bool single = modules(plan, units.first).size() == 1;
  return fmt::format(
      "{} x {}",
      single ? span(shape(plan, modules(plan, units.first).front()), shape(plan, modules(plan, units.last()).front()))
             : unit_module_names(plan, units.first) + " … " + unit_module_names(plan, units.last()),
      units.count);
}

}  // namespace fsdpbench::plan
