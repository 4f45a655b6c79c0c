#include "schedule/print_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/bytes.h"

namespace fsdpbench::schedule {
namespace {

const std::string& label(const plan::Plan& plan, int unit) { return plan.units[unit].label(); }

/// "0"; of a bucket "{0,1,R}".
std::string label(const plan::Plan& plan, const Op& op) {
  if (op.others.empty()) return label(plan, op.unit);
  std::vector<int> units = op.others;
  units.push_back(op.unit);
  std::ranges::sort(units, {}, [](int u) { return u == plan::Plan::kRoot ? std::numeric_limits<int>::max() : u; });
  std::string text;
  for (int u : units) text += (text.empty() ? "{" : ",") + label(plan, u);
  return text + '}';
}

const char* verb_of(const Op& op) {
  return op.kind == OpKind::all_gather       ? "AG"
         : op.kind == OpKind::reduce_scatter ? "RS"
         : op.kind == OpKind::all_reduce     ? "AR"
                                             : nullptr;
}

/// Joins what `text_of(op)` gives for each op, with the bars between phases, and "step" before what is gathered then.
template <typename TextOf>
std::string join(const Schedule& schedule, TextOf text_of) {
  std::string line;
  const auto append = [&](const std::string& text) {
    if (text.empty()) return;
    if (!line.empty()) line += ' ';
    line += text;
  };
  Phase phase = Phase::forward;
  int micro = 0;
  for (const Op& op : schedule.ops) {
    if (op.phase == Phase::optimizer) break;
    if (op.micro != micro) {
      append("||");
      micro = op.micro;
      phase = Phase::forward;
    }
    if (op.phase != phase) {
      append("|");
      phase = op.phase;
    }
    append(text_of(op));
  }
  bool stepped = false;
  for (const Op& op : schedule.ops) {
    if (op.phase != Phase::optimizer) continue;
    if (verb_of(op) != nullptr && !std::exchange(stepped, true)) append("step");
    if (verb_of(op) != nullptr || op.kind == OpKind::gather_norm) append(text_of(op));
  }
  return line;
}

}  // namespace

std::string collective_order(const plan::Plan& plan, const Schedule& schedule) {
  return join(schedule, [&](const Op& op) -> std::string {
    if (op.kind == OpKind::gather_norm) return "ARnorm";
    const char* verb = verb_of(op);
    if (verb == nullptr) return {};
    const bool star = op.kind == OpKind::all_gather && op.prefetch && op.phase == Phase::backward;
    return fmt::format("{}{}{}", verb, label(plan, op), star ? "*" : "");
  });
}

std::string host_order(const plan::Plan& plan, const Schedule& schedule) {
  std::set<std::tuple<OpKind, int, int>> begun;  // kind, unit, microbatch
  const auto text_of = [&](const Op& op) -> std::string {
    if (const char* verb = verb_of(op); verb != nullptr) {
      return fmt::format("{}{}{}", verb, label(plan, op), op.prefetch ? "*" : "");
    }
    if (op.kind == OpKind::reshard) return "f" + label(plan, op.unit);
    if (op.kind != OpKind::forward && op.kind != OpKind::backward) return {};
    if (!begun.insert({op.kind, op.unit, op.micro}).second) return {};
    return (op.kind == OpKind::forward ? "F" : "B") + label(plan, op.unit);
  };
  return join(schedule, text_of);
}

std::string issue_order(const plan::Plan& plan, const Schedule& schedule) {
  return join(schedule, [&](const Op& op) -> std::string {
    switch (op.kind) {
      case OpKind::unshard:
      case OpKind::all_gather: return "U" + label(plan, op.unit);
      case OpKind::reshard: return plan.shares_units() ? "S" + label(plan, op.unit) : "";
      case OpKind::post_backward: return "P" + label(plan, op.unit);
      default: return {};
    }
  });
}

std::string op_name(const plan::Plan& plan, const Op& op) {
  std::string name(to_string(op.kind));
  if (op.module >= 0) {
    name += ' ' + plan.shapes.modules[op.module].name;
    if (const int part = part_of(op); part >= 0) name += fmt::format("/{}", part);
  } else if (op.unit >= 0) {
    name += ' ' + label(plan, op);
  }
  if (op.prefetch) name += '*';
  return name;
}

std::string op_list(const plan::Plan& plan, const Schedule& schedule) {
  std::map<EventId, std::string> recorded_by;
  for (const Op& op : schedule.ops) {
    if (op.record != kNoEvent) recorded_by[op.record] = op_name(plan, op);
  }
  const auto buffers = [&](const char* verb, const std::vector<BufferId>& list) {
    std::string text;
    for (BufferId id : list) {
      const Buffer& buffer = schedule.buffers[id];
      text += fmt::format("  {}{} {}{}", verb, to_string(buffer.role), format_bytes(buffer.bytes),
                          buffer.space == MemorySpace::host ? " (host)" : "");
    }
    return text;
  };
  std::string text;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    std::string waits;
    for (const Wait& wait : op.waits) {
      waits += fmt::format("{}{}", waits.empty() ? "  after " : ", ", recorded_by[wait.event]);
    }
    std::string line = fmt::format("{:5}  {:9}  {:14}  {:30}{}{}{}", i, to_string(op.phase),
                                   op.is_host() ? "host" : std::string(to_string(op.lane)), op_name(plan, op), waits,
                                   buffers("+", op.allocates), buffers("-", op.frees));
    line.erase(line.find_last_not_of(' ') + 1);  // a bare mark is padded only
    text += line + '\n';
  }
  return text;
}

}  // namespace fsdpbench::schedule
