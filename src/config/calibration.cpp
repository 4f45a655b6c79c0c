#include "config/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr const char* kWhat = "a calibration";
constexpr double kMost_ns = 1e15;
constexpr double kMostAmount = 1e18;  // bytes, FLOPs
constexpr double kMostHost_ns = 1e12;
constexpr double kMostRatio = 1e9;

std::string host_row(const Calibration::Host& host) {
  return fmt::format("[{}, {}, {}, {}]", host.issue_ns, host.launch_ns, host.gap_ns, host.wake_ns);
}

std::string line_text(const CalibrationLine& line) {
  std::vector<std::string> refits;
  for (const CalibrationLine::Refit& refit : line.refits) {
    refits.push_back(fmt::format("[{}, {}]", refit.fixed_ns, refit.ns_per_amount));
  }
  return fmt::format(
      "\n[[line]]\nkind = \"{}\"\nunit = \"{}\"\nranks = {}\nfixed_ns = {}\nns_per_amount = {}\nleast = {}\nmost = {}\n"
      "samples = {}\nspread_pct = {}\nrefits = [{}]\noff = [{}]\nresiduals = [{}]\n",
      line.kind, line.unit, line.ranks, line.fixed_ns, line.ns_per_amount, line.least, line.most, line.samples,
      line.spread_pct, fmt::join(refits, ", "), fmt::join(line.off, ", "), fmt::join(line.residuals, ", "));
}

CalibrationLine read_line(const std::string& path, const toml::table& given) {
  StrictTable table(path, given, kWhat);
  CalibrationLine line;
  line.kind = table.text("kind");
  line.unit = table.text("unit");
  line.ranks = table.whole("ranks", 0, 1 << 20);
  line.fixed_ns = table.number("fixed_ns", 0, kMost_ns);
  line.ns_per_amount = table.number("ns_per_amount", 0, kMost_ns);
  line.least = table.number("least", 0, kMostAmount);
  line.most = table.number("most", 0, kMostAmount);
  line.samples = table.whole("samples", 1, 1'000'000'000);
  line.spread_pct = table.number("spread_pct", 0, kMostRatio);
  for (const std::vector<double>& row : table.rows("refits", 2, 0, kMost_ns)) line.refits.push_back({row[0], row[1]});
  line.off = table.numbers("off", 0, kMostRatio);
  line.residuals = table.numbers("residuals", 1 / kMostRatio, kMostRatio);
  table.finish();
  return line;
}

std::string slowdown_text(const CalibrationSlowdown& slowdown) {
  std::vector<std::string> cells;
  for (const CalibrationSlowdown::Cell& c : slowdown.cells) {
    cells.push_back(fmt::format("[{}, {}, {}, {}, {}, {}]", c.m, c.n, c.k, c.bytes, c.max_ctas, c.times));
  }
  return fmt::format("\n[[slowdown]]\nof = \"{}\"\nbeside = \"{}\"\ndtype = \"{}\"\ncells = [{}]\n", slowdown.of,
                     slowdown.beside, to_string(slowdown.dtype), fmt::join(cells, ", "));
}

CalibrationSlowdown read_slowdown(const std::string& path, const toml::table& given) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPairs{{{"matrix_product", "all_gather"},
                                                                                 {"matrix_product", "reduce_scatter"},
                                                                                 {"matrix_product", "both"},
                                                                                 {"all_gather", "matrix_product"},
                                                                                 {"reduce_scatter", "matrix_product"}}};
  StrictTable table(path, given, kWhat);
  CalibrationSlowdown slowdown;
  slowdown.of = table.text("of");
  slowdown.beside = table.text("beside");
  const std::pair<std::string_view, std::string_view> pair{slowdown.of, slowdown.beside};
  if (std::ranges::find(kPairs, pair) == kPairs.end()) {
    throw ConfigError(fmt::format(
        "{}: of = \"{}\" and beside = \"{}\": expected \"matrix_product\" beside \"all_gather\", \"reduce_scatter\" or "
        "\"both\", or one of these two beside \"matrix_product\".",
        place_of(path, given), slowdown.of, slowdown.beside));
  }
  const std::string dtype = table.text("dtype");
  if (dtype != to_string(DType::f32) && dtype != to_string(DType::bf16)) {
    throw ConfigError(fmt::format("{}: dtype = \"{}\": expected \"fp32\" or \"bf16\".", place_of(path, given), dtype));
  }
  slowdown.dtype = *parse_dtype(dtype);
  for (const std::vector<double>& row : table.rows("cells", 6, 0, kMostAmount)) {
    const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(row[i]); };
    slowdown.cells.push_back({whole(0), whole(1), whole(2), whole(3), static_cast<int>(std::min(row[4], 1e6)), row[5]});
    const CalibrationSlowdown::Cell& cell = slowdown.cells.back();
    if (cell.m < 1 || cell.n < 1 || cell.k < 1 || cell.bytes < 1 || !(cell.times > 0)) {
      throw ConfigError(fmt::format(
          "{}: cell {} of 'cells': expected [m, n, k, bytes, max_ctas, times], of which only max_ctas may be 0.",
          place_of(path, given), slowdown.cells.size()));
    }
  }
  table.finish();
  return slowdown;
}

}  // namespace

std::string to_toml(const Calibration& c) {
  std::vector<std::string> refits, misses;
  for (const Calibration::Miss& miss : c.misses) misses.push_back(fmt::format("[{}, {}]", miss.step, miss.exposed));
  for (const Calibration::Host& host : c.host_refits) refits.push_back(host_row(host));
  std::string text = fmt::format(
      "# What ops took on one machine, as `fsdpbench calibrate` measured them; for simulate.calibration.\n"
      "version = {}\nmachine = {:?}\nrevision = {:?}\ncores = {}\nranks = {}\nmisses = [{}]\n\n[host]\nissue_ns = "
      "{}\nlaunch_ns = {}\ngap_ns = "
      "{}\nwake_ns = "
      "{}\nrefits = [{}]\n",
      Calibration::kVersion, c.machine, c.revision, c.cores, c.ranks, fmt::join(misses, ", "), c.host.issue_ns,
      c.host.launch_ns, c.host.gap_ns, c.host.wake_ns, fmt::join(refits, ", "));
  for (const CalibrationLine& line : c.lines) text += line_text(line);
  for (const CalibrationSlowdown& slowdown : c.slowdowns) text += slowdown_text(slowdown);
  return text;
}

Calibration read_calibration(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::calibration);
  StrictTable top(path, file, kWhat);
  top.require_version(Calibration::kVersion, "calibration", "calibrate anew");
  Calibration c;
  c.machine = top.text("machine");
  c.revision = top.text("revision");
  c.cores = top.whole("cores", 0, 1 << 20);
  c.ranks = top.whole("ranks", 0, 1 << 20);
  for (const std::vector<double>& row : top.rows("misses", 2, -1, kMostRatio)) c.misses.push_back({row[0], row[1]});
  StrictTable host(path, top.table("host"), kWhat);
  c.host.issue_ns = host.number("issue_ns", 0, kMostHost_ns);
  c.host.launch_ns = host.number("launch_ns", 0, kMostHost_ns);
  c.host.gap_ns = host.number("gap_ns", 0, kMostHost_ns);
  c.host.wake_ns = host.number("wake_ns", 0, kMostHost_ns);
  for (const std::vector<double>& row : host.rows("refits", 4, 0, kMostHost_ns)) {
    c.host_refits.push_back({row[0], row[1], row[2], row[3]});
  }
  host.finish();
  for (const toml::table* line : top.tables("line")) c.lines.push_back(read_line(path, *line));
  if (top.has("slowdown")) {
    for (const toml::table* slowdown : top.tables("slowdown")) c.slowdowns.push_back(read_slowdown(path, *slowdown));
  }
  top.finish();
  return c;
}

}  // namespace fsdpbench::config
