#include "app/parallelism_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/parallelism.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using plan::Parallelism;

/// What one device keeps from forward to backward for one microbatch of its own.
double activations(const engine::Setup& setup) {
  double kept = 0, largest = 0;
  for (const plan::ModuleSizes& module : setup.sizes) {
    kept += static_cast<double>(module.output_bytes);
    const auto saved = static_cast<double>(module.saved_bytes);
    const bool recomputed = setup.config.fsdp.activation_checkpointing && module.recompute_flops > 0;
    if (recomputed) largest = std::max(largest, saved);
    kept += recomputed ? 0 : saved;
  }
  return kept + largest;
}

std::vector<Parallelism> rows_of(const engine::Setup& setup) {
  return plan::compare_parallelism(setup.plan, setup.config, activations(setup));
}

}  // namespace

std::string parallelism_text(const engine::Setup& setup) {
  const std::vector<Parallelism> rows = rows_of(setup);
  Table table;
  table.title = fmt::format("{} ranks, one global batch; MB (1e6 bytes) a device, sent a device and step",
                            setup.plan.mesh.ranks());
  table.header = {"", "parameters", "gradients", "optimizer", "in flight", "activations", "memory", "sent", "bubble %"};
  std::string notes;
  const auto mb = [](double bytes) { return fmt::format("{:.1f}", bytes / 1e6); };
  for (const Parallelism& p : rows) {
    table.rows.push_back({p.name, mb(p.parameters), mb(p.gradients), mb(p.optimizer), mb(p.in_flight),
                          mb(p.activations), mb(p.memory()), mb(p.wire), fmt::format("{:.1f}", 100 * p.bubble)});
    if (!p.needs.empty())
      notes += fmt::format("{}: this model needs {}; the row is arithmetic only\n", p.name, p.needs);
  }
  std::string text = format_table(table) + notes;
  text +=
      "Closed forms; docs/explain.md has each with its source. Bytes are not time: tensor parallelism sends its bytes\n"
      "between the layers, where nothing hides them; gathers and reductions hide behind computation.\n";
  return text;
}

nlohmann::json parallelism_json(const engine::Setup& setup) {
  nlohmann::json j{{"schema_version", 1},
                   {"ranks", setup.plan.mesh.ranks()},
                   {"activation_bytes_per_microbatch", activations(setup)},
                   {"parallelism", nlohmann::json::array()}};
  for (const Parallelism& p : rows_of(setup)) {
    nlohmann::json row{{"name", p.name},
                       {"memory",
                        {{"parameters", p.parameters},
                         {"gradients", p.gradients},
                         {"optimizer", p.optimizer},
                         {"in_flight", p.in_flight},
                         {"activations", p.activations},
                         {"total", p.memory()}}},
                       {"wire_bytes", p.wire},
                       {"bubble", p.bubble},
                       {"source", p.source}};
    if (!p.needs.empty()) row["needs"] = p.needs;
    j["parallelism"].push_back(std::move(row));
  }
  return j;
}

}  // namespace fsdpbench::app
