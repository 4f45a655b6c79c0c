#include "config/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr double kMost = 1e18;  // nanoseconds, bytes, FLOPs

/// Takes the keys of one table out, so that what is left over is unknown.
class CalibrationTable {
 public:
  CalibrationTable(const std::string& path, const toml::table& table) : path_(path), table_(table) {}

  double number(std::string_view key, double low = 0, double high = kMost) {
    const toml::node* node = take(key);
    std::optional<double> value;
    if (node != nullptr) value = node->value<double>();
    if (!value || !(*value >= low && *value <= high)) fail(key, node, fmt::format("a number from {} to {}", low, high));
    return *value;
  }
  int whole(std::string_view key, int low, int high) {
    const toml::node* node = take(key);
    std::optional<std::int64_t> value;
    if (node != nullptr && node->is_integer()) value = node->value<std::int64_t>();
    if (!value || *value < low || *value > high) fail(key, node, fmt::format("an integer from {} to {}", low, high));
    return static_cast<int>(*value);
  }
  std::string text(std::string_view key) {
    const toml::node* node = take(key);
    if (node == nullptr || !node->is_string()) fail(key, node, "a string");
    return *node->value<std::string>();
  }
  const toml::node* take(std::string_view key) {
    known_.emplace_back(key);
    return table_.get(key);
  }
  void finish() const {
    for (const auto& [key, node] : table_) {
      if (std::ranges::find(known_, key.str()) != known_.end()) continue;
      throw ConfigError(fmt::format("{}: there is no key '{}' in a calibration.", place_of(path_, node), key.str()));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view key, const toml::node* node, const std::string& valid) const {
    if (node == nullptr) {
      throw ConfigError(fmt::format("{}: '{}' is missing; expected {}.", place_of(path_, table_), key, valid));
    }
    throw ConfigError(
        fmt::format("{}: the value of '{}' is not valid; expected {}.", place_of(path_, *node), key, valid));
  }

  const std::string& path_;
  const toml::table& table_;
  std::vector<std::string> known_;
};

}  // namespace

std::string to_toml(const Calibration& c) {
  std::string text = fmt::format(
      "# What ops took on one machine, as `fsdpbench calibrate` measured them; for simulate.calibration.\n"
      "version = {}\nmachine = {:?}\nrevision = {:?}\n\n[host]\nissue_ns = {}\nlaunch_ns = {}\ngap_ns = {}\nwake_ns = "
      "{}\n",
      Calibration::kVersion, c.machine, c.revision, c.issue_ns, c.launch_ns, c.gap_ns, c.wake_ns);
  for (const CalibrationLine& line : c.lines) {
    text += fmt::format(
        "\n[[line]]\nkind = \"{}\"\nunit = \"{}\"\nranks = {}\nfixed_ns = {}\nns_per_amount = {}\nleast = {}\nmost = "
        "{}\nsamples = "
        "{}\n"
        "spread_pct = {}\n",
        line.kind, line.unit, line.ranks, line.fixed_ns, line.ns_per_amount, line.least, line.most, line.samples,
        line.spread_pct);
  }
  return text;
}

Calibration read_calibration(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::calibration);
  CalibrationTable top(path, file);
  const int version = top.whole("version", 0, 1'000'000);
  if (version != Calibration::kVersion) {
    throw ConfigError(
        fmt::format("{}: this calibration has version {}, and this program reads version {}; calibrate anew.", path,
                    version, Calibration::kVersion));
  }
  Calibration c;
  c.machine = top.text("machine");
  c.revision = top.text("revision");
  const toml::node* host = top.take("host");
  const toml::node* lines = top.take("line");
  top.finish();
  if (host == nullptr || !host->is_table()) throw ConfigError(fmt::format("{}: [host] is missing.", path));
  CalibrationTable host_table(path, *host->as_table());
  c.issue_ns = host_table.number("issue_ns", 0, 1e12);
  c.launch_ns = host_table.number("launch_ns", 0, 1e12);
  c.gap_ns = host_table.number("gap_ns", 0, 1e12);
  c.wake_ns = host_table.number("wake_ns", 0, 1e12);
  host_table.finish();
  if (lines == nullptr || !lines->is_array_of_tables() || lines->as_array()->empty()) {
    throw ConfigError(fmt::format("{}: [[line]] is missing: it says nothing of any op.", path));
  }
  for (const toml::node& node : *lines->as_array()) {
    CalibrationTable table(path, *node.as_table());
    CalibrationLine line;
    line.kind = table.text("kind");
    line.unit = table.text("unit");
    line.ranks = table.whole("ranks", 0, 1 << 20);
    line.fixed_ns = table.number("fixed_ns", 0, 1e15);
    line.ns_per_amount = table.number("ns_per_amount", 0, 1e15);
    line.least = table.number("least");
    line.most = table.number("most");
    line.samples = table.whole("samples", 1, 1'000'000'000);
    line.spread_pct = table.number("spread_pct", 0, 1e9);
    table.finish();
    c.lines.push_back(std::move(line));
  }
  return c;
}

}  // namespace fsdpbench::config
