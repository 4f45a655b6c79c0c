#include "app/report/explain_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/console/table.h"
#include "app/report/run_table.h"
#include "base/bytes.h"
#include "config/write.h"
#include "plan/communication.h"
#include "plan/memory_estimate.h"
#include "schedule/check_schedules.h"
#include "schedule/policy.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr int kExplainSchemaVersion = 1;

std::string modules_of(const plan::Plan& plan, const plan::Unit& unit) {
  const auto& modules = unit.members.modules;
  const auto name = [&](int m) { return plan.shapes.modules[static_cast<std::size_t>(m)].name; };
  if (modules.empty()) return "";
  if (modules.size() == 1) return name(modules.front());
  if (modules.size() == 2) return name(modules.front()) + ", " + name(modules.back());
  return name(modules.front()) + " … " + name(modules.back());
}

std::string units_table(const plan::Plan& plan) {
  Table table;
  table.title = "Units: gathered, freed and reduced together";
  table.header = {"unit", "modules", "parameters", "shard", "padding", "gathered", "replicated"};
  for (const plan::Unit& unit : plan.units) {
    const plan::ShardLayout& l = unit.layout;
    table.rows.push_back({unit.label(), modules_of(plan, unit), fmt::format("{}", l.parameter_numel()),
                          l.sharded.empty() ? "-" : format_bytes(l.shard_numel * 4),
                          l.sharded.empty() ? "-" : format_bytes(l.padding_numel() * 4),
                          l.sharded.empty() ? "-" : format_bytes(l.gathered_numel() * size_of(plan.param_dtype)),
                          l.replicated.empty() ? "-" : format_bytes(l.replicated_numel * 4)});
  }
  return format_table(table) +
         fmt::format("shard and replicated in fp32 (masters), gathered in {}\n", to_string(plan.param_dtype));
}

std::string gigabytes(double bytes) { return fmt::format("{:.4g} GB", bytes / 1e9); }

std::string memory_table(const engine::Setup& p) {
  const plan::MemoryEstimate with = plan::memory_with_fsdp(p.plan, p.config);
  const plan::MemoryEstimate without = plan::memory_without_fsdp(p.plan, p.config);
  Table table;
  table.title = "Memory a device, closed form (1 GB = 1e9 bytes): states sharded, one unit in flight, no activations";
  table.header = {"", "with FSDP", "without"};
  const auto row = [&](const char* name, double a, double b) {
    table.rows.push_back({name, gigabytes(a), gigabytes(b)});
  };
  row("parameters (fp32)", with.parameters, without.parameters);
  row("optimizer", with.optimizer, without.optimizer);
  row("gradients (fp32)", with.gradients, without.gradients);
  row("  states together", with.parameters + with.optimizer + with.gradients,
      without.parameters + without.optimizer + without.gradients);
  row("gathered parameters", with.gathered_units, without.gathered_units);
  row("unsharded gradients", with.gradient_units, without.gradient_units);
  row("sum", with.total(), without.total());
  std::string text = format_table(table);

  const PoolStatistics& exact = p.memory;
  Table walk;
  walk.title = "Peak of the pool, exact: this schedule's allocations, activations included";
  walk.rows.push_back({"total", format_bytes(exact.peak_occupied_total), fmt::format("{}", exact.peak_occupied_total)});
  for (MemoryCategory c : kMemoryCategories) {
    walk.rows.push_back({std::string(to_string(c)), format_bytes(exact.peak_occupied[index_of(c)]),
                         fmt::format("{}", exact.peak_occupied[index_of(c)])});
  }
  walk.rows.push_back({"reserved", format_bytes(exact.reserved), fmt::format("{}", exact.reserved)});
  return text + "\n" + format_table(walk) +
         "each category's own peak; they come at different times, so their sum may exceed the total\n";
}

std::string communication_table(const engine::Setup& p) {
  const plan::CommunicationVolume v =
      plan::communication_volume(p.plan, p.config, schedule::units_that_reshard(p.policy, p.plan));
  const double parallel = plan::data_parallel_volume(p.plan, p.config);
  Table table;
  table.title = "Communication a rank and step (ring algorithms, bytes sent)";
  table.rows = {{"all-gather", fmt::format("{:.4f}", v.all_gather / 1e6), "MB"},
                {"reduce-scatter", fmt::format("{:.4f}", v.reduce_scatter / 1e6), "MB"},
                {"all-reduce", fmt::format("{:.4f}", v.all_reduce / 1e6), "MB"},
                {"sum", fmt::format("{:.4f}", v.total() / 1e6), "MB"},
                {"data parallel", fmt::format("{:.4f}", parallel / 1e6), "MB"}};
  std::string text = format_table(table);
  if (parallel > 0) {
    text += fmt::format(
        "{:.3f} times the bytes of data parallel. At one dtype, full_shard moves 1.5 times, shard_grad_op 1.0 times; "
        "bytes are not time: what counts is how much hides behind computation.\n",
        v.total() / parallel);
  }
  return text;
}

json schedule_json(const engine::Setup& p) {
  json ops = json::array();
  for (const schedule::Op& op : p.schedules.steady().ops) {
    json waits = json::array();
    for (const schedule::Wait& wait : op.waits) waits.push_back(wait.event);
    json o{{"kind", schedule::to_string(op.kind)},
           {"phase", schedule::to_string(op.phase)},
           {"micro", op.micro},
           {"name", schedule::op_name(p.plan, op)},
           {"waits", waits}};
    o["lane"] = op.is_host() ? "host" : std::string(to_string(op.lane));
    if (op.unit >= 0) o["unit"] = p.plan.units[static_cast<std::size_t>(op.unit)].label();
    if (op.record != schedule::kNoEvent) o["records"] = op.record;
    if (op.prefetch) o["prefetch"] = true;
    if (op.is_collective()) {
      o["group"] = schedule::to_string(op.group());
      o["count"] = op.collective()->count;
      o["dtype"] = to_string(op.collective()->dtype);
    }
    const auto buffers = [&](const char* key, const std::vector<schedule::BufferId>& list) {
      for (schedule::BufferId id : list) {
        const schedule::Buffer& b = p.schedules.steady().buffers[static_cast<std::size_t>(id)];
        o[key].push_back({{"buffer", id},
                          {"role", schedule::to_string(b.role)},
                          {"bytes", b.bytes},
                          {"category", to_string(b.category)}});
      }
    };
    buffers("allocates", op.allocates);
    buffers("frees", op.frees);
    ops.push_back(std::move(o));
  }
  return ops;
}

json estimate_json(const plan::MemoryEstimate& e) {
  return {{"parameters", e.parameters},         {"optimizer", e.optimizer},           {"gradients", e.gradients},
          {"gathered_units", e.gathered_units}, {"gradient_units", e.gradient_units}, {"total", e.total()}};
}

}  // namespace

std::string explain_text(const engine::Setup& p) {
  std::string text = run_headline(p) + "\n\n";
  text += units_table(p.plan) + "\n";
  text += memory_table(p) + "\n";
  text += communication_table(p) + "\n";
  text += "Collectives, steady state (* prefetched in backward, | between forward and backward)\n  " +
          schedule::collective_order(p.plan, p.schedules.steady()) + "\n\n";
  text += "Schedule of one step, steady state: what the host issues, in order (+ allocates, - frees)\n";
  text += schedule::op_list(p.plan, p.schedules.steady());
  const std::size_t faults = schedule::check_schedules(p.schedules).size();
  text += faults == 0 ? "\nhappens-before check: no race, every buffer freed once\n"
                      : fmt::format("\nhappens-before check: {} FAULTS\n", faults);
  return text;
}

json explain_json(const engine::Setup& p) {
  json j;
  j["schema_version"] = kExplainSchemaVersion;
  j["config"] = config::to_json(p.config);
  json units = json::array();
  for (const plan::Unit& unit : p.plan.units) {
    const plan::ShardLayout& l = unit.layout;
    json parameters = json::array();
    for (bool replicated : {false, true}) {
      for (const plan::ParameterPlacement& q : replicated ? l.replicated : l.sharded) {
        const plan::ParameterShape& shape = p.plan.shapes.parameters[static_cast<std::size_t>(q.parameter)];
        parameters.push_back({{"name", shape.name}, {"shape", shape.shape}, {"replicated", replicated}});
      }
    }
    units.push_back({{"label", unit.label()},
                     {"parameters", std::move(parameters)},
                     {"parameter_numel", l.parameter_numel()},
                     {"shard_numel", l.shard_numel},
                     {"padding_numel", l.padding_numel()},
                     {"gathered_numel", l.gathered_numel()},
                     {"replicated_numel", l.replicated_numel}});
  }
  j["plan"] = {{"ranks", p.plan.mesh.ranks()},
               {"shard", p.plan.mesh.shard},
               {"replicate", p.plan.mesh.replicate},
               {"parameters", p.plan.shapes.parameter_count()},
               {"units", std::move(units)}};
  json peak{{"total", p.memory.peak_occupied_total}, {"reserved", p.memory.reserved}};
  for (MemoryCategory c : kMemoryCategories) peak[std::string(to_string(c))] = p.memory.peak_occupied[index_of(c)];
  j["memory"] = {{"peak_bytes", std::move(peak)},
                 {"with_fsdp", estimate_json(plan::memory_with_fsdp(p.plan, p.config))},
                 {"without_fsdp", estimate_json(plan::memory_without_fsdp(p.plan, p.config))}};
  const plan::CommunicationVolume v =
      plan::communication_volume(p.plan, p.config, schedule::units_that_reshard(p.policy, p.plan));
  j["communication"] = {{"all_gather", v.all_gather},
                        {"reduce_scatter", v.reduce_scatter},
                        {"all_reduce", v.all_reduce},
                        {"total", v.total()},
                        {"data_parallel", plan::data_parallel_volume(p.plan, p.config)}};
  j["schedule"] = {{"collectives", schedule::collective_order(p.plan, p.schedules.steady())},
                   {"issue", schedule::issue_order(p.plan, p.schedules.steady())},
                   {"ops", schedule_json(p)}};
  return j;
}

}  // namespace fsdpbench::app
