#include "config/accuracy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/strict_table.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr const char* kAccuracy = "a file of published accuracy";

std::string rows_text(const char* name, const AccuracyRows& rows) {
  std::vector<std::string> ratios;
  for (const double ratio : rows.time_ratios) ratios.push_back(fmt::format("{:.4f}", ratio));
  return fmt::format(
      "\n[{}]\ntime_ratios = [{}]\nclusters = [\"{}\"]\nleast_ranks = {}\nmost_ranks = {}\nleast_bytes = "
      "{}\nmost_bytes "
      "= {}\n",
      name, fmt::join(ratios, ", "), fmt::join(rows.clusters, "\", \""), rows.least_ranks, rows.most_ranks,
      rows.least_bytes, rows.most_bytes);
}

AccuracyRows read_rows(const std::string& path, const toml::table& given) {
  StrictTable table(path, given, kAccuracy);
  AccuracyRows rows;
  rows.time_ratios = table.numbers("time_ratios", 1e-3, 1e3);
  rows.clusters = table.texts("clusters");
  rows.least_ranks = table.whole("least_ranks", 1, 1 << 20);
  rows.most_ranks = table.whole("most_ranks", 1, 1 << 20);
  rows.least_bytes = table.number("least_bytes", 0, 1e18);
  rows.most_bytes = table.number("most_bytes", 0, 1e18);
  table.finish();
  return rows;
}

}  // namespace

std::string to_toml(const Accuracy& a) {
  return fmt::format(
             "# How published measurements lie about what simulations on clusters say: measured time over predicted "
             "time,\n# row by row of the tables beside this file. Written by `bench_published --accuracy`; "
             "docs/published.md.\nversion = {}\n",
             Accuracy::kVersion) +
         rows_text("training", a.training) + rows_text("typical_training", a.typical_training) +
         rows_text("collectives", a.collectives) + rows_text("small_collectives", a.small_collectives);
}

Accuracy read_accuracy(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::accuracy);
  StrictTable top(path, file, kAccuracy);
  top.require_version(Accuracy::kVersion, "file", "bench_published writes it anew");
  Accuracy a;
  a.training = read_rows(path, top.table("training"));
  a.typical_training = read_rows(path, top.table("typical_training"));
  a.collectives = read_rows(path, top.table("collectives"));
  a.small_collectives = read_rows(path, top.table("small_collectives"));
  top.finish();
  return a;
}

std::string find_accuracy() {
  const std::string found = find_named_file(FileKind::accuracy, "accuracy");
  if (found.empty())
    throw ConfigError("profiles/published/accuracy.toml is not to be found; it is part of the program.");
  return found;
}

}  // namespace fsdpbench::config
