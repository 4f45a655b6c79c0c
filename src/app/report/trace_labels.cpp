#include "app/report/trace_labels.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "config/spelling.h"
#include "metrics/needed_by.h"
#include "metrics/step_breakdown.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

using schedule::OpKind;

/// By plan::Group; those that the plan does not have stay without ranks.
std::vector<trace::ProcessGroup> groups_of(const plan::Groups& map, int rank) {
  std::vector<trace::ProcessGroup> groups;
  for (std::size_t i = 0; i < plan::kGroupCount; ++i) {
    const auto group = static_cast<plan::Group>(i);
    std::vector<int> ranks;
    if (map.exists(group)) ranks = map.members(group, rank).ranks();
    groups.push_back({std::to_string(i), std::string(to_string(group)), std::move(ranks)});
  }
  return groups;
}

trace::CollectiveKind collective_kind(OpKind kind) {
  switch (kind) {
    case OpKind::reduce_scatter:
    case OpKind::tensor_reduce_scatter: return trace::CollectiveKind::reduce_scatter;
    case OpKind::all_reduce:
    case OpKind::tensor_all_reduce: return trace::CollectiveKind::all_reduce;
    case OpKind::all_to_all: return trace::CollectiveKind::all_to_all;
    case OpKind::all_gather:
    case OpKind::tensor_all_gather:
    case OpKind::gather_norm: return trace::CollectiveKind::all_gather;
    default: throw std::logic_error("trace labels: not a collective");
  }
}

trace::OpCategory category_of(const schedule::Op& op) {
  switch (metrics::classify(op)) {
    case metrics::OpClass::computation: return trace::OpCategory::computation;
    case metrics::OpClass::communication: return trace::OpCategory::communication;
    case metrics::OpClass::host_update:  // no computation of the device's, like what brings its operands
    case metrics::OpClass::copy: return trace::OpCategory::copy;
    case metrics::OpClass::none: break;
  }
  return op.is_host() ? trace::OpCategory::host : trace::OpCategory::mark;
}

trace::OpLabel label_of(const engine::Setup& p, const schedule::Schedule& schedule, const schedule::Op& op) {
  trace::OpLabel label;
  label.name = schedule::op_name(p.plan, op);
  label.category = category_of(op);
  label.phase = op.phase == schedule::Phase::forward    ? trace::OpPhase::forward
                : op.phase == schedule::Phase::backward ? trace::OpPhase::backward
                                                        : trace::OpPhase::optimizer;
  if (op.unit >= 0) label.unit = p.plan.units[static_cast<std::size_t>(op.unit)].label();
  label.lane = op.lane;
  label.parameters = op.kind == OpKind::all_gather;
  if (op.is_collective()) {
    const schedule::Collective& work = *op.collective();
    label.bytes = work.bytes();
    label.collective = {collective_kind(op.kind), static_cast<std::size_t>(work.group), work.count, work.dtype};
  } else if (label.category == trace::OpCategory::copy) {
    for (schedule::BufferId id : op.operands().writes)
      label.bytes += schedule.buffers[static_cast<std::size_t>(id)].bytes;
  }
  return label;
}

}  // namespace

TraceLabels::TraceLabels(const engine::Setup& setup) {
  for (const schedule::Schedule& schedule : setup.schedules.steps) {
    const std::vector<int> needed_by = metrics::needed_by(schedule);
    std::vector<trace::OpLabel>& labels = by_step_.emplace_back();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      labels.push_back(label_of(setup, schedule, schedule.ops[i]));
      labels.back().needed_by = needed_by[i];
    }
  }
}

const trace::OpLabel& TraceLabels::operator()(std::int32_t step, std::int32_t op) const {
  const std::size_t last = by_step_.size() - 1;
  return by_step_[std::min(static_cast<std::size_t>(step), last)][static_cast<std::size_t>(op)];
}

trace::RankFacts rank_facts(const engine::Setup& setup, int rank) {
  return {rank, setup.plan.mesh.ranks(), std::string(config::to_string(setup.config.device.backend)),
          groups_of(setup.plan.groups, rank)};
}

}  // namespace fsdpbench::app
