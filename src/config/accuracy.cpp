#include "config/accuracy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/student.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr const char* kAccuracy = "a file of published accuracy";
constexpr double kSameEfficiency = 0.005;  // as people write it down

std::string quoted(const std::vector<std::string>& texts) {
  return fmt::format("[\"{}\"]", fmt::join(texts, "\", \""));
}

std::string rows_text(ErrorKind kind, const AccuracyRows& rows) {
  std::vector<std::string> ratios;
  for (const double ratio : rows.time_ratios) ratios.push_back(fmt::format("{:.4f}", ratio));
  return fmt::format(
      "\n[{}]\ntime_ratios = [{}]\nsources = {}\nclusters = {}\nleast_ranks = {}\nmost_ranks = {}\n"
      "least_bytes = {}\nmost_bytes = {}\nleast_tokens = {}\nmost_tokens = {}\n",
      to_string(kind), fmt::join(ratios, ", "), quoted(rows.sources), quoted(rows.clusters), rows.least_ranks,
      rows.most_ranks, rows.least_bytes, rows.most_bytes, rows.least_tokens, rows.most_tokens);
}

AccuracyRows read_rows(const std::string& path, const toml::table& given) {
  StrictTable table(path, given, kAccuracy);
  AccuracyRows rows;
  rows.time_ratios = table.numbers("time_ratios", 1e-3, 1e3);
  rows.sources = table.texts("sources");
  rows.clusters = table.texts("clusters");
  rows.least_ranks = table.whole("least_ranks", 1, 1 << 20);
  rows.most_ranks = table.whole("most_ranks", 1, 1 << 20);
  rows.least_bytes = table.number("least_bytes", 0, 1e18);
  rows.most_bytes = table.number("most_bytes", 0, 1e18);
  rows.least_tokens = table.number("least_tokens", 0, 1e18);
  rows.most_tokens = table.number("most_tokens", 0, 1e18);
  table.finish();
  if (rows.sources.size() != rows.time_ratios.size()) {
    throw ConfigError(fmt::format("{}: has {} time_ratios and {} sources in one table; expected as many.", path,
                                  rows.time_ratios.size(), rows.sources.size()));
  }
  return rows;
}

std::string efficiency_text(const KnownEfficiency& e) {
  return fmt::format(
      "\n[[efficiency]]\ngpu = \"{}\"\nnumbers = \"{}\"\nframework = \"{}\"\nvalue = {:.4f}\nrows = {}\n", e.gpu,
      e.numbers, e.framework, e.value, quoted(e.rows));
}

KnownEfficiency read_efficiency(const std::string& path, const toml::table& given) {
  StrictTable table(path, given, kAccuracy);
  KnownEfficiency known{table.text("gpu"), table.text("numbers"), table.text("framework"),
                        table.number("value", 1e-3, 2), table.texts("rows")};
  table.finish();
  return known;
}

std::string words(const KnownEfficiency& e) {
  return fmt::format("{} with {} on {} ({})", e.framework, e.numbers, e.gpu, fmt::join(e.rows, ", "));
}

/// Half of the trainings without a pipeline of Hugging Face's Ultra-Scale Playbook on up to two ranks that split layers
/// and up to 32 GPUs (vinjn/nanotron-ultrascale-playbook@924e4d0b): no rows of the table of trainings.
const KnownEfficiency kNanotron{"H100 SXM 80 GB", "bf16", "nanotron", 0.85, {"Ultra-Scale Playbook"}};

EfficiencyUsed of_dense_models(const RunConfig& config, const Cluster& cluster, const Accuracy& accuracy) {
  const Efficiency& asked = config.simulate.efficiency;
  const std::string numbers = config.fsdp.fp8_products ? "fp8" : std::string(to_string(config.fsdp.param_dtype));
  std::vector<const KnownEfficiency*> here;
  for (const KnownEfficiency& known : accuracy.efficiencies) {
    if (known.gpu == cluster.gpu.name && known.numbers == numbers) here.push_back(&known);
  }
  const Efficiency typical;
  if (asked.of.empty()) {
    const auto same = [&](const KnownEfficiency* e) { return std::abs(e->value - asked.value) < kSameEfficiency; };
    const auto found = std::ranges::find_if(here, same);
    if (asked != typical && found != here.end()) return {asked.value, ErrorKind::framework, words(**found)};
    return {asked.value, ErrorKind::typical, asked == typical ? "the typical one" : "given"};
  }
  if (asked.of == "measured") {
    const bool measured = cluster.measured.product_tflops > 0 && numbers == "bf16";
    return {measured ? 1 : typical.value, ErrorKind::typical,
            measured ? "what this GPU was measured at" : "the typical one: this GPU was not measured", measured};
  }
  if (asked.of == "auto") {
    if (here.empty()) return {typical.value, ErrorKind::typical, "the typical one: none is published of this GPU"};
    std::vector<double> values;
    std::vector<std::string> names;
    for (const KnownEfficiency* known : here) {
      values.push_back(known->value);
      names.push_back(known->framework);
    }
    return {median_efficiency(values), ErrorKind::gpu,
            fmt::format("{} with {} on {}", fmt::join(names, ", "), numbers, cluster.gpu.name)};
  }
  if (asked.of == kNanotron.framework) {
    const bool there = kNanotron.gpu == cluster.gpu.name && kNanotron.numbers == numbers;
    return {kNanotron.value, there ? ErrorKind::framework : ErrorKind::typical, words(kNanotron)};
  }
  const auto found = std::ranges::find(here, asked.of, &KnownEfficiency::framework);
  if (found != here.end()) return {(*found)->value, ErrorKind::framework, words(**found)};
  std::vector<std::string> valid{"a number", "\"auto\"", "\"measured\""};
  for (const KnownEfficiency* known : here) valid.push_back('"' + known->framework + '"');
  throw ConfigError(
      fmt::format("simulate.efficiency = \"{}\": no training of it with {} on {} is published; expected {}.", asked.of,
                  numbers, cluster.gpu.name, fmt::join(valid, ", ")));
}

constexpr const char* kAcceptanceFile = "an acceptance profile";
constexpr std::array<std::string_view, 6> kFigures{"gemm", "memory", "pair", "all_gather", "reduce_scatter", "launch"};

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
  if (table.has("hop_us")) r.hop_us = table.number("hop_us", 0, 1e6);
  const bool has_ceiling = table.has("ceiling");
  if (has_ceiling && r.figure == "launch") {
    throw ConfigError(
        fmt::format("{}: ceiling of \"launch\"; expected none: it is a time, and value is the most that it "
                    "may take.",
                    place_of(path, given)));
  }
  if (has_ceiling) r.ceiling = table.number("ceiling", r.value, 1e9);
  r.source = table.text("source");
  table.finish();
  return r;
}

}  // namespace

std::string_view to_string(ErrorKind kind) {
  constexpr EnumNames<ErrorKind> kNames{"framework", "gpu", "typical", "in_node", "between_nodes", "small"};
  return kNames[kind];
}

int AccuracyRows::distinct_sources() const {
  return static_cast<int>(std::set<std::string>(sources.begin(), sources.end()).size());
}

double median_efficiency(const std::vector<double>& efficiencies) {
  return std::sqrt(lower_median(efficiencies) * upper_median(efficiencies));
}

EfficiencyUsed efficiency_used(const RunConfig& config, const Cluster& cluster, const Accuracy& accuracy) {
  EfficiencyUsed used = of_dense_models(config, cluster, accuracy);
  if (config.model.experts > 0 && used.kind != ErrorKind::typical) {
    used.kind = ErrorKind::typical;
    used.from += ", of models without experts, so with the errors of the typical one";
  }
  return used;
}

std::string to_toml(const Accuracy& a) {
  std::string text = fmt::format(
      "# How published measurements lie about what simulations on clusters say: measured time over predicted time, row "
      "by\n# row of the tables beside this file, and what trainings reach of the rates of products. Written by\n"
      "# `bench_published --accuracy`; docs/published.md.\nversion = {}\n",
      Accuracy::kVersion);
  for (const ErrorKind kind : kEnumerators<ErrorKind>) text += rows_text(kind, a.rows[kind]);
  for (const KnownEfficiency& known : a.efficiencies) text += efficiency_text(known);
  return text;
}

Accuracy read_accuracy(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::accuracy);
  StrictTable top(path, file, kAccuracy);
  top.require_version(Accuracy::kVersion, "file", "bench_published writes it anew");
  Accuracy a;
  for (const ErrorKind kind : kEnumerators<ErrorKind>) a.rows[kind] = read_rows(path, top.table(to_string(kind)));
  for (const toml::table* known : top.tables("efficiency")) a.efficiencies.push_back(read_efficiency(path, *known));
  top.finish();
  return a;
}

const Accuracy& published_accuracy() {
  static const Accuracy accuracy = read_accuracy(find_accuracy());
  return accuracy;
}

std::string find_accuracy() {
  const std::string found = find_named_file(FileKind::accuracy, "accuracy");
  if (found.empty())
    throw ConfigError("profiles/published/accuracy.toml is not to be found; it is part of the program.");
  return found;
}

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
  if (top.has("ranks")) a.ranks = top.whole("ranks", 1, 1 << 20);
  if (top.has("ranks_per_node")) a.ranks_per_node = top.whole("ranks_per_node", 1, 1 << 20);
  if (top.has("nodes")) a.nodes = top.whole("nodes", 1, 1 << 20);
  if (top.has("nodes_per_switch")) a.nodes_per_switch = top.whole("nodes_per_switch", 1, 1 << 20);
  if (top.has("matrix")) a.matrix = top.whole("matrix", 16, 1 << 16);
  if (top.has("exposed_pct")) a.exposed_pct = top.number("exposed_pct", 0, 100);
  if (top.has("tolerance_pct")) a.tolerance_pct = top.number("tolerance_pct", 1, 100);
  if (top.has("cliff_pct")) a.cliff_pct = top.number("cliff_pct", 0, 100);
  if (top.has("scale_pct")) a.scale_pct = top.number("scale_pct", 0, 100);
  if (top.has("transport")) a.transport = top.texts("transport");
  if (top.has("memory_mib")) a.memory_mib = top.whole("memory_mib", 1, 1 << 16);
  if (top.has("rated_pct")) a.rated_pct = top.number("rated_pct", 0, 100);
  if (top.has("slowdown")) a.slowdown = top.number("slowdown", 1, 1000);
  if (top.has("reference")) {
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
