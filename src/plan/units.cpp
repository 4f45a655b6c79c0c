#include "plan/units.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::plan {
namespace {

bool wrappable(ModuleKind kind) { return kind == ModuleKind::block || kind == ModuleKind::linear; }

std::int64_t numel(const ModelShapes& shapes, const ModuleShape& module) {
  std::int64_t n = 0;
  for (int p : module.parameters) n += shapes.parameters[p].numel();
  return n;
}

}  // namespace

std::vector<UnitMembers> wrap_units(const ModelShapes& shapes, const config::Wrap& wrap, bool head_unit, bool apart) {
  using Mode = config::Wrap::Mode;
  std::vector<UnitMembers> units(1);
  units.front().label = "R";
  UnitMembers open;
  std::int64_t open_numel = 0;
  const auto close = [&] {
    if (open.modules.empty()) return;
    open.label = std::to_string(units.size() - 1);
    units.push_back(std::exchange(open, {}));
    open_numel = 0;
  };

  for (int m = 0; m < static_cast<int>(shapes.modules.size()); ++m) {
    const ModuleShape& module = shapes.modules[m];
    if (!wrappable(module.kind) || wrap.mode == Mode::model) {
      units.front().modules.push_back(m);
      continue;
    }
    open.modules.push_back(m);
    open_numel += numel(shapes, module);
    const bool full = wrap.mode == Mode::block ||
                      (wrap.mode == Mode::blocks && static_cast<std::int64_t>(open.modules.size()) >= wrap.blocks) ||
                      (wrap.mode == Mode::min_size && open_numel >= wrap.parameters);
    if (full) close();
  }
  close();  // the last unit may be smaller

  if (head_unit) {
    std::vector<int>& outer = units.front().modules;
    const auto tail = std::ranges::upper_bound(outer, units.back().modules.back());
    UnitMembers head{.label = "T", .modules = {tail, outer.end()}, .parameters = {}};
    const bool owns = std::ranges::any_of(head.modules, [&](int m) { return numel(shapes, shapes.modules[m]) > 0; });
    if (owns) {
      outer.erase(tail, outer.end());
      units.push_back(std::move(head));
    }
  }

  for (UnitMembers& unit : units) {
    for (int m : unit.modules) {
      for (int p : shapes.modules[m].parameters) {
        if (shapes.parameters[p].module == m) unit.parameters.push_back(p);
      }
    }
  }
  if (apart) {
    const int with_modules = static_cast<int>(units.size());
    for (int u = 0; u < with_modules; ++u) {
      std::vector<int>& all = units[u].parameters;
      const auto of_experts = [&](int p) { return shapes.parameters[p].of_experts; };
      const auto experts = std::ranges::stable_partition(all, [&](int p) { return !of_experts(p); });
      if (experts.empty()) continue;
      UnitMembers unit{.label = "E" + units[u].label,
                       .modules = {},
                       .parameters = {experts.begin(), experts.end()},
                       .experts_of = u};
      all.erase(experts.begin(), experts.end());
      units.push_back(std::move(unit));
    }
  }
  return units;
}

}  // namespace fsdpbench::plan
