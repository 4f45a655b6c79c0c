#include "foreign/launch_order.h"

#include <algorithm>
#include <limits>
#include <map>

#include "config/words/fsdpbench.h"

namespace fsdpbench::foreign {
namespace {

using What = LaunchToken::What;

/// Runs of computation are one token.
void append_computation(std::vector<LaunchToken>& tokens, int place) {
  if (!tokens.empty() && tokens.back().what == What::computation) {
    tokens.back().end = place + 1;
  } else {
    tokens.push_back({What::computation, -1, place, place + 1});
  }
}

constexpr double kComputationCost = 0.25;
double cost_of(const LaunchToken& token) { return token.what == What::computation ? kComputationCost : 1.0; }

}  // namespace

int plan_unit(const UnitTable& table, int unit) {
  if (unit < 0) return -1;
  if (unit == table.root) return 0;
  const bool experts = table.is_experts(unit);
  int place = 1;
  for (int other = 0; other < static_cast<int>(table.units.size()); ++other) {
    if (other == table.root || other == unit) continue;
    // Experts come behind all units that have modules, in the order of their blocks.
    const auto place_of = [&](int one) { return experts ? table.units[one].experts_of : one; };
    const bool before = experts != table.is_experts(other) ? experts : place_of(other) < place_of(unit);
    place += before ? 1 : 0;
  }
  return place;
}

int table_unit(const UnitTable& table, int unit) {
  if (unit == 0) return table.root;
  for (int found = 0; found < static_cast<int>(table.units.size()); ++found) {
    if (found != table.root && plan_unit(table, found) == unit) return found;
  }
  return -1;
}

std::vector<LaunchToken> launch_order(const RankRows& rank, const JobStep& step, const std::vector<CollectiveUse>& uses,
                                      const UnitTable& table, int compute_stream, bool units) {
  std::map<std::int32_t, const CollectiveUse*> use_of;
  std::size_t last_collective = 0;
  for (const CollectiveUse& use : uses) {
    const bool counts =
        use.purpose == Purpose::parameters || use.purpose == Purpose::gradients || use.purpose == Purpose::replicas;
    if (counts) use_of[use.row] = &use;
  }
  for (std::size_t i = 0; i < step.device.size(); ++i) {
    const auto use = use_of.find(step.device[i]);
    if (use != use_of.end() && use->second->phase != schedule::Phase::optimizer) last_collective = i;
  }
  std::vector<LaunchToken> tokens;
  for (std::size_t i = 0; i < step.device.size(); ++i) {
    const DeviceRow& row = rank.device[step.device[i]];
    const int place = static_cast<int>(i);
    const auto use = use_of.find(step.device[i]);
    if (use != use_of.end()) {
      const What what = use->second->purpose == Purpose::parameters      ? What::gather
                        : use->second->purpose == Purpose::replicas      ? What::replicate
                        : use->second->kind == Communication::all_to_all ? What::exchange
                        : use->second->kind == Communication::all_reduce ? What::replicate
                                                                         : What::reduce;
      tokens.push_back({what, units ? plan_unit(table, use->second->unit) : -1, place, place + 1});
      continue;
    }
    // A kernel launched after the last reduction updates parameters.
    if (row.kind != Activity::computation || row.stream != compute_stream || i > last_collective) continue;
    const std::string& name = rank.names[row.name];
    const auto own = dialects::own_name(name);
    if (is_layout_copy(name) || (own && own->op != "forward" && own->op != "backward" && own->op != "recompute"))
      continue;
    append_computation(tokens, place);
  }
  return tokens;
}

std::vector<LaunchToken> launch_order(const schedule::Schedule& schedule, bool root, bool units) {
  using schedule::OpKind;
  std::vector<LaunchToken> tokens;
  const auto unit_of = [&](const schedule::Op& op) { return units ? op.unit : -1; };
  std::size_t last = 0;
  const auto is_there = [&](const schedule::Op& op) { return root || op.unit != plan::Plan::kRoot; };
  const auto counts = [&](const schedule::Op& op) {
    const bool collective =
        op.kind == OpKind::all_gather || op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_reduce;
    return collective && is_there(op);
  };
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (counts(schedule.ops[i]) && schedule.ops[i].phase != schedule::Phase::optimizer) last = i;
  }
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    const int place = static_cast<int>(i);
    const bool computes = op.kind == OpKind::forward || op.kind == OpKind::backward || op.kind == OpKind::recompute;
    if (computes && i < last && is_there(op)) append_computation(tokens, place);
    if (!counts(op)) continue;
    const What what = op.kind == OpKind::all_gather       ? What::gather
                      : op.kind == OpKind::reduce_scatter ? What::reduce
                      : op.kind == OpKind::all_reduce     ? What::replicate
                                                          : What::exchange;
    tokens.push_back({what, unit_of(op), place, place + 1});
  }
  return tokens;
}

OrderDifference compare_orders(const std::vector<LaunchToken>& one, const std::vector<LaunchToken>& other) {
  const std::size_t n = one.size(), m = other.size();
  std::vector<std::vector<float>> cost(n + 1, std::vector<float>(m + 1, 0));
  for (std::size_t i = n; i-- > 0;) cost[i][m] = cost[i + 1][m] + static_cast<float>(cost_of(one[i]));
  for (std::size_t j = m; j-- > 0;) cost[n][j] = cost[n][j + 1] + static_cast<float>(cost_of(other[j]));
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = m; j-- > 0;) {
      float best = std::min(cost[i + 1][j] + static_cast<float>(cost_of(one[i])),
                            cost[i][j + 1] + static_cast<float>(cost_of(other[j])));
      if (one[i].same_as(other[j])) best = std::min(best, cost[i + 1][j + 1]);
      cost[i][j] = best;
    }
  }
  OrderDifference result;
  result.distance = cost[0][0];
  result.to_other.assign(n, -1);
  for (std::size_t i = 0, j = 0; i < n && j < m;) {
    if (one[i].same_as(other[j]) && cost[i][j] == cost[i + 1][j + 1]) {
      result.to_other[i++] = static_cast<int>(j++);
    } else if (cost[i][j] == cost[i + 1][j] + static_cast<float>(cost_of(one[i]))) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

std::string token_name(const LaunchToken& token, int modules) {
  std::string text;
  switch (token.what) {
    case What::computation: return "compute";
    case What::gather: text = "AG"; break;
    case What::reduce: text = "RS"; break;
    case What::replicate: text = "AR"; break;
    case What::exchange: text = "A2A"; break;
  }
  if (token.unit < 0) return text;
  if (token.unit >= modules) return text + "E" + std::to_string(token.unit - modules);
  return text + (token.unit == 0 ? "R" : std::to_string(token.unit - 1));
}

}  // namespace fsdpbench::foreign
