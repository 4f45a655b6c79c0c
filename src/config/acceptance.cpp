#include "config/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/strict_table.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr const char* kAcceptanceFile = "an acceptance profile";
constexpr std::array<std::string_view, 9> kFigures{"gemm",           "memory",         "pair",
                                                   "all_gather",     "reduce_scatter", "host_memory",
                                                   "host_to_device", "device_to_host", "launch"};

AcceptanceReference read_reference(const std::string& path, const toml::table& given) {
  StrictTable table(path, given, kAcceptanceFile);
  AcceptanceReference r;
  r.figure = table.text("figure");
  if (std::ranges::find(kFigures, r.figure) == kFigures.end()) {
    std::string known;
    for (const std::string_view figure : kFigures) {
      known += fmt::format("{}\"{}\"", known.empty() ? "" : figure == kFigures.back() ? " or " : ", ", figure);
    }
    throw ConfigError(fmt::format("{}: figure = \"{}\"; expected {}.", place_of(path, given), r.figure, known));
  }
  r.value = table.number("value", 1e-9, 1e9);
  if (given.contains("hop_us")) r.hop_us = table.number("hop_us", 0, 1e6);
  if (given.contains("ceiling") && r.figure == "launch") {
    throw ConfigError(fmt::format("{}: ceiling of \"launch\"; expected none: it is a time, and value is the most that it "
                                  "may take.",
                                  place_of(path, given)));
  }
  if (given.contains("ceiling")) r.ceiling = table.number("ceiling", r.value, 1e9);
  r.source = table.text("source");
  table.finish();
  return r;
}

}  // namespace

const AcceptanceReference* Acceptance::find(const std::string& figure) const {
  const auto found = std::ranges::find(references, figure, &AcceptanceReference::figure);
  return found == references.end() ? nullptr : &*found;
}

Acceptance read_acceptance(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::acceptance);
  StrictTable top(path, file, kAcceptanceFile);
  top.require_version(Acceptance::kVersion, "acceptance profile", "profiles/README.md describes it");
  Acceptance a;
  a.fabric = top.text("fabric");
  a.run = top.text("run");
  if (file.contains("ranks")) a.ranks = top.whole("ranks", 1, 1 << 20);
  if (file.contains("ranks_per_node")) a.ranks_per_node = top.whole("ranks_per_node", 1, 1 << 20);
  if (file.contains("nodes")) a.nodes = top.whole("nodes", 1, 1 << 20);
  if (file.contains("nodes_per_switch")) a.nodes_per_switch = top.whole("nodes_per_switch", 1, 1 << 20);
  if (file.contains("topology")) a.topology = top.text("topology");
  if (file.contains("node_topology")) a.node_topology = top.text("node_topology");
  if (file.contains("matrix")) a.matrix = top.whole("matrix", 16, 1 << 16);
  if (file.contains("exposed_pct")) a.exposed_pct = top.number("exposed_pct", 0, 100);
  if (file.contains("tolerance_pct")) a.tolerance_pct = top.number("tolerance_pct", 1, 100);
  if (file.contains("cliff_pct")) a.cliff_pct = top.number("cliff_pct", 0, 100);
  if (file.contains("scale_pct")) a.scale_pct = top.number("scale_pct", 0, 100);
  if (file.contains("transport")) a.transport = top.texts("transport");
  if (file.contains("memory_mib")) a.memory_mib = top.whole("memory_mib", 1, 1 << 16);
  if (file.contains("slowdown")) a.slowdown = top.number("slowdown", 1, 1000);
  if (file.contains("explained_pct")) a.explained_pct = top.number("explained_pct", 1, 100);
  if (file.contains("reference")) {
    for (const toml::table* table : top.tables("reference")) {
      AcceptanceReference reference = read_reference(path, *table);
      if (a.find(reference.figure) != nullptr) {
        throw ConfigError(
            fmt::format("{}: figure = \"{}\" has a reference already; expected one [[reference]] of each "
                        "figure.",
                        place_of(path, *table), reference.figure));
      }
      a.references.push_back(std::move(reference));
    }
  }
  top.finish();
  return a;
}

}  // namespace fsdpbench::config
