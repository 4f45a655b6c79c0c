#include "config/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/strict_table.h"
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

}  // namespace

std::string to_toml(const Calibration& c) {
  std::vector<std::string> refits, misses;
  for (const Calibration::Miss& miss : c.misses) misses.push_back(fmt::format("[{}, {}]", miss.step, miss.exposed));
  for (const Calibration::Host& host : c.host_refits) refits.push_back(host_row(host));
  std::string text = fmt::format(
      "# What ops took on one machine, as `fsdpbench calibrate` measured them; for simulate.calibration.\n"
      "version = {}\nmachine = {:?}\nrevision = {:?}\nmisses = [{}]\n\n[host]\nissue_ns = {}\nlaunch_ns = {}\ngap_ns = "
      "{}\nwake_ns = "
      "{}\nrefits = [{}]\n",
      Calibration::kVersion, c.machine, c.revision, fmt::join(misses, ", "), c.host.issue_ns, c.host.launch_ns,
      c.host.gap_ns, c.host.wake_ns, fmt::join(refits, ", "));
  for (const CalibrationLine& line : c.lines) text += line_text(line);
  return text;
}

Calibration read_calibration(const std::string& path) {
  const toml::table file = parse_toml(path, FileKind::calibration);
  StrictTable top(path, file, kWhat);
  top.require_version(Calibration::kVersion, "calibration", "calibrate anew");
  Calibration c;
  c.machine = top.text("machine");
  c.revision = top.text("revision");
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
  top.finish();
  return c;
}

}  // namespace fsdpbench::config
